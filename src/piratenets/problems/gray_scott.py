import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic


def residual(s, c):
    u, v = s.u, s.v
    return {
        "u": u.t - c.epsilon1 * (u.xx + u.yy) - c.b1 * (1 - u) + c.c1 * u * v**2,
        "v": v.t - c.epsilon2 * (v.xx + v.yy) + c.b2 * v - c.c2 * u * v**2,
    }


def start(x, y):
    u0 = 1 - jnp.exp(-10 * ((x + 0.05) ** 2 + (y + 0.02) ** 2))
    v0 = jnp.exp(-10 * ((x - 0.05) ** 2 + (y - 0.02) ** 2))
    return u0, v0


def gray_scott(end: float = 1.0) -> Problem:
    return Problem(
        name="gray-scott",
        coordinates={"t": (0, end), "x": periodic(-1, 1), "y": periodic(-1, 1)},
        unknowns=["u", "v"],
        coefficients={"epsilon1": 0.2, "epsilon2": 0.1, "b1": 40.0, "b2": 100.0, "c1": 1000.0, "c2": 1000.0},
        conditions=[interior(residual), initial(start)],
        reference=Spectral(modes=256, steps=1000, times=101, grid=128),
    )


problem = gray_scott()
