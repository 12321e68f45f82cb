"""The weighted least-squares system of a step: what every optimiser is given.

    loss = sum_k w_k mean_i c_i r_ki^2 = |R|^2,      R_ki = sqrt(w_k c_i / n_k) r_ki

with a weight w_k for each term and causal weights c_i. As a callable it is the loss, whose
causal weights follow the parameters; `frozen` holds them, so that one function is minimised
while the points stay, and then the residual vector R and its Jacobian say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from piratenets.fields.networks import Frame, Framed, Network
from piratenets.problems.problem import Condition, Problem
from piratenets.residuals.residuals import Points, point_residuals, residuals
from piratenets.weighting.balance import Weights
from piratenets.weighting.losses import Losses, causal_terms, losses

ROWS = 1024
"""Rows of the Jacobian computed at once: few enough to stay in cache, enough for BLAS."""


class System(eqx.Module):
    """A problem's residuals at the points of a step, with their weights."""

    problem: Problem = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    fixed: Network
    """What of the network is not trained."""
    frame: Frame
    coefficients: Mapping[str, Array]
    points: Mapping[str, Points]
    weights: Weights
    tolerance: Array
    causal: Array | None = None
    """Causal weights (chunks,) that are held; None if they follow the parameters."""

    def field(self, parameters: Any) -> Framed:
        return Framed(eqx.combine(parameters, self.fixed), self.frame)

    def losses(self, parameters: Any) -> Losses:
        """The losses by term."""
        vectors = residuals(self.problem, self.field(parameters), self.points, self.coefficients)
        return losses(self.problem, vectors, self.chunks, self.tolerance, self.causal)

    def __call__(self, parameters: Any) -> tuple[Array, Losses]:
        """The loss, and what it is made of."""
        found = self.losses(parameters)
        return jnp.sum(jnp.stack([self.weights[t] * v for t, v in found.terms.items()])), found

    def frozen(self, causal: Array) -> System:
        """The same with causal weights that are held."""
        return eqx.tree_at(lambda s: s.causal, self, causal, is_leaf=lambda x: x is None)

    def residual(self, parameters: Any) -> Array:
        """R, term by term."""
        vectors = residuals(self.problem, self.field(parameters), self.points, self.coefficients)
        return jnp.concatenate([self._scale(t, r.shape[0]) * r for t, r in vectors.items()])

    def _scale(self, term: str, count: int) -> Array:
        weight = self.weights[term] / count
        if self.causal is None or self.chunks == 1 or term not in causal_terms(self.problem):
            return jnp.full((count,), jnp.sqrt(weight))
        return jnp.sqrt(weight * jnp.repeat(self.causal, count // self.chunks))

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Which condition and which of its pieces each block of rows belongs to."""
        return [(k, piece) for k, condition in enumerate(self.problem.conditions)
                for piece in range(-(-self._points_of(condition) // self._piece(condition)))]

    def _points_of(self, condition: Condition) -> int:
        return self.points[condition.name].points.shape[0]

    def _terms_of(self, condition: Condition) -> list[str]:
        return [t for t in self.problem.terms if t.split(".")[0] == condition.name]

    def _piece(self, condition: Condition) -> int:
        """Points of one block; the last block of a condition may overlap the one before."""
        return min(max(ROWS // len(self._terms_of(condition)), 1), self._points_of(condition))

    def block(self, parameters: Any, condition: int, piece: Array | int) -> tuple[Array, Array]:
        """Rows of the Jacobian (rows, parameters) and of R (rows,).

        Rows that an earlier block has given already are zero.
        """
        of = self.problem.conditions[condition]
        count, size = self._points_of(of), self._piece(of)
        first = jnp.minimum(jnp.asarray(piece) * size, count - size)
        points, values = jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, first, size), self.points[of.name])
        new = first + jnp.arange(size) >= jnp.asarray(piece) * size
        terms = self._terms_of(of)
        scale = jnp.stack([jax.lax.dynamic_slice_in_dim(self._scale(t, count), first, size)
                           for t in terms], axis=1) * new[:, None]

        def at(point: Array, value: Array | None, scale: Array) -> tuple[Array, Array]:
            def scaled(p: Any) -> Array:
                found = point_residuals(self.problem, of, self.field(p), self.coefficients,
                                        point, value)
                return scale * jnp.stack([found[t] for t in terms])

            vector, pull = jax.vjp(scaled, parameters)
            units = jnp.eye(len(terms), dtype=scale.dtype)
            rows = [ravel_pytree(pull(unit)[0])[0] for unit in units]
            return jnp.stack(rows), vector

        jacobian, vector = jax.vmap(at, in_axes=(0, None if values is None else 0, 0))(
            points, values, scale)
        return jnp.reshape(jacobian, (-1, jacobian.shape[-1])), jnp.ravel(vector)
