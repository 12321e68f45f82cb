"""Balancing the terms of a loss: by gradient norms or by the neural tangent kernel.

A weighting turns a measure m_i of every term into w_i = mean_j(m_j) / m_i:

    gradient norm   m_i = |d L_i / d theta|
    NTK             m_i = mean over points of |d r_i / d theta|^2  (causally weighted)

and weights follow it slowly: w <- momentum w + (1 - momentum) w_new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

FLOOR = 1e-5
"""The smallest measure, relative to the mean: a term already solved gets no infinite weight."""

Weights = dict[str, Array]


def starting_weights(terms: tuple[str, ...], start: Mapping[str, float], dtype: Any) -> Weights:
    """Weights by term, from values given by term or by condition; 1 where none is given."""
    return {t: jnp.asarray(start.get(t, start.get(t.split(".")[0], 1.0)), dtype) for t in terms}


def balanced(measures: Mapping[str, Array]) -> Weights:
    """w_i = mean_j(m_j) / m_i."""
    mean = jnp.mean(jnp.stack(list(measures.values())))
    return {t: mean / jnp.maximum(m, FLOOR * mean) for t, m in measures.items()}


def smoothed(old: Weights, new: Weights, momentum: float) -> Weights:
    return {t: momentum * old[t] + (1 - momentum) * new[t] for t in old}


def squared_norm(tree: Any) -> Array:
    """The sum of squares of all entries of a tree of arrays."""
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)]))


def gradient_norms(term_losses: Callable[[Any], dict[str, Array]], parameters: Any) -> Weights:
    """|d L_i / d theta| for every term."""
    gradients = jax.jacrev(term_losses)(parameters)
    return {term: jnp.sqrt(squared_norm(g)) for term, g in gradients.items()}


def kernel_means(point_residuals: Callable[[Any, Any], dict[str, Array]], parameters: Any,
                 batch: Any, at_once: int = 64) -> dict[str, Array]:
    """|d r_i / d theta|^2 at every point of a batch, for every residual r_i, a few at a time."""

    def diagonal(point: Any) -> dict[str, Array]:
        gradients = jax.jacrev(point_residuals)(parameters, point)
        return {term: squared_norm(g) for term, g in gradients.items()}

    return jax.lax.map(diagonal, batch, batch_size=at_once)
