from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import changed
from piratenets.problems.problem import Problem, initial, interior, periodic
from piratenets.residuals.sampling import grid_points
from piratenets.training.stages import Stage
from piratenets.training.trainer import Trainer
from piratenets.training.trust import Trust, examined, time_quadrature

from ..common import burgers, training_config

K = 0.1


def heat():
    return Problem(name="heat", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
                   conditions=[interior(lambda u, c: u.t - K * u.xx),
                               initial(lambda x: jnp.sin(jnp.pi * x))])


class Known(eqx.Module):
    """The heat equation's solution plus another one, entered through a layer at t = 0."""

    head: object = eqx.field(static=True)
    jump: float
    layer: float

    def __init__(self, jump=0.0, layer=1e-4):
        self.head = SimpleNamespace(weight=np.zeros((1, 1)))
        self.jump, self.layer = jump, layer

    def __call__(self, point):
        t, x = point
        entered = 1 - jnp.exp(-t / self.layer)
        return jnp.stack([jnp.exp(-K * jnp.pi**2 * t) * jnp.sin(jnp.pi * x)
                          + self.jump * entered])


def seen(network, trained=None):
    problem = heat()
    stage = Stage(problem.lower, problem.upper, np.ones(2), {}, 1, "")
    points = grid_points([np.zeros(1), np.linspace(-1, 1, 64, endpoint=False)])
    trained = np.random.default_rng(3).uniform(problem.lower, problem.upper, (512, 2)) \
        if trained is None else trained
    return examined(problem, stage, network, trained, (points, np.sin(np.pi * points[:, 1:])))


def test_an_exact_solution_has_no_defect():
    trust = seen(Known())
    assert trust.defect == pytest.approx(0, abs=1e-12)
    assert trust.fresh_residual["pde"] < 1e-24
    # The residuals of an exact solution are rounding, and so is their ratio.
    assert [d for d in trust.doubts if "initial data" in d] == []


@pytest.mark.parametrize("layer", [1e-1, 1e-3, 1e-5])
def test_a_jump_costs_its_size_however_thin_its_layer(layer):
    """It solves the equation from the layer on, with the other initial data sin(pi x) + 0.5."""
    trust = seen(Known(jump=0.5, layer=layer))
    t = np.linspace(0, 1, 100_001)
    sine, constant = np.exp(-K * np.pi**2 * t), 0.5 * (1 - np.exp(-t / layer))
    largest = np.sqrt(0.5 * sine**2 + constant**2).max()
    assert trust.defect == pytest.approx(0.5 / largest, rel=0.01)
    assert "it may solve another problem" in trust.doubts[0]


def test_uniform_points_do_not_see_a_thin_layer():
    """Why the defect's times crowd at the start: the mean square over the domain is the jump's
    square over twice the layer, all of it where none of 512 points lies."""
    trust = seen(Known(jump=0.5, layer=1e-7))
    assert trust.fresh_residual["pde"] < 1e-20
    assert trust.defect == pytest.approx(0.577, rel=0.02)


def test_a_fit_that_holds_on_its_points_alone_is_doubted():
    trust = seen(Known(jump=0.5, layer=0.05), trained=np.array([[0.9, 0.1], [1.0, -0.3]]))
    assert trust.trained_residual["pde"] < 1e-10 * trust.fresh_residual["pde"]
    assert any("does not hold between its points" in d for d in trust.doubts)


def test_doubts_name_the_stage_and_the_numbers():
    trust = Trust("Re = 400", {"pde.x": 2.0}, {"pde.x": 0.1}, None)
    assert trust.doubts == [
        "Re = 400: on fresh points the squared residual pde.x is 2.0e+00, where training saw "
        "1.0e-01: the fit does not hold between its points. Raise sampling.batch"]
    assert Trust("", {"pde": 0.5}, {"pde": 0.1}, 0.05).doubts == []
    assert len(Trust("", {"pde": float("nan")}, {"pde": 0.1}, float("nan")).doubts) == 2


def test_the_quadrature_integrates_polynomials_and_thin_layers():
    times, weights = time_quadrature(2.0, 4.0)
    assert weights.sum() == pytest.approx(2.0, rel=1e-14)
    assert weights @ times**5 == pytest.approx((4.0**6 - 2.0**6) / 6, rel=1e-13)
    for layer in (1e-1, 1e-3, 1e-5):
        integral = weights @ (np.exp(-(times - 2) / layer) / layer)
        assert integral == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(("batch", "few"), [(232, True), (248, False)])
def test_second_order_wants_two_residuals_for_each_parameter(batch, few):
    """125 parameters ask for 250 residuals; 8 are given at the start."""
    config = changed(training_config(), {"sampling.batch": batch, "optimiser.kind": "lm"})
    trainer = Trainer(burgers(), config)
    said = trainer.few_points(trainer.start())
    assert (said is not None) == few
    if said is not None:
        assert "240 residuals for 125 parameters" in said
        assert "Raise sampling.batch to 242 or more" in said


def test_a_first_order_method_may_have_few_points():
    trainer = Trainer(burgers(), training_config())
    assert trainer.few_points(trainer.start()) is None
