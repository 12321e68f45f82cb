import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers.lbfgs import lbfgs

from .common import BLANK, compiled, loss_of, rosenbrock, steps

pytestmark = pytest.mark.usefixtures("quick_compilation")

START = {"x": np.array(-1.2), "y": np.array(1.0)}
LBFGS = lbfgs(memory=5)


def slope(objective, at, towards):
    """The loss's derivative at one place along the way from it to another, or from another."""
    gradient = jax.grad(lambda p: objective(p)[0])(at)
    return sum(float(gradient[k]) * towards[k] for k in towards)


def test_every_step_meets_the_strong_wolfe_conditions():
    objective, before, count = rosenbrock(), START, 0
    for x, state, losses, norm in steps(LBFGS, objective, START, 25):
        s = {k: float(x[k]) - float(before[k]) for k in x}
        start, end = slope(objective, before, s), slope(objective, x, s)
        assert start < 0
        assert abs(end) <= 0.9 * abs(start)
        value = float(loss_of(objective, x))
        assert value <= float(loss_of(objective, before)) + 1e-4 * start
        assert float(losses.terms["pde"]) == pytest.approx(value, rel=1e-12)
        assert float(state.value) == pytest.approx(value, rel=1e-12)
        gradient = jax.grad(lambda p: objective(p)[0])(x)
        assert float(norm) == pytest.approx(np.hypot(*map(float, gradient.values())), rel=1e-9)
        before, count = x, count + 1
    assert count == 25


def step(objective, x, state, renewed):
    return compiled(LBFGS)(objective, x, state, jnp.asarray(1.0), jnp.asarray(9),
                           jnp.asarray(renewed))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b),
                                                    strict=True))


def test_a_new_objective_starts_the_memory_over():
    """The step after new points is that of a fresh start from there, to the last bit."""
    *_, (x, state, _, _) = steps(LBFGS, rosenbrock(), START, 9)
    other = rosenbrock(3.0)
    assert same(step(other, x, state, True), step(other, x, LBFGS.init(x, BLANK), True))
    # And it is along the steepest descent, which the step that remembers is not.
    gradient = jax.grad(lambda p: other(p)[0])(x)
    g = np.array([float(gradient["x"]), float(gradient["y"])])

    def cosine(found):
        s = np.array([float(found[k]) - float(x[k]) for k in ("x", "y")])
        return -s @ g / np.linalg.norm(s) / np.linalg.norm(g)

    assert cosine(step(other, x, state, True)[0]) == pytest.approx(1, rel=1e-12)
    assert cosine(step(rosenbrock(), x, state, False)[0]) < 0.9


def test_a_search_that_finds_nothing_better_starts_the_memory_over():
    minimum = {"x": jnp.asarray(1.0), "y": jnp.asarray(1.0)}
    *_, (_, state, _, _) = steps(LBFGS, rosenbrock(), START, 9)
    assert not same(state.memory, LBFGS.init(minimum, BLANK).memory)
    state = state._replace(value=jnp.asarray(0.0), gradient=jnp.zeros(2))
    found, after, _, norm = step(rosenbrock(), minimum, state, False)
    assert {k: float(v) for k, v in found.items()} == {"x": 1.0, "y": 1.0}
    assert float(norm) == 0.0
    assert same(after.memory, LBFGS.init(minimum, BLANK).memory)
