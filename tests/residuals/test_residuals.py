import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import SamplingConfig
from piratenets.problems.problem import Problem, boundary, data, initial, interior, periodic
from piratenets.residuals.residuals import Points, residuals
from piratenets.residuals.sampling import fixed_points

from ..common import burgers, network, network_config

pytestmark = pytest.mark.usefixtures("quick_compilation")


def vectors(problem, solution, coefficients=None, count=16):
    """All residuals of a solution: at random points inside, on the grid elsewhere."""
    lower, upper = problem.lower, problem.upper
    batch = {}
    for condition in problem.conditions:
        if condition.sampled:
            random = np.random.default_rng(0).random((count, len(lower)))
            batch[condition.name] = Points(jnp.asarray(lower + (upper - lower) * random))
        else:
            points, values = fixed_points(problem, condition, lower, upper, SamplingConfig(grid=4))
            batch[condition.name] = Points(jnp.asarray(points),
                                           None if values is None else jnp.asarray(values))
    found = jax.jit(lambda b, c: residuals(problem, solution, b, c))(
        batch, coefficients or problem.coefficients)
    return {term: np.asarray(r) for term, r in found.items()}


# Exact solutions ------------------------------------------------------------------------------

def heat(residual=lambda u, c: u.t - c.nu * u.xx):
    return Problem(name="heat", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
                   coefficients={"nu": 0.3},
                   conditions=[interior(residual), initial(lambda x: jnp.sin(jnp.pi * x))])


def heat_solution(point):
    t, x = point
    return jnp.exp(-0.3 * jnp.pi**2 * t) * jnp.sin(jnp.pi * x)


def test_heat_equation():
    found = vectors(heat(), heat_solution)
    assert {term: r.shape for term, r in found.items()} == {"pde": (16,), "initial": (4,)}
    np.testing.assert_allclose(found["pde"], 0, atol=1e-13)
    np.testing.assert_allclose(found["initial"], 0, atol=1e-15)


def test_the_residual_of_another_coefficient():
    """With nu = 0.5 instead of 0.3 what remains is 0.2 pi^2 u."""
    problem = heat()
    points = jnp.array([[0.2, 0.1], [0.7, -0.6]])
    found = residuals(problem, heat_solution, {
        "pde": Points(points), "initial": Points(points, jnp.array([[1.0], [2.0]]))}, {"nu": 0.5})
    u = np.exp(-0.3 * np.pi**2 * np.array([0.2, 0.7])) * np.sin(np.pi * np.array([0.1, -0.6]))
    np.testing.assert_allclose(found["pde"], 0.2 * np.pi**2 * u, atol=1e-14)
    np.testing.assert_allclose(found["initial"], u - [1.0, 2.0], atol=1e-15)


def test_korteweg_de_vries_soliton():
    """3 a / eta sech^2(sqrt(a) (x - a t) / (2 mu)) travels with speed a."""
    eta, mu, a = 2.0, 0.4, 0.8
    problem = Problem(
        name="soliton", coordinates={"t": (0, 1), "x": (-2, 2)}, unknowns=["u"],
        coefficients={"eta": eta, "mu": mu},
        conditions=[interior(lambda u, c: u.t + c.eta * u * u.x + c.mu**2 * u.xxx)])

    def soliton(point):
        t, x = point
        return 3 * a / eta / jnp.cosh(math.sqrt(a) * (x - a * t) / (2 * mu)) ** 2

    np.testing.assert_allclose(vectors(problem, soliton)["pde"], 0, atol=1e-11)
    assert np.abs(vectors(problem, soliton, {"eta": eta, "mu": 1.1 * mu})["pde"]).max() > 0.05


def test_mixed_derivative_with_a_source():
    """u = x^2 y^3 + sin x: u_xy = 6 x y^2, and u_xx + u_yyy = 2 y^3 - sin x + 6 x^2."""
    problem = Problem(
        name="mixed", coordinates={"x": (0, 1), "y": (-1, 1)}, unknowns=["u"],
        coefficients={"k": 6.0},
        conditions=[interior(lambda u, c, p: {
            "mixed": u.xy - c.k * p.x * p.y**2,
            "pure": u.xx + u.yyy - 2 * p.y**3 + jnp.sin(p.x) - 6 * p.x**2})])
    found = vectors(problem, lambda p: p[0] ** 2 * p[1] ** 3 + jnp.sin(p[0]))
    np.testing.assert_allclose(found["pde.mixed"], 0, atol=1e-14)
    np.testing.assert_allclose(found["pde.pure"], 0, atol=1e-14)


