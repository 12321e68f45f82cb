"""Exact symmetries of a solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp


@dataclass(frozen=True)
class Symmetry:
    """A motion of the domain that takes the solution into itself: u(p) = back(u(move(p))).

    `move` takes and returns the coordinates, `back` the unknowns; `order` motions are none.
    """

    move: Callable[..., tuple[Any, ...]]
    back: Callable[..., tuple[Any, ...]]
    order: int

    def average(self, field: Callable[[Any], Any], point: Any) -> Any:
        """The symmetric part, at one point (d,), of a field with values (k,)."""
        total: Any = 0.0
        for turns in range(self.order):
            value = field(point)
            for _ in range(turns):
                value = jnp.stack(self.back(*value))
            total = total + value
            point = jnp.stack(self.move(*point))
        return total / self.order
