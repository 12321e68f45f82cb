"""The command line: parse, do, and say what went wrong in one line."""

from __future__ import annotations

import dataclasses
import io
import itertools
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from piratenets.api import default_directory, load, resume, solve_config
from piratenets.bench.derivatives import bench_derivatives
from piratenets.bench.optimiser import bench_optimiser
from piratenets.cli import commands as c
from piratenets.cli.progress import live_progress
from piratenets.config import EmbeddingConfig, NetworkConfig
from piratenets.errors import InputError, Interrupted, PirateError, unknown_name
from piratenets.files import storage_error, write_atomically
from piratenets.presets import PRESETS, preset
from piratenets.problems import BY_NAME, find_problem
from piratenets.references.reference import load_reference
from piratenets.report.report import write_report
from piratenets.report.table import write_table
from piratenets.runs.directory import read_json
from piratenets.runs.run import Report, Run

COMMANDS = ("list", "solve", "resume", "evaluate", "report", "predict", "reference", "table",
            "bench")
console = Console()
errors = Console(stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it ended."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    warnings.showwarning = _show_warning
    try:
        command = parse(words)
        _DO[type(command)](command)
    except PirateError as error:
        if debug:
            raise
        errors.print(f"[red]Error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        errors.print("Stopped at once; what was saved before is intact.")
        return 130
    except Exception as error:
        if debug:
            raise
        errors.print(f"[red]Error:[/red] {escape(_unforeseen(error))}", highlight=False,
                     soft_wrap=True)
        return 1
    return 0


def _unforeseen(error: Exception) -> str:
    """What went wrong and where: mostly a mistake in a problem file, else one of ours."""
    frames = [f"{f.filename}, line {f.lineno}" for f in traceback.extract_tb(error.__traceback__)]
    others = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]), "<")
    own = [f for f in frames if not f.startswith(others)]
    where = (own or frames)[-1]
    return (f"{where}: {type(error).__name__}: {error}. Mend it there, or add --debug to see "
            "how it came about.")


def _show_warning(message: Any, category: Any, *_: Any, **__: Any) -> None:
    errors.print(f"[yellow]Warning:[/yellow] {escape(str(message))}", highlight=False,
                 soft_wrap=True)


def parse(words: list[str]) -> c.Command:
    """The command that the words spell; --help and mistakes in options end here."""
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        raise unknown_name("command", words[0], COMMANDS)
    return tyro.cli(command_type(words), args=words or ["--help"], prog="piratenets",
                    description="Solve partial differential equations with physics-informed "
                                "networks that go deep. Add --debug for tracebacks.")


def command_type(words: Sequence[str]) -> Any:
    """All commands as one type, with the defaults of the preset and problem that are named."""
    def named(name: str, kind: type, default: Any = None) -> Any:
        if default is None:
            return Annotated[kind, tyro.conf.subcommand(name)]
        return Annotated[kind, tyro.conf.subcommand(name, default=default)]

    kinds = [named("list", c.List), named("solve", c.Solve, _solve_default(words)),
             named("resume", c.Resume), named("evaluate", c.Evaluate),
             named("report", c.WriteReport), named("predict", c.Predict),
             named("reference", c.Reference, _reference_default(words)),
             named("table", c.Table), named("bench", c.Bench)]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union


def _solve_default(words: Sequence[str]) -> c.Solve:
    """The preset of the problem that the words name, if they say `solve`."""
    if list(words[:1]) != ["solve"]:
        return c.Solve()
    name = "laptop"
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--preset":
            name = following
        elif word.startswith("--preset="):
            name = word.removeprefix("--preset=")
    config = preset(name, _named_problem(words))
    return c.Solve(**{f.name: getattr(config, f.name) for f in dataclasses.fields(config)})


def _reference_default(words: Sequence[str]) -> Any:
    """The coefficients of the problem that the words name, if they say `reference`."""
    if list(words[:1]) != ["reference"]:
        return None
    name = _named_problem(words)
    return c.Reference(problem=name, out=tyro.MISSING,
                       coefficients=dict(find_problem(name).coefficients))


def _named_problem(words: Sequence[str]) -> str:
    """The problem among the words: the first after the command, or one after some options."""
    if len(words) > 1 and not words[1].startswith("-"):
        return words[1]
    for before, word in itertools.pairwise(words):
        if before != "--out" and (word in BY_NAME or word.endswith(".py")):
            return word
    return "allen-cahn"


