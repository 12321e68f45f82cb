import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from piratenets.config import OptimiserConfig
from piratenets.optimisers import make_optimiser
from piratenets.optimisers.adam import adam, schedule
from piratenets.weighting.losses import Losses

NEW = jnp.asarray(False)
CURVATURE = np.array([1.0, 10.0, 0.1])
START = np.array([1.0, -2.0, 3.0])


def quadratic(x):
    loss = 0.5 * jnp.sum(jnp.asarray(CURVATURE) * x["w"] ** 2)
    return loss, Losses({"pde": loss}, jnp.ones(1))


BLANK = Losses({"pde": jnp.zeros(())}, jnp.ones(1))


def steps(config, count, learning_rate, update=None):
    """Parameters, losses and gradient norms after each step."""
    optimiser = adam(config)
    update = update or jax.jit(lambda *rest: optimiser.update(quadratic, *rest))
    x = {"w": jnp.asarray(START)}
    state, found = optimiser.init(x, BLANK), []
    for k in range(count):
        x, state, losses, norm = update(x, state, jnp.asarray(learning_rate), jnp.asarray(k), NEW)
        found.append((np.asarray(x["w"]), float(losses.terms["pde"]), float(norm)))
    return found


def adam_by_hand(rates):
    x, m, v = START.copy(), np.zeros(3), np.zeros(3)
    for k, rate in enumerate(rates, start=1):
        g = CURVATURE * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
        yield x, g


def test_three_steps_by_hand():
    config = OptimiserConfig(warmup_steps=2, decay_steps=4, decay_rate=0.5)
    rates = [0.0, 0.05, 0.1, 0.1 * 0.5**0.25]
    found = steps(config, 4, 0.1)
    before = START
    for (x, loss, norm), (expected, gradient) in zip(found, adam_by_hand(rates), strict=True):
        np.testing.assert_allclose(x, expected, rtol=1e-6)
        # Loss and gradient norm are those before the step.
        assert loss == pytest.approx(0.5 * np.sum(CURVATURE * before**2), rel=1e-12)
        assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
        before = x
    np.testing.assert_array_equal(found[0][0], START)


def test_the_same_as_optax():
    config = OptimiserConfig(warmup_steps=0, decay_steps=10, decay_rate=0.9)
    reference = optax.adam(lambda step: 0.1 * 0.9 ** (step / 10))
    x = {"w": jnp.asarray(START)}
    state = reference.init(x)
    for found, _, _ in steps(config, 3, 0.1):
        changes, state = reference.update({"w": jnp.asarray(CURVATURE) * x["w"]}, state)
        x = optax.apply_updates(x, changes)
        np.testing.assert_allclose(found, x["w"], rtol=1e-6)


@pytest.mark.parametrize(("step", "rate"), [
    (0, 0.0), (1250, 0.25), (2500, 0.5), (4999, 0.9998), (5000, 1.0), (5001, 0.9**0.0002),
    (7500, 0.9**0.5), (10_000, 0.9), (15_000, 0.81), (300_000, 0.9**59),
])
def test_the_paper_s_schedule(step, rate):
    """Linear to the peak at 5000 steps, then 0.9^((step - 5000) / 5000), continuous."""
    assert float(schedule(OptimiserConfig())(step)) == pytest.approx(rate, rel=1e-5, abs=1e-12)


def test_without_warm_up_the_schedule_starts_at_its_peak():
    rates = schedule(OptimiserConfig(warmup_steps=0, decay_steps=100, decay_rate=0.5))
    assert [float(rates(k)) for k in (0, 100, 200)] == pytest.approx([1.0, 0.5, 0.25], rel=1e-6)


def test_another_learning_rate_is_not_another_program():
    config, traces = OptimiserConfig(warmup_steps=0), []
    optimiser = make_optimiser(config)

    @jax.jit
    def update(*arguments):
        traces.append(arguments)
        return optimiser.update(quadratic, *arguments)

    moved = [START - steps(config, 1, rate, update)[0][0] for rate in (0.1, 0.2)]
    assert len(traces) == 1
    np.testing.assert_allclose(moved[0], 0.1 * np.sign(START), rtol=1e-6)
    np.testing.assert_allclose(moved[1], 2 * moved[0], rtol=1e-12)


def test_parameters_keep_their_precision():
    optimiser = adam(OptimiserConfig())
    x = jax.ShapeDtypeStruct((3,), jnp.float32)

    def step(x, rate, k):
        def objective(x):
            loss = jnp.sum(x**2)
            return loss, Losses({"pde": loss}, jnp.ones(1, jnp.float32))
        return optimiser.update(objective, x, optimiser.init(x, BLANK), rate, k, NEW)

    moved, state, _, norm = jax.eval_shape(step, x, jax.ShapeDtypeStruct((), jnp.float32),
                                           jax.ShapeDtypeStruct((), jnp.int32))
    assert (moved.dtype, norm.dtype) == (jnp.float32, jnp.float32)
    assert {s.dtype for s in jax.tree.leaves(state) if s.shape} == {jnp.dtype("float32")}
