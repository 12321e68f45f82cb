"""Scoring a solution against a reference, stating what is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from piratenets.problems.problem import Problem
from piratenets.references.reference import Reference

Field = Callable[[np.ndarray], np.ndarray]
"""Unknowns (n, k) at points (n, d)."""


@dataclass(frozen=True)
class Evaluation:
    """Relative L2 errors by unknown (and other quantities), and what exactly was compared."""

    relative_l2: dict[str, float]
    """|prediction - reference| / |reference| over the grid; never below the reference's error."""
    measured: dict[str, float]
    """The same as measured: a number below the reference's own error means nothing more."""
    reference_error: dict[str, float]
    compared: str
    prediction: dict[str, np.ndarray]
    """The solution on the reference's grid (not a number where it is not trained yet)."""


def relative_l2(prediction: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(prediction - reference) / np.linalg.norm(reference))


def errors(problem: Problem, prediction: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The relative error of every unknown and measure, from tables with a column an unknown.

    Points where the reference is not a number (a singular corner) are left out; unknowns that
    are determined up to a constant are compared less their means.
    """
    predicted, exact = _quantities(problem, prediction), _quantities(problem, reference)
    result: dict[str, float] = {}
    for name, values in exact.items():
        known = np.isfinite(values)
        a, b = predicted[name][known], values[known]
        if name in problem.up_to_constant:
            a, b = a - a.mean(), b - b.mean()
        result[name] = relative_l2(a, b)
    return result


def _quantities(problem: Problem, table: np.ndarray) -> dict[str, np.ndarray]:
    """The unknowns by name, and what the problem measures beside them."""
    unknowns = {name: table[:, k] for k, name in enumerate(problem.unknowns)}
    extra = {name: np.asarray(of(unknowns)) for name, of in problem.measures.items()}
    return {**unknowns, **extra}


def evaluate(problem: Problem, reference: Reference, field: Field, end: float | None) -> Evaluation:
    """Compare on the reference's whole grid, up to the time `end` that is trained."""
    points, table = reference.points(), reference.table()
    rows = trained_rows(problem, points, end)
    prediction = np.full(table.shape, np.nan)
    prediction[rows] = field(points[rows])
    measured = errors(problem, prediction[rows], table[rows])
    shape = next(iter(reference.values.values())).shape
    return Evaluation(
        relative_l2={n: max(e, reference.error[n]) for n, e in measured.items()},
        measured=measured, reference_error=reference.error,
        compared=_description(problem, reference, end),
        prediction={n: prediction[:, k].reshape(shape) for k, n in enumerate(problem.unknowns)})


def errors_between(problem: Problem, reference: Reference, prediction: dict[str, np.ndarray],
                   first: float, last: float) -> dict[str, float]:
    """The errors over part of the times of an evaluated prediction, as `Evaluation` quotes them;
    nothing where the reference is stored at none of these times."""
    assert problem.time is not None
    table = np.stack([prediction[n].ravel() for n in problem.unknowns], axis=1)
    times = reference.points()[:, problem.time]
    slack = 1e-9 * (last - first)
    rows = (times >= first - slack) & (times <= last + slack)
    if not rows.any():
        return {}
    found = errors(problem, table[rows], reference.table()[rows])
    return {name: max(e, reference.error[name]) for name, e in found.items()}


def trained_rows(problem: Problem, points: np.ndarray, end: float | None) -> np.ndarray:
    """The rows of the points that lie in the trained times."""
    if problem.time is None or end is None:
        return np.arange(len(points))
    return np.flatnonzero(points[:, problem.time] <= end + 1e-12 * abs(end))


def _description(problem: Problem, reference: Reference, end: float | None) -> str:
    sizes = [f"{name}: {len(axis)} points in [{axis[0]:g}, {axis[-1]:g}]"
             for name, axis in reference.coordinates.items()]
    until = f", up to t = {end:g}" if problem.time is not None and end is not None else ""
    less = f" ({', '.join(problem.up_to_constant)} less its mean)" if problem.up_to_constant else ""
    what = ", ".join([*problem.unknowns, *problem.measures])
    return (f"|prediction - reference|_2 / |reference|_2 of {what}{less} "
            f"over the grid {'; '.join(sizes)}{until}; reference: {reference.method}")


class ErrorFollower:
    """The error on a fixed sample of the reference's points, cheap enough to follow."""

    def __init__(self, problem: Problem, reference: Reference, count: int) -> None:
        points, table = reference.points(), reference.table()
        chosen = np.random.default_rng(0).permutation(len(points))[:count]
        self.problem, self.points, self.table = problem, points[chosen], table[chosen]

    def __call__(self, solution: Any) -> dict[str, float]:
        rows = trained_rows(self.problem, self.points, solution.end)
        return errors(self.problem, solution(self.points[rows]), self.table[rows])
