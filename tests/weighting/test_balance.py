import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.weighting.balance import (
    FLOOR,
    balanced,
    gradient_norms,
    kernel_means,
    smoothed,
    squared_norm,
    starting_weights,
)


def numbers(weights):
    return {term: float(w) for term, w in weights.items()}


def measures(**values):
    return {term: jnp.asarray(v) for term, v in values.items()}


def test_weights_equalise_the_measures():
    """mean 4: 4/1, 4/3, 4/8."""
    assert numbers(balanced(measures(a=1.0, b=3.0, c=8.0))) == pytest.approx(
        {"a": 4.0, "b": 4 / 3, "c": 0.5}, rel=1e-15)


def test_a_term_already_solved_gets_no_infinite_weight():
    weights = numbers(balanced(measures(a=0.0, b=6.0)))
    assert FLOOR == 1e-5
    assert weights == pytest.approx({"a": 1e5, "b": 0.5}, rel=1e-14)


def test_smoothing():
    old, new = measures(a=1.0, b=10.0), measures(a=11.0, b=0.0)
    assert numbers(smoothed(old, new, 0.9)) == pytest.approx({"a": 2.0, "b": 9.0}, rel=1e-15)
    assert numbers(smoothed(old, new, 0.0)) == {"a": 11.0, "b": 0.0}


def test_starting_weights_by_term_or_by_condition():
    start = {"pde": 2.0, "pde.v": 5.0, "initial": 100.0}
    weights = starting_weights(("pde.u", "pde.v", "initial", "walls"), start, jnp.float32)
    assert numbers(weights) == {"pde.u": 2.0, "pde.v": 5.0, "initial": 100.0, "walls": 1.0}
    assert {w.dtype for w in weights.values()} == {jnp.dtype("float32")}


def test_squared_norm_of_a_tree():
    assert float(squared_norm({"a": jnp.array([[1.0, 2.0]]), "b": jnp.array(3.0)})) == 14.0


# A 'network' u = a x + b with residuals u - 1 and 2 u_x - 3 = 2 a - 3.
PARAMETERS = {"a": jnp.array(2.0), "b": jnp.array(0.5)}
POINTS = jnp.array([0.0, 1.0, -1.0, 2.0])


def point_residuals(parameters, x):
    a, b = parameters["a"], parameters["b"]
    return {"value": a * x + b - 1.0, "slope": 2 * a - 3.0}


def term_losses(parameters):
    vectors = jax.vmap(lambda x: point_residuals(parameters, x))(POINTS)
    return {term: jnp.mean(r**2) for term, r in vectors.items()}


def test_gradient_norms_by_hand():
    """u - 1 = -0.5, 1.5, -2.5, 3.5: gradient 2 mean(r x), 2 mean(r); 2 a - 3 = 1: (4, 0)."""
    d_a, d_b = 2 * (1.5 + 2.5 + 7.0) / 4, 2 * 2.0 / 4
    measured = jax.jit(lambda p: gradient_norms(term_losses, p))(PARAMETERS)
    norms = numbers(measured)
    assert norms == pytest.approx({"value": np.hypot(d_a, d_b), "slope": 4.0}, rel=1e-14)
    mean = (np.hypot(d_a, d_b) + 4.0) / 2
    assert numbers(balanced(measured)) == pytest.approx(
        {"value": mean / np.hypot(d_a, d_b), "slope": mean / 4.0}, rel=1e-14)


@pytest.mark.parametrize("at_once", [3, 64])
def test_kernel_diagonals_by_hand(at_once):
    """|d r / d (a, b)|^2 = x^2 + 1 and 4, whatever number of points is taken at once."""
    diagonals = jax.jit(lambda p: kernel_means(point_residuals, p, POINTS, at_once))(PARAMETERS)
    np.testing.assert_allclose(diagonals["value"], [1, 2, 2, 5], rtol=1e-15)
    np.testing.assert_allclose(diagonals["slope"], [4, 4, 4, 4], rtol=1e-15)
