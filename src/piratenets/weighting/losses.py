"""From residual vectors to losses by term, causally weighted where time is a coordinate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from piratenets.problems.problem import Problem
from piratenets.weighting.causal import causal_weights, chunk_means


class Losses(NamedTuple):
    """A loss for every term, and the causal weights (chunks,) they hold."""

    terms: dict[str, Array]
    causal: Array


def causal_terms(problem: Problem) -> list[str]:
    """The terms that causal weights apply to: those of conditions sampled over all times."""
    if problem.time is None:
        return []
    names = [c.name for c in problem.conditions if c.sampled]
    return [t for t in problem.terms if t.split(".")[0] in names]


def losses(problem: Problem, residuals: Mapping[str, Array], chunks: int,
           tolerance: Array | float, held: Array | None = None) -> Losses:
    """Mean squares by term; `chunks` = 1 leaves out the causal weights.

    A causal term is mean_i(w_i L_i) over chunks of time, with weights that follow from the
    losses unless they are `held`.
    """
    squares = {term: jnp.square(r) for term, r in residuals.items()}
    ordered = causal_terms(problem) if chunks > 1 else []
    if not ordered:
        some = next(iter(squares.values()))
        return Losses({t: jnp.mean(s) for t, s in squares.items()}, jnp.ones((1,), some.dtype))
    by_chunk = {term: chunk_means(squares[term], chunks) for term in ordered}
    weights = held if held is not None else causal_weights(
        jnp.stack(list(by_chunk.values())), tolerance)
    terms = {t: jnp.mean(weights * by_chunk[t]) if t in by_chunk else jnp.mean(s)
             for t, s in squares.items()}
    return Losses(terms, weights)
