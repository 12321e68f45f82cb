"""The shape of the kink, against the heat equation and the initial data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import changed
from piratenets.presets import preset
from piratenets.problems.allen_cahn import EPSILON, kink, problem, u0
from piratenets.residuals.residuals import point_residuals
from piratenets.training.trainer import Trainer


def test_the_shape_is_even_and_periodic():
    t, x = jnp.array([0.0, 1e-3, 0.1, 1.0]), jnp.linspace(-1, 1, 7)
    values = jax.vmap(lambda t: kink(t, x))(t)
    np.testing.assert_allclose(values, values[:, ::-1], atol=1e-15)
    np.testing.assert_allclose(jax.vmap(lambda t: kink(t, x + 2))(t), values, atol=1e-14)


def test_it_is_the_distance_to_the_kink_at_first_and_smoothed_by_diffusion_later():
    x = jnp.array([0.9, 0.99, 1.0, 1.01])
    np.testing.assert_allclose(kink(0.0, x), jnp.abs(2 / jnp.pi * jnp.cos(jnp.pi * x / 2)),
                               atol=2e-6)
    # The heat equation makes |y| into (4 epsilon t / pi)^(1/2) at y = 0.
    assert float(kink(0.5, 1.0)) == pytest.approx((4 * EPSILON * 0.5 / np.pi) ** 0.5, rel=1e-6)


def test_the_initial_data_are_a_smooth_function_of_it():
    """A polynomial of degree 12 in |q| gives them to 1e-8; one in cos(pi x) to 1e-3 at best."""
    x = np.linspace(0, 1, 400)
    q = 2 / np.pi * np.cos(np.pi * x / 2)
    target = np.asarray(u0(x))

    def misfit(variable):
        fit = np.polynomial.Chebyshev.fit(variable, target, 12)
        return float(np.abs(fit(variable) - target).max())

    assert misfit(q) < 1e-8
    assert misfit(np.cos(np.pi * x)) > 1e-3


def test_what_is_singular_in_its_derivatives_cancels_in_the_equation():
    """The network's derivatives at the kink grow as t^(-1/2); the residual of a smooth function
    of (t, x, kink) stays bounded."""
    equation = problem.conditions[0]

    def field(point):
        t, x = point
        s = kink(t, x)
        return jnp.stack([(1 + t) * jnp.cos(jnp.pi * x) + s * (1 - s)])

    def residual(t, x):
        point = jnp.array([t, x])
        return float(point_residuals(problem, equation, field, problem.coefficients, point, None
                                     )["pde"])

    slope = [float(jax.grad(kink)(t, 1.0)) for t in (1e-6, 1e-4)]
    assert slope[0] == pytest.approx((EPSILON / (np.pi * 1.01e-6)) ** 0.5, rel=1e-6)
    assert slope[0] / slope[1] == pytest.approx(100**0.5, rel=0.01)
    assert abs(residual(1e-6, 1.0) - residual(1e-4, 1.0)) < 0.02


@pytest.mark.parametrize("shown", [True, False])
def test_a_network_sees_it_where_the_configuration_says_so(shown):
    config = changed(preset("laptop", "allen-cahn"), {"network.shapes": shown})
    trainer = Trainer(problem, config)
    frequencies = trainer.start().network.embedding.frequencies
    # t, cos(pi x) and the shape.
    assert frequencies.shape == (2 + shown, 8)
    assert [len(s.shapes) for s in trainer.stages_of(None)] == [int(shown)] * 5


def test_the_paper_s_network_does_not():
    assert preset("paper", "allen-cahn").network.shapes is False
