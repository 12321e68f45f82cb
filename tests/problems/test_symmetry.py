"""A problem's declared symmetry and magnitude, and what they make of a network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import InputError
from piratenets.fields.networks import Frame, Framed
from piratenets.fields.taylor import derivatives
from piratenets.problems.ginzburg_landau import EPSILON, MU, magnitude, problem, start
from piratenets.problems.problem import Interval, Problem, initial, interior, periodic
from piratenets.problems.symmetry import Symmetry
from piratenets.residuals.residuals import Points, residuals
from piratenets.training.trainer import Trainer

from ..common import network, network_config, training_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

SQUARE = (Interval(0, 1), periodic(-1, 1), periodic(-1, 1))


def framed(**known):
    net = network(network_config("mlp", size=6, width=5), intervals=SQUARE, outputs=2)
    return Framed(net, Frame(jnp.zeros(3), jnp.ones(3), **known))


def test_the_average_over_a_quarter_turn_by_hand():
    # f = (x, 0) turned by 0, 1, 2, 3 quarters: moves give x = 1, -2, -1, 2; two of the four go
    # into each component.
    turn = Symmetry(move=lambda x, y: (-y, x), back=lambda u, v: (-v, u), order=4)
    value = turn.average(lambda p: jnp.stack([p[0], jnp.zeros(())]), jnp.array([1.0, 2.0]))
    # k = 0: (1, 0); k = 1: back(-2, 0) = (0, -2); k = 2: back^2(-1, 0) = (1, 0);
    # k = 3: back^3(2, 0) = (0, -2).
    np.testing.assert_allclose(value, [0.5, -1.0], rtol=1e-15)


def test_a_framed_network_has_the_symmetry():
    field = framed(symmetry=problem.symmetry)
    point = jnp.array([0.3, 0.4, -0.7])
    u, v = field(point)
    np.testing.assert_allclose(field(jnp.array([0.3, 0.7, 0.4])), [v, -u], rtol=1e-12)
    np.testing.assert_allclose(field(jnp.array([0.3, -0.4, 0.7])), [-u, -v], rtol=1e-12)
    assert abs(float(u)) > 1e-3 and abs(float(v)) > 1e-3


def test_residuals_are_in_units_of_the_magnitude():
    plain, scaled = framed(), framed(magnitude=magnitude)
    points = jnp.array([[0.1, 0.2, 0.3], [0.5, -0.6, 0.1]])
    units = jax.vmap(scaled.unit)(points)

    def product(p):
        return magnitude(*p) * plain(p)

    batch = {"pde": Points(points),
             "initial": Points(points.at[:, 0].set(0.0), jnp.ones((2, 2)))}
    expected = residuals(problem, product, batch, problem.coefficients)
    got = residuals(problem, scaled, batch, problem.coefficients)
    np.testing.assert_allclose(got["pde.u"] * units, expected["pde.u"], rtol=1e-12)
    at_start = jax.vmap(scaled.unit)(batch["initial"].points)
    np.testing.assert_allclose(got["initial.v"] * at_start, expected["initial.v"], rtol=1e-12)


def test_ginzburg_landau_s_magnitude_is_that_of_its_solution():
    x, y = (np.random.default_rng(0).uniform(-0.6, 0.6, 200) for _ in range(2))
    far = np.hypot(x, y) > 0.1
    sizes = np.hypot(*start(x, y)) / magnitude(jnp.zeros(200), x, y)
    assert sizes[far].min() > 0.95
    assert sizes[far].max() < 1.3


def test_ginzburg_landau_s_magnitude_grows_as_the_linear_equation_says():
    # Where it is far below 1: |A|^2 = 100 r^2 e^(2 mu t - 50 r^2 / s) / s^4, with A a solution
    # of A_t = epsilon (A_xx + A_yy) + mu A.
    def linear(p):
        t, x, y = p
        s = 1 + 100 * EPSILON * t
        return 10 * y * jnp.exp(MU * t - 25 * (x**2 + y**2) / s) / s**2

    point = jnp.array([0.1, 0.5, 0.6])
    table = derivatives(linear, point, [(1, 0, 0), (0, 2, 0), (0, 0, 2)])
    growth = EPSILON * (table[0, 2, 0] + table[0, 0, 2]) + MU * table[0, 0, 0]
    np.testing.assert_allclose(table[1, 0, 0], growth, rtol=1e-12)
    ratio = np.hypot(linear(point), linear(point[jnp.array([0, 2, 1])])) / magnitude(*point)
    assert ratio == pytest.approx(1.0, abs=0.01)


def test_initialisation_is_in_units_of_the_magnitude():
    """cos x times the magnitude: in its units, one of the network's features."""
    def small(t, x):
        return 1e-3 * (2 + jnp.cos(x))

    bumpy = Problem(name="bumpy", coordinates={"t": (0, 1), "x": periodic(-np.pi, np.pi)},
                    unknowns=["u"], magnitude=small,
                    conditions=[interior(lambda u, c: u.t - u.xx),
                                initial(lambda x: small(0.0, x) * jnp.cos(x))])
    config = training_config(**{"network.width": 8, "network.embedding.size": 8,
                                "network.embedding.kind": "spectral"})
    trainer = Trainer(bumpy, config)
    trainer.start()
    assert trainer.fits[0].residual < 1e-12


def declared(move=lambda t, x: (t, -x), back=lambda u: (-u,), order=2, u0=jnp.sin, square=0.0):
    return Problem(name="burgers", coordinates={"t": (0, 1), "x": periodic(-np.pi, np.pi)},
                   unknowns=["u"], symmetry=Symmetry(move, back, order),
                   conditions=[interior(lambda u, c: u.t + u * u.x - u.xx + square * u**2),
                               initial(u0)])


def test_a_right_symmetry_is_accepted():
    assert declared().symmetry.order == 2


@pytest.mark.parametrize(("wrong", "reason"), [
    ({"order": 3}, "the motion"), ({"back": lambda u: (2 * u,)}, "what it does to the unknowns"),
    ({"u0": lambda x: jnp.sin(x) + 0.1 * jnp.cos(x)}, "condition 'initial'"),
    ({"square": 1.0}, "condition 'pde'"),
])
def test_a_wrong_symmetry_is_refused(wrong, reason):
    with pytest.raises(InputError, match=f"symmetry of problem 'burgers'.*{reason}"):
        declared(**wrong)
