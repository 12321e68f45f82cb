"""The Allen-Cahn equation.

    u_t - epsilon u_xx + 5 u^3 - 5 u = 0,      t in [0, 1], x in [-1, 1] periodic
    u(0, x) = x^2 cos(pi x)

Continued periodically, the initial data have a kink at x = +-1 (u_x jumps from 2 to -2)
that only the diffusion epsilon = 1e-4 smooths. Its Fourier coefficients decay as 1/k^2,
which is why the reference needs thousands of modes. The solution is even in x.

A small network sees the kink's shape beside the coordinates: with q = (2 / pi) cos(pi x / 2),
which is the distance to x = +-1 near there, and the diffusion's width w = (4 epsilon t)^(1/2),

    kink(t, x) = q erf(q / w) + w exp(-(q / w)^2) / pi^(1/2)

is |q| smoothed by diffusion. The initial data are a smooth function of |q|, and to leading order
the equation does to the one what it does to the other.
"""

import math

import jax.numpy as jnp
from jax.scipy.special import erf

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic

EPSILON = 1e-4


def residual(u, c):
    return u.t - c.epsilon * u.xx + c.rate * (u**3 - u)


def u0(x):
    return x**2 * jnp.cos(jnp.pi * x)


def kink(t, x):
    # At t = 0 the width is that of a time that no error can see, lest its derivatives overflow.
    q, w = 2 / jnp.pi * jnp.cos(jnp.pi * x / 2), jnp.sqrt(4 * EPSILON * (t + 1e-8))
    return q * erf(q / w) + w * jnp.exp(-((q / w) ** 2)) / jnp.pi**0.5


problem = Problem(
    name="allen-cahn",
    coordinates={"t": (0, 1), "x": periodic(-1, 1, even=True)},
    unknowns=["u"],
    coefficients={"epsilon": EPSILON, "rate": 5.0},
    ranges={"epsilon": (0, math.inf)},
    conditions=[interior(residual), initial(u0)],
    rough=[{"t": 0, "x": 1}],
    shapes=[kink],
    # Measured error 3.6e-12, in 3 s.
    reference=Spectral(modes=4096, steps=1000, times=201, grid=512),
)
