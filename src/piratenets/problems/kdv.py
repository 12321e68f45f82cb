import jax.numpy as jnp

from piratenets.problems.problem import Problem, Spectral, initial, interior, periodic


def residual(u, c):
    return u.t + c.eta * u * u.x + c.mu**2 * u.xxx


def u0(x):
    return jnp.cos(jnp.pi * x)


problem = Problem(
    name="kdv",
    coordinates={"t": (0, 1), "x": periodic(-1, 1)},
    unknowns=["u"],
    coefficients={"eta": 1.0, "mu": 0.022},
    conditions=[interior(residual), initial(u0)],
    reference=Spectral(modes=512, steps=10000, times=201, grid=512),
)
