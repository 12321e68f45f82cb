"""The inner loop: many steps in one compiled call, nothing in it but array arithmetic.

What changes between runs of the same shape (coefficients, seed, learning rate, the window's
box, prescribed values) is an argument, so that only a change of shape compiles anew.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.config import Config, changed, to_json
from piratenets.fields.networks import Network, Shifted, trainable
from piratenets.optimisers import make_optimiser
from piratenets.problems.problem import Problem
from piratenets.residuals.residuals import Points, point_residuals, residuals
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
from piratenets.weighting.losses import Losses, causal_terms, losses


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
            "training.steps": 1, "training.windows": 1, "training.divergence": 1.0,
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
    origin: Array
    coefficients: Mapping[str, Array]
    fixed: Mapping[str, Points]
    """The points of the conditions that are not sampled."""
    learning_rate: Array
    tolerance: Array
    divergence: Array


def draw(plan: Plan, setting: Setting, key: Array, step: Array) -> dict[str, Points]:
    """All points of one step."""
    fresh = collocation(plan.problem, jax.random.fold_in(key, step), setting.lower, setting.upper,
                        plan.config.sampling.batch)
    return {**setting.fixed, **{name: Points(points) for name, points in fresh.items()}}


def chunk_count(plan: Plan) -> int:
    weighting = plan.config.weighting
    return weighting.chunks if weighting.causal and plan.problem.time is not None else 1


def step_losses(plan: Plan, setting: Setting, network: Network, batch: Mapping[str, Points]
                ) -> Losses:
    """The losses by term of a network at the points of one step."""
    field = Shifted(network, setting.origin)
    vectors = residuals(plan.problem, field, batch, setting.coefficients)
    return losses(plan.problem, vectors, chunk_count(plan), setting.tolerance)


def new_weights(plan: Plan, setting: Setting, parameters: Any, fixed: Any,
                batch: Mapping[str, Points]) -> Weights:
    """The weights that the chosen balance asks for at this step."""
    if plan.config.weighting.kind == "grad-norm":
        def terms(p: Any) -> dict[str, Array]:
            return step_losses(plan, setting, eqx.combine(p, fixed), batch).terms

        return balanced(gradient_norms(terms, parameters))
    return balanced(_kernel_measures(plan, setting, parameters, fixed, batch))


def _kernel_measures(plan: Plan, setting: Setting, parameters: Any, fixed: Any,
                     batch: Mapping[str, Points]) -> dict[str, Array]:
    """The NTK's mean diagonal by term, its time chunks weighted causally."""
    problem = plan.problem
    causal = step_losses(plan, setting, eqx.combine(parameters, fixed), batch).causal
    ordered = causal_terms(problem)
    measures: dict[str, Array] = {}
    for condition in problem.conditions:
        def at(p: Any, points: Points, condition: Any = condition) -> dict[str, Array]:
            field = Shifted(eqx.combine(p, fixed), setting.origin)
            return point_residuals(problem, condition, field, setting.coefficients, *points)

        for term, diagonal in kernel_means(at, parameters, batch[condition.name]).items():
            chunks = causal.shape[0] if term in ordered else 1
            weights = causal if chunks > 1 else jnp.ones((1,), diagonal.dtype)
            measures[term] = jnp.mean(weights * chunk_means(diagonal, chunks))
    return measures


def one_step(plan: Plan, setting: Setting, state: TrainingState) -> tuple[TrainingState, Snapshot]:
    """Draw points, update the weights when due, and let the optimiser take a step."""
    weighting = plan.config.weighting
    mask = trainable(state.network, plan.config.network)
    parameters, fixed = eqx.partition(state.network, mask)
    batch = draw(plan, setting, derived_key(state.key, SAMPLING, state.stage), state.step)
    weights = state.weights
    if weighting.kind in ("grad-norm", "ntk"):
        due = (state.step % weighting.update_every == 0) & (state.step > 0)
        weights = jax.lax.cond(
            due, lambda: smoothed(weights, new_weights(plan, setting, parameters, fixed, batch),
                                  weighting.momentum), lambda: weights)

    def objective(p: Any) -> tuple[Array, Losses]:
        result = step_losses(plan, setting, eqx.combine(p, fixed), batch)
        return jnp.sum(jnp.stack([weights[t] * v for t, v in result.terms.items()])), result

    parameters, optimiser, result, gradient_norm = make_optimiser(plan.config.optimiser).update(
        objective, parameters, state.optimiser, setting.learning_rate, state.step)
    state = TrainingState(eqx.combine(parameters, fixed), optimiser, weights, state.key,
                          state.step + 1, state.stage, state.finished)
    return state, Snapshot(result.terms, result.causal, gradient_norm)


def sane(setting: Setting, snapshot: Snapshot) -> Array:
    """Whether losses and gradient are finite and no loss has run away."""
    terms = jnp.stack(list(snapshot.losses.values()))
    return jnp.all(terms <= setting.divergence) & jnp.isfinite(snapshot.gradient_norm)


@partial(jax.jit, static_argnums=0)
def advance(plan: Plan, setting: Setting, state: TrainingState, until: Array
            ) -> tuple[TrainingState, Snapshot]:
    """Steps up to step `until`, at least one, stopping right after one that is not sane.

    The number of steps is an argument and each goes through the same compiled body, so a
    training cut into other calls takes the same steps to the last bit.
    """
    def go_on(carry: tuple[TrainingState, Snapshot]) -> Array:
        return (carry[0].step < until) & sane(setting, carry[1])

    shapes = jax.eval_shape(partial(one_step, plan, setting), state)[1]
    blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.while_loop(go_on, lambda c: one_step(plan, setting, c[0]), (state, blank))
