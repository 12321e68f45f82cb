import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic


def residual(s, c):
    u, v = s.u, s.v
    r = u**2 + v**2
    return {
        "u": u.t - c.epsilon * (u.xx + u.yy) - c.mu * (u - (u - c.beta * v) * r),
        "v": v.t - c.epsilon * (v.xx + v.yy) - c.mu * (v - (v + c.beta * u) * r),
    }


def start(x, y):
    bump = jnp.exp(-0.01 * (2500 * x**2 + 2500 * y**2))
    return 10 * y * bump, 10 * x * bump


problem = Problem(
    name="ginzburg-landau",
    coordinates={"t": (0, 1), "x": periodic(-1, 1), "y": periodic(-1, 1)},
    unknowns=["u", "v"],
    coefficients={"epsilon": 0.004, "mu": 10.0, "beta": 1.5},
    conditions=[interior(residual), initial(start)],
    reference=Spectral(modes=256, steps=1000, times=101, grid=128),
)
