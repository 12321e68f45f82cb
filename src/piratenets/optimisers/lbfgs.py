"""L-BFGS with a strong-Wolfe search: the field's usual second optimiser, here as a baseline.

The inverse Hessian is known by the last few steps s and changes of the gradient y alone (both
this recursion and the search are optax's). They belong to one objective: new points or weights
start the memory over, and so does a search that finds nothing better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses


class Limited(NamedTuple):
    """The remembered steps, and what is known at the current parameters."""

    memory: Any
    value: Array
    gradient: Array
    losses: Losses


def lbfgs(memory: int = 50, search_steps: int = 25) -> Optimiser:
    """L-BFGS that remembers `memory` steps."""
    recursion = optax.scale_by_lbfgs(memory)
    search = optax.scale_by_zoom_linesearch(search_steps, initial_guess_strategy="one")

    def init(parameters: Any, losses: Losses) -> Limited:
        x, _ = ravel_pytree(parameters)
        return Limited(recursion.init(x), jnp.zeros((), x.dtype), jnp.zeros_like(x), losses)

    def update(objective: Objective, parameters: Any, state: Limited, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, Limited, Losses, Array]:
        x, unravel = ravel_pytree(parameters)

        def value(x: Array) -> Array:
            return objective(unravel(x))[0]

        f, g = jax.lax.cond(renewed, lambda: jax.value_and_grad(value)(x),
                            lambda: (state.value, state.gradient))
        remembered = _either(renewed, recursion.init(x), state.memory)
        found: Any
        after: Any
        direction, remembered = recursion.update(g, remembered, x)
        found, after = search.update(-jnp.asarray(direction), search.init(x), x, value=f, grad=g,
                                     value_fn=value)
        stalled = ~(after.value < f)
        moved = unravel(x + found)
        losses = objective(moved)[1]
        remembered = _either(stalled, recursion.init(x), remembered)
        return (moved, Limited(remembered, after.value, after.grad, losses), losses,
                jnp.linalg.norm(after.grad))

    return Optimiser(init, update)


def _either(first: Array, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(first, x, y), a, b)
