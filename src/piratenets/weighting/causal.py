"""Causal weights: a chunk of time counts once what comes before it is solved.

    w_i = exp(-epsilon sum_{k<i} L_k)

with L_k the mean squared residual of chunk k. The first weight is 1 and the weights never
increase with time. For a system each chunk takes the smallest weight over the equations.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax


def causal_weights(chunk_losses: Array, tolerance: Array | float) -> Array:
    """The weights (chunks,) from losses (equations, chunks); constants to differentiation."""
    earlier = jnp.cumsum(chunk_losses[:, :-1], axis=1)
    before = jnp.concatenate([jnp.zeros_like(chunk_losses[:, :1]), earlier], axis=1)
    return lax.stop_gradient(jnp.min(jnp.exp(-tolerance * before), axis=0))


def chunk_means(values: Array, chunks: int) -> Array:
    """Means over consecutive, equal parts of a vector (points sorted by time)."""
    return jnp.mean(jnp.reshape(values, (chunks, -1)), axis=1)
