"""Least-squares objectives small enough to know everything about, and loops that minimise them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from piratenets.config import OptimiserConfig
from piratenets.fields.networks import Frame
from piratenets.optimisers import make_optimiser
from piratenets.problems.problem import Problem, initial, interior
from piratenets.residuals.residuals import Points
from piratenets.weighting.losses import Losses
from piratenets.weighting.system import System

BLANK = Losses({"pde": jnp.zeros(())}, jnp.ones(1))
ROWS = 3
"""Rows of a block of the Jacobian."""


class LeastSquares(eqx.Module):
    """The loss scale |f(data, parameters)|^2, as optimisers want it: with rows of its Jacobian."""

    f: Callable = eqx.field(static=True)
    data: Any = ()
    scale: jax.Array = eqx.field(default=1.0, converter=jnp.asarray)
    count: int = eqx.field(default=2, static=True)
    """The rows of f."""

    def residual(self, parameters):
        return jnp.sqrt(self.scale) * self.f(self.data, parameters)

    def __call__(self, parameters):
        loss = jnp.sum(self.residual(parameters) ** 2)
        return loss, Losses({"pde": loss}, jnp.ones(1))

    @property
    def blocks(self):
        return [(0, k) for k in range(-(-self.count // ROWS))]

    def block(self, parameters, condition, piece):
        """Three rows, and rows of zeros where there are no more."""
        assert condition == 0
        x, unravel = ravel_pytree(parameters)

        def padded(x):
            missing = jnp.zeros(len(self.blocks) * ROWS - self.count)
            return jnp.concatenate([self.residual(unravel(x)), missing])

        def part(a):
            return jax.lax.dynamic_slice_in_dim(a, jnp.asarray(piece) * ROWS, ROWS)

        return part(jax.jacfwd(padded)(x)), part(padded(x))


def _valley(_, p):
    return jnp.stack([10 * (p["y"] - p["x"] ** 2), 1 - p["x"]])


def rosenbrock(scale=1.0):
    """A curved valley: the least value, 0, is at (1, 1)."""
    return LeastSquares(_valley, scale=scale)


def _line(data, p):
    return data[0] @ p["x"] - data[1]


def linear(matrix, target, scale=1.0):
    """|A x - b|^2"""
    return LeastSquares(_line, (jnp.asarray(matrix), jnp.asarray(target)), scale, len(target))


def random_linear(seed, scale=1.0, rows=25, columns=8, condition=10.0):
    """A linear problem with a solution of residual zero, singular values 1 to 1 / condition."""
    random = np.random.default_rng(seed)
    left, _ = np.linalg.qr(random.normal(size=(rows, columns)))
    right, _ = np.linalg.qr(random.normal(size=(columns, columns)))
    matrix = left * np.geomspace(1, 1 / condition, columns) @ right.T
    return linear(matrix, matrix @ random.normal(size=columns), scale)


def optimiser_config(kind, **changes):
    return OptimiserConfig(**{"kind": kind, "warmup_steps": 0, **changes})


@cache
def compiled(optimiser):
    """Its update; compiled, unless it is a method on the host."""
    return optimiser.update if optimiser.on_host else eqx.filter_jit(optimiser.update)


def steps(optimiser, objective, start, count, learning_rate=1.0, renewed=lambda k: k == 0):
    """(parameters, state, losses, gradient norm) after each step."""
    x = jax.tree.map(jnp.asarray, start)
    state = optimiser.init(x, BLANK)
    for k in range(count):
        x, state, losses, norm = compiled(optimiser)(
            objective, x, state, jnp.asarray(learning_rate), jnp.asarray(k),
            jnp.asarray(renewed(k)))
        yield x, state, losses, norm


def iterations(config, objective, start, tolerance, most, learning_rate=1.0):
    """Iterations until the loss is below `tolerance` times that at the start."""
    x = jax.tree.map(jnp.asarray, start)
    goal = tolerance * float(loss_of(objective, x))
    for k, found in enumerate(steps(make_optimiser(config), objective, x, most, learning_rate),
                              start=1):
        if float(loss_of(objective, found[0])) < goal:
            return k
    return np.inf


@eqx.filter_jit
def loss_of(objective, parameters):
    return objective(parameters)[0]


# A problem's residuals, weighted and causally weighted --------------------------------------------

class Small(eqx.Module):
    """Two unknowns in six parameters, none of which enters linearly alone."""

    inner: jax.Array
    outer: jax.Array

    def __call__(self, point):
        return self.outer * jnp.sin(self.inner @ point)


SMALL = Small(jnp.array([[0.7, -0.4], [0.2, 1.1]]), jnp.array([0.9, -1.3]))
WEIGHTS = {"pde.u": 3.0, "pde.v": 0.2, "initial.u": 7.0, "initial.v": 1.5}
CAUSAL = (1.0, 0.6, 0.25, 0.01)


def small_system():
    """20 points inside in four causal chunks and 5 at the start; a new problem each time, so that
    nothing compiled for one is taken for another."""
    problem = Problem(
        name="small", coordinates={"t": (0, 1), "x": (-1, 1)}, unknowns=["u", "v"],
        conditions=[interior(lambda s, c: {"u": s.u.t + s.v * s.u.x, "v": s.v.t - s.u}),
                    initial(lambda x: (jnp.sin(x), x**2))])
    random = np.random.default_rng(7)
    inside = np.stack([np.sort(random.uniform(size=20)), random.uniform(-1, 1, size=20)], axis=1)
    x = np.linspace(-1, 1, 5)
    points = {"pde": Points(jnp.asarray(inside)),
              "initial": Points(jnp.asarray(np.stack([0 * x, x], axis=1)),
                                jnp.asarray(np.stack([np.sin(x), x**2], axis=1)))}
    _, fixed = eqx.partition(SMALL, eqx.is_inexact_array)
    return System(problem, len(CAUSAL), fixed, Frame(jnp.zeros(2), jnp.ones(2)), {}, points,
                  {t: jnp.asarray(w) for t, w in WEIGHTS.items()}, jnp.asarray(1.0),
                  jnp.asarray(CAUSAL))


def dense(objective, parameters):
    """The whole Jacobian and R."""
    x, unravel = ravel_pytree(parameters)
    return tuple(np.asarray(a) for a in jax.jit(lambda x: (
        jax.jacfwd(lambda x: objective.residual(unravel(x)))(x),
        objective.residual(unravel(x))))(x))
