"""The contract of an optimiser: a pair of pure functions with explicit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

from piratenets.weighting.losses import Losses


class Objective(Protocol):
    """What is minimised. First-order methods only call it; Gauss-Newton methods ask for the
    residual vector R with loss = |R|^2, and for blocks of rows of its Jacobian."""

    def __call__(self, parameters: Any) -> tuple[Array, Losses]:
        """The weighted loss, and the losses by term it is made of."""
        ...

    def residual(self, parameters: Any) -> Array:
        """R (rows,)."""
        ...

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The arguments of `block`, one pair for each."""
        ...

    def block(self, parameters: Any, condition: int, piece: Array | int) -> tuple[Array, Array]:
        """Rows of the Jacobian (m, parameters), and of R (m,)."""
        ...


class Optimiser(NamedTuple):
    """`init(parameters, losses) -> state`, with any losses of the right shape, and

    `update(objective, parameters, state, learning_rate, step, renewed)
        -> (parameters, state, losses, gradient norm)`.

    `renewed` says that the objective is not that of the last step: points or weights are new.
    A method on the host is called step by step from Python (its linear algebra is BLAS and
    LAPACK); the others run inside one compiled loop.
    """

    init: Callable[[Any, Losses], Any]
    update: Callable[[Objective, Any, Any, Array, Array, Array], tuple[Any, Any, Losses, Array]]
    on_host: bool = False
