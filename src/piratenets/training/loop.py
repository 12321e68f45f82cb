"""The inner loop: many steps in one compiled call, nothing in it but array arithmetic.

What changes between runs of the same shape (coefficients, seed, learning rate, the window's
box, prescribed values) is an argument, so that only a change of shape compiles anew.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.config import SECOND_ORDER, Config, changed, to_json
from piratenets.fields.networks import Frame, Framed, Network, trainable
from piratenets.optimisers import make_optimiser
from piratenets.problems.problem import Problem
from piratenets.residuals.residuals import Points, point_residuals
from piratenets.residuals.sampling import collocation
from piratenets.training.state import SAMPLING, Snapshot, TrainingState, derived_key
from piratenets.weighting.balance import (
    Weights,
    balanced,
    gradient_norms,
    kernel_means,
    smoothed,
)
from piratenets.weighting.causal import chunk_means
from piratenets.weighting.losses import causal_terms
from piratenets.weighting.system import System


@dataclass(frozen=True, eq=False)
class Plan:
    """What is compiled in: the problem, and the configuration less what is an argument."""

    problem: Problem
    config: Config

    @property
    def _key(self) -> tuple[int, str]:
        neutral = dataclasses.replace(
            self.config, problem="", preset="", seed=0, coefficients={},
            curriculum=Config().curriculum, record=Config().record)
        neutral = changed(neutral, {
            "weighting.start": {}, "weighting.tolerance": 1.0, "optimiser.learning_rate": 1.0,
            "training.steps": 1, "training.windows": 1, "training.window_growth": 1.0,
            "training.window_steps": 0, "training.stretch": False, "training.divergence": 1.0,
            "training.patience": 0, "training.target": 0.0, "training.starts": 1,
            "training.start_steps": 1,
            "sampling.grid": 1})
        neutral = dataclasses.replace(
            neutral, initialisation=Config().initialisation,
            weighting=dataclasses.replace(neutral.weighting, start={}))
        return id(self.problem), json.dumps(to_json(neutral))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._key == other._key


class Setting(NamedTuple):
    """A stage's traced arguments."""

    lower: Array
    upper: Array
    frame: Frame
    coefficients: Mapping[str, Array]
    fixed: Mapping[str, Points]
    """The points of the conditions that are not sampled."""
    learning_rate: Array
    tolerance: Array
    divergence: Array
    patience: Array
    target: Array


PROGRESS = 0.9
"""A loss below this fraction of the last one that counted is progress."""


def draw(plan: Plan, setting: Setting, key: Array, step: Array, network: Network | None = None
         ) -> dict[str, Array]:
    """The sampled conditions' points that are drawn at a step."""
    sampling = plan.config.sampling

    def measure(name: str, points: Array) -> Array:
        condition = next(c for c in plan.problem.conditions if c.name == name)
        field = Framed(network, setting.frame)

        def at(point: Array) -> Array:
            found = point_residuals(plan.problem, condition, field, setting.coefficients, point,
                                    None)
            return jnp.sqrt(sum(jnp.square(r) for r in found.values()))

        return jax.vmap(at)(points)

    follows = sampling.adaptive > 0 and network is not None
    return collocation(plan.problem, jax.random.fold_in(key, step), setting.lower, setting.upper,
                       sampling, measure if follows else None)


def chunk_count(plan: Plan) -> int:
    weighting = plan.config.weighting
    return weighting.chunks if weighting.causal and plan.problem.time is not None else 1


def system_of(plan: Plan, setting: Setting, fixed: Any, points: Mapping[str, Array],
              weights: Weights) -> System:
    """The weighted residuals at given points, as functions of the parameters."""
    batch = {**setting.fixed, **{name: Points(p) for name, p in points.items()}}
    return System(plan.problem, chunk_count(plan), fixed, setting.frame, setting.coefficients,
                  batch, weights, setting.tolerance)


def new_weights(plan: Plan, system: System, parameters: Any) -> Weights:
    """The weights that the chosen balance asks for at this step."""
    if plan.config.weighting.kind == "grad-norm":
        return balanced(gradient_norms(lambda p: system.losses(p).terms, parameters))
    return balanced(_kernel_measures(system, parameters))


def _kernel_measures(system: System, parameters: Any) -> dict[str, Array]:
    """The NTK's mean diagonal by term, its time chunks weighted causally."""
    problem = system.problem
    causal = system.losses(parameters).causal
    ordered = causal_terms(problem)
    measures: dict[str, Array] = {}
    for condition in problem.conditions:
        def at(p: Any, points: Points, condition: Any = condition) -> dict[str, Array]:
            return point_residuals(problem, condition, system.field(p), system.coefficients,
                                   *points)

        for term, diagonal in kernel_means(at, parameters, system.points[condition.name]).items():
            chunks = causal.shape[0] if term in ordered else 1
            weights = causal if chunks > 1 else jnp.ones((1,), diagonal.dtype)
            measures[term] = jnp.mean(weights * chunk_means(diagonal, chunks))
    return measures


