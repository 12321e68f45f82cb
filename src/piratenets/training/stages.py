"""A training is a loop over stages: time windows, or other coefficients on one network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from piratenets.config import Config, CurriculumConfig
from piratenets.errors import InputError, unknown_name
from piratenets.problems.problem import TIME, Problem, Spectral
from piratenets.problems.symmetry import Symmetry


@dataclass(frozen=True)
class Stage:
    """The box of coordinates, the coefficients and the number of steps of one stage."""

    lower: np.ndarray
    upper: np.ndarray
    scale: np.ndarray
    """What its network multiplies coordinates by: 1, but for a time that is stretched."""
    coefficients: dict[str, float]
    steps: int
    label: str
    shapes: tuple[Callable[..., Any], ...] = ()
    """Known functions that its network sees beside the coordinates."""
    magnitude: Callable[..., Any] | None = None
    symmetry: Symmetry | None = None


def stages(problem: Problem, config: Config, edges: np.ndarray | None = None) -> list[Stage]:
    """The stages that the configuration describes, in order; `edges` are where windows begin and
    end, if not where it says."""
    found = _plain_stages(problem, config, edges)
    known = {"shapes": seen_shapes(problem, config),
             "magnitude": problem.magnitude if config.network.shapes else None,
             "symmetry": problem.symmetry if config.network.symmetries else None}
    return [replace(s, **known) for s in found]


def seen_shapes(problem: Problem, config: Config) -> tuple[Callable[..., Any], ...]:
    """The known functions that networks see beside the coordinates."""
    return tuple(problem.shapes) if config.network.shapes else ()


def _plain_stages(problem: Problem, config: Config, edges: np.ndarray | None) -> list[Stage]:
    coefficients = problem.coefficients_with(config.coefficients)
    curriculum, windows = config.curriculum, config.training.windows
    if curriculum.values:
        return _curriculum(problem, curriculum, coefficients)
    if windows == 1:
        return [Stage(problem.lower, problem.upper, np.ones(len(problem.names)), coefficients,
                      config.training.steps, "")]
    _check_windows(problem, windows)
    if edges is None:
        edges = window_edges(problem, windows, config.training.window_growth)
    return [_window(problem, config, coefficients, edges, k) for k in range(len(edges) - 1)]


def _curriculum(problem: Problem, curriculum: CurriculumConfig, coefficients: dict[str, float]
                ) -> list[Stage]:
    """The rungs before the coefficient's own value, then that value."""
    name = curriculum.coefficient
    if name not in coefficients:
        raise unknown_name("curriculum.coefficient", name, coefficients)
    target = coefficients[name]
    single = len(curriculum.values) == 1
    falling = (target if single else curriculum.values[-1]) < curriculum.values[0]
    if list(curriculum.values) != sorted(curriculum.values, reverse=falling):
        raise InputError(f"curriculum.values = {curriculum.values}",
                         "they neither rise nor fall throughout", "Sort them")
    count = sum(v > target if falling else v < target for v in curriculum.values)
    values = [*curriculum.values[:count], target]
    steps = [*curriculum.steps[:count], curriculum.steps[min(count, len(curriculum.steps) - 1)]]
    return [Stage(problem.lower, problem.upper, np.ones(len(problem.names)),
                  problem.coefficients_with({**coefficients, name: v}), n, f"{name} = {v:g}")
            for v, n in zip(values, steps, strict=True)]


def _check_windows(problem: Problem, windows: int) -> None:
    if problem.time is None or problem.initial is None:
        raise InputError(f"training.windows = {windows}",
                         f"{problem.name} has no time with an initial condition",
                         "Use training.windows = 1")
    for condition in problem.conditions:
        if condition is not problem.initial and any(TIME in face for face in condition.faces):
            raise InputError(f"training.windows = {windows}",
                             f"condition {condition.name!r} holds at one time, outside the other "
                             "windows", "Use training.windows = 1")
    if isinstance(problem.reference, Spectral) and windows >= problem.reference.times:
        raise InputError(f"training.windows = {windows}",
                         f"the reference of {problem.name} is stored at {problem.reference.times} "
                         "times: some windows would have none to be scored at",
                         f"Use at most {problem.reference.times - 1}")
    if any(c.points is not None for c in problem.conditions):
        raise InputError(f"training.windows = {windows}",
                         f"{problem.name} has data that may lie in any window",
                         "Use training.windows = 1")


def _window(problem: Problem, config: Config, coefficients: dict[str, float], edges: np.ndarray,
            k: int) -> Stage:
    assert problem.time is not None
    lower, upper, scale = problem.lower, problem.upper, np.ones(len(problem.names))
    lower[problem.time], upper[problem.time] = edges[k], edges[k + 1]
    if config.training.stretch:
        scale[problem.time] = problem.intervals[TIME].length / (edges[k + 1] - edges[k])
    return Stage(lower, upper, scale, coefficients, config.training.steps,
                 f"t in [{edges[k]:g}, {edges[k + 1]:g}]")


def window_edges(problem: Problem, windows: int, growth: float = 1.0) -> np.ndarray:
    """The times at which windows begin and end, each window `growth` times the one before."""
    interval = problem.intervals["t"]
    if growth == 1.0:
        return np.linspace(interval.lower, interval.upper, windows + 1)
    ends = np.cumsum(growth ** np.arange(windows))
    return interval.lower + interval.length * np.concatenate([[0.0], ends / ends[-1]])
