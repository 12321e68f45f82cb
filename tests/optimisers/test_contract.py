"""What every optimiser has to do: the same problems, numbers of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers import make_optimiser
from piratenets.problems.problem import Problem, initial, interior, periodic
from piratenets.runs import checkpoints
from piratenets.training.loop import advance, draw, split, system_of
from piratenets.training.solution import Solution
from piratenets.training.trainer import Trainer

from ..common import burgers, training_config
from .common import (
    BLANK,
    CAUSAL,
    SMALL,
    WEIGHTS,
    compiled,
    iterations,
    loss_of,
    optimiser_config,
    random_linear,
    rosenbrock,
    small_system,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

DECAYING = {"decay_steps": 100, "decay_rate": 0.7, "learning_rate": 0.3}
"""What takes a method of the first order to many digits."""
KINDS = {
    "adam": DECAYING, "soap": DECAYING, "lm": {}, "ssbroyden": {}, "ssbfgs": {}, "lbfgs": {},
    "spring": {},
    "adam-lm": {"kind": "adam", "then": "lm", "then_at": 20, "learning_rate": 0.05}}
FIRST_ORDER = ("adam", "soap")


def config_of(kind):
    return optimiser_config(**{"kind": kind, **KINDS[kind]})


# Sums of squares ----------------------------------------------------------------------------------

LINEAR = {"adam": 200, "soap": 480, "lm": 4, "ssbroyden": 29, "ssbfgs": 32, "lbfgs": 26,
          "spring": 4, "adam-lm": 24}
"""Iterations to a loss of 1e-6 (first order) or 1e-16 of that at the start."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_linear_least_squares(kind, seed):
    config, tolerance = config_of(kind), 1e-6 if kind in FIRST_ORDER else 1e-16
    assert iterations(config, random_linear(seed), {"x": np.zeros(8)}, tolerance, LINEAR[kind],
                      config.learning_rate) <= LINEAR[kind]


ROSENBROCK = {"adam": (540, 18, 30), "soap": (150, 310, 20), "lm": (14, 4, 3),
              "ssbroyden": (40, 31, 24), "ssbfgs": (37, 33, 26), "lbfgs": (38, 36, 25),
              "spring": (19, 5, 5), "adam-lm": (36, 23, 24)}
"""Iterations to a loss of 1e-3 (first order) or 1e-12 of that at the start."""
STARTS = ((-1.2, 1.0), (2.0, -3.0), (0.0, 5.0))


@pytest.mark.parametrize("kind", KINDS)
def test_rosenbrock(kind):
    config, tolerance = config_of(kind), 1e-3 if kind in FIRST_ORDER else 1e-12
    for (x, y), most in zip(STARTS, ROSENBROCK[kind], strict=True):
        assert iterations(config, rosenbrock(), {"x": x, "y": y}, tolerance, most,
                          config.learning_rate) <= most


SCALED = {"lm": 15, "ssbroyden": 40, "ssbfgs": 40, "lbfgs": 38, "spring": 19}
"""Iterations to 1e-12 of the Rosenbrock function, whatever its unit."""


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("kind", SCALED)
def test_the_unit_of_the_loss_hardly_matters(kind, scale):
    assert iterations(config_of(kind), rosenbrock(scale), {"x": -1.2, "y": 1.0}, 1e-12,
                      SCALED[kind]) <= SCALED[kind]


@pytest.mark.parametrize("kind", ["spring", "lbfgs"])
def test_the_unit_of_the_loss_does_not_matter_at_all(kind):
    """SPRING's damping is relative, and powers of two leave L-BFGS its first direction."""
    counts = [iterations(config_of(kind), rosenbrock(scale), {"x": -1.2, "y": 1.0}, 1e-12, 40)
              for scale in (1.0, 2.0**20)]
    assert counts[0] == counts[1]


# A weighted and causally weighted system ----------------------------------------------------------

@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_reported_is_that_of_the_residual_vector(kind):
    """Of the parameters before the step (Adam, SOAP) or after it."""
    optimiser, system = make_optimiser(config_of(kind)), small_system()
    after, _, losses, norm = compiled(optimiser)(
        system, SMALL, optimiser.init(SMALL, BLANK._replace(
            terms=dict.fromkeys(WEIGHTS, jnp.zeros(())), causal=jnp.ones(len(CAUSAL)))),
        jnp.asarray(1e-3), jnp.asarray(0), jnp.asarray(True))
    residual = jax.jit(lambda p: system.residual(p))
    residuals = [np.asarray(residual(p)) for p in (SMALL, after)]
    first_order = kind in (*FIRST_ORDER, "adam-lm")
    reported = sum(WEIGHTS[t] * float(v) for t, v in losses.terms.items())
    assert reported == pytest.approx(np.sum(residuals[0 if first_order else 1] ** 2), rel=1e-13)
    np.testing.assert_array_equal(losses.causal, CAUSAL)
    # The norm is that of the loss's gradient: of the old parameters where the step is a model's.
    at = after if kind in ("ssbroyden", "ssbfgs", "lbfgs") else SMALL
    gradient = jax.jit(jax.grad(lambda p: system(p)[0]))(at)
    assert float(norm) == pytest.approx(
        np.sqrt(sum(np.sum(np.asarray(g) ** 2) for g in jax.tree.leaves(gradient))), rel=1e-11)
    if not first_order:
        assert float(loss_of(system, after)) < float(loss_of(system, SMALL))


# Trainings ------------------------------------------------------------------------------------

HEAT = Problem(
    name="heat", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
    coefficients={"k": 0.1},
    conditions=[interior(lambda u, c: u.t - c.k * u.xx), initial(lambda x: jnp.sin(jnp.pi * x))])
