"""The contract of an optimiser: a pair of pure functions with explicit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from piratenets.weighting.losses import Losses

Objective = Callable[[Any], tuple[Array, Losses]]
"""The weighted loss of the parameters, and the losses by term it is made of."""


class Optimiser(NamedTuple):
    """`init(parameters) -> state`, and

    `update(objective, parameters, state, learning_rate, step)
        -> (parameters, state, losses, gradient norm)`.
    """

    init: Callable[[Any], Any]
    update: Callable[[Objective, Any, Any, Array, Array], tuple[Any, Any, Losses, Array]]
