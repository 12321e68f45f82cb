"""Where the residuals are imposed: points drawn inside, a fixed grid on faces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import qmc

from piratenets.config import SamplingConfig
from piratenets.problems.problem import Condition, Interval, Problem, prescribed_values

POOL = 4
"""Candidates for each point that is chosen by its residual."""
GRADING = 4
"""Graded points lie at the distance length * u^GRADING from a rough place, u uniform."""

Measure = Callable[[str, Array], Array]
"""The size of a condition's residual at points (n, d)."""


def collocation(problem: Problem, key: Array, lower: Array, upper: Array, config: SamplingConfig,
                measure: Measure | None = None) -> dict[str, Array]:
    """Points in the box for every sampled condition, sorted by time.

    They depend on the key (derived from the run's key and the step) and, where they follow
    the residual, on the field alone: no sampler has a state. A share of them is graded
    towards the problem's rough places, a share chosen with probabilities proportional to the
    residual that `measure` finds. Whole points are sorted, which makes equal parts chunks of
    time.
    """
    drawn: dict[str, Array] = {}
    for k, condition in enumerate(problem.conditions):
        if not condition.sampled:
            continue
        keys = jax.random.split(jax.random.fold_in(key, k), 4)
        graded = round(config.graded * config.batch) if problem.rough else 0
        chosen = round(config.adaptive * config.batch) if measure is not None else 0
        box = lower, upper
        parts = [in_box(unit_points(keys[0], config.batch - graded - chosen, config, lower), *box)]
        if graded:
            parts.append(_graded(problem, unit_points(keys[1], graded, config, lower), *box))
        if chosen and measure is not None:
            pool = in_box(unit_points(keys[2], POOL * chosen, config, lower), *box)
            parts.append(_chosen(keys[3], pool, measure(condition.name, pool), chosen))
        points = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
        if problem.time is not None:
            points = points[jnp.argsort(points[:, problem.time])]
        drawn[condition.name] = points
    return drawn


def in_box(unit: Array, lower: Array, upper: Array) -> Array:
    return lower[None, :] + (upper - lower)[None, :] * unit


def unit_points(key: Array, count: int, config: SamplingConfig, like: Array) -> Array:
    """Points of the unit cube: uniform, or a Sobol sequence moved by a random vector."""
    shape = (count, like.shape[0])
    if config.kind == "uniform":
        return jax.random.uniform(key, shape, like.dtype)
    shift = jax.random.uniform(key, (like.shape[0],), like.dtype)
    return jnp.mod(jnp.asarray(_sobol(*shape), like.dtype) + shift[None, :], 1.0)


@cache
def _sobol(count: int, dimensions: int) -> np.ndarray:
    """The first points of the Sobol sequence (in whole powers of two, as it wants them)."""
    sequence = qmc.Sobol(dimensions, scramble=False)
    return sequence.random_base2(max(count - 1, 1).bit_length())[:count]


def _graded(problem: Problem, unit: Array, lower: Array, upper: Array) -> Array:
    """Points that crowd at the problem's rough places, as many at each.

    A coordinate that a place does not name stays as it is, and so does time in a window that
    begins later than the place.
    """
    places = problem.rough
    columns: list[Array] = []
    which = jnp.arange(unit.shape[0]) % len(places)
    for k, (name, interval) in enumerate(problem.intervals.items()):
        plain = lower[k] + (upper[k] - lower[k]) * unit[:, k]
        column = plain
        for j, place in enumerate(places):
            if name in place:
                near = _near(unit[:, k], jnp.asarray(place[name], unit.dtype), lower[k], upper[k],
                             circular=interval.periodic)
                inside = (lower[k] <= place[name]) & (place[name] <= upper[k])
                column = jnp.where((which == j) & inside, near, column)
        columns.append(column)
    return jnp.stack(columns, axis=1)


def _near(u: Array, place: Array, lower: Array | float, upper: Array | float, *, circular: bool
          ) -> Array:
    """Uniform numbers turned into coordinates that crowd at a place of the interval."""
    length = upper - lower
    if circular:
        signed = 2 * u - 1
        away = 0.5 * length * jnp.sign(signed) * jnp.abs(signed) ** GRADING
        return lower + jnp.mod(place - lower + away, length)
    share = (place - lower) / length
    below = u < share
    part = jnp.where(below, (share - u) / jnp.maximum(share, 1e-12),
                     (u - share) / jnp.maximum(1 - share, 1e-12))
    room = jnp.where(below, lower - place, upper - place)
    return place + room * part**GRADING


def _chosen(key: Array, pool: Array, measure: Array, count: int) -> Array:
    """`count` points of a pool, without repetition, probabilities proportional to a measure."""
    noise = jax.random.gumbel(key, measure.shape, measure.dtype)
    floor = jnp.finfo(measure.dtype).tiny
    _, rows = jax.lax.top_k(jnp.log(jnp.maximum(measure, floor)) + noise, count)
    return pool[rows]


def fixed_points(problem: Problem, condition: Condition, lower: np.ndarray, upper: np.ndarray,
                 config: SamplingConfig) -> tuple[np.ndarray, np.ndarray | None]:
    """The points of a condition that is not sampled, with its prescribed values.

    On a face: a full grid, `grid` points a free coordinate, of which a share is graded towards
    the rough places on the face. Given points are taken as they are.
    """
    if condition.points is not None:
        return condition.points, np.asarray(condition.values)
    points = np.concatenate([_face_grid(problem, face, lower, upper, config)
                             for face in condition.faces])
    if condition.values is None:
        return points, None
    return points, prescribed_values(problem, condition, points)


def _face_grid(problem: Problem, face: Mapping[str, float], lower: np.ndarray, upper: np.ndarray,
               config: SamplingConfig) -> np.ndarray:
    on_face = [place for place in problem.rough
               if all(place.get(name, value) == value for name, value in face.items())]
    axes: list[np.ndarray] = []
    for (name, interval), low, high in zip(problem.intervals.items(), lower, upper, strict=True):
        places = sorted({place[name] for place in on_face if name in place})
        axes.append(np.array([face[name]]) if name in face else
                    _graded_axis(interval, float(low), float(high), places, config))
    return grid_points(axes)


def _graded_axis(interval: Interval, low: float, high: float, places: list[float],
                 config: SamplingConfig) -> np.ndarray:
    """`grid` points: evenly spaced (the far end of a periodic coordinate, which is the near end,
    left out), a share of them graded towards some places."""
    crowded = round(config.graded * config.grid) // len(places) if places else 0
    middle = (np.arange(crowded) + 0.5) / max(crowded, 1)
    even = np.linspace(low, high, config.grid - crowded * len(places),
                       endpoint=not interval.periodic)
    near = [np.asarray(_near(jnp.asarray(middle), jnp.asarray(place), low, high,
                             circular=interval.periodic)) for place in places if crowded]
    return np.sort(np.concatenate([even, *near]))


def grid_points(axes: list[np.ndarray]) -> np.ndarray:
    """The points of a tensor grid, one row each, the last coordinate running fastest."""
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
