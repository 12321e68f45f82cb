import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers import make_optimiser
from piratenets.optimisers.adam import adam
from piratenets.optimisers.chain import chain
from piratenets.optimisers.optimiser import Optimiser

from .common import BLANK, compiled, optimiser_config, rosenbrock, steps

pytestmark = pytest.mark.usefixtures("quick_compilation")

START = {"x": np.array(-1.2), "y": np.array(1.0)}


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b),
                                                    strict=True))


@pytest.mark.parametrize("second", ["lm", "ssbroyden"])
def test_it_hands_over_at_its_step(second):
    """On the host with Levenberg-Marquardt, in one compiled update with SSBroyden."""
    config = optimiser_config("adam", then=second, then_at=4)
    both = list(steps(make_optimiser(config), rosenbrock(), START, 7, 0.1))
    alone = list(steps(adam(config), rosenbrock(), START, 4, 0.1))
    for (x, (first, other), losses, norm), expected in zip(both, alone, strict=False):
        np.testing.assert_allclose([*x.values(), norm, losses.terms["pde"]],
                                   [*expected[0].values(), expected[3], expected[2].terms["pde"]],
                                   rtol=1e-13)
        assert same(other, both[0][1][1])
        assert not same(first, both[-1][1][0]) or x is both[3][0]
    # From there the second one alone, as it would start: the objective is new to it.
    after = make_optimiser(optimiser_config(second))
    x, state = both[3][0], after.init(both[3][0], BLANK)
    for k in range(4, 7):
        x, state, losses, norm = compiled(after)(rosenbrock(), x, state, jnp.asarray(0.1),
                                                 jnp.asarray(k), jnp.asarray(k == 4))
        found, (first, other), _, found_norm = both[k]
        np.testing.assert_allclose([*found.values(), found_norm], [*x.values(), norm], rtol=1e-9)
        assert same(first, both[3][1][0])
    assert float(losses.terms["pde"]) < float(both[3][2].terms["pde"])


@pytest.mark.parametrize("at", [1, 3])
def test_the_step_of_a_stage_decides(at):
    """Not how often it has been called: a resumed training comes in at any step."""
    def moving(by):
        def update(objective, parameters, state, learning_rate, step, renewed):
            return parameters + by, state + renewed, BLANK, jnp.zeros(())
        return Optimiser(lambda parameters, losses: jnp.asarray(0), update)

    both = chain(moving(1.0), moving(100.0), at)
    found = [float(both.update(None, jnp.zeros(()), both.init(None, BLANK), jnp.asarray(1.0),
                               jnp.asarray(k), jnp.asarray(False))[0]) for k in range(5)]
    assert found == [1.0 if k < at else 100.0 for k in range(5)]
    told = [tuple(map(int, both.update(None, jnp.zeros(()), both.init(None, BLANK),
                                       jnp.asarray(1.0), jnp.asarray(k), jnp.asarray(False))[1]))
            for k in range(5)]
    # At the handover, and only there, the second is told that the objective is new.
    assert told == [(0, int(k == at)) for k in range(5)]


def test_a_compiled_partner_is_compiled_on_the_host_too():
    """Once, not operation by operation at every step; and not anew for every step."""
    traces = []

    def update(objective, parameters, state, learning_rate, step, renewed):
        traces.append(step)
        return parameters, state, BLANK, jnp.zeros(())

    def on_host(objective, parameters, state, learning_rate, step, renewed):
        return parameters, state, BLANK, jnp.zeros(())

    def init(parameters, losses):
        return jnp.asarray(0)

    both = chain(Optimiser(init, update), Optimiser(init, on_host, on_host=True), 4)
    assert both.on_host
    x, state = jnp.zeros(()), both.init(None, BLANK)
    for k in range(6):
        x, state, _, _ = both.update(rosenbrock(), x, state, jnp.asarray(1.0), jnp.asarray(k),
                                     jnp.asarray(False))
    assert len(traces) == 1
    assert isinstance(traces[0], jax.core.Tracer)
    config = optimiser_config("adam", then="lm", then_at=4)
    assert make_optimiser(config) is make_optimiser(optimiser_config("adam", then="lm", then_at=4))