def _list(command: c.List) -> None:
    table = Table(Column("problem", no_wrap=True), "coordinates", "unknowns", "coefficients",
                  title="Problems: piratenets solve NAME --preset PRESET")
    for name, problem in BY_NAME.items():
        coordinates = ", ".join(f"{k} in [{i.lower:g}, {i.upper:g}]" + " periodic" * i.periodic
                                for k, i in problem.intervals.items())
        coefficients = ", ".join(f"{k} = {v:g}" for k, v in problem.coefficients.items())
        table.add_row(name, coordinates, ", ".join(problem.unknowns), coefficients)
    console.print(table)
    console.print(f"Presets (--preset): {', '.join(PRESETS)}")
    for label, field in (("Networks (--network.kind)", "kind"),
                         ("Activations (--network.activation)", "activation")):
        console.print(f"{label}: {', '.join(_choices(NetworkConfig, field))}")
    console.print("Embeddings (--network.embedding.kind): "
                  + ", ".join(_choices(EmbeddingConfig, "kind")))


def _choices(kind: type, field: str) -> tuple[str, ...]:
    return typing.get_args(typing.get_type_hints(kind)[field])


def _solve(command: c.Solve) -> None:
    config = command.config()
    problem = find_problem(config.problem)
    out = command.out or default_directory(config, problem)
    _train(lambda observe: solve_config(config, problem, out, observe), out)


def _resume(command: c.Resume) -> None:
    if load(command.run).finished:
        console.print("The run is finished already: nothing to do.")
    _train(lambda observe: resume(command.run, observe=observe), command.run)


def _train(start: Callable[[Any], Run], out: Path) -> None:
    try:
        with live_progress(console, out) as observe:
            run = start(observe)
    except KeyboardInterrupt:
        # Outside the training, or asked for twice.
        raise Interrupted(f"run {out}", "stopped at once; what was saved before is intact",
                          "Give the same command again to go on") from None
    _show_summary(run)


def _show_summary(run: Run) -> None:
    summary = read_json(run.directory.summary)
    if run.reference is not None:
        _show_errors(summary["relative_l2"], run.reference.error, summary["literature_relative_l2"])
        _show_milestones(summary.get("until", []))
        _show_stages(summary["stages"])
    for doubt in summary["doubts"]:
        console.print(f"[yellow]Doubt:[/yellow] {escape(doubt)}.", soft_wrap=True, highlight=False)
    if summary["preset"] == "smoke":
        console.print("This was a smoke test: it shows that everything works, its error means "
                      "nothing.")
    console.print(f"{summary['steps']} steps, {summary['parameters']} parameters, "
                  f"{summary['wall_seconds']:.0f} s on {summary['machine']}", highlight=False)
    console.print(f"Report: {run.directory.report}", soft_wrap=True, highlight=False)


def _show_errors(found: dict[str, float], own: dict[str, float], literature: dict[str, float]
                 ) -> None:
    """The errors in a table; with a column for what the literature compares with, if it differs."""
    extra = ["against the literature's reference"] if literature else []
    table = Table("", "relative L2 error", "reference's own error", *extra)
    for name, error in found.items():
        more = [f"{literature[name]:.3e}"] if literature else []
        table.add_row(name, f"{error:.6e}", f"{own[name]:.1e}", *more)
    console.print(table)


def _show_milestones(until: list[dict[str, Any]]) -> None:
    """The errors up to earlier times than the last."""
    for one in until:
        errors = ", ".join(f"{k} {v:.6e}" for k, v in one["relative_l2"].items())
        console.print(f"Up to t = {one['t']:g}: {errors}", highlight=False)


def _show_stages(stages: list[dict[str, Any]]) -> None:
    """The errors of time windows or curriculum stages, one by one."""
    if not stages:
        return
    def text(errors: dict[str, float]) -> str:
        return "  ".join(f"{k} {v:.2e}" for k, v in errors.items())

    cumulative = ["up to its end"] if "cumulative" in stages[0] else []
    table = Table("stage", "relative L2 error in it", *cumulative)
    for stage in stages:
        more = [text(stage["cumulative"])] if cumulative else []
        table.add_row(stage["stage"], text(stage["relative_l2"]), *more)
    console.print(table)