def test_system_of_two_unknowns():
    """Sound: u_t + c^2 v_x = 0 and v_t + u_x = 0, a standing wave between walls with v = 0."""
    problem = Problem(
        name="sound", coordinates={"t": (0, 1), "x": (0, 1)}, unknowns=["u", "v"],
        coefficients={"speed": 1.5},
        conditions=[
            interior(lambda s, c: {"u": s.u.t + c.speed**2 * s.v.x, "v": s.v.t + s.u.x}),
            initial(lambda x: (jnp.cos(jnp.pi * x), 0.0)),
            boundary(lambda s, c: s.v, {"x": 0}, {"x": 1}, name="walls")])

    def sound(point):
        t, x = point
        phase = 1.5 * jnp.pi * t
        return jnp.stack([jnp.cos(jnp.pi * x) * jnp.cos(phase),
                          jnp.sin(jnp.pi * x) * jnp.sin(phase) / 1.5])

    found = vectors(problem, sound)
    assert {t: r.shape for t, r in found.items()} == {
        "pde.u": (16,), "pde.v": (16,), "initial.u": (4,), "initial.v": (4,), "walls": (8,)}
    for vector in found.values():
        np.testing.assert_allclose(vector, 0, atol=1e-13)
    # With the unknowns exchanged, nothing fits.
    swapped = vectors(problem, lambda p: sound(p)[::-1])
    assert min(np.abs(r).max() for r in swapped.values()) > 0.05


def test_measurements():
    """Prediction minus value, point by point."""
    points = np.array([[0.0, 0.5], [0.25, -0.5], [1.0, 1.0]])
    exact = np.array([float(heat_solution(jnp.asarray(p))) for p in points])
    offsets = np.array([0.0, 0.125, -2.0])
    problem = Problem(name="measured", coordinates={"t": (0, 1), "x": periodic(-1, 1)},
                      unknowns=["u"], conditions=[data(points, exact - offsets)])
    np.testing.assert_allclose(vectors(problem, heat_solution)["data"], offsets, atol=1e-15)


def test_measurements_of_a_system():
    problem = Problem(name="measured", coordinates={"x": (0, 1)}, unknowns=["u", "v"],
                      conditions=[data([[0.5], [0.25]], [[1.0, 2.0], [3.0, 4.0]], name="probe")])
    found = vectors(problem, lambda p: jnp.stack([p[0], 10 * p[0]]))
    np.testing.assert_array_equal(found["probe.u"], [-0.5, -2.75])
    np.testing.assert_array_equal(found["probe.v"], [3.0, -1.5])


# Shapes and precision ----------------------------------------------------------------------------

@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_unknown_may_come_as_a_number_or_a_vector(shape):
    problem = heat()
    found = vectors(problem, lambda p: jnp.reshape(heat_solution(p), shape))
    np.testing.assert_allclose(found["pde"], 0, atol=1e-13)
    assert found["initial"].shape == (4,)


def test_a_residual_of_constants_is_still_a_vector():
    """u - 3 for u = 3 + x, and a residual that no point enters."""
    problem = Problem(name="constants", coordinates={"x": (0, 1)}, unknowns=["u"],
                      conditions=[interior(lambda u, c: {"value": u - 3, "slope": u.x - 2})])
    points = jnp.array([[0.25], [0.5], [1.0]])
    found = residuals(problem, lambda p: 3 + p[0], {"pde": Points(points)}, {})
    np.testing.assert_array_equal(found["pde.value"], [0.25, 0.5, 1.0])
    np.testing.assert_array_equal(found["pde.slope"], [-1.0, -1.0, -1.0])


@pytest.mark.parametrize("config", [
    network_config("pirate", "fourier", activation="tanh"),
    network_config("modified-mlp", "chebyshev", activation="swish", layers=1),
    network_config("mlp", "radial", activation="gelu", layers=1),
    network_config("resnet", "spectral", activation="sine"),
], ids=lambda config: config.kind)
def test_no_float64_in_a_float32_training_gradient(config):
    problem = burgers()
    net = jax.eval_shape(lambda: network(config, dtype="float32"))

    def loss(n, points, values, nu):
        batch = {"pde": Points(points), "initial": Points(points, values)}
        found = residuals(problem, n, batch, {"nu": nu})
        return jnp.mean(found["pde"] ** 2) + jnp.mean(found["initial"] ** 2)

    def number(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    jaxpr = str(jax.make_jaxpr(jax.grad(loss))(net, number(5, 2), number(5, 1), number()))
    assert "f32[5,4]" in jaxpr
    assert "f64" not in jaxpr
