"""The solution: one field over all time windows, asked for values and derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from piratenets.fields.networks import Frame, Framed, Network
from piratenets.fields.taylor import derivatives
from piratenets.problems.problem import Problem
from piratenets.problems.unknown import Index
from piratenets.training.stages import Stage
from piratenets.training.state import TrainingState, taken

ROWS = 4096
"""Points evaluated by one compiled call (a shorter rest is padded)."""


@partial(jax.jit, static_argnums=0)
def _evaluate(wanted: tuple[Index, ...], network: Network, frame: Frame, points: Array) -> Array:
    """Derivatives (n, wanted, k) of a network at points (n, d)."""
    def at(point: Array) -> Array:
        table = derivatives(Framed(network, frame), point, wanted)
        return jnp.stack([table[index] for index in wanted])

    return jax.vmap(at)(points)


def evaluate_network(network: Network, frame: Frame, points: np.ndarray,
                     wanted: Sequence[Index] | None = None) -> np.ndarray:
    """Values (n, k), or derivatives (n, len(wanted), k), of a network at points (n, d)."""
    dtype = network.head.weight.dtype
    frame = jax.tree.map(lambda x: jnp.asarray(x, dtype), frame)
    indices = tuple(wanted) if wanted is not None else ((0,) * points.shape[1],)
    rows: list[np.ndarray] = []
    for first in range(0, len(points), ROWS):
        part = points[first : first + ROWS]
        padded = np.concatenate([part, np.repeat(part[:1], ROWS - len(part), axis=0)])
        values = _evaluate(indices, network, frame, jnp.asarray(padded, dtype))
        rows.append(np.asarray(values)[: len(part)])
    outputs = network.head.weight.shape[1]
    table = np.concatenate(rows) if rows else np.zeros((0, len(indices), outputs))
    return table if wanted is not None else table[:, 0]


def stage_frame(problem: Problem, stage: Stage) -> Frame:
    """How a stage's network sees coordinates: the first time of its window is the problem's own."""
    return Frame(stage.lower - problem.lower / stage.scale, stage.scale, stage.shapes,
                 stage.magnitude, stage.symmetry)


class Solution:
    """The trained (or half-trained) field of a run.

    At a point of time its value is that of the window the time lies in; at an edge both
    windows agree up to the later one's initial loss, and the later one is taken.
    """

    def __init__(self, problem: Problem, stages: Sequence[Stage], state: TrainingState) -> None:
        self.problem = problem
        windowed = state.finished is not None
        current = int(state.stage)
        self.stages = list(stages[: current + 1]) if windowed else [stages[current]]
        self.networks = [taken(state.finished, k) for k in range(current)] if windowed else []
        self.networks.append(state.network)

    @property
    def end(self) -> float | None:
        """The last time that has been trained, if the problem has a time."""
        time = self.problem.time
        return None if time is None else float(self.stages[-1].upper[time])

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Values (n, k) at points (n, d)."""
        return self.derivatives(points, [(0,) * points.shape[1]])[:, 0]

    def derivatives(self, points: np.ndarray, wanted: Sequence[Index]) -> np.ndarray:
        """Derivatives (n, len(wanted), k) at points (n, d)."""
        result = np.zeros((len(points), len(wanted), len(self.problem.unknowns)))
        window = self._window_of(points)
        for k, (stage, network) in enumerate(zip(self.stages, self.networks, strict=True)):
            rows = np.flatnonzero(window == k)
            if len(rows):
                frame = stage_frame(self.problem, stage)
                result[rows] = evaluate_network(network, frame, points[rows], wanted)
        return result

    def _window_of(self, points: np.ndarray) -> np.ndarray:
        if self.problem.time is None or len(self.stages) == 1:
            return np.zeros(len(points), dtype=int)
        starts = np.array([s.lower[self.problem.time] for s in self.stages[1:]])
        return np.searchsorted(starts, points[:, self.problem.time], side="right")
