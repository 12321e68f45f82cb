"""The complex Ginzburg-Landau equation, for A = u + i v.

    A_t = epsilon (A_xx + A_yy) + mu (A - (1 + i beta) A |A|^2),      t in [0, 1]
    A(0, x, y) = 10 (y + i x) exp(-25 (x^2 + y^2)),      x, y in [-1, 1] periodic

In real and imaginary parts:

    u_t = epsilon (u_xx + u_yy) + mu (u - (u - beta v) (u^2 + v^2))
    v_t = epsilon (v_xx + v_yy) + mu (v - (v + beta u) (u^2 + v^2))

With mu = 10 and beta = 1.5 the coefficient of -A |A|^2 is 10 + 15 i. A spiral grows
from the vortex at the centre. A is odd: A(t, -x, -y) = -A(t, x, y).
"""

import math

import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic


def residual(s, c):
    u, v = s.u, s.v
    square = u**2 + v**2
    return {
        "u": u.t - c.epsilon * (u.xx + u.yy) - c.mu * (u - (u - c.beta * v) * square),
        "v": v.t - c.epsilon * (v.xx + v.yy) - c.mu * (v - (v + c.beta * u) * square),
    }


def start(x, y):
    bump = jnp.exp(-0.01 * (2500 * x**2 + 2500 * y**2))
    return 10 * y * bump, 10 * x * bump


problem = Problem(
    name="ginzburg-landau",
    coordinates={"t": (0, 1), "x": periodic(-1, 1), "y": periodic(-1, 1)},
    unknowns=["u", "v"],
    coefficients={"epsilon": 0.004, "mu": 10.0, "beta": 1.5},
    ranges={"epsilon": (0, math.inf)},
    conditions=[interior(residual), initial(start)],
    # Measured error 4e-8 (u and v) in 30 s, from the modes; the step alone leaves 2e-9.
    reference=Spectral(modes=192, steps=1_000, times=101, grid=128),
)
