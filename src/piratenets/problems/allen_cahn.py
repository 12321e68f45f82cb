"""The Allen-Cahn equation.

    u_t - epsilon u_xx + 5 u^3 - 5 u = 0,      t in [0, 1], x in [-1, 1] periodic
    u(0, x) = x^2 cos(pi x)

Continued periodically, the initial data have a kink at x = +-1 (u_x jumps from 2 to -2)
that only the diffusion epsilon = 1e-4 smooths. Its Fourier coefficients decay as 1/k^2,
which is why the reference needs thousands of modes. The solution is even in x.
"""

import math

import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic


def residual(u, c):
    return u.t - c.epsilon * u.xx + c.rate * (u**3 - u)


def u0(x):
    return x**2 * jnp.cos(jnp.pi * x)


problem = Problem(
    name="allen-cahn",
    coordinates={"t": (0, 1), "x": periodic(-1, 1, even=True)},
    unknowns=["u"],
    coefficients={"epsilon": 1e-4, "rate": 5.0},
    ranges={"epsilon": (0, math.inf)},
    conditions=[interior(residual), initial(u0)],
    rough=[{"t": 0, "x": 1}],
    # Measured error 3.6e-12, in 3 s.
    reference=Spectral(modes=4096, steps=1000, times=201, grid=512),
)
