"""The damped least-squares step from a QR factorisation of the Jacobian itself.

The normal equations J'J square the condition number of J: directions in which J is smaller than
about 1e-8 of its largest are lost in them. With J = Q T and b = Q'R a step solves instead

    min_d | T d + b |^2 + lambda |d|^2

by another QR factorisation, of T above lambda^(1/2) I: several times the work, for the last
digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

BATCH = 4
"""Rows that are factorised at once, in multiples of the number of parameters."""


class Triangle(NamedTuple):
    """T, b = Q'R, and the gradient g = J'R = T'b."""

    factor: NDArray[np.float64]
    image: NDArray[np.float64]
    gradient: NDArray[np.float64]


class Factorisation:
    """T and b from rows of J and R that come a few at a time; they are never all in memory."""

    def __init__(self) -> None:
        self._waiting: list[NDArray[np.float64]] = []
        self._count = 0

    def add(self, rows: NDArray[np.float64], residual: NDArray[np.float64]) -> None:
        self._waiting.append(np.concatenate([rows, residual[:, None]], axis=1))
        self._count += len(rows)
        if self._count >= BATCH * rows.shape[1]:
            self._waiting = [_upper(np.concatenate(self._waiting))]
            self._count = 0

    def finished(self) -> Triangle:
        size = self._waiting[0].shape[1] - 1
        # Rows of zeros make it square where there are fewer rows than parameters.
        missing = np.zeros((size, size + 1))
        upper = _upper(np.concatenate([*self._waiting, missing]))
        factor, image = upper[:size, :size], upper[:size, size]
        return Triangle(factor, image, factor.T @ image)


def damped_step(triangle: Triangle, damping: float) -> NDArray[np.float64] | None:
    """d, or None where rounding leaves no solution."""
    size = len(triangle.image)
    above = np.concatenate([triangle.factor, triangle.image[:, None]], axis=1)
    below = np.concatenate([np.sqrt(damping) * np.eye(size), np.zeros((size, 1))], axis=1)
    upper = _upper(np.concatenate([above, below]))
    if not np.diagonal(upper)[:size].all():
        return None
    d: Any = solve_triangular(upper[:size, :size], -upper[:size, size], check_finite=False)
    return d if np.isfinite(d).all() else None


def _upper(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The triangular factor of a matrix that has at least as many rows as columns."""
    found: Any = qr(matrix, mode="r", overwrite_a=True, check_finite=False)
    return found[0][: matrix.shape[1]]
