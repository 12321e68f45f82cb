"""The lid-driven cavity: steady, incompressible flow in a square, driven by its moving top.

    u u_x + v u_y + p_x - (u_xx + u_yy) / Re = 0
    u v_x + v v_y + p_y - (v_xx + v_yy) / Re = 0,      x, y in [0, 1]
    u_x + v_y = 0

with u = v = 0 on three walls and, on the lid y = 1, v = 0 and

    u(x, 1) = 1 - cosh(50 (x - 1/2)) / cosh(25).

The lid is regularised: it slows to rest at its two ends, over a width of 1/50, so that the
boundary values are continuous. The classical lid has u = 1 throughout. The two flows differ:
at Re 3200 by a few parts in a hundred of the velocity, inside the cavity too, so a solution is
scored against a reference with this lid. The pressure is determined up to a constant.
"""

import jax.numpy as jnp

from piratenets.problems.problem import FiniteElements, Problem, boundary, interior


def residual(s, c):
    u, v, p = s.u, s.v, s.p
    return {
        "x": u * u.x + v * u.y + p.x - (u.xx + u.yy) / c.Re,
        "y": u * v.x + v * v.y + p.y - (v.xx + v.yy) / c.Re,
        "continuity": u.x + v.y,
    }


def lid(x):
    return 1 - jnp.cosh(50 * (x - 0.5)) / jnp.cosh(25.0)


def walls(s, c, p):
    return {"u": s.u - jnp.where(p.y == 1, lid(p.x), 0.0), "v": s.v}


problem = Problem(
    name="cavity",
    coordinates={"x": (0, 1), "y": (0, 1)},
    unknowns=["u", "v", "p"],
    coefficients={"Re": 3200.0},
    conditions=[interior(residual), boundary(walls, {"x": 0}, {"x": 1}, {"y": 0}, {"y": 1})],
    ranges={"Re": (0, 5000)},
    rough=[{"x": 0, "y": 1}, {"x": 1, "y": 1}, {"y": 1}, {"x": 1}, {"x": 0}, {"y": 0}],
    # Measured errors at most 1e-4, see `references/cavity.py`.
    reference=FiniteElements(lid="regularised"),
    literature=FiniteElements(lid="classical"),
    measures={"speed": lambda s: jnp.hypot(s["u"], s["v"])},
    up_to_constant=["p"],
)
