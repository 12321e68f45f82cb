"""Where the residuals are imposed: fresh points inside, a fixed grid on faces."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from piratenets.problems.problem import Condition, Problem, prescribed_values


def collocation(problem: Problem, key: Array, lower: Array, upper: Array, count: int
                ) -> dict[str, Array]:
    """Uniform points in the box for every sampled condition, sorted by time.

    They depend on the key alone (derived from the run's key and the step), so no sampler
    has a state. Whole points are sorted, which makes equal parts chunks of time.
    """
    drawn: dict[str, Array] = {}
    for k, condition in enumerate(problem.conditions):
        if condition.sampled:
            unit = jax.random.uniform(jax.random.fold_in(key, k), (count, lower.shape[0]),
                                      lower.dtype)
            points = lower[None, :] + (upper - lower)[None, :] * unit
            if problem.time is not None:
                points = points[jnp.argsort(points[:, problem.time])]
            drawn[condition.name] = points
    return drawn


def fixed_points(problem: Problem, condition: Condition, lower: np.ndarray, upper: np.ndarray,
                 grid: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The points of a condition that is not sampled, with its prescribed values.

    On a face: a full grid, `grid` points a free coordinate (the far end of a periodic one is
    left out: it is the near end). Given points are taken as they are.
    """
    if condition.points is not None:
        return condition.points, np.asarray(condition.values)
    points = np.concatenate([_face_grid(problem, face, lower, upper, grid)
                             for face in condition.faces])
    if condition.values is None:
        return points, None
    return points, prescribed_values(problem, condition, points)


def _face_grid(problem: Problem, face: Mapping[str, float], lower: np.ndarray, upper: np.ndarray,
               grid: int) -> np.ndarray:
    axes = [np.array([face[name]]) if name in face
            else np.linspace(low, high, grid, endpoint=not interval.periodic)
            for (name, interval), low, high in zip(problem.intervals.items(), lower, upper,
                                                   strict=True)]
    return grid_points(axes)


def grid_points(axes: list[np.ndarray]) -> np.ndarray:
    """The points of a tensor grid, one row each, the last coordinate running fastest."""
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
