"""The outer loop: stages, one after the other, in calls of about a second each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from piratenets.config import Config
from piratenets.errors import DivergenceError, InputError, StorageError, unknown_name
from piratenets.fields.initialisation import Fit, fit_head
from piratenets.fields.networks import SMALLEST, Network, make_network, trainable
from piratenets.optimisers import make_optimiser
from piratenets.problems.problem import Condition, Interval, Problem, data, prescribed_values
from piratenets.references.spectral import linearised_solution
from piratenets.residuals.residuals import Points
from piratenets.residuals.sampling import fixed_points, grid_points
from piratenets.training.loop import Plan, Setting, advance, chunk_count, ended
from piratenets.training.solution import evaluate_network, stage_frame
from piratenets.training.stages import Stage, seen_shapes, stages
from piratenets.training.state import (
    INITIALISATION,
    STARTS,
    Edges,
    Snapshot,
    TrainingState,
    derived_key,
    stacked,
    stored,
    taken,
)
from piratenets.training.trust import Trust, examined, few_points
from piratenets.training.windows import AutomaticWindows
from piratenets.weighting.balance import Weights, starting_weights
from piratenets.weighting.losses import Losses

SECONDS_PER_CALL = 1.0
"""How long one compiled call should take: short enough to stop soon, long enough to be free."""

Values = Callable[[np.ndarray], np.ndarray]
"""Known unknowns (n, k) at points (n, d)."""


class Progress(NamedTuple):
    """What the outer loop reports after each call."""

    state: TrainingState
    snapshot: Snapshot
    step: int
    """Steps taken in all stages together."""
    recorded: bool
    """Whether this is a step that a line of metrics belongs to."""
    stage_ended: bool
    again: bool
    """Whether it is the end of a window that is tried again, shorter."""
    done: bool


class Trainer:
    """A problem and a configuration, checked and ready to train.

    Everything that can be wrong is found here, before anything is compiled.
    """

    def __init__(self, problem: Problem, config: Config) -> None:
        self.problem, self.config = problem, config
        self._all_stages = stages(problem, config)
        self.plan = Plan(problem, config)
        self.dtype = jnp.dtype(config.training.precision)
        self._windows = AutomaticWindows(problem, config) if self.automatic else None
        self.fits: list[Fit] = []
        self._check()

    @property
    def automatic(self) -> bool:
        """Whether windows choose their own lengths."""
        return self.config.training.window_steps > 0

    @property
    def total_steps(self) -> int | None:
        """The most steps there may be; None where windows choose their lengths."""
        return None if self.automatic else sum(stage.steps for stage in self._all_stages)

    def stages_of(self, state: TrainingState | None) -> list[Stage]:
        """All stages; of windows that choose their lengths, those begun so far."""
        return self._stages(self._first_edges() if state is None else state.edges)

    def _stages(self, edges: Edges | None) -> list[Stage]:
        if edges is None:
            return self._all_stages
        assert self._windows is not None
        return stages(self.problem, self.config, self._windows.times(edges))

    def _first_edges(self) -> Edges | None:
        return None if self._windows is None else self._windows.first()

    def _check(self) -> None:
        weighting, initialisation = self.config.weighting, self.config.initialisation
        valid = [*self.problem.terms, *(c.name for c in self.problem.conditions)]
        for name in weighting.start:
            if name not in valid:
                raise unknown_name("weighting.start: term", name, dict.fromkeys(valid))
        if initialisation.source in ("initial", "linearised") and self.problem.initial is None:
            raise InputError(f"initialisation.source = {initialisation.source!r}",
                             f"{self.problem.name} has no initial condition",
                             "Use 'none' or 'data'")
        if initialisation.source == "data":
            load_data(self.problem, Path(initialisation.data))
        if self.problem.initial is not None:
            self._fixed(self.problem.initial, 0, None, self._first_edges())
        jax.eval_shape(lambda: self._network(jax.random.key(0)))

    def fraction(self, state: TrainingState) -> float:
        """How much of the training is done: in steps that stages may take at most, or in time
        where windows choose their lengths."""
        if self.finished(state):
            return 1.0
        if self._windows is not None:
            return self._windows.fraction(state)
        assert self.total_steps is not None
        return steps_taken(state) / self.total_steps

    def steps_of(self, state: TrainingState) -> int:
        """The most steps that the stage of a state may take: its own, and those that the stages
        before it, ended early, have left over (unless windows choose their lengths)."""
        if self._windows is not None:
            return self._windows.steps(state)
        so_far = self._all_stages[: int(state.stage) + 1]
        return sum(stage.steps for stage in so_far) - int(state.before)

    def attempt_ended(self, state: TrainingState) -> bool:
        """Whether the stage has had its steps, is good enough, or makes no more progress."""
        training = self.config.training
        return (int(state.step) >= self.steps_of(state)
                or bool(ended(training.patience, training.target, state)))

    def again(self, state: TrainingState) -> bool:
        """Whether it is the end of a window that is tried again, shorter."""
        return (self._windows is not None and self.attempt_ended(state)
                and self._windows.shortened(state) is not None)

    def stage_ended(self, state: TrainingState) -> bool:
        """Whether the stage is at its end, and not tried again."""
        return self.attempt_ended(state) and not self.again(state)

    def finished(self, state: TrainingState) -> bool:
        last = int(state.stage) == len(self._all_stages) - 1 if self._windows is None else \
            self._windows.at_end(state)
        return last and self.stage_ended(state)

    def start(self) -> TrainingState:
        """The state before the first step: the network initialised, weights at their start."""
        key = jax.random.key_data(jax.random.key(self.config.seed))
        edges = self._first_edges()
        network = self._initialised(0, None, key, edges)
        windows = self.config.training.windows
        return self._at_stage(0, network, stacked(network, windows), key, edges)

    def template(self) -> TrainingState:
        """A state's shapes and types, for reading a checkpoint."""
        edges = self._first_edges()

        def shape() -> TrainingState:
            key = jax.random.key(0)
            network = self._network(key)
            windows = stacked(network, self.config.training.windows)
            return self._at_stage(0, network, windows, jax.random.key_data(key), edges)

        return jax.eval_shape(shape)

    def _network(self, key: Array) -> Network:
        fitted = self.config.initialisation.source != "none"
        shapes = [Interval(0, 1) for _ in seen_shapes(self.problem, self.config)]
        return make_network((*self.problem.intervals.values(), *shapes),
                            len(self.problem.unknowns), self.config.network, key, self.dtype,
                            fitted=fitted)

    def _at_stage(self, stage: int, network: Network, finished: Network | None, key: Array,
                  edges: Edges | None, before: int = 0) -> TrainingState:
        parameters = eqx.filter(network, trainable(network, self.config.network))
        start = self.config.weighting.start if self.config.weighting.kind != "none" else {}
        weights = starting_weights(self.problem.terms, start, self.dtype)
        chunks, batch = chunk_count(self.plan), self.config.sampling.batch
        blank = Losses({t: jnp.zeros((), self.dtype) for t in self.problem.terms},
                       jnp.ones((chunks,), self.dtype))
        points = {c.name: jnp.zeros((batch, len(self.problem.names)), self.dtype)
                  for c in self.problem.conditions if c.sampled}
        optimiser = make_optimiser(self.config.optimiser).init(parameters, blank)
        return TrainingState(
            network=network, optimiser=optimiser,
            weights=self._stretched(weights, self._stages(edges)[stage]),
            points=points, causal=blank.causal, best=jnp.asarray(jnp.inf, self.dtype),
            best_step=_count(0), key=key, step=_count(0), before=_count(before),
            stage=_count(stage), finished=finished, edges=edges)

    def _stretched(self, weights: Weights, box: Stage) -> Weights:
        """The equations' weights in a window whose time is stretched: u_t is that much smaller."""
        rate = float(np.max(box.scale))
        sampled = [c.name for c in self.problem.conditions if c.sampled]
        return {t: w / rate**2 if t.split(".")[0] in sampled else w for t, w in weights.items()}

    def next_stage(self, state: TrainingState) -> TrainingState:
        """The state at the start of the next stage, from that at the end of this one."""
        stage, before = int(state.stage), steps_taken(state)
        if self.config.curriculum.values:
            return self._at_stage(stage + 1, state.network, None, state.key, None, before)
        finished = stored(state.finished, state.network, stage)
        edges = self._windows.followed(state) if self._windows else None
        network = self._initialised(stage + 1, state.network, state.key, edges)
        return self._at_stage(stage + 1, network, finished, state.key, edges, before)

    def _begun_again(self, state: TrainingState) -> TrainingState:
        """The state at the start of the same window made shorter, as if it had had that length."""
        assert self._windows is not None
        stage, edges = int(state.stage), self._windows.shortened(state)
        network = self._initialised(stage, _previous(state), state.key, edges)
        return self._at_stage(stage, network, state.finished, state.key, edges, steps_taken(state))

    def _initialised(self, stage: int, previous: Network | None, key: Array,
                     edges: Edges | None) -> Network:
        """A stage's first network: fresh or the previous window's, its head fitted."""
        if previous is not None and self.config.training.warm_start:
            return previous
        return self._fresh_network(stage, previous, key, edges)

    def _fresh_network(self, stage: int, previous: Network | None, key: Array,
                       edges: Edges | None) -> Network:
        """A random network with its head fitted to what is known of the stage."""
        network = self._network(derived_key(key, INITIALISATION, stage))
        known = self._known_values(stage, previous, edges)
        if known is None:
            return network
        network, fit = fit_head(network, *known)
        self.fits.append(dataclasses.replace(fit, stage=stage))
        return network

    def _initial_values(self, stage: int, previous: Network | None, edges: Edges | None
                        ) -> Values:
        """The unknowns at a stage's first time: the problem's, or the previous window's end."""
        initial = self.problem.initial
        assert initial is not None
        if previous is None:
            return lambda points: prescribed_values(self.problem, initial, points)
        frame = stage_frame(self.problem, self._stages(edges)[stage - 1])
        return lambda points: evaluate_network(previous, frame, points)

    def _known_values(self, stage: int, previous: Network | None, edges: Edges | None
                      ) -> tuple[np.ndarray, np.ndarray] | None:
        """Points, as the network sees them, and values to fit the head to."""
        source, box = self.config.initialisation.source, self._stages(edges)[stage]
        if source == "none":
            return None
        if source == "data" and previous is None:
            known, values = load_data(self.problem, Path(self.config.initialisation.data))
            seen = np.asarray(stage_frame(self.problem, box).seen(known))
            return seen, self._in_units(box, known, values)
        assert self.problem.time is not None
        axes, time_axis = self._fit_axes(box), self.problem.time
        values = self._initial_values(stage, previous, edges)
        points = grid_points(axes)
        if source == "linearised":
            known = _linearised(self.problem, box, axes, values)
        else:
            at_start = points.copy()
            at_start[:, time_axis] = box.lower[time_axis]
            known = values(at_start)
        return np.asarray(stage_frame(self.problem, box).seen(points)), self._in_units(box, points,
                                                                                       known)

    def _in_units(self, box: Stage, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Unknowns as a network gives them: in units of the problem's magnitude."""
        if box.magnitude is None:
            return values
        return values / np.maximum(np.asarray(box.magnitude(*points.T)), SMALLEST)[:, None]

    def _fit_axes(self, box: Stage) -> list[np.ndarray]:
        """A grid over all times of the stage: fewer points in time, where the data are smooth."""
        grid = self.config.initialisation.grid
        intervals = self.problem.intervals.values()
        dimensions = len(self.problem.names) - 1
        space = grid if dimensions == 1 else max(grid // dimensions, 2)
        times = max(grid // 8, 2)
        return [np.linspace(low, high, times if k == self.problem.time else space,
                            endpoint=not interval.periodic)
                for k, (interval, low, high) in enumerate(zip(intervals, box.lower, box.upper,
                                                              strict=True))]

    def setting(self, state: TrainingState) -> Setting:
        """The traced arguments of the stage that a state is in."""
        stage = int(state.stage)
        box, previous = self.stages_of(state)[stage], _previous(state)

        def array(x: Any) -> Array:
            return jnp.asarray(x, self.dtype)

        fixed = {c.name: self._fixed(c, stage, previous, state.edges)
                 for c in self.problem.conditions if not c.sampled}
        return Setting(
            lower=array(box.lower), upper=array(box.upper),
            frame=jax.tree.map(array, stage_frame(self.problem, box)),
            coefficients={k: array(v) for k, v in box.coefficients.items()},
            fixed={name: Points(array(p), None if v is None else array(v))
                   for name, (p, v) in fixed.items()},
            learning_rate=array(self.config.optimiser.learning_rate),
            tolerance=array(self.config.weighting.tolerance),
            divergence=array(self.config.training.divergence),
            patience=_count(self.config.training.patience),
            target=array(self.config.training.target))

    def _fixed(self, condition: Condition, stage: int, previous: Network | None,
               edges: Edges | None) -> tuple[np.ndarray, np.ndarray | None]:
        box, sampling = self._stages(edges)[stage], self.config.sampling
        if condition is not self.problem.initial or previous is None:
            return fixed_points(self.problem, condition, box.lower, box.upper, sampling)
        # A later window: the same grid, at its own first time, with the previous one's values.
        assert self.problem.time is not None
        points, _ = fixed_points(self.problem, condition, self.problem.lower, self.problem.upper,
                                 sampling)
        points[:, self.problem.time] = box.lower[self.problem.time]
        return points, self._initial_values(stage, previous, edges)(points)

    def few_points(self, state: TrainingState) -> str | None:
        """A warning if a state's stage has too few residuals for its parameters."""
        points = {**{name: p.points for name, p in self.setting(state).fixed.items()},
                  **state.points}
        rows = sum(len(points[t.split(".")[0]]) for t in self.problem.terms)
        return few_points(self.problem, self.config, state.network, rows)

    def examined(self, state: TrainingState) -> Trust:
        """What fresh points say of the stage that a state is at the end of."""
        initial = None
        if self.problem.initial is not None and self.problem.time is not None:
            start = self.setting(state).fixed[self.problem.initial.name]
            initial = np.asarray(start.points, float), np.asarray(start.values, float)
        trained = np.concatenate([np.asarray(p, float) for p in state.points.values()])
        return examined(self.problem, self.stages_of(state)[int(state.stage)], state.network,
                        trained, initial)

    def run(self, state: TrainingState) -> Iterator[Progress]:
        """Train from a state to the end, reporting after each call."""
        while not self.finished(state):
            if self.again(state):
                state = self._begun_again(state)
            elif self.stage_ended(state):
                state = self.next_stage(state)
            if int(state.step) == 0 and self._starts(state) > 1:
                state, snapshot = self._best_start(state)
                yield self._progress(state, snapshot)
            state = yield from self._run_stage(state)

    def _progress(self, state: TrainingState, snapshot: Snapshot) -> Progress:
        self._check_sane(state, snapshot)
        again, over = self.again(state), self.stage_ended(state)
        due = int(state.step) % self.config.record.every == 0
        return Progress(state, snapshot, steps_taken(state), recorded=due or again or over,
                        stage_ended=over, again=again, done=self.finished(state))

    def _starts(self, state: TrainingState) -> int:
        """How many networks a stage begins with; a curriculum goes on with the one it has, and so
        do windows that are short enough for it."""
        going_on = bool(self.config.curriculum.values) or self.automatic
        return 1 if going_on and int(state.stage) > 0 else self.config.training.starts

    def _best_start(self, first: TrainingState) -> tuple[TrainingState, Snapshot]:
        """The state that a few steps bring furthest: from the network that there is, or from
        fresh ones."""
        until = jnp.asarray(min(self.config.training.start_steps, self.steps_of(first)), jnp.int32)
        setting, fits = self.setting(first), [self.fits]
        earlier = [fit for fit in self.fits if fit.stage != int(first.stage)]
        trained = [advance(self.plan, setting, first, until)]
        for k in range(1, self._starts(first)):
            self.fits = earlier[:]
            trained.append(advance(self.plan, setting, self._fresh_start(first, k), until))
            fits.append(self.fits)
        losses = [float(sum(state.weights[t] * v for t, v in snapshot.losses.items()))
                  for state, snapshot in trained]
        best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
        self.fits = fits[best]
        return jax.block_until_ready(trained[best])

    def _fresh_start(self, first: TrainingState, k: int) -> TrainingState:
        """A stage's first state with the k-th other network in it."""
        stage = int(first.stage)
        key = jax.random.key_data(derived_key(first.key, STARTS, k))
        network = self._fresh_network(stage, _previous(first), key, first.edges)
        return self._at_stage(stage, network, first.finished, first.key, first.edges,
                              int(first.before))

    def _run_stage(self, state: TrainingState) -> Generator[Progress, None, TrainingState]:
        setting, steps = self.setting(state), self.steps_of(state)
        every, at_once, calls = self.config.record.every, 1, 0
        while not self.attempt_ended(state):
            step = int(state.step)
            until = min(step + at_once, (step // every + 1) * every, steps)
            began = time.perf_counter()
            state, snapshot = jax.block_until_ready(
                advance(self.plan, setting, state, jnp.asarray(until, jnp.int32)))
            seconds = max(time.perf_counter() - began, 1e-4)
            if calls:  # The first call's time is mostly compilation.
                at_once = max(1, round((until - step) * SECONDS_PER_CALL / seconds))
            calls += 1
            yield self._progress(state, snapshot)
        return state

    def _check_sane(self, state: TrainingState, snapshot: Snapshot) -> None:
        limit = self.config.training.divergence
        bad = [t for t, v in snapshot.losses.items() if not float(v) <= limit]
        if not bad and np.isfinite(float(snapshot.gradient_norm)):
            return
        step = steps_taken(state)
        culprit = f"loss term {bad[0]!r} = {float(snapshot.losses[bad[0]]):g}" if bad else \
            f"gradient norm = {float(snapshot.gradient_norm):g}"
        raise DivergenceError(f"step {step}: {culprit}", "the training has diverged",
                              "Lower optimiser.learning_rate, or raise optimiser.warmup_steps")


def steps_taken(state: TrainingState) -> int:
    """Steps in all stages together."""
    return int(state.before) + int(state.step)


def _previous(state: TrainingState) -> Network | None:
    """The network of the window before a state's own."""
    stage = int(state.stage)
    return None if stage == 0 or state.finished is None else taken(state.finished, stage - 1)


def _count(n: int) -> Array:
    return jnp.asarray(n, jnp.int32)


def load_data(problem: Problem, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The `points` and `values` of an .npz file, checked against the problem."""
    try:
        with np.load(path) as archive:
            points, values = (np.asarray(archive[n], float) for n in ("points", "values"))
    except (OSError, KeyError, ValueError) as error:
        raise StorageError(str(path), f"it cannot be read as data ({error})",
                           "Save it with numpy.savez(path, points=..., values=...)") from error
    values = np.asarray(data(points, values).values)
    problem.check_points(points, f"points in {path}")
    if values.shape[1] != len(problem.unknowns):
        raise InputError(f"values in {path} of shape {values.shape}",
                         f"there are {len(problem.unknowns)} unknowns", "Give one column each")
    return points, values


def _linearised(problem: Problem, box: Stage, axes: list[np.ndarray], values: Values) -> np.ndarray:
    """The linearised PDE's solution on a grid, from the values at the grid's first time."""
    time_axis = problem.time
    assert time_axis is not None and problem.initial is not None

    def start(*space: np.ndarray) -> tuple[np.ndarray, ...]:
        flat = [np.ravel(s) for s in space]
        flat.insert(time_axis, np.full(flat[0].shape, box.lower[time_axis]))
        columns = values(np.stack(flat, axis=1))
        return tuple(c.reshape(np.shape(space[0])) for c in columns.T)

    initial = dataclasses.replace(problem.initial, values=start)
    conditions = [initial if c is problem.initial else c for c in problem.conditions]
    shifted = dataclasses.replace(problem, conditions=conditions)
    times = axes[time_axis] - axes[time_axis][0] + problem.lower[time_axis]
    grid = next(len(a) for k, a in enumerate(axes) if k != time_axis)
    solution = linearised_solution(shifted, box.coefficients, times, grid)
    return np.stack([np.ravel(solution[name]) for name in problem.unknowns], axis=1)
