"""The complex Ginzburg-Landau equation, for A = u + i v.

    A_t = epsilon (A_xx + A_yy) + mu (A - (1 + i beta) A |A|^2),      t in [0, 1]
    A(0, x, y) = 10 (y + i x) exp(-25 (x^2 + y^2)),      x, y in [-1, 1] periodic

In real and imaginary parts:

    u_t = epsilon (u_xx + u_yy) + mu (u - (u - beta v) (u^2 + v^2))
    v_t = epsilon (v_xx + v_yy) + mu (v - (v + beta u) (u^2 + v^2))

With mu = 10 and beta = 1.5 the coefficient of -A |A|^2 is 10 + 15 i. A spiral grows
from the vortex at the centre. A quarter turn of the square turns A by a quarter as well:
A(t, -y, x) = -i A(t, x, y).

Far from the centre A is tiny, follows the linear equation, and grows by e^10 to the end: an
error made there early is amplified by thousands, unless it is small relative to A. Without the
cubic term and on the whole plane,

    A = 10 (y + i x) e^(mu t) exp(-25 r^2 / s) / s^2,      s = 1 + 100 epsilon t

which, summed over the periods and limited to 1, says how large A is.
"""

import math

import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic
from piratenets.problems.symmetry import Symmetry

EPSILON, MU = 0.004, 10.0
CORE = 0.05
"""The radius within which the vortex keeps A small: the magnitude does not vanish there."""


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


def magnitude(t, x, y):
    s = 1 + 100 * EPSILON * t
    xs, ys = ([(z + 2 * k) ** 2 for k in (-1, 0, 1)] for z in (x, y))
    ex, ey = ([jnp.exp(-50 * q / s) for q in squares] for squares in (xs, ys))
    around = sum((xs[i] + ys[j] + CORE**2) * ex[i] * ey[j] for i in range(3) for j in range(3))
    # Less than 1e-9 is nothing, and single precision could not differentiate it.
    linear = 100 * jnp.exp(2 * MU * t) * around / s**4 + 1e-18
    return jnp.sqrt(linear / (1 + linear))


problem = Problem(
    name="ginzburg-landau",
    coordinates={"t": (0, 1), "x": periodic(-1, 1), "y": periodic(-1, 1)},
    unknowns=["u", "v"],
    coefficients={"epsilon": EPSILON, "mu": MU, "beta": 1.5},
    ranges={"epsilon": (0, math.inf)},
    conditions=[interior(residual), initial(start)],
    magnitude=magnitude,
    symmetry=Symmetry(move=lambda t, x, y: (t, -y, x), back=lambda u, v: (-v, u), order=4),
    # Measured error 4e-8 (u and v) in 30 s, from the modes; the step alone leaves 2e-9.
    reference=Spectral(modes=192, steps=1_000, times=101, grid=128),
)
