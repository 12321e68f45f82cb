"""Self-scaled Broyden: a quasi-Newton method whose update chooses its own scale and mixture.

H is the inverse Hessian's approximation. A step s = alpha p along p = -H g, with alpha from a
strong-Wolfe search, changes the gradient by y. With n parameters and

    rho = 1/(y's)    h = rho y'Hy    b = -alpha rho s'g    a = b h - 1
    c = sqrt(|a|/(1+a))    r- = min(1, h(1-c))    t- = (r- - 1)/a    t+ = 1/r-
    theta = max(t-, min(t+, (1-b)/b))    sigma = 1 + a theta    r = min(1, 1/b)
    n- = |sigma|^(1/(1-n))    tau = min(r n-, sigma) if theta <= 0 else r min(n-, 1/theta)
    phi = (1-theta)/(1+a theta)    v = rho s - Hy/(y'Hy)

    H+ = [H - Hy(Hy)'/(y'Hy) + phi (y'Hy) v v'] / tau + rho s s'

theta = 0 and phi = 1 give the self-scaled BFGS update (SSBFGS). H is carried over when the
points are drawn anew; it starts over where it has stopped giving directions of descent, or
where the search along one finds no other parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.weighting.losses import Losses

LOSSES_EVERY = 10
"""Iterations between evaluations of the losses by term, which the search does not need."""


class QuasiNewton(NamedTuple):
    """The inverse Hessian, and what is known at the current parameters."""

    inverse: Array
    value: Array
    gradient: Array
    losses: Losses


def ssbroyden(*, bfgs: bool = False, search_steps: int = 25) -> Optimiser:
    """SSBroyden, or SSBFGS."""
    search = optax.scale_by_zoom_linesearch(search_steps, initial_guess_strategy="one",
                                            stepsize_precision=1e-12)

    def init(parameters: Any, losses: Losses) -> QuasiNewton:
        flat, _ = ravel_pytree(parameters)
        return QuasiNewton(jnp.zeros((flat.size, flat.size), flat.dtype),
                           jnp.zeros((), flat.dtype), jnp.zeros_like(flat), losses)

    def update(objective: Objective, parameters: Any, state: QuasiNewton, learning_rate: Array,
               step: Array, renewed: Array) -> tuple[Any, QuasiNewton, Losses, Array]:
        x, unravel = ravel_pytree(parameters)

        def value(x: Array) -> Array:
            return objective(unravel(x))[0]

        f, g = jax.lax.cond(renewed, lambda: jax.value_and_grad(value)(x),
                            lambda: (state.value, state.gradient))
        inverse = _fresh_if_useless(state.inverse, g)
        found: Any
        after: Any
        found, after = search.update(-(inverse @ g), search.init(x), x, value=f, grad=g,
                                     value_fn=value)
        moved = x + found
        new_f, new_g = after.value, after.grad
        inverse = updated_inverse(inverse, found, new_g - g, g, after.learning_rate, bfgs=bfgs)
        # The same search would be made again and again.
        inverse = jnp.where(jnp.all(moved == x), 0.0, inverse)
        due = renewed | ((step + 1) % LOSSES_EVERY == 0)
        losses = jax.lax.cond(due, lambda: objective(unravel(moved))[1], lambda: state.losses)
        return (unravel(moved), QuasiNewton(inverse, new_f, new_g, losses), losses,
                jnp.linalg.norm(new_g))

    return Optimiser(init, update)


def _fresh_if_useless(inverse: Array, g: Array) -> Array:
    """The inverse Hessian, or a scaled identity where it gives no direction of descent."""
    slope = g @ inverse @ g
    useless = ~(slope > 0) | ~jnp.isfinite(slope)
    scale = 1.0 / jnp.maximum(jnp.linalg.norm(g), 1.0)
    return jnp.where(useless, scale * jnp.eye(g.size, dtype=g.dtype), inverse)


def updated_inverse(inverse: Array, s: Array, y: Array, g: Array, alpha: Array, *, bfgs: bool
                    ) -> Array:
    """H+ of the module's docstring; H itself where the step tells nothing (y's not positive)."""
    curvature = y @ s
    informative = curvature > jnp.finfo(s.dtype).eps * jnp.linalg.norm(y) * jnp.linalg.norm(s)
    rho = 1.0 / jnp.where(informative, curvature, 1.0)
    moved = inverse @ y
    quadratic = y @ moved
    tau, phi = scaling(rho * quadratic, -alpha * rho * (s @ g), s.size, bfgs=bfgs)
    v = rho * s - moved / quadratic
    changed = ((inverse - jnp.outer(moved, moved) / quadratic + phi * quadratic * jnp.outer(v, v))
               / tau + rho * jnp.outer(s, s))
    changed = 0.5 * (changed + changed.T)
    keep = informative & (quadratic > 0) & jnp.isfinite(tau) & (tau > 0)
    return jnp.where(keep, changed, inverse)


def scaling(h: Array, b: Array, n: int, *, bfgs: bool) -> tuple[Array, Array]:
    """tau and phi from h = y'Hy/(y's) and b = s'Bs/(y's)."""
    a = jnp.maximum(b * h - 1.0, 0.0)  # Not negative but for rounding (Cauchy-Schwarz).
    tiny = jnp.finfo(h.dtype).tiny
    c = jnp.sqrt(a / (1.0 + a))
    r_minus = jnp.minimum(1.0, h * (1.0 - c))
    theta_minus = (r_minus - 1.0) / jnp.maximum(a, tiny)
    theta = jnp.maximum(theta_minus, jnp.minimum(1.0 / r_minus, (1.0 - b) / b))
    if bfgs:
        theta = jnp.zeros_like(theta)
    sigma = 1.0 + a * theta
    r = jnp.minimum(1.0, 1.0 / b)
    root = jnp.abs(sigma) ** (1.0 / (1.0 - max(n, 2)))
    positive = r * jnp.minimum(root, 1.0 / jnp.where(theta > 0, theta, 1.0))
    tau = jnp.where(theta <= 0, jnp.minimum(r * root, sigma), positive)
    return tau, (1.0 - theta) / sigma
