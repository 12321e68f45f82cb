"""What a residual function sees: unknowns with named derivatives, coefficients, a point.

    def residual(u, c):                       # Korteweg-De Vries
        return u.t + c.eta * u * u.x + c.mu**2 * u.xxx

`u` is a value; `u.t`, `u.xx`, `u.xy` are its derivatives, looked up by multi-index in
whatever stands behind it: a network's Taylor pass, a spectral grid, or a recorder that
only notes which derivatives are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from piratenets.errors import unknown_name

Index = tuple[int, ...]
"""A multi-index: how often each coordinate is differentiated, in the problem's order."""


def parse_derivative(name: str, coordinates: tuple[str, ...]) -> Index:
    """The multi-index of a derivative's name: 'xxy' with (t, x, y) gives (0, 2, 1)."""
    index = [0] * len(coordinates)
    rest = name
    while rest:
        matches = [c for c in coordinates if rest.startswith(c)]
        if not matches:
            raise unknown_name(f"derivative {name!r}: coordinate", rest[0], coordinates)
        longest = max(matches, key=len)
        index[coordinates.index(longest)] += 1
        rest = rest[len(longest) :]
    return tuple(index)


class Unknown:
    """The value of an unknown, and its derivatives by name as attributes."""

    def __init__(
        self, name: str, coordinates: tuple[str, ...], lookup: Callable[[Index], Any]
    ) -> None:
        self._name, self._coordinates, self._lookup = name, coordinates, lookup

    @property
    def value(self) -> Any:
        return self._lookup((0,) * len(self._coordinates))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._lookup(parse_derivative(name, self._coordinates))

    def __jax_array__(self) -> Any:
        return jnp.asarray(self.value)

    def __repr__(self) -> str:
        return f"Unknown({self._name} of {', '.join(self._coordinates)})"

    def __add__(self, other: Any) -> Any:
        return self.value + _value(other)

    def __sub__(self, other: Any) -> Any:
        return self.value - _value(other)

    def __mul__(self, other: Any) -> Any:
        return self.value * _value(other)

    def __truediv__(self, other: Any) -> Any:
        return self.value / _value(other)

    def __pow__(self, other: Any) -> Any:
        return self.value ** _value(other)

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __rsub__(self, other: Any) -> Any:
        return other - self.value

    def __rmul__(self, other: Any) -> Any:
        return other * self.value

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.value

    def __rpow__(self, other: Any) -> Any:
        return other**self.value

    def __neg__(self) -> Any:
        return -self.value


def _value(other: Any) -> Any:
    return other.value if isinstance(other, Unknown) else other


@jax.tree_util.register_pytree_with_keys_class
class Names:
    """Read-only entries by name: `c.mu`, `s.u`, `p.x`, or `s["u"]`; iterates over the names.

    A pytree, so coefficients pass through compiled functions as traced values.
    """

    def __init__(self, kind: str, entries: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_entries", dict(entries))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown_name(self._kind, name, self._entries) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"{self._kind}s are read-only: {name!r} cannot be set here")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"{self._kind}s({self._entries})"

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        children = [(jax.tree_util.DictKey(k), v) for k, v in self._entries.items()]
        return children, (self._kind, tuple(self._entries))

    @classmethod
    def tree_unflatten(cls, static: tuple[str, tuple[str, ...]], children: Any) -> Names:
        kind, names = static
        return cls(kind, dict(zip(names, children, strict=True)))