def split(plan: Plan, network: Network) -> tuple[Any, Any]:
    """What of a network is trained, and the rest."""
    return eqx.partition(network, trainable(network, plan.config.network))


def prepared(plan: Plan, setting: Setting, state: TrainingState
             ) -> tuple[TrainingState, System, Array]:
    """The state with points and weights renewed when due, the system they make, and whether
    anything is new."""
    weighting, step = plan.config.weighting, state.step
    parameters, fixed = split(plan, state.network)
    key = derived_key(state.key, SAMPLING, state.stage)
    renewed = step % plan.config.sampling.redraw == 0
    points = jax.lax.cond(renewed, lambda: draw(plan, setting, key, step, state.network),
                          lambda: state.points)
    weights = state.weights
    if weighting.kind in ("grad-norm", "ntk"):
        due = (step % weighting.update_every == 0) & (step > 0)
        system = system_of(plan, setting, fixed, points, weights)
        weights = jax.lax.cond(
            due, lambda: smoothed(weights, new_weights(plan, system, parameters),
                                  weighting.momentum), lambda: weights)
        renewed |= due
    system = system_of(plan, setting, fixed, points, weights)
    causal = state.causal
    if second_order(plan) and chunk_count(plan) > 1:
        causal = jax.lax.cond(renewed, lambda: system.losses(parameters).causal, lambda: causal)
        system = system.frozen(causal)
    state = dataclasses.replace(state, points=points, weights=weights, causal=causal)
    return state, system, renewed


def second_order(plan: Plan) -> bool:
    """Whether losses of several steps are compared, so that causal weights must be held."""
    return bool(SECOND_ORDER & {plan.config.optimiser.kind, plan.config.optimiser.then})


def one_step(plan: Plan, setting: Setting, state: TrainingState,
             prepare: Callable[..., Any] = prepared) -> tuple[TrainingState, Snapshot]:
    """Renew points and weights when due, and let the optimiser take a step."""
    state, system, renewed = prepare(plan, setting, state)
    parameters, fixed = split(plan, state.network)
    parameters, optimiser, losses, gradient_norm = make_optimiser(plan.config.optimiser).update(
        system, parameters, state.optimiser, setting.learning_rate, state.step, renewed)
    total = sum(state.weights[t] * v for t, v in losses.terms.items())
    progress = total < PROGRESS * state.best
    state = dataclasses.replace(
        state, network=eqx.combine(parameters, fixed), optimiser=optimiser, step=state.step + 1,
        best=jnp.where(progress, total, state.best),
        best_step=jnp.where(progress, state.step, state.best_step))
    return state, Snapshot(losses.terms, losses.causal, gradient_norm)


def sane(setting: Setting, snapshot: Snapshot) -> Array:
    """Whether losses and gradient are finite and no loss has run away."""
    terms = jnp.stack(list(snapshot.losses.values()))
    return jnp.all(terms <= setting.divergence) & jnp.isfinite(snapshot.gradient_norm)


def ended(patience: Array | int, target: Array | float, state: TrainingState) -> Array:
    """Whether the stage ends before its time: its loss is low enough, or falls no more."""
    stalled = (jnp.asarray(patience) > 0) & (state.step - state.best_step > patience)
    return stalled | (state.best < target)


def advance(plan: Plan, setting: Setting, state: TrainingState, until: Array
            ) -> tuple[TrainingState, Snapshot]:
    """Steps up to step `until`, at least one, stopping right after one that is not sane or
    that ends the stage.

    The number of steps is an argument and each goes through the same compiled body, so a
    training cut into other calls takes the same steps to the last bit.
    """
    if not make_optimiser(plan.config.optimiser).on_host:
        return _advance_compiled(plan, setting, state, until)
    while True:
        state, snapshot = one_step(plan, setting, state, _prepared)
        if int(state.step) >= int(until) or not _goes_on(setting, state, snapshot):
            return state, snapshot


_prepared = jax.jit(prepared, static_argnums=0)


def _goes_on(setting: Setting, state: TrainingState, snapshot: Snapshot) -> Array:
    return sane(setting, snapshot) & ~ended(setting.patience, setting.target, state)


@partial(jax.jit, static_argnums=0)
def _advance_compiled(plan: Plan, setting: Setting, state: TrainingState, until: Array
                      ) -> tuple[TrainingState, Snapshot]:
    def go_on(carry: tuple[TrainingState, Snapshot]) -> Array:
        return (carry[0].step < until) & _goes_on(setting, *carry)

    shapes = jax.eval_shape(partial(one_step, plan, setting), state)[1]
    blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.while_loop(go_on, lambda c: one_step(plan, setting, c[0]), (state, blank))
