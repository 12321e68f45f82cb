"""Levenberg-Marquardt: Gauss-Newton steps, damped until the model can be trusted.

For the loss f = |R|^2 with Jacobian J, H = J'J and g = J'R, a step d solves

    (H + lambda I) d = -g,      predicted reduction = -(2 d.g + d.H d) = lambda |d|^2 - d.g

On a geometric ladder of dampings around the last one the *least* damped step is taken whose
ratio of actual to predicted reduction is still at least rho. Where the damping keeps growing,
rho is raised: steps that only just pay have led into a narrow valley.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.optimisers.triangular import Factorisation, Triangle, damped_step
from piratenets.weighting.losses import Losses

FACTOR = 3.0
"""Between neighbouring rungs of the ladder of dampings."""
BOLDER = 2
"""Rungs that are tried below the first that succeeds."""
MOST_TRIALS = 14
SMALLEST, LARGEST = 1e-16, 1e8
SMALLEST_BY_QR = 1e-28
"""Damping that would drown in the rounding of J'J does not in that of J."""
PATIENCE, RAISED = 30, 0.5
"""After so many iterations of growing damping the ratio asked for is RAISED."""


class Damping(NamedTuple):
    value: Array
    growing: Array
    """Iterations since the damping last fell."""


class Normal(NamedTuple):
    """H (its upper triangle on the CPU), g, and f."""

    matrix: Any
    gradient: Any


class Trial(NamedTuple):
    damping: float
    point: Any
    ratio: float
    losses: Losses


def levenberg_marquardt(damping: float = 1e-2, ratio: float = 0.15, *, qr: bool = False
                        ) -> Optimiser:
    """`damping` to start with, `ratio` the rho; `qr` to factorise J itself, not J'J."""
    model = triangle if qr else normal_equations

    def init(parameters: Any, losses: Losses) -> Damping:
        del losses
        dtype = ravel_pytree(parameters)[0].dtype
        return Damping(jnp.asarray(damping, dtype), jnp.asarray(0, jnp.int32))

    def update(objective: Objective, parameters: Any, state: Damping, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, Damping, Losses, Array]:
        x, unravel = ravel_pytree(parameters)
        normal = model(objective, parameters)
        value, losses = _value(objective, parameters)
        rho = RAISED if int(state.growing) >= PATIENCE else ratio
        trial = _search(objective, normal, x, unravel, float(value), float(state.value), rho)
        norm = 2 * jnp.linalg.norm(jnp.asarray(normal.gradient))
        if trial is None:
            return parameters, _after(state, LARGEST), losses, norm
        return trial.point, _after(state, trial.damping), trial.losses, norm

    return Optimiser(init, update, on_host=True)


def _after(state: Damping, damping: float) -> Damping:
    fell = damping < float(state.value)
    return Damping(jnp.asarray(damping, state.value.dtype),
                   (0 * state.growing if fell else state.growing + 1))


def _search(objective: Objective, normal: Normal | Triangle, x: Array, unravel: Any, value: float,
            start: float, rho: float) -> Trial | None:
    """The least damped step on the ladder that keeps the ratio, if any does."""
    def tried(damping: float) -> Trial | None:
        d = _solved(normal, damping)
        if d is None:
            return None
        predicted = damping * float(d @ d) - float(d @ normal.gradient)
        point = unravel(x + jnp.asarray(d))
        found, losses = _value(objective, point)
        ratio = (value - float(found)) / max(predicted, 1e-300)
        return Trial(damping, point, ratio, losses) if ratio >= rho else None

    smallest = SMALLEST_BY_QR if isinstance(normal, Triangle) else SMALLEST
    damping = max(start / FACTOR, smallest)
    best = tried(damping)
    if best is not None:
        for _ in range(BOLDER):
            bolder = tried(best.damping / FACTOR) if best.damping > smallest else None
            if bolder is None:
                break
            best = bolder
        return best
    for k in range(MOST_TRIALS):
        damping *= FACTOR if k < 4 else FACTOR**2
        best = tried(damping)
        if best is not None:
            break
    return best


@eqx.filter_jit
def _value(objective: Objective, parameters: Any) -> tuple[Array, Losses]:
    return objective(parameters)


def normal_equations(objective: Objective, parameters: Any) -> Normal:
    """H and g, accumulated over blocks of rows: the whole Jacobian is never in memory.

    BLAS computes one triangle of H, several times as fast as XLA on a CPU.
    """
    if jax.default_backend() != "cpu":
        return Normal(*_on_device(objective, parameters))
    matrix: Any = None
    gradient: Any = None
    for condition, piece in objective.blocks:
        rows, residual = (np.asarray(a) for a in _block(objective, parameters, condition,
                                                        jnp.asarray(piece)))
        if matrix is None:
            size = rows.shape[1]
            matrix = np.zeros((size, size), rows.dtype, order="F")
            gradient = np.zeros(size, rows.dtype)
        rank_update: Any = get_blas_funcs("syrk", (rows,))
        matrix = rank_update(1.0, rows.T, beta=1.0, c=matrix, overwrite_c=1)
        gradient += rows.T @ residual
    return Normal(matrix, gradient)


@eqx.filter_jit
def _block(objective: Objective, parameters: Any, condition: int, piece: Array
           ) -> tuple[Array, Array]:
    return objective.block(parameters, condition, piece)


@eqx.filter_jit
def _on_device(objective: Objective, parameters: Any) -> tuple[Array, Array]:
    size = ravel_pytree(parameters)[0].size
    dtype = ravel_pytree(parameters)[0].dtype
    total = jnp.zeros((size, size), dtype), jnp.zeros(size, dtype)
    for condition in dict.fromkeys(k for k, _ in objective.blocks):
        pieces = jnp.array([p for k, p in objective.blocks if k == condition])

        def add(carry: tuple[Array, Array], piece: Array, condition: int = condition
                ) -> tuple[tuple[Array, Array], None]:
            rows, residual = objective.block(parameters, condition, piece)
            return (carry[0] + rows.T @ rows, carry[1] + rows.T @ residual), None

        total, _ = jax.lax.scan(add, total, pieces)
    return total


def triangle(objective: Objective, parameters: Any) -> Triangle:
    """The QR factorisation of the Jacobian, from blocks of its rows."""
    factorisation = Factorisation()
    for condition, piece in objective.blocks:
        rows, residual = _block(objective, parameters, condition, jnp.asarray(piece))
        factorisation.add(np.asarray(rows), np.asarray(residual))
    return factorisation.finished()


def _solved(normal: Normal | Triangle, damping: float) -> Any:
    """d with (H + damping I) d = -g, or None where H is not positive enough for it."""
    if isinstance(normal, Triangle):
        return damped_step(normal, damping)
    if not isinstance(normal.matrix, np.ndarray):
        d = _device_solve(normal.matrix, normal.gradient, damping)
        return d if bool(jnp.isfinite(d).all()) else None
    damped = normal.matrix.copy(order="F")
    damped[np.diag_indices_from(damped)] += damping
    factorise: Any = get_lapack_funcs("potrf", (damped,))
    solve: Any = get_lapack_funcs("potrs", (damped,))
    factor, failed = factorise(damped, overwrite_a=1, clean=0)
    if failed:
        return None
    d, failed = solve(factor, -normal.gradient)
    return None if failed or not np.isfinite(d).all() else d


@jax.jit
def _device_solve(matrix: Array, gradient: Array, damping: float) -> Array:
    factor = jnp.linalg.cholesky(matrix + damping * jnp.eye(matrix.shape[0], dtype=matrix.dtype))
    return -jax.scipy.linalg.cho_solve((factor, True), gradient)
