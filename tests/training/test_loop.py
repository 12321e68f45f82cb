import dataclasses
import math

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import DivergenceError, UnknownName
from piratenets.fields.networks import Frame
from piratenets.problems.problem import Problem, initial, interior
from piratenets.residuals.residuals import Points
from piratenets.training.loop import (
    Plan,
    Setting,
    advance,
    draw,
    new_weights,
    sane,
    split,
    system_of,
)
from piratenets.training.state import SAMPLING, Snapshot, derived_key
from piratenets.training.trainer import Trainer

from ..common import burgers, training_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

BURGERS = burgers()


def changed_leaves(old, new):
    """Which leaves of a tree differ, by path."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(old), jax.tree.leaves(new), strict=True)
    return {jax.tree_util.keystr(path) for (path, a), b in pairs if not np.array_equal(a, b)}


def losses_of(plan, setting, network, points, weights=None):
    """The losses by term of a network at given points."""
    parameters, fixed = split(plan, network)
    return system_of(plan, setting, fixed, points, weights or {}).losses(parameters)


def until(step):
    return jnp.asarray(step, jnp.int32)


@pytest.fixture(scope="module")
def trainer():
    return Trainer(BURGERS, training_config())


@pytest.fixture(scope="module")
def start(trainer):
    return trainer.start()


@pytest.fixture(scope="module")
def trained(trainer, start):
    """The states after every number of steps that is a multiple of 20, or one more."""
    setting, states = trainer.setting(start), {0: start}
    state = start
    for step in (1, 20, 21, 40, 41, 60):
        state, _ = advance(trainer.plan, setting, state, until(step))
        states[step] = state
    return states


# The same steps, however they are cut ----------------------------------------------------------

def test_one_call_or_many_to_the_last_bit(trainer, start, trained):
    setting, state = trainer.setting(start), start
    for step in range(7, 67, 7):
        state, _ = advance(trainer.plan, setting, state, until(min(step, 60)))
    whole, snapshot = advance(trainer.plan, setting, start, until(60))
    assert int(state.step) == int(whole.step) == 60
    assert changed_leaves(whole, state) == set()
    assert changed_leaves(whole, trained[60]) == set()
    assert float(snapshot.losses["pde"]) > 0
    # And it was a training: everything but what is not trained has moved.
    assert {"embedding.frequencies", "head.weight", "blocks[0].alpha"} - {
        p.removeprefix(".") for p in changed_leaves(start.network, whole.network)
    } == {"embedding.frequencies"}


def test_training_lowers_the_loss(trainer, start):
    setting = trainer.setting(start)
    points = draw(trainer.plan, setting, jax.random.key(0), 0)

    @jax.jit
    def total(network):
        return sum(losses_of(trainer.plan, setting, network, points).terms.values())

    quick = setting._replace(learning_rate=jnp.asarray(0.02, jnp.float64))
    state, _ = advance(trainer.plan, quick, start, until(60))
    assert float(total(state.network)) < 0.7 * float(total(start.network))


def test_points_of_a_step_depend_on_key_and_step_alone(trainer, start, trained):
    setting = trainer.setting(start)

    def points(state, step):
        key = derived_key(state.key, SAMPLING, state.stage)
        return np.asarray(draw(trainer.plan, setting, key, until(step))["pde"])

    np.testing.assert_array_equal(points(start, 5), points(trained[60], 5))
    assert not np.isin(points(start, 5), points(start, 6)).any()
    later = dataclasses.replace(start, stage=jnp.asarray(1, jnp.int32))
    assert not np.isin(points(start, 5), points(later, 5)).any()
    assert points(start, 5).shape == (16, 2)


def test_fixed_points_stay(trainer, start):
    setting = trainer.setting(start)
    points = draw(trainer.plan, setting, jax.random.key(3), until(17))
    assert list(points) == ["pde"]
    batch = system_of(trainer.plan, setting, start.network, points, start.weights).points
    np.testing.assert_array_equal(batch["initial"].points[:, 1], np.arange(-1, 1, 0.25))
    np.testing.assert_allclose(batch["initial"].values[:, 0],
                               -np.sin(np.pi * np.arange(-1, 1, 0.25)), atol=1e-15)


# Weights ---------------------------------------------------------------------------------------

def test_weights_change_at_multiples_of_update_every_only(trained):
    weights = {k: (float(s.weights["pde"]), float(s.weights["initial"]))
               for k, s in trained.items()}
    assert weights[0] == weights[1] == weights[20] == (1.0, 1.0)
    assert weights[21] == weights[40] != weights[20]
    assert weights[41] == weights[60] != weights[40]


def test_an_update_is_a_tenth_of_what_the_balance_asks_for(trainer, trained):
    state, setting = trained[20], trainer.setting(trained[20])
    points = draw(trainer.plan, setting, derived_key(state.key, SAMPLING, state.stage), until(20))

    @jax.jit
    def norms(network):
        """|d loss / d theta| over what is trained: all but the Fourier frequencies."""
        def terms(n):
            return losses_of(trainer.plan, setting, n, points).terms

        return {term: jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(tree))
                               - jnp.sum(tree.embedding.frequencies**2))
                for term, tree in jax.jacrev(terms)(network).items()}

    norm = {term: float(n) for term, n in norms(state.network).items()}
    mean = (norm["pde"] + norm["initial"]) / 2
    for term in ("pde", "initial"):
        assert float(trained[21].weights[term]) == pytest.approx(
            0.9 * 1.0 + 0.1 * mean / norm[term], rel=1e-10)


class Linear(eqx.Module):
    """u = a x + b t^2, whose losses and kernels can be computed by hand."""

    a: jax.Array
    b: jax.Array

    def __call__(self, point):
        t, x = point
        return (self.a * x + self.b * t**2)[None]


TINY = Problem(name="tiny", coordinates={"t": (0, 1), "x": (-1, 1)}, unknowns=["u"],
               coefficients={"k": 3.0},
               conditions=[interior(lambda u, c: u.t - c.k * u.x), initial(lambda x: x)])
# The residual 2 b t - k a is -2, -1, 0, 1 at a = 1, b = 2; at t = 0, a x - v is 0.2, -0.8.
LINEAR = Linear(jnp.array(1.0), jnp.array(2.0))
DRAWN = {"pde": jnp.array([[0.25, 0.9], [0.5, -0.3], [0.75, 0.1], [1.0, 0.5]])}
FIXED = {"initial": Points(jnp.array([[0.0, 0.5], [0.0, -1.0]]), jnp.array([[0.3], [-0.2]]))}
TOLERANCE = 0.2
SECOND = math.exp(-TOLERANCE * 2.5)
"""The second chunk's weight: the first one's loss is (4 + 1) / 2."""


def tiny_setting(**changes):
    zero = jnp.zeros(2)
    return Setting(lower=zero, upper=zero + 1, frame=Frame(zero, zero + 1),
                   coefficients={"k": jnp.array(3.0)},
                   fixed=FIXED, learning_rate=jnp.array(1.0), tolerance=jnp.array(TOLERANCE),
                   divergence=jnp.array(1e10), patience=jnp.array(0),
                   target=jnp.array(0.0))._replace(**changes)


def tiny_system(plan, fixed, **changes):
    return system_of(plan, tiny_setting(**changes), fixed, DRAWN, {})


def tiny_weights(kind, **changes):
    config = training_config(**{"weighting.kind": kind, "weighting.chunks": 2, **changes})
    parameters, fixed = eqx.partition(LINEAR, eqx.is_inexact_array)
    plan = Plan(TINY, config)
    found = jax.jit(lambda p: new_weights(plan, tiny_system(plan, fixed), p))(parameters)
    return {term: float(w) for term, w in found.items()}


def from_measures(pde, start):
    mean = (pde + start) / 2
    return {"pde": mean / pde, "initial": mean / start}


def tiny_losses(origin=(0.0, 0.0), scale=1.0, **changes):
    plan = Plan(TINY, training_config(**changes))
    parameters, fixed = eqx.partition(LINEAR, eqx.is_inexact_array)
    frame = Frame(jnp.array(origin), jnp.array([scale, 1.0]))
    system = tiny_system(plan, fixed, frame=frame)
    return jax.jit(lambda p: system.losses(p))(parameters)


def test_losses_of_a_step_by_hand():
    found = tiny_losses(**{"weighting.chunks": 2})
    assert float(found.terms["pde"]) == pytest.approx((2.5 + SECOND * 0.5) / 2, rel=1e-14)
    assert float(found.terms["initial"]) == pytest.approx((0.04 + 0.64) / 2, rel=1e-14)
    np.testing.assert_allclose(found.causal, [1, SECOND], rtol=1e-14)


def test_losses_in_a_window_see_its_own_clock():
    """With the origin at t = 0.25 the residual is 2 b (t - 0.25) - k a."""
    found = tiny_losses((0.25, 0.0), **{"weighting.causal": False})
    assert float(found.terms["pde"]) == pytest.approx((9 + 4 + 1 + 0) / 4, rel=1e-14)


def test_losses_in_a_stretched_window_are_those_of_the_problem_s_own_time():
    """With time from t = 0.25 on stretched by 2 it is 2 b 2^2 (t - 0.25) - k a."""
    found = tiny_losses((0.25, 0.0), 2.0, **{"weighting.causal": False})
    assert float(found.terms["pde"]) == pytest.approx((9 + 1 + 25 + 81) / 4, rel=1e-14)


def test_gradient_norm_weights_by_hand():
    """d/da: (9 - 3 w) / 2; d/db: (-2 + 2 w) / 2, the weight w held constant; initial: 0.9."""
    pde = math.hypot((9 - 3 * SECOND) / 2, SECOND - 1)
    assert tiny_weights("grad-norm") == pytest.approx(from_measures(pde, 0.9), rel=1e-12)


def test_kernel_weights_by_hand():
    """|d r / d theta|^2 is 9 + 4 t^2, its two chunks weighted causally, and x^2."""
    pde = ((9.25 + 10) / 2 + SECOND * (11.25 + 13) / 2) / 2
    assert tiny_weights("ntk") == pytest.approx(from_measures(pde, 0.625), rel=1e-12)


def test_kernel_weights_without_causal_weights():
    pde = (9.25 + 10 + 11.25 + 13) / 4
    assert tiny_weights("ntk", **{"weighting.causal": False}) == pytest.approx(
        from_measures(pde, 0.625), rel=1e-12)


def test_starting_weights():
    config = training_config(**{"weighting.start": {"initial": 100.0}})
    weights = Trainer(BURGERS, config).start().weights
    assert {t: float(w) for t, w in weights.items()} == {"pde": 1.0, "initial": 100.0}
    plain = dataclasses.replace(config, weighting=dataclasses.replace(config.weighting,
                                                                      kind="none"))
    weights = Trainer(BURGERS, plain).start().weights
    assert {t: float(w) for t, w in weights.items()} == {"pde": 1.0, "initial": 1.0}
    with pytest.raises(UnknownName, match=r"weighting.start: term 'intial'.*mean 'initial'"):
        Trainer(BURGERS, training_config(**{"weighting.start": {"intial": 1.0}}))


# What is trained --------------------------------------------------------------------------------

OTHER = {"network.train_alpha": False, "network.embedding.trainable": True,
         "weighting.kind": "fixed", "weighting.start": {"initial": 7.0}}


def test_what_is_not_trained_stays_as_it_is(trainer, start, trained):
    """By default alpha is trained and the Fourier features are not; here the reverse."""
    moved = changed_leaves(start.network, trained[60].network)
    assert ".blocks[0].alpha" in moved
    assert ".embedding.frequencies" not in moved

    other = Trainer(BURGERS, training_config(**OTHER))
    state = other.start()
    after, _ = advance(other.plan, other.setting(state), state, until(3))
    moved = changed_leaves(state.network, after.network)
    assert ".blocks[0].alpha" not in moved
    assert float(after.network.blocks[0].alpha) == 0.0
    assert ".embedding.frequencies" in moved
    # Fixed weights stay fixed.
    assert changed_leaves(state.weights, after.weights) == set()
    assert float(after.weights["initial"]) == 7.0


# Compilation ------------------------------------------------------------------------------------

@pytest.fixture
def compilations():
    """How often XLA has compiled something since."""
    counted = []

    def count(event, duration, **facts):
        if event == "/jax/core/compile/backend_compile_duration":
            counted.append(facts)

    jax.monitoring.register_event_duration_secs_listener(count)
    yield counted
    jax.monitoring.unregister_event_duration_listener(count)


def run(**changes):
    trainer = Trainer(BURGERS, training_config(**{"training.steps": 10, **changes}))
    progress = list(trainer.run(trainer.start()))
    assert progress[-1].done
    return progress[-1].state


def test_another_run_of_the_same_shape_compiles_nothing(compilations):
    first = run()
    # Something new is counted, or a count of zero would say nothing.
    jax.jit(lambda x: 3 * x + 1)(jnp.ones(7))
    assert compilations
    compilations.clear()
    second = run(**{
        "seed": 5, "coefficients.nu": 0.2, "optimiser.learning_rate": 3e-3,
        "weighting.tolerance": 0.3, "weighting.start": {"initial": 50.0},
        "training.divergence": 1e6, "training.steps": 8, "record.every": 3, "preset": "smoke"})
    assert compilations == []
    assert changed_leaves(first.network, second.network)
    rungs = run(curriculum={"coefficient": "nu", "values": (0.2, 0.1), "steps": (3, 4)})
    assert compilations == []
    assert int(rungs.stage) == 2


def test_another_width_compiles_anew(compilations):
    run(**OTHER)
    compilations.clear()
    run(**OTHER, **{"network.width": 5})
    assert len(compilations) > 0


def test_what_is_compiled_in():
    plan = Plan(BURGERS, training_config())
    for same in ({"seed": 3}, {"coefficients.nu": 0.5}, {"training.windows": 3},
                 {"optimiser.learning_rate": 0.5}, {"sampling.grid": 5}, {"record.every": 1},
                 {"weighting.start": {"pde": 3.0}}, {"initialisation.grid": 3}):
        other = Plan(BURGERS, training_config(**same))
        assert (plan, hash(plan)) == (other, hash(other))
    for other in ({"network.activation": "swish"}, {"sampling.batch": 32},
                  {"weighting.momentum": 0.5}, {"weighting.update_every": 5},
                  {"optimiser.decay_steps": 7}, {"optimiser.warmup_steps": 1},
                  {"weighting.kind": "ntk"}, {"network.embedding.trainable": True}):
        assert plan != Plan(BURGERS, training_config(**other))
    assert plan != Plan(burgers(), training_config())


# Divergence ------------------------------------------------------------------------------------

def test_a_loss_that_runs_away_stops_the_run_right_there():
    config = training_config(**{"optimiser.learning_rate": 1e6, "optimiser.warmup_steps": 5})
    trainer = Trainer(BURGERS, config)
    setting, state = trainer.setting(trainer.start()), trainer.start()
    # The warm-up begins at zero: the second step is the first that moves, the third sees it.
    after, snapshot = advance(trainer.plan, setting, state, until(60))
    assert int(after.step) == 3
    assert not bool(sane(setting, snapshot))
    with pytest.raises(DivergenceError,
                       match=r"step 3: loss term 'initial' = .*diverged.*Lower optimiser.learning"):
        list(trainer.run(state))


def test_a_loss_that_is_not_a_number_is_named(trainer, start):
    network = eqx.tree_at(lambda n: n.head.weight, start.network,
                          jnp.asarray(np.full((4, 1), np.nan)))
    with pytest.raises(DivergenceError, match="step 1: loss term '(pde|initial)' = nan"):
        list(trainer.run(dataclasses.replace(start, network=network)))


def test_the_bound_on_losses_is_the_configuration_s():
    trainer = Trainer(BURGERS, training_config(**{"training.divergence": 1e-9}))
    with pytest.raises(DivergenceError, match="step 1: loss term"):
        list(trainer.run(trainer.start()))


@pytest.mark.parametrize(("losses", "norm", "verdict"), [
    ((1.0, 2.0), 3.0, True), ((1.0, 100.0), 3.0, True), ((1.0, 100.1), 3.0, False),
    ((math.nan, 2.0), 3.0, False), ((math.inf, 2.0), 3.0, False), ((1.0, 2.0), math.inf, False),
    ((1.0, 2.0), math.nan, False),
])
def test_sanity(losses, norm, verdict):
    snapshot = Snapshot({"a": jnp.array(losses[0]), "b": jnp.array(losses[1])}, jnp.ones(1),
                        jnp.array(norm))
    assert bool(sane(tiny_setting(divergence=jnp.array(100.0)), snapshot)) is verdict
