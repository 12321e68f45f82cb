"""The table of results: a directory of runs as one page of Markdown, a row a benchmark.

Every number comes from the runs' own files. Runs that differ in nothing but their seed share a
row; those of another configuration have one of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from piratenets.config import to_json
from piratenets.errors import InputError, PirateError
from piratenets.files import write_atomically
from piratenets.problems import BY_NAME, PROBLEMS, find_problem
from piratenets.report.header import duration
from piratenets.report.published import ERRORS, PublishedErrors
from piratenets.report.reproduce import solve_command
from piratenets.runs.directory import RunDirectory, read_json
from piratenets.runs.run import Run

FAILED = 0.1
"""A run whose relative error is this large has not solved its problem, whatever its loss."""

NEEDED = ("relative_l2", "reference_error", "parameters", "wall_seconds", "finished", "commit",
          "machine", "steps", "stages", "literature_relative_l2")
"""What a row takes from summary.json."""

HEAD = """\
# Results

`piratenets table` writes this page from the runs in this directory, and from nothing else.

Errors are relative L2 errors over the reference's whole grid, with the median where there are \
several seeds. `≤` marks one that the reference, by its own error, cannot tell from zero. A \
failure is a run that stopped before its end, or one whose error is {failed:g} or more. The \
paper's figures and the best known ones are as published, for the same problem. A commit with + \
had changes that were not committed.

"""

KEPT = """\

## What is kept of a run

`config.json`, `metrics.jsonl`, `summary.json`, `problem.py` where there is one, and the last \
checkpoint, `checkpoints/*-final.safetensors`. The last one holds the networks and nothing of the \
optimiser, so it is small. Everything that reads a run needs no more than these files, and writes \
nothing: `piratenets evaluate {example}`, `piratenets predict {example} --points P.csv --out \
V.csv`. The other checkpoints are for going on with a run that is not finished; \
`piratenets report {example}` makes the report again.
"""

COLUMNS = ("benchmark", "compared", "ours", "paper", "best known", "reference's own error",
           "failures", "wall time", "machine", "parameters", "command", "commit", "runs")


class Result(NamedTuple):
    """A run that has ended, by its end or before it."""

    run: Run
    summary: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        return bool(self.summary["finished"])

    @property
    def failed(self) -> bool:
        return not (self.finished
                    and all(e < FAILED for e in self.summary["relative_l2"].values()))


class Figure(NamedTuple):
    """One error of a run, and what is published for the same quantity."""

    compared: str
    error: float
    paper: float | None
    best: float | None


def write_table(results: Path) -> Path:
    """Write README.md for the runs in a directory."""
    path = results / "README.md"
    write_atomically(path, markdown(results).encode())
    return path


def markdown(results: Path) -> str:
    """The page: the table, what could not be in it, and what is kept of a run."""
    ended, others = collected(results)
    groups = sorted(grouped(ended).values(), key=_place)
    rows = [row(group) for group in groups if any(r.finished for r in group)]
    table = [_line(COLUMNS), _line(["---"] * len(COLUMNS)), *(_line(r) for r in rows)]
    page = HEAD.format(failed=FAILED) + "\n".join(table if rows else ["No run is finished yet."])
    missing = others + [(r.run.directory.path.name, f"stopped at step {r.summary['steps']}")
                        for r in ended if not r.finished]
    if missing:
        listed = [f"- `{name}`: {why}" for name, why in sorted(missing)]
        page += "\n\n## Directories without a finished run\n\n" + "\n".join(listed)
    finished = [r.run.directory.path for group in groups for r in group if r.finished]
    return page + "\n" + KEPT.format(example=finished[0] if finished else results / "RUN")


def collected(results: Path) -> tuple[list[Result], list[tuple[str, str]]]:
    """The runs that have ended, and the other directories with why they are not among them."""
    if not results.is_dir():
        raise InputError(str(results), "there is no such directory", "Name one that holds runs")
    folders = sorted(p for p in results.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise InputError(str(results), "it holds no run", "Train one there: piratenets solve "
                         f"allen-cahn --out {results / 'allen-cahn'}")
    ended: list[Result] = []
    others: list[tuple[str, str]] = []
    for folder in folders:
        try:
            found = read_result(folder)
        except PirateError as error:
            found = error.why
        if isinstance(found, Result):
            ended.append(found)
        else:
            others.append((folder.name, found))
    return ended, others


def read_result(folder: Path) -> Result | str:
    """The run in a directory, or why it has no result. Its checkpoints are not looked at."""
    directory = RunDirectory(folder)
    config = directory.read_config()
    run = Run(directory, config, find_problem(directory.problem_name(config)))
    if not directory.summary.exists():
        lines = directory.read_metrics()
        return f"not finished, step {lines[-1]['step'] if lines else 0} so far"
    summary: Any = read_json(directory.summary)
    lacking = [n for n in NEEDED if n not in summary] if isinstance(summary, dict) else NEEDED
    if lacking:
        return f"its summary.json says nothing of {', '.join(lacking)}"
    if summary["finished"] and not summary["relative_l2"]:
        return "its problem has no reference to compare with"
    return Result(run, summary)


def grouped(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs that differ in nothing but their seed, in the order of the seeds."""
    groups: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.run.config.seed):
        # Problems made of files go by name: the path only says where the file lay.
        neutral = replace(result.run.config, seed=0, problem=_named(result))
        groups.setdefault(json.dumps(to_json(neutral)), []).append(result)
    return groups


