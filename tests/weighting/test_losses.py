import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.problems.problem import Problem, initial, interior
from piratenets.weighting.losses import causal_terms, losses

SYSTEM = Problem(
    name="system", coordinates={"t": (0, 1), "x": (0, 1)}, unknowns=["u", "v"],
    conditions=[interior(lambda s, c: {"u": s.u.t, "v": s.v.t}), initial(lambda x: (x, x)),
                interior(lambda s, c: s.u.x, name="gauge")])
STEADY = Problem(
    name="steady", coordinates={"x": (0, 1)}, unknowns=["u"],
    conditions=[interior(lambda u, c: u.xx)])
VECTORS = {
    "pde.u": jnp.array([1.0, 0.0, 2.0, 2.0]), "pde.v": jnp.array([0.0, 0.0, 3.0, 1.0]),
    "gauge": jnp.array([1.0, 1.0, 1.0, 1.0]),
    "initial.u": jnp.array([3.0, 1.0]), "initial.v": jnp.array([0.0, 4.0, 2.0]),
}


def numbers(result):
    return {term: float(v) for term, v in result.terms.items()}


def test_terms_on_the_whole_domain_are_causal():
    assert causal_terms(SYSTEM) == ["pde.u", "pde.v", "gauge"]
    assert causal_terms(STEADY) == []


def test_mean_squares_by_term():
    result = losses(SYSTEM, VECTORS, 1, 1.0)
    assert numbers(result) == {"pde.u": 2.25, "pde.v": 2.5, "gauge": 1.0,
                               "initial.u": 5.0, "initial.v": pytest.approx(20 / 3)}
    np.testing.assert_array_equal(result.causal, [1.0])


def test_causal_chunks_of_a_system():
    """First chunks: u 0.5, v 0, gauge 1. The largest decides the weight of the second."""
    result = losses(SYSTEM, VECTORS, 2, 0.7)
    w = np.exp(-0.7)
    np.testing.assert_allclose(result.causal, [1, w], rtol=1e-15)
    assert numbers(result) == pytest.approx({
        "pde.u": (0.5 + 4 * w) / 2, "pde.v": 5 * w / 2, "gauge": (1 + w) / 2,
        # Conditions at one time have no weights.
        "initial.u": 5.0, "initial.v": 20 / 3}, rel=1e-15)


def test_without_time_there_are_no_causal_weights():
    result = losses(STEADY, {"pde": jnp.array([1.0, 1.0, 3.0, 3.0])}, 2, 1.0)
    assert numbers(result) == {"pde": 5.0}
    np.testing.assert_array_equal(result.causal, [1.0])
