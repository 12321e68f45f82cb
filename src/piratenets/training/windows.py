"""Time windows that choose their own lengths, as a solver of ODEs chooses its steps.

A window that is quickly trained makes the next one longer, one that is slowly trained makes it
shorter, and one that fails is tried again with half its length; those after it grow but slowly. No
window is shorter than a part of its even share of the time that is left for the windows that are
left, and the last one takes all of it, so the end is always reached.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from piratenets.config import Config
from piratenets.problems.problem import TIME, Problem
from piratenets.training.stages import window_edges
from piratenets.training.state import Edges, TrainingState

NARROW, WIDE = 0.5, 1.5
"""The least and the most that a window's length may be of the one before."""
RECOVERY = 1.1
"""After one that failed, windows are at most RECOVERY times as long as the one before."""
LEAST = 0.25
"""The least that a window may be of its even share of what is left."""
FRESH = 4
"""Windows that do not start from the one before may take so many times the steps."""
SLACK = 1e-3
"""Parts of a length that are not worth a window, or another try."""


def next_length(length: float, steps: int, wanted: int) -> float:
    """The length that follows one whose window took so many steps, where `wanted` are wanted."""
    return length * min(max(math.sqrt(wanted / steps), NARROW), WIDE)


def shortest(start: float, end: float, windows: int) -> float:
    """The least length of a window, `windows` of them being left for the times up to `end`."""
    return (end - start) / windows * (LEAST if windows > 1 else 1.0)


def window_end(start: float, length: float, end: float, windows: int) -> float:
    """Where a window ends that would have this length; `end` itself if that is all but reached.

    What would leave less than half of its length takes the rest in two equal parts.
    """
    rest = end - start
    length = max(length, shortest(start, end, windows))
    if length >= (1 - SLACK) * rest:
        return end
    return start + (rest / 2 if rest - length < length / 2 else length)


def earlier_end(start: float, last: float, end: float, windows: int) -> float | None:
    """Where a window that failed up to `last` ends when it is tried again; None if it is as short
    as it may be."""
    least, length = shortest(start, end, windows), last - start
    if length <= (1 + SLACK) * least:
        return None
    return start + max(length / 2, least)


class AutomaticWindows:
    """Where the windows of a training begin and end, as its state knows it."""

    def __init__(self, problem: Problem, config: Config) -> None:
        self.problem, self.training = problem, config.training
        self.dtype = jnp.dtype(config.training.precision)
        self.interval = problem.intervals[TIME]

    def first(self) -> Edges:
        """The edges at the start: the first window is as long as if all were fixed."""
        edges = window_edges(self.problem, self.training.windows, self.training.window_growth)
        edges[2:] = np.inf
        return Edges(jnp.asarray(edges, self.dtype), jnp.asarray(np.inf, self.dtype))

    def times(self, edges: Edges) -> np.ndarray:
        """Where the windows begun so far begin and end; the interval's own ends are exact, whatever
        the precision of the edges."""
        known = np.asarray(edges.times)
        known = known[np.isfinite(known)]
        at_end = known == np.asarray(self.interval.upper, self.dtype)
        times = np.where(at_end, self.interval.upper, known.astype(float))
        times[0] = self.interval.lower
        return times

    def at_end(self, state: TrainingState) -> bool:
        """Whether a state's window is the last one."""
        return self._window(state)[1] == self.interval.upper

    def steps(self, state: TrainingState) -> int:
        """The most steps that a try may take."""
        return self.training.steps * self._patience(state)

    def _patience(self, state: TrainingState) -> int:
        return 1 if self.training.warm_start and int(state.stage) > 0 else FRESH

    def fraction(self, state: TrainingState) -> float:
        """The part of the time that is done, and of the present window that of its steps."""
        start, last = self._window(state)
        share = int(state.step) / self.steps(state)
        return (start + share * (last - start) - self.interval.lower) / self.interval.length

    def shortened(self, state: TrainingState) -> Edges | None:
        """The edges with the present window made shorter, after its last step; None if it is good,
        or as short as it may be."""
        assert state.edges is not None
        times, stage = state.edges.times, int(state.stage)
        earlier = None if self._reached(state) else earlier_end(
            *self._window(state), self.interval.upper, self.training.windows - stage)
        if earlier is None:
            return None
        shorter = times.at[stage + 1].set(earlier)
        # An end that rounds to the one there is would be tried for ever.
        if not shorter[stage + 1] < times[stage + 1]:
            return None
        return Edges(shorter, jnp.asarray(earlier - self._window(state)[0], self.dtype))

    def followed(self, state: TrainingState) -> Edges:
        """The edges with the end of the next window, from how the present one ended."""
        assert state.edges is not None
        stage, (start, last) = int(state.stage), self._window(state)
        length, longest = last - start, RECOVERY * float(state.edges.longest)
        if self._reached(state):
            steps = -(-int(state.step) // self._patience(state))
            length = next_length(length, steps, self.training.window_steps)
        end = window_end(last, min(length, longest), self.interval.upper,
                         self.training.windows - stage - 1)
        return Edges(state.edges.times.at[stage + 2].set(end), jnp.asarray(longest, self.dtype))

    def _window(self, state: TrainingState) -> tuple[float, float]:
        assert state.edges is not None
        start, last = self.times(state.edges)[-2:]
        return float(start), float(last)

    def _reached(self, state: TrainingState) -> bool:
        return bool(state.best < self.training.target)
