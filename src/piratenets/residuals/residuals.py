"""The residual vectors: the central object, from which losses and weights derive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from piratenets.fields.networks import Framed
from piratenets.fields.taylor import derivatives
from piratenets.problems.problem import Condition, Problem, evaluate_residual
from piratenets.problems.unknown import Index

Field = Callable[[Array], Array]
"""Anything that maps one point to the unknowns: a network or an exact solution."""


class Points(NamedTuple):
    """Where a condition is imposed: points (n, d), and the values (n, k) that belong to them."""

    points: Array
    values: Array | None = None


Batch = Mapping[str, Points]
"""The points of every condition, by its name."""


def point_residuals(problem: Problem, condition: Condition, field: Field,
                    coefficients: Mapping[str, Any], point: Array, values: Array | None
                    ) -> dict[str, Array]:
    """A condition's residuals by term at one point, its derivatives from one Taylor pass.

    They are in units of the field where it has a magnitude."""
    wanted = problem.derivatives[condition.name]
    table = derivatives(lambda x: jnp.reshape(field(x), (-1,)), point, wanted)

    def lookup(unknown: int, index: Index) -> Array:
        return table[index][unknown]

    found = evaluate_residual(problem, condition, lookup, coefficients, list(point), values)
    unit = field.unit(point) if isinstance(field, Framed) else 1.0
    return {term: r / unit for term, r in found.items()}


def residuals(problem: Problem, field: Field, batch: Batch, coefficients: Mapping[str, Any]
              ) -> dict[str, Array]:
    """The residual vectors by term, each along its condition's points."""
    vectors: dict[str, Array] = {}
    for condition in problem.conditions:
        def at(point: Array, values: Array | None, condition: Condition = condition
               ) -> dict[str, Array]:
            return point_residuals(problem, condition, field, coefficients, point, values)

        points, values = batch[condition.name]
        vectors.update(jax.vmap(at, in_axes=(0, None if values is None else 0))(points, values))
    return vectors