BURGERS = burgers()
STEPS = {"adam": 100, "soap": 100}
FALLING = {"warmup_steps": 0, "decay_steps": 20, "decay_rate": 0.7, "learning_rate": 0.03}
TRAINED = {**{kind: {"kind": kind} for kind in KINDS},
           "adam": FALLING, "soap": {"kind": "soap", **FALLING},
           "adam-lm": {**FALLING, "then": "lm", "then_at": 5}}


def heat_trainer(kind, seed):
    """A plain network, points redrawn once, fixed weights."""
    return trainer(HEAT, kind, **{
        "seed": seed, "network.kind": "mlp", "network.layers": 2, "network.width": 8,
        "network.embedding.kind": "none", "weighting.causal": False, "weighting.kind": "none"})


def trainer(problem, kind, **changes):
    """A PirateNet, balanced weights, causal weights: everything that a training may have."""
    return Trainer(problem, training_config(**{
        "sampling.batch": 256, "sampling.kind": "sobol", "sampling.redraw": 20,
        "sampling.grid": 32, "network.width": 6, "network.embedding.size": 6,
        "weighting.tolerance": 0.1, "training.steps": STEPS.get(kind, 40),
        **{f"optimiser.{k}": v for k, v in TRAINED[kind].items()}, **changes}))


def trained(trainer):
    state = trainer.start()
    return advance(trainer.plan, trainer.setting(state), state,
                   jnp.asarray(trainer.total_steps, jnp.int32))[0]


HEAT_ERRORS = {
    "adam": (0.25, 0.09), "soap": (0.3, 0.08), "lm": (3e-6, 4e-4), "ssbroyden": (0.026, 0.026),
    "ssbfgs": (0.027, 0.031), "lbfgs": (0.05, 0.1), "spring": (0.0025, 0.0015),
    "adam-lm": (6e-6, 3e-5)}
"""Relative L2 errors, about 1 at the start, of two seeds."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_heat_equation(kind):
    axes = np.meshgrid(np.linspace(0, 1, 9), np.linspace(-1, 1, 16), indexing="ij")
    points = np.stack([a.ravel() for a in axes], axis=1)
    exact = np.exp(-0.1 * np.pi**2 * points[:, 0]) * np.sin(np.pi * points[:, 1])
    for seed, most in enumerate(HEAT_ERRORS[kind]):
        heat = heat_trainer(kind, seed)
        found = Solution(HEAT, heat.stages_of(None), trained(heat))(points)
        error = np.linalg.norm(found[:, 0] - exact) / np.linalg.norm(exact)
        assert error < most


BURGERS_LOSSES = {
    "adam": (0.06, 0.055), "soap": (0.055, 0.03), "lm": (0.004, 0.0015),
    "ssbroyden": (0.04, 0.035), "ssbfgs": (0.035, 0.035), "lbfgs": (0.075, 0.055),
    "spring": (0.007, 0.27), "adam-lm": (0.0035, 0.001)}
"""Mean squared residuals at points of their own, 2.0 and 1.4 at the start, of two seeds."""


@pytest.fixture(scope="module")
def burgers_loss():
    """The sum of the terms, without weights, at points that no training has seen."""
    plain = trainer(BURGERS, "adam")
    setting = plain.setting(plain.start())
    points = draw(plain.plan, setting, jax.random.key(9), 0)

    @jax.jit
    def total(network):
        parameters, fixed = split(plain.plan, network)
        system = system_of(plain.plan, setting, fixed, points, {})
        return sum(system.losses(parameters).terms.values())

    return total


@pytest.mark.parametrize("kind", KINDS)
def test_burgers_equation(kind, burgers_loss):
    for seed, most in enumerate(BURGERS_LOSSES[kind]):
        found = float(burgers_loss(trained(trainer(BURGERS, kind, seed=seed)).network))
        assert found < most


# The same training, however it is cut -------------------------------------------------------------

CURRICULUM = {"curriculum": {"coefficient": "nu", "values": (0.2,), "steps": (11,)}}
STAGES = {"one stage": {"training.steps": 23}, "windows": {"training.windows": 2,
                                                           "training.steps": 11},
          "curriculum": CURRICULUM}


def states(trainer, state):
    """The state after each call, by all steps taken."""
    return {progress.step: progress.state for progress in trainer.run(state)}


@pytest.mark.parametrize(("kind", "stages"), [
    *((kind, "one stage") for kind in KINDS),
    *((kind, stages) for kind in ("lm", "ssbroyden") for stages in ("windows", "curriculum"))])
def test_a_resumed_training_is_the_same_to_the_last_bit(kind, stages, tmp_path):
    """Over a redraw and an update of the weights at step 20, or from stage to stage."""
    whole = trainer(BURGERS, kind, **STAGES[stages], **{"record.every": 25})
    *_, (last, expected) = states(whole, whole.start()).items()
    assert last == (23 if stages == "one stage" else 22)

    step_by_step = trainer(BURGERS, kind, **STAGES[stages], **{"record.every": 1})
    cut = states(step_by_step, step_by_step.start())
    assert list(cut) == list(range(1, last + 1))
    for step in (4, 16):
        path = checkpoints.save(tmp_path, step, cut[step], {}, keep=2)
        read, _ = checkpoints.read(path, whole.template())
        *_, (_, resumed) = states(whole, read).items()
        for found in (cut[last], resumed):
            assert checkpoints.named_arrays(found).keys() == \
                checkpoints.named_arrays(expected).keys()
            for name, array in checkpoints.named_arrays(expected).items():
                np.testing.assert_array_equal(
                    checkpoints.named_arrays(found)[name], array, err_msg=name)
