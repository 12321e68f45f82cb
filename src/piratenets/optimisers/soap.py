"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner.

For a matrix W with gradient G, moving averages of both sides' second moments

    L <- b2 L + (1 - b2) G G'        R <- b2 R + (1 - b2) G'G

have eigenvectors Q_L and Q_R. Adam runs on the rotated gradient, with M averaged as it is:

    G~ = Q_L' G Q_R      M <- b1 M + (1 - b1) G      V <- b2 V + (1 - b2) G~^2
    W <- W - rate Q_L [Q_L' M Q_R / (sqrt(V) + eps)] Q_R'         (M, V corrected for their start)

The bases follow L and R by one step of orthogonal iteration, Q <- qr(L Q), every few steps. What
is not a matrix has Q = 1: Adam. The first step only gathers L and R: in the eigenbasis of a
single gradient nearly all of G~ is rounding error, which Adam would blow up to size one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from piratenets.config import OptimiserConfig
from piratenets.optimisers.adam import schedule
from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses

B1, B2, EPSILON = 0.95, 0.95, 1e-8


class Side(NamedTuple):
    """One side of a matrix: L (or R), and its eigenvectors in columns."""

    moment: Array
    basis: Array


class Leaf(NamedTuple):
    """A parameter's M and V, and its two sides if it is a matrix."""

    first: Array
    second: Array
    sides: tuple[Side, ...]


class Soap(NamedTuple):
    steps: Array
    """Steps with this state."""
    leaves: tuple[Leaf, ...]


def soap(config: OptimiserConfig) -> Optimiser:
    """SOAP with Adam's schedule, its bases renewed every `precondition_every` steps."""
    relative_rate = schedule(config)

    def init(parameters: Any, losses: Losses) -> Soap:
        del losses
        return Soap(jnp.asarray(0, jnp.int32), tuple(map(_fresh, jax.tree.leaves(parameters))))

    def update(objective: Objective, parameters: Any, state: Soap, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, Soap, Losses, Array]:
        del renewed
        (_, losses), gradient = jax.value_and_grad(objective, has_aux=True)(parameters)
        count, rate = state.steps, learning_rate * relative_rate(step)
        values, structure = jax.tree.flatten(parameters)
        moved: list[Array] = []
        leaves: list[Leaf] = []
        with jax.default_matmul_precision("highest"):
            for w, g, leaf in zip(values, jax.tree.leaves(gradient), state.leaves, strict=True):
                direction, leaf = _adam_in_basis(g, leaf, count)
                moved.append(w - rate.astype(w.dtype) * direction)
                leaves.append(_followed(g, leaf, count, config.precondition_every))
        return (jax.tree.unflatten(structure, moved), Soap(count + 1, tuple(leaves)), losses,
                optax.tree.norm(gradient))

    return Optimiser(init, update)


def _fresh(w: Array) -> Leaf:
    sides = tuple(Side(jnp.zeros((n, n), w.dtype), jnp.eye(n, dtype=w.dtype)) for n in w.shape)
    return Leaf(jnp.zeros_like(w), jnp.zeros_like(w), sides if w.ndim == 2 else ())


def _adam_in_basis(g: Array, leaf: Leaf, count: Array) -> tuple[Array, Leaf]:
    """The direction (zero in the first step, which is not counted) and the new averages."""
    started = (count > 0).astype(g.dtype)
    first = leaf.first + started * (1 - B1) * (g - leaf.first)
    second = leaf.second + started * (1 - B2) * (_rotated(g, leaf) ** 2 - leaf.second)
    counted = jnp.maximum(count, 1).astype(g.dtype)
    mean = _rotated(first, leaf) / (1 - B1**counted)
    direction = mean / (jnp.sqrt(second / (1 - B2**counted)) + EPSILON)
    return _rotated_back(direction, leaf), Leaf(first, second, leaf.sides)


def _rotated(x: Array, leaf: Leaf) -> Array:
    """Q_L' x Q_R"""
    if not leaf.sides:
        return x
    left, right = leaf.sides
    return left.basis.T @ x @ right.basis


def _rotated_back(x: Array, leaf: Leaf) -> Array:
    if not leaf.sides:
        return x
    left, right = leaf.sides
    return left.basis @ x @ right.basis.T


def _followed(g: Array, leaf: Leaf, count: Array, every: int) -> Leaf:
    """L and R with one gradient more and, when due, the bases that follow from them."""
    if not leaf.sides:
        return leaf
    left, right = leaf.sides
    left = left._replace(moment=left.moment + (1 - B2) * (g @ g.T - left.moment))
    right = right._replace(moment=right.moment + (1 - B2) * (g.T @ g - right.moment))
    leaf = leaf._replace(sides=(left, right))

    def eigenvectors() -> Leaf:
        def of(side: Side) -> Side:
            return side._replace(basis=jnp.linalg.eigh(side.moment)[1])
        return leaf._replace(sides=(of(left), of(right)))

    def iterated() -> Leaf:
        (rows, new_left), (columns, new_right) = _iterated(left), _iterated(right)
        return Leaf(leaf.first, leaf.second[rows, :][:, columns], (new_left, new_right))

    due = jnp.where(count == 0, 1, jnp.where(count % every == 0, 2, 0))
    return jax.lax.switch(due, [lambda: leaf, eigenvectors, iterated])


def _iterated(side: Side) -> tuple[Array, Side]:
    """One step of orthogonal iteration, and the order its columns came in.

    It keeps its columns apart when they come by falling eigenvalue, so they are sorted first,
    and V with them.
    """
    image = side.moment @ side.basis
    order = jnp.argsort(-jnp.sum(side.basis * image, axis=0))
    return order, side._replace(basis=jnp.linalg.qr(image[:, order])[0])