def _named(result: Result) -> str:
    """The problem's name on the command line, which tells variants of a benchmark apart."""
    name = result.run.config.problem
    return name if name in BY_NAME else result.run.problem.name


def _place(group: Sequence[Result]) -> tuple[int, int, str]:
    """The order of the rows: that of the benchmarks, each with its variants; then by directory."""
    def position(name: str, names: Sequence[str]) -> int:
        return names.index(name) if name in names else len(names)

    first = group[0]
    return (position(first.run.problem.name, list(PROBLEMS)),
            position(_named(first), list(BY_NAME)), first.run.directory.path.name)


def row(group: Sequence[Result]) -> list[str]:
    """The cells of the runs of one configuration."""
    finished = [r for r in group if r.finished]
    first, lines = finished[0], [figures(r) for r in finished]
    columns = list(zip(*lines, strict=True))
    bound = max(r.summary["reference_error"] for r in finished)
    best_by = [f"({p.best_by})" for p in [published(first)] if p and p.best_by]
    seeds = [str(r.run.config.seed) for r in finished]
    also = [f"and seed{'s' * (len(seeds) > 2)} {', '.join(seeds[1:])}"] if seeds[1:] else []
    return [
        _title(first),
        _lines([c[0].compared for c in columns]),
        _lines([_ours([f.error for f in c], bound) for c in columns]),
        _lines([_number(c[0].paper) for c in columns]),
        _lines([_number(c[0].best) for c in columns] + best_by),
        _number(bound),
        _failures(group),
        duration(median(float(r.summary["wall_seconds"]) for r in finished)),
        _lines(_distinct(finished, "machine")),
        _lines([*_distinct(finished, "parameters"), *_networks(finished)]),
        _lines([f"`{solve_command(first.run)}`", *also]),
        _lines([c[:12] + "+" * c.endswith("+") for c in _distinct(finished, "commit")]),
        _lines([f"[{r.run.directory.path.name}]({r.run.directory.path.name})" for r in finished]),
    ]


def _networks(results: Sequence[Result]) -> list[str]:
    """How many networks of so many parameters there are, if not one alone; seeds may differ where
    windows choose their lengths."""
    training = results[0].run.config.training
    windows = {len(r.summary["stages"]) for r in results} if training.window_steps else \
        {training.windows}
    counted = " or ".join(map(str, sorted(windows)))
    return [f"in each of {counted} windows"] if training.windows > 1 else []


def _failures(group: Sequence[Result]) -> str:
    """How many runs failed, and of how many fresh points made doubtful what they came to."""
    doubtful = sum(bool(r.summary.get("doubts")) for r in group)
    return _lines([f"{sum(r.failed for r in group)} of {len(group)}",
                   *([f"({doubtful} with doubts)"] if doubtful else [])])


def _title(result: Result) -> str:
    """The benchmark, with its preset where that is not the usual one."""
    config = result.run.config
    also = {"laptop": [], "smoke": ["(smoke test: its error means nothing)"]}
    return _lines([_named(result), *also.get(config.preset, [f"(preset {config.preset})"])])


def published(result: Result) -> PublishedErrors | None:
    """What others report for the benchmark, unless the run has other coefficients."""
    benchmark = PROBLEMS.get(result.run.problem.name)
    if benchmark is None or result.run.config.coefficients != dict(benchmark.coefficients):
        return None
    return ERRORS.get(benchmark.name)


def figures(result: Result) -> list[Figure]:
    """The errors of a run: against its reference, up to the benchmark's own last time too where
    the run goes further, and against the literature's reference."""
    summary, end = result.summary, _end(result)
    known = published(result)
    lines = [_figure(n, e, one["t"], known) for one in summary.get("until", [])
             for n, e in one["relative_l2"].items()]
    lines += [_figure(n, e, end, None if known and known.literature else known)
              for n, e in summary["relative_l2"].items()]
    against = ", against the literature's reference"
    return lines + [_figure(n, e, end, known, against)
                    for n, e in summary["literature_relative_l2"].items()]


def _figure(name: str, error: float, end: float | None, known: PublishedErrors | None,
            against: str = "") -> Figure:
    until = "" if end is None else f" to t = {end:g}"
    return Figure(f"{name}{until}{against}", error, known.paper.get(name) if known else None,
                  known.best.get(name) if known else None)


def _end(result: Result) -> float | None:
    """The last time of a run's problem, if it has a time."""
    problem = result.run.problem
    return None if problem.time is None else float(problem.upper[problem.time])


def _ours(errors: Sequence[float], bound: float) -> str:
    """The error, or the median and those of all seeds."""
    def shown(error: float) -> str:
        return f"{'≤ ' if error <= bound else ''}{_number(error)}"

    if len(errors) == 1:
        return shown(errors[0])
    return f"median {shown(median(errors))} of {', '.join(shown(e) for e in errors)}"


def _distinct(results: Sequence[Result], name: str) -> list[str]:
    return list(dict.fromkeys(str(r.summary[name]) for r in results))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _lines(texts: Sequence[str]) -> str:
    return "<br>".join(texts)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"
