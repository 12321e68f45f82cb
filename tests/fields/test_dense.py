import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import NetworkConfig
from piratenets.fields.dense import Dense

FLOAT64 = jnp.dtype("float64")


def dense(inputs, outputs, *, seed=0, dtype=FLOAT64, config=None, **choices):
    return eqx.filter_jit(Dense)(inputs, outputs, config or NetworkConfig(), jax.random.key(seed),
                                 dtype, **choices)


def test_affine_map_with_factorized_weights():
    """y = x V diag(g) + b: the gain belongs to the output."""
    layer = dense(2, 3)
    # In the order weight, gain, bias.
    layer = jax.tree.unflatten(jax.tree.structure(layer), [
        jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), jnp.array([1.0, 10.0, 100.0]),
        jnp.array([0.5, 0.25, 0.125])])
    assert [layer.weight.shape, layer.gain.shape, layer.bias.shape] == [(2, 3), (3,), (3,)]
    np.testing.assert_array_equal(layer(jnp.array([1.0, -1.0])), [-2.5, -29.75, -299.875])


def test_affine_map_with_plain_weights():
    layer = dense(2, 3, factorized=False)
    assert layer.gain is None
    x = np.array([0.5, -2.0])
    np.testing.assert_allclose(layer(jnp.asarray(x)), x @ np.asarray(layer.weight), rtol=1e-14)


def test_without_bias():
    layer = dense(2, 3, bias=False)
    assert layer.bias is None
    np.testing.assert_array_equal(layer(jnp.zeros(2)), np.zeros(3))


def test_the_factorization_does_not_change_the_initial_function():
    factorized, plain = dense(2, 3), dense(2, 3, factorized=False)
    np.testing.assert_allclose(factorized.weight * factorized.gain[None, :], plain.weight,
                               rtol=1e-14)
    x = jnp.array([-1.0, 0.5])
    np.testing.assert_allclose(factorized(x), plain(x), rtol=0, atol=1e-14)
    assert float(jnp.abs(factorized.weight - plain.weight).min()) > 1e-3


def test_glorot_variance_and_zero_bias():
    inputs, outputs = 300, 500
    layer = dense(inputs, outputs, factorized=False)
    weight = np.asarray(layer.weight)
    # 150,000 normal numbers: their variance is known to 0.4 %, one standard deviation.
    assert weight.var() == pytest.approx(2 / (inputs + outputs), rel=0.015)
    assert abs(weight.mean()) < 5 * np.sqrt(2 / (inputs + outputs) / weight.size)
    np.testing.assert_array_equal(layer.bias, np.zeros(outputs))


def test_gains_are_log_normal():
    mean, std = 0.5, 0.2
    config = NetworkConfig(factorization_mean=mean, factorization_std=std)
    log_gain = np.log(np.asarray(dense(1, 20_000, config=config).gain))
    assert log_gain.mean() == pytest.approx(mean, abs=0.005)
    assert log_gain.std() == pytest.approx(std, rel=0.02)
    standard = (log_gain - mean) / std
    assert np.mean(np.abs(standard) < 1) == pytest.approx(0.6827, abs=0.01)


def test_the_configuration_chooses():
    assert dense(2, 3, config=NetworkConfig(factorization=False)).gain is None
    assert dense(2, 3).gain.shape == (3,)


def test_precision():
    single = jnp.dtype("float32")
    layer = dense(2, 3, dtype=single)
    assert {x.dtype for x in jax.tree.leaves(layer)} == {single}
    assert jax.eval_shape(layer, jax.ShapeDtypeStruct((2,), single)).dtype == single
