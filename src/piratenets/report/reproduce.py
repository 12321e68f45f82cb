"""What was run: the configuration, and the commands that do it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, cast

from piratenets.config import Config, to_json
from piratenets.errors import PirateError
from piratenets.presets import preset
from piratenets.problems import BY_NAME
from piratenets.report import page
from piratenets.report.page import Markup
from piratenets.runs.directory import read_json
from piratenets.runs.run import Run

NAMED = ("problem", "preset", "seed")
"""Fields that every command states, whatever their value."""


def base_config(run: Run) -> Config:
    """What the run's preset is for its problem; the defaults if there is no such preset (now)."""
    try:
        return preset(run.config.preset, run.problem)
    except PirateError:
        return Config()


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by path: {"network.width": 64}. Names that users gave stay together."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and name not in ("coefficients", "start"):
            flat.update(flattened(cast("Mapping[str, Any]", value), f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def overrides(run: Run) -> dict[str, Any]:
    """The fields that differ from the preset, by path."""
    base, config = (flattened(to_json(c)) for c in (base_config(run), run.config))
    return {p: v for p, v in config.items() if p not in NAMED and v != base[p]}


def configuration(run: Run) -> Markup:
    """All fields by group, those that differ from the preset in bold with the preset's value."""
    base, config = (flattened(to_json(c)) for c in (base_config(run), run.config))
    groups: dict[str, list[Markup]] = {}
    for path, value in config.items():
        group, _, name = path.rpartition(".")
        changed = path not in NAMED and value != base[path]
        before = f"<small>preset: {page.text(shown(base[path]))}</small>" if changed else ""
        groups.setdefault(group, []).append(
            f'<tr{" class=changed" if changed else ""}><td>{page.text(name)}</td>'
            f"<td>{page.text(shown(value))}{before}</td></tr>")
    tables = "".join(f"<table><caption>{page.text(group or 'run')}</caption>{''.join(rows)}</table>"
                     for group, rows in groups.items())
    lead = f"Values that differ from the preset {run.config.preset!r} are in bold."
    return page.paragraph(page.text(lead), "small") + f'<div class="groups">{tables}</div>'


def shown(value: Any) -> str:
    """A value of the configuration as a reader writes it."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value)
        return ", ".join(f"{k} = {v:g}" for k, v in entries.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(f"{v:g}" for v in cast("list[float]", value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def versions(run: Run) -> Markup:
    """The versions it ran with."""
    started: dict[str, Any] = read_json(run.directory.config)
    packages = {"python": started.get("python", "unknown"), **started.get("versions", {})}
    listed = ", ".join(f"{k} {v}" for k, v in packages.items())
    return page.paragraph(page.text(f"{listed}."), "small")


def commands(run: Run) -> Markup:
    """How to train it again, and what else can be done with it."""
    if problem_argument(run) is None:
        path = str(run.directory.path)
        lead = "The problem was made in Python: give the same `problem` again."
        return page.paragraph(page.text(lead)) + page.code("\n".join([
            "import piratenets", python_call(run), "",
            f"run = piratenets.load({path!r}, problem=problem)",
            "run.predict(points), run.evaluate()",
            f"piratenets.resume({path!r}, problem=problem)"]), wrap=True)
    path = shlex.quote(str(run.directory.path))
    return (page.code(solve_command(run), wrap=True)
            + page.paragraph("Go on with it if it was stopped, score it again, evaluate it at "
                             "points of yours (a row each, in the order of the coordinates):")
            + page.code(f"piratenets resume {path}\npiratenets evaluate {path}\n"
                        f"piratenets predict {path} --points points.csv --out values.csv",
                        wrap=True))


def problem_argument(run: Run) -> str | None:
    """What names the problem on the command line: its name, or the copy of its file."""
    if run.directory.problem.exists():
        return str(run.directory.problem)
    return run.config.problem if BY_NAME.get(run.config.problem) is run.problem else None


def solve_command(run: Run) -> str:
    """The command line that trains the same run."""
    known = flattened(to_json(base_config(run)))
    words = ["piratenets", "solve", problem_argument(run) or run.config.problem,
             "--preset", run.config.preset, "--seed", str(run.config.seed)]
    for path, value in overrides(run).items():
        words += _option(path, value, known[path])
    return shlex.join(words)


def _option(path: str, value: Any, before: Any) -> list[str]:
    """One field as the command line takes it."""
    name = path.replace("_", "-")
    if isinstance(value, bool):
        group, _, last = name.rpartition(".")
        return [f"--{name}" if value else f"--{group}.no-{last}"]
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value)
        if before:  # The entries that a preset has are options of their own.
            return [w for k, v in entries.items() if before.get(k) != v
                    for w in (f"--{name}.{k}", repr(v))]
        return [f"--{name}", *(w for k, v in entries.items() for w in (k, repr(v)))]
    if isinstance(value, list | tuple):
        return [f"--{name}", *map(repr, cast("list[float]", value))]
    return [f"--{name}", value if isinstance(value, str) else repr(value)]


def python_call(run: Run) -> str:
    """The same from Python, for a problem that has no name."""
    changes = overrides(run)
    more = f", changes={changes!r}" if changes else ""
    return f"piratenets.solve(problem, preset={run.config.preset!r}, seed={run.config.seed}{more})"