def _evaluate(command: c.Evaluate) -> None:
    run = load(command.run)
    scored = run.evaluate()
    literature = run.evaluate_literature()
    _show_errors(scored.relative_l2, scored.reference_error,
                 literature.relative_l2 if literature else {})
    _show_milestones(run.milestone_errors(scored))
    _show_stages(run.stage_errors(scored))
    console.print(f"Compared: {scored.compared}", soft_wrap=True, highlight=False)
    if literature:
        console.print(f"Against the literature's reference: {literature.compared}", soft_wrap=True,
                      highlight=False)
    for name, error in scored.relative_l2.items():
        if error > scored.measured[name]:
            console.print(f"{name} differs from the reference by less than the reference's own "
                          "error, which is quoted.")
    if not run.finished:
        total = run.trainer.total_steps
        of = "" if total is None else f" of {total}"
        console.print(f"The run is not finished: step {run.step}{of}.")


def _report(command: c.WriteReport) -> None:
    run = load(command.run)
    console.print(f"Report: {write_report(run)}", soft_wrap=True, highlight=False)


def _predict(command: c.Predict) -> None:
    run = load(command.run)
    wanted = [d.strip() for d in command.derivatives.split(",") if d.strip()]
    header = [*run.problem.unknowns, *wanted]
    values = run.predict(_read_table(command.points, run.problem.names), wanted)
    _write_table(command.out, values, header)
    console.print(f"{len(values)} points: {', '.join(header)} in {command.out}", soft_wrap=True,
                  highlight=False)


def _read_table(path: Path, columns: Sequence[str]) -> np.ndarray:
    """A table of numbers from .npy or .csv (with or without a header line)."""
    try:
        if path.suffix == ".npy":
            with open(path, "rb") as file:
                table = np.lib.format.read_array(file, allow_pickle=False)
            if not np.can_cast(table.dtype, float, "same_kind"):
                raise ValueError(f"its type is {table.dtype}")
        elif path.suffix == ".csv":
            table = _read_csv(path, columns)
        else:
            raise InputError(str(path), f"files ending in {path.suffix!r} cannot be read",
                             "Use .npy or .csv")
    except OSError as error:
        raise storage_error(path, error, "read") from error
    except ValueError as error:
        raise InputError(str(path), f"it is not a table of numbers ({error})",
                         "Give one row a point, numbers only") from error
    return np.atleast_2d(table)


def _read_csv(path: Path, columns: Sequence[str]) -> np.ndarray:
    rows = [row for row in path.read_text("utf-8-sig").splitlines() if row.strip()]
    first = [cell.strip().strip('"') for cell in rows[0].split(",")] if rows else []
    if sorted(first) == sorted(columns) and first != list(columns):
        raise InputError(f"{path}: columns {', '.join(first)}", "they come in another order",
                         f"Order them {', '.join(columns)}")
    header = bool(first) and not any(_is_number(cell) for cell in first)
    if len(rows) == header:
        raise ValueError("it has no rows")
    return np.loadtxt(rows[header:], delimiter=",", ndmin=2)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _write_table(path: Path, values: np.ndarray, header: list[str]) -> None:
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, values)
    elif path.suffix == ".csv":
        np.savetxt(buffer, values, delimiter=",", header=",".join(header), comments="",
                   fmt="%.17g")
    else:
        raise InputError(str(path), f"files ending in {path.suffix!r} cannot be written",
                         "Use .npy or .csv")
    write_atomically(path, buffer.getvalue())


def _reference(command: c.Reference) -> None:
    problem = find_problem(command.problem)
    if command.out.suffix != ".npz":
        raise InputError(str(command.out), "a reference is an .npz archive", "End its name in .npz")
    with live_progress(console, command.out) as observe:
        reference = load_reference(problem, problem.coefficients_with(command.coefficients),
                                   lambda phase, fraction: observe(Report(phase, fraction)))
    write_atomically(command.out, reference.to_bytes())
    for name, error in reference.error.items():
        console.print(f"{name}: relative L2 error {error:.2e}", highlight=False)
    console.print(f"{reference.method}; saved in {command.out}", soft_wrap=True, highlight=False)


def _table(command: c.Table) -> None:
    console.print(f"Table: {write_table(command.results)}", soft_wrap=True, highlight=False)


def _bench(command: c.Bench) -> None:
    what = command.what
    if isinstance(what, c.BenchOptimiser):
        configs = [preset(what.preset, name) for name in what.problem]
        bench_optimiser(console, configs, what.repeats)
    else:
        bench_derivatives(console, what.width, what.layers, what.batches, what.orders,
                          what.repeats)


_DO = cast("dict[type, Callable[[Any], None]]", {
    c.List: _list, c.Solve: _solve, c.Resume: _resume, c.Evaluate: _evaluate,
    c.WriteReport: _report, c.Predict: _predict, c.Reference: _reference, c.Table: _table,
    c.Bench: _bench,
})


def run() -> None:
    """The entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    sys.exit(main())
