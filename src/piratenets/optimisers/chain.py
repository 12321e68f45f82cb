"""Two optimisers, one after the other."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses


def chain(first: Optimiser, second: Optimiser, at: int) -> Optimiser:
    """The first up to step `at` of a stage, then the second, which starts afresh there."""
    on_host = first.on_host or second.on_host
    if on_host:
        first, second = _compiled(first), _compiled(second)

    def init(parameters: Any, losses: Losses) -> tuple[Any, Any]:
        return first.init(parameters, losses), second.init(parameters, losses)

    def update(objective: Objective, parameters: Any, states: tuple[Any, Any],
               learning_rate: Array, step: Array, renewed: Array
               ) -> tuple[Any, tuple[Any, Any], Losses, Array]:
        def by_first() -> tuple[Any, tuple[Any, Any], Losses, Array]:
            moved, state, losses, norm = first.update(objective, parameters, states[0],
                                                      learning_rate, step, renewed)
            return moved, (state, states[1]), losses, norm

        def by_second() -> tuple[Any, tuple[Any, Any], Losses, Array]:
            moved, state, losses, norm = second.update(objective, parameters, states[1],
                                                       learning_rate, step, renewed | (step == at))
            return moved, (states[0], state), losses, norm

        if on_host:
            return by_first() if int(step) < at else by_second()
        return jax.lax.cond(jnp.asarray(step) < at, by_first, by_second)

    return Optimiser(init, update, on_host=on_host)


def _compiled(optimiser: Optimiser) -> Optimiser:
    """The same, compiled by itself where its partner keeps the steps on the host."""
    if optimiser.on_host:
        return optimiser
    return optimiser._replace(update=eqx.filter_jit(optimiser.update))
