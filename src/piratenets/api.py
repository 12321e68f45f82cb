"""The same from Python as from the command line, in as many lines.

    import piratenets as pn
    run = pn.solve("allen-cahn")
    run.predict(points)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from piratenets.config import Config, changed
from piratenets.presets import preset as preset_config
from piratenets.problems import BY_NAME, find_problem
from piratenets.problems.problem import Problem
from piratenets.report.report import write_report
from piratenets.runs.run import Observer, Run


def solve(problem: str | Problem, preset: str = "laptop", *, seed: int = 0,
          out: str | Path | None = None, observe: Observer | None = None,
          changes: Mapping[str, Any] | None = None) -> Run:
    """Solve a problem and return its run.

    `problem` is a name, the path of a Python file that defines `problem`, or a `Problem`;
    `changes` sets configuration fields by path: {"network.width": 64}. The run's directory
    is `out`, by default runs/NAME-PRESET-SEED; a run of the same configuration that is
    already there is gone on with, or returned if it is finished.
    """
    config = changed(preset_config(preset, problem), {"seed": seed, **(changes or {})})
    found = find_problem(problem) if isinstance(problem, str) else problem
    return solve_config(config, found, Path(out) if out else default_directory(config, found),
                        observe)


def solve_config(config: Config, problem: Problem, out: Path, observe: Observer | None) -> Run:
    """Create or continue the run of a configuration, train it and write its report."""
    run = Run.create(out, config, problem)
    return _trained(run, observe)


def resume(directory: str | Path, *, problem: Problem | None = None,
           observe: Observer | None = None) -> Run:
    """Train the run in a directory to its end. A problem made in Python must be given again."""
    return _trained(load(directory, problem=problem), observe)


def load(directory: str | Path, *, problem: Problem | None = None) -> Run:
    """The run in a directory, as far as it is trained."""
    return Run.open(Path(directory), problem)


def _trained(run: Run, observe: Observer | None) -> Run:
    was_complete = run.complete
    run.train(observe)
    if not was_complete or not run.directory.report.exists():
        write_report(run)
    return run


def default_directory(config: Config, problem: Problem) -> Path:
    name = config.problem if config.problem in BY_NAME else problem.name
    return Path("runs") / f"{name}-{config.preset}-{config.seed}"
