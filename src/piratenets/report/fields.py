"""What the pictures show: the solution and its reference, if there is one, on the same grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from piratenets.problems.problem import TIME, Problem
from piratenets.references.reference import Reference
from piratenets.residuals.sampling import grid_points
from piratenets.runs.evaluation import Evaluation, trained_rows
from piratenets.training.solution import Solution

SPACE_POINTS = {0: 1, 1: 257, 2: 97, 3: 33}
TIME_POINTS = {0: 401, 1: 101, 2: 31, 3: 7}
"""Points a coordinate, by the number of space coordinates, where no reference gives a grid."""


@dataclass(frozen=True)
class Axis:
    """A coordinate of the grid."""

    name: str
    values: np.ndarray
    lower: float
    upper: float
    periodic: bool

    def edges(self) -> np.ndarray:
        """Where the cells around the values begin and end, on the domain."""
        middles = (self.values[1:] + self.values[:-1]) / 2
        return np.concatenate([[self.lower], middles, [self.upper]])

    def closed(self) -> Axis:
        """A periodic axis with its first point repeated at the upper end, if that is not there."""
        if not self.periodic or self.values[-1] >= self.upper:
            return self
        return replace(self, values=np.append(self.values, self.upper))


@dataclass(frozen=True)
class Fields:
    """Unknowns on a tensor grid, time first; not a number where nothing is trained yet."""

    axes: tuple[Axis, ...]
    prediction: dict[str, np.ndarray]
    reference: dict[str, np.ndarray]
    """Empty if there is none."""
    end: float
    """The last trained time."""
    fixed: dict[str, float] = field(default_factory=dict[str, float])
    """The coordinates at which the grid was cut, and where."""

    @property
    def time(self) -> Axis | None:
        return next((a for a in self.axes if a.name == TIME), None)

    @property
    def space(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.name != TIME)

    def error(self, unknown: str) -> np.ndarray:
        return abs(self.prediction[unknown] - self.reference[unknown])

    def cut(self, name: str, index: int) -> Fields:
        """The fields where one coordinate has its index-th value; a dimension less."""
        k = [a.name for a in self.axes].index(name)
        return replace(
            self, axes=self.axes[:k] + self.axes[k + 1 :],
            prediction={n: v.take(index, axis=k) for n, v in self.prediction.items()},
            reference={n: v.take(index, axis=k) for n, v in self.reference.items()},
            fixed={**self.fixed, name: float(self.axes[k].values[index])})

    def middle(self, keep: int) -> Fields:
        """The fields cut at the middle of all space coordinates past the first `keep`."""
        result = self
        for axis in self.space[keep:]:
            result = result.cut(axis.name, len(axis.values) // 2)
        return result

    def times(self, fractions: Sequence[float]) -> list[int]:
        """Indices of the times at these fractions of what is trained, each once."""
        if self.time is None:
            return []
        values = self.time.values[self.time.values <= self.end * (1 + 1e-12)]
        wanted = [values[0] + f * (values[-1] - values[0]) for f in fractions]
        return sorted({int(np.argmin(abs(values - w))) for w in wanted})


def scored_fields(problem: Problem, reference: Reference, evaluation: Evaluation,
                  end: float | None) -> Fields:
    """The fields on the reference's grid; what is known up to a constant with the reference's."""
    prediction = dict(evaluation.prediction)
    for name in problem.up_to_constant:
        prediction[name] = prediction[name] - np.nanmean(prediction[name] - reference.values[name])
    return _time_first(problem, reference.coordinates, prediction, reference.values, end)


def predicted_fields(problem: Problem, solution: Solution) -> Fields:
    """The solution alone, on a grid of our own."""
    dimensions = min(len(problem.names) - (problem.time is not None), 3)
    counts = {n: TIME_POINTS[dimensions] if n == TIME else SPACE_POINTS[dimensions]
              for n in problem.names}
    coordinates = {n: np.linspace(i.lower, i.upper, counts[n], endpoint=not i.periodic)
                   for n, i in problem.intervals.items()}
    points = grid_points(list(coordinates.values()))
    rows = trained_rows(problem, points, solution.end)
    table = np.full((len(points), len(problem.unknowns)), np.nan)
    table[rows] = solution(points[rows])
    shape = tuple(counts.values())
    prediction = {n: table[:, k].reshape(shape) for k, n in enumerate(problem.unknowns)}
    return _time_first(problem, coordinates, prediction, {}, solution.end)


def _time_first(problem: Problem, coordinates: dict[str, np.ndarray],
                prediction: dict[str, np.ndarray], reference: dict[str, np.ndarray],
                end: float | None) -> Fields:
    axes = [Axis(n, coordinates[n], i.lower, i.upper, i.periodic)
            for n, i in problem.intervals.items()]
    k = problem.time or 0
    axes.insert(0, axes.pop(k))
    return Fields(tuple(axes), {n: np.moveaxis(v, k, 0) for n, v in prediction.items()},
                  {n: np.moveaxis(v, k, 0) for n, v in reference.items()},
                  np.inf if end is None else end)


def error_by_time(fields: Fields) -> dict[str, np.ndarray]:
    """The relative L2 error over space at each time, by unknown; empty without both."""
    if fields.time is None or not fields.reference:
        return {}
    return {n: np.array([_relative(p, r) for p, r in zip(values, fields.reference[n], strict=True)])
            for n, values in fields.prediction.items()}


def largest_by_time(fields: Fields) -> dict[str, np.ndarray]:
    """The largest absolute error over space at each time, by unknown."""
    return {n: np.array([np.max(e) for e in fields.error(n)]) for n in fields.reference}


def _relative(prediction: np.ndarray, reference: np.ndarray) -> float:
    """|prediction - reference| / |reference| where both are known; not a number if undefined."""
    known = np.isfinite(prediction - reference)
    size = float(np.linalg.norm(reference[known]))
    return float(np.linalg.norm((prediction - reference)[known])) / size if size else float("nan")
