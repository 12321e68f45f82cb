"""SPRING: a natural-gradient step in the space of samples, with momentum.

For the loss |R|^2 with Jacobian J (N, P) and many more parameters than rows, P >> N, the system
to solve is that of the kernel K = J J' (N, N). The step phi that solves J phi = R in the damped
sense nearest to mu times the last one keeps what earlier points have taught:

    z = R - J (mu phi_last)     phi = J' (K + lambda I)^-1 z + mu phi_last      theta - alpha phi

lambda is relative to the mean of K's diagonal. alpha = 1, 1/2, 1/4 ... is the first that reduces
the loss and beats its half; where there is none, the momentum is dropped. mu = 0 is damped
Gauss-Newton; then lambda -> 0 gives the shortest of the solutions of J phi = R.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses

SMALLEST_STEP = 2.0**-20


class Trial(NamedTuple):
    """A step length tried, and what it leads to."""

    alpha: Array
    value: Array
    losses: Losses


def spring(damping: float = 1e-6, momentum: float = 0.9) -> Optimiser:
    """`damping` the lambda, `momentum` the mu. The state is the last phi."""

    def init(parameters: Any, losses: Losses) -> Array:
        del losses
        return jnp.zeros_like(ravel_pytree(parameters)[0])

    def update(objective: Objective, parameters: Any, state: Array, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, Array, Losses, Array]:
        x, unravel = ravel_pytree(parameters)
        expected = momentum * state
        samples = Samples(objective, parameters)
        residual, image = samples.residual_and_image(expected)
        kernel = samples.kernel()
        shift = damping * _mean_of_rows(jnp.diag(kernel)) + jnp.finfo(x.dtype).tiny
        factor = jax.scipy.linalg.cho_factor(kernel + shift * jnp.eye(*kernel.shape, dtype=x.dtype))
        dual = jax.scipy.linalg.cho_solve(factor, residual - image)
        correction, gradient = samples.pulled_back(jnp.stack([dual, residual]))
        phi = correction + expected

        def tried(alpha: Array) -> Trial:
            return Trial(alpha, *objective(unravel(x - alpha * phi)))

        best = searched(tried, Trial(jnp.zeros((), x.dtype), *objective(parameters)))
        kept = jnp.where(best.alpha > 0, phi, 0.0)
        # Nothing of phi is taken where nothing of it is good, not even its infinities.
        return (unravel(jnp.where(best.alpha > 0, x - best.alpha * phi, x)), kept, best.losses,
                2 * jnp.linalg.norm(gradient))

    return Optimiser(init, update)


def _mean_of_rows(diagonal: Array) -> Array:
    """The mean over the rows that there are: blocks that overlap have rows of zeros."""
    return jnp.sum(diagonal) / jnp.maximum(jnp.sum(diagonal > 0), 1).astype(diagonal.dtype)


def searched(tried: Callable[[Array], Trial], start: Trial) -> Trial:
    """The first of 1, 1/2, 1/4 ... that is better than the start and than its half."""
    class Search(NamedTuple):
        best: Trial
        alpha: Array
        over: Array

    def go_on(search: Search) -> Array:
        return ~search.over & (search.alpha >= SMALLEST_STEP)

    def halve(search: Search) -> Search:
        trial = tried(search.alpha)
        better = trial.value < search.best.value
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), trial, search.best)
        return Search(best, search.alpha / 2, ~better & (search.best.alpha > 0))

    one = jnp.ones_like(start.alpha)
    return jax.lax.while_loop(go_on, halve, Search(start, one, jnp.asarray(False))).best


class Samples:
    """Products with J, block of rows by block: no (N, P) array is ever in memory.

    Rows are computed anew for every product. With B rows in a block the product of two blocks
    takes 2 B^2 P operations, their rows a few dozen B P.
    """

    def __init__(self, objective: Objective, parameters: Any) -> None:
        self._objective, self._parameters = objective, parameters
        blocks = groupby(sorted(objective.blocks), key=lambda block: block[0])
        self._pieces = {condition: jnp.array([p for _, p in of]) for condition, of in blocks}

    def _map(self, condition: int, f: Callable[..., Any], *along: Array) -> Any:
        """f(rows, residual, ...) of each block of a condition, stacked."""
        def at(piece_and_more: tuple[Array, ...]) -> Any:
            piece, *more = piece_and_more
            return f(*self._objective.block(self._parameters, condition, piece), *more)

        return jax.lax.map(at, (self._pieces[condition], *along))

    def residual_and_image(self, direction: Array) -> tuple[Array, Array]:
        """R and J direction."""
        found = [self._map(k, lambda rows, r: (r, rows @ direction)) for k in self._pieces]
        return (jnp.concatenate([jnp.ravel(r) for r, _ in found]),
                jnp.concatenate([jnp.ravel(image) for _, image in found]))

    def pulled_back(self, duals: Array) -> Array:
        """J' applied to each row of `duals` (m, N)."""
        total, first = 0.0, 0
        for k, pieces in self._pieces.items():
            size = self._block_size(k)
            mine = duals[:, first : first + pieces.size * size]
            first += pieces.size * size
            by_piece = jnp.moveaxis(jnp.reshape(mine, (duals.shape[0], pieces.size, size)), 1, 0)
            total += jnp.sum(self._map(k, lambda rows, _, w: w @ rows, by_piece), axis=0)
        return jnp.asarray(total)

    def _block_size(self, condition: int) -> int:
        return jax.eval_shape(lambda: self._objective.block(self._parameters, condition, 0)
                              )[1].shape[0]

    def kernel(self) -> Array:
        """K = J J'."""
        conditions = list(self._pieces)
        tiles = {(a, b): self._tile(a, b) for i, a in enumerate(conditions)
                 for b in conditions[: i + 1]}
        return jnp.block([[tiles[a, b] if (a, b) in tiles else tiles[b, a].T for b in conditions]
                          for a in conditions])

    def _tile(self, a: int, b: int) -> Array:
        """J_a J_b' for two conditions; of a tile on the diagonal one half is computed."""
        sizes = self._block_size(a), self._block_size(b)

        def row(rows: Array, _: Array, i: Array) -> Array:
            def product(j: Array) -> Array:
                return rows @ self._objective.block(self._parameters, b, j)[0].T

            def lower(j: Array) -> Array:
                return jax.lax.cond(j <= i, product, lambda _: jnp.zeros(sizes, rows.dtype), j)

            return jax.lax.map(lower if a == b else product, self._pieces[b])

        found = self._map(a, row, self._pieces[a])
        tile = jnp.reshape(jnp.moveaxis(found, 1, 2),
                           (sizes[0] * self._pieces[a].size, sizes[1] * self._pieces[b].size))
        return jnp.tril(tile) + jnp.tril(tile, -1).T if a == b else tile
