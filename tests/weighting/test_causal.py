import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.weighting.causal import causal_weights, chunk_means


def weights(losses, tolerance=1.0):
    return np.asarray(causal_weights(jnp.atleast_2d(jnp.asarray(losses, float)), tolerance))


def test_each_weight_counts_the_losses_before_it():
    np.testing.assert_allclose(-np.log(weights([1, 10, 100, 1000])), [0, 1, 11, 111], rtol=1e-14)


@pytest.mark.parametrize("tolerance", [0.1, 1.0, 5.0])
def test_exact_weights(tolerance):
    np.testing.assert_allclose(
        weights([1, 10, 100, 1000], tolerance),
        np.exp(-tolerance * np.array([0.0, 1.0, 11.0, 111.0])), rtol=1e-13)


def test_the_first_weight_is_one_and_weights_never_increase():
    random = np.random.default_rng(0)
    for _ in range(20):
        w = weights(random.exponential(size=16), 0.5)
        assert w[0] == 1.0
        assert (np.diff(w) <= 0).all()
        assert w[-1] < 0.1


def test_solved_chunks_leave_all_weights_at_one():
    np.testing.assert_array_equal(weights([0, 0, 0]), [1, 1, 1])
    np.testing.assert_array_equal(weights([3, 4, 5], tolerance=0.0), [1, 1, 1])


def test_a_system_takes_the_smallest_weight_over_its_equations():
    w = weights([[1.0, 0.0, 5.0], [0.0, 3.0, 0.0]])
    np.testing.assert_allclose(w, np.exp([0.0, -1.0, -3.0]), rtol=1e-15)


def test_weights_are_constants_to_differentiation():
    """d/da mean_i(w_i L_i) = mean_i(w_i dL_i/da), as if the weights did not depend on a."""
    slopes = jnp.array([[0.1, 0.2, 0.4]])

    def loss(a):
        by_chunk = a**2 * slopes
        return jnp.mean(causal_weights(by_chunk, 1.0) * by_chunk[0])

    a = 1.5
    w = np.exp(-a**2 * np.array([0.0, 0.1, 0.3]))
    assert float(jax.grad(loss)(a)) == pytest.approx(
        np.mean(w * 2 * a * np.array([0.1, 0.2, 0.4])), rel=1e-14)
    np.testing.assert_array_equal(jax.jacrev(lambda s: causal_weights(s, 1.0))(slopes),
                                  np.zeros((3, 1, 3)))


def test_chunks_are_consecutive_equal_parts():
    np.testing.assert_array_equal(chunk_means(jnp.array([1.0, 3.0, 5.0, 7.0, 0.0, 10.0]), 3),
                                  [2, 6, 5])
