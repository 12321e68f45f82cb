import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import InputError
from piratenets.fields.initialisation import features_at, fit_head

from ..common import network, network_config

POINTS = np.stack([a.ravel() for a in np.meshgrid(
    np.linspace(0, 1, 8), np.linspace(-1, 1, 16, endpoint=False), indexing="ij")], axis=1)
TARGET = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25], [2.0, 1.0]])


def features(net):
    return np.asarray(features_at(net, jnp.asarray(POINTS)))


@eqx.filter_jit
def values_at(net):
    return jax.vmap(net)(jnp.asarray(POINTS))


@pytest.mark.parametrize("kind", ["pirate", "modified-mlp", "mlp", "resnet"])
def test_recovers_a_known_combination_of_the_features(kind):
    net = network(network_config(kind, scale=2.0), outputs=2, fitted=True)
    fitted, fit = fit_head(net, POINTS, features(net) @ TARGET)
    np.testing.assert_allclose(fitted.head.weight, TARGET, rtol=0, atol=1e-10)
    assert fit.residual < 1e-13
    assert (fit.rank, fit.features, fit.points) == (4, 4, 128)
    assert fitted.head.bias is None
    assert fitted.head.gain is None
    # Nothing but the head has changed.
    for a, b in zip(jax.tree.leaves(net), jax.tree.leaves(fitted), strict=True):
        assert a.shape == b.shape
        assert (a is net.head.weight) or np.array_equal(a, b)


def test_pirate_net_starts_as_the_best_combination_of_its_embedding():
    """The residual is that of NumPy's least squares, and it is what remains at the points."""
    net = network(network_config("pirate", scale=2.0), fitted=True)
    values = (POINTS[:, 1] ** 2 * np.cos(np.pi * POINTS[:, 1]))[:, None]
    fitted, fit = fit_head(net, POINTS, values)
    embedded = np.asarray(jax.jit(jax.vmap(net.embedding))(jnp.asarray(POINTS)))
    best = np.linalg.lstsq(embedded, values, rcond=None)[0]
    relative = np.linalg.norm(embedded @ best - values) / np.linalg.norm(values)
    assert 0.01 < relative < 0.99
    assert fit.residual == pytest.approx(relative, rel=1e-10)
    assert np.linalg.norm(values_at(fitted) - values) / np.linalg.norm(values) == pytest.approx(
        relative, rel=1e-10)


def test_float32_network():
    """Solved in float64, stored in float32: the residual is that of what is stored."""
    net = network(network_config("pirate", scale=2.0), outputs=2, fitted=True, dtype="float32")
    double = jax.tree.map(lambda x: x.astype(jnp.float64), net)
    fitted, fit = fit_head(net, POINTS, features(double) @ TARGET)
    assert fitted.head.weight.dtype == jnp.float32
    assert {x.dtype for x in jax.tree.leaves(fitted)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(fitted.head.weight, TARGET, rtol=1e-6, atol=1e-6)

    third, fit = fit_head(net, POINTS, features(double) @ (TARGET / 3))
    stored = np.asarray(third.head.weight, dtype=np.float64)
    mismatch = features(double) @ (stored - TARGET / 3)
    assert 1e-9 < fit.residual < 1e-6
    assert fit.residual == pytest.approx(
        np.linalg.norm(mismatch) / np.linalg.norm(features(double) @ TARGET / 3), rel=1e-4)


def test_a_plain_head_with_bias_fits_the_constant_too():
    config = dataclasses.replace(network_config("mlp"), factorization=False)
    net = network(config, outputs=2)
    fitted, fit = fit_head(net, POINTS, features(net) @ TARGET + np.array([[5.0, -7.0]]))
    np.testing.assert_allclose(fitted.head.bias, [5.0, -7.0], atol=1e-8)
    np.testing.assert_allclose(fitted.head.weight, TARGET, atol=1e-8)
    assert fit.features == 5


def test_dependent_features_are_left_out():
    """sin(0 x) is zero: one of the spectral grid's features carries nothing."""
    net = network(network_config("pirate", "spectral"), fitted=True)
    wanted = features(net) @ TARGET[:, :1]
    fitted, fit = fit_head(net, POINTS, wanted)
    assert (fit.rank, fit.features) == (3, 4)
    np.testing.assert_allclose(values_at(fitted), wanted, atol=1e-12)
    # cos(0 x), cos(k x), sin(0 x), sin(k x): the third weight stays zero.
    assert abs(float(fitted.head.weight[2, 0])) < 1e-12


def test_the_values_may_be_zero():
    net = network(network_config("pirate"), fitted=True)
    fitted, fit = fit_head(net, POINTS, np.zeros((128, 1)))
    np.testing.assert_array_equal(fitted.head.weight, np.zeros((4, 1)))
    assert fit.residual == 0.0


def test_too_few_points():
    net = network(network_config("pirate"), fitted=True)
    with pytest.raises(InputError, match="3 points to initialise from: the network has 4 feat"):
        fit_head(net, POINTS[:3], np.zeros((3, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite(bad):
    net = network(network_config("pirate"), fitted=True)
    values = np.zeros((128, 1))
    values[17] = bad
    with pytest.raises(InputError, match="some are not finite"):
        fit_head(net, POINTS, values)


def test_a_factorized_head_cannot_be_fitted():
    net = network(network_config("pirate"), fitted=False)
    with pytest.raises(InputError, match="fitted=True"):
        fit_head(net, POINTS, np.zeros((128, 1)))
