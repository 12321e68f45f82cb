import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import EmbeddingConfig, NetworkConfig
from piratenets.errors import InputError
from piratenets.fields.networks import (
    Frame,
    Framed,
    adaptive_blocks,
    gate,
    parameter_count,
    trainable,
)

from ..common import network, network_config

POINT = jnp.array([0.3, -0.4])
KINDS = ("pirate", "modified-mlp", "mlp", "resnet")


def with_biases(net):
    """The network with all zeros (the initial biases) replaced, so that they count."""
    return jax.tree.map(lambda x: jnp.asarray(x + 0.1 * np.arange(x.size)) if x.ndim == 1 else x,
                        net)


def apply(dense, x):
    """x V diag(g) + b in NumPy."""
    y = x @ np.asarray(dense.weight)
    y = y if dense.gain is None else y * np.asarray(dense.gain)
    return y if dense.bias is None else y + np.asarray(dense.bias)


def embedded(net):
    return np.asarray(net.embedding(POINT))


ACTIVATIONS = {
    "tanh": np.tanh, "sine": np.sin, "swish": lambda x: x / (1 + np.exp(-x)),
    # The usual approximation by tanh.
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def test_gate_by_hand():
    """f U + (1 - f) V."""
    f, u, v = jnp.array([0.0, 1.0, 0.25]), jnp.array([3.0, 5.0, 8.0]), jnp.array([7.0, 11.0, 4.0])
    np.testing.assert_array_equal(gate(f, (u, v)), [7.0, 5.0, 5.0])
    np.testing.assert_array_equal(gate(f, None), f)


# Formulas -------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["fourier", "spectral", "chebyshev", "radial"])
def test_pirate_net_with_alpha_zero_is_linear_in_its_embedding(kind):
    net = network(network_config("pirate", kind, layers=6), outputs=2)
    np.testing.assert_array_equal(net.features(POINT), net.embedding(POINT))
    np.testing.assert_array_equal(net(POINT), net.head(net.embedding(POINT)))


@pytest.mark.parametrize(("activation", "gates", "alpha", "size"), [
    ("tanh", True, 0.3, 4), ("swish", True, 1.0, 4), ("gelu", False, 0.7, 4),
    ("sine", True, 0.6, 6),
])
def test_pirate_net_by_hand(activation, gates, alpha, size):
    config = network_config("pirate", layers=6, size=size, activation=activation, gates=gates,
                            alpha=alpha)
    net, act = with_biases(network(config, outputs=2)), ACTIVATIONS[activation]
    assert [float(b.alpha) for b in net.blocks] == [alpha, alpha]
    x = embedded(net)
    if gates:
        u, v = act(apply(net.gates.first, x)), act(apply(net.gates.second, x))
    assert (net.projection is None) == (size == 4)
    if net.projection is not None:
        x = apply(net.projection, x)
    for block in net.blocks:
        f = act(apply(block.layers[0], x))
        z = f * u + (1 - f) * v if gates else f
        g = act(apply(block.layers[1], z))
        z = g * u + (1 - g) * v if gates else g
        h = act(apply(block.layers[2], z))
        x = alpha * h + (1 - alpha) * x
    np.testing.assert_allclose(net.features(POINT), x, atol=1e-14)
    np.testing.assert_allclose(net(POINT), apply(net.head, x), atol=1e-14)


def test_modified_mlp_by_hand():
    net = with_biases(network(network_config("modified-mlp", layers=2), outputs=2))
    x = embedded(net)
    u, v = np.tanh(apply(net.gates.first, x)), np.tanh(apply(net.gates.second, x))
    for layer in net.layers:
        f = np.tanh(apply(layer, x))
        x = f * u + (1 - f) * v
    np.testing.assert_allclose(net(POINT), apply(net.head, x), atol=1e-14)


def test_mlp_by_hand():
    net = with_biases(network(network_config("mlp", layers=2, activation="swish")))
    x = embedded(net)
    for layer in net.layers:
        x = ACTIVATIONS["swish"](apply(layer, x))
    assert net.gates is None
    np.testing.assert_allclose(net(POINT), apply(net.head, x), atol=1e-14)


def test_resnet_by_hand():
    """x + h, a plain skip connection, without gates and without alpha."""
    net = with_biases(network(network_config("resnet", layers=6, size=6)))
    x = apply(net.projection, embedded(net))
    for block in net.blocks:
        h = x
        for layer in block.layers:
            h = np.tanh(apply(layer, h))
        x = x + h
    assert net.gates is None
    assert adaptive_blocks(net) == []
    np.testing.assert_allclose(net(POINT), apply(net.head, x), atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_the_factorization_does_not_change_the_initial_function(kind):
    config = network_config(kind, alpha=0.7)
    plain = dataclasses.replace(config, factorization=False)
    np.testing.assert_allclose(network(config)(POINT), network(plain)(POINT), atol=1e-14)


def test_networks_of_other_seeds_differ():
    config = network_config()
    values = [float(network(config, seed=s)(POINT)[0]) for s in (0, 0, 1)]
    assert values[0] == values[1]
    assert abs(values[0] - values[2]) > 1e-3


def test_a_window_s_network_sees_its_own_clock():
    net = network(network_config("pirate", "none", alpha=0.5))
    framed = Framed(net, Frame(jnp.array([0.25, 0.0]), jnp.array([4.0, 1.0])))
    np.testing.assert_array_equal(framed(POINT), net(jnp.array([4 * (0.3 - 0.25), -0.4])))


@pytest.mark.parametrize("kind", ["pirate", "resnet"])
def test_blocks_have_three_layers(kind):
    with pytest.raises(InputError, match=r"network.layers = 4: a .* block has three layers"):
        network(network_config(kind, layers=4))


# Parameters -----------------------------------------------------------------------------------

DENSE = 4 * 4 + 4 + 4
"""Parameters of a factorized layer of width 4: V, g and b."""


@pytest.mark.parametrize(("kind", "fitted", "fields", "count"), [
    ("pirate", True, {}, 2 * DENSE + 2 * (3 * DENSE + 1) + 4),
    ("pirate", False, {}, 2 * DENSE + 2 * (3 * DENSE + 1) + 4 + 1 + 1),
    ("pirate", True, {"gates": False}, 2 * (3 * DENSE + 1) + 4),
    ("pirate", True, {"train_alpha": False}, 2 * DENSE + 6 * DENSE + 4),
    ("pirate", True, {"factorization": False}, 2 * 20 + 2 * (3 * 20 + 1) + 4),
    # An embedding of 6 features is projected to the width; the gates see it as it is.
    ("pirate", True, {"size": 6}, 3 * (6 * 4 + 8) + 2 * (3 * DENSE + 1) + 4),
    ("modified-mlp", True, {}, 2 * DENSE + 6 * DENSE + 4),
    ("mlp", True, {"size": 6}, (6 * 4 + 8) + 5 * DENSE + 4),
    ("resnet", True, {}, 6 * DENSE + 4),
])
def test_parameter_counts(kind, fitted, fields, count):
    config = network_config(kind, layers=6, **fields)
    assert parameter_count(network(config, fitted=fitted), config) == count


def test_parameter_count_of_the_paper_s_network():
    config = NetworkConfig()
    net = jax.eval_shape(lambda: network(config, dtype="float32", fitted=True))
    dense = 256 * 256 + 2 * 256
    leaves = jax.tree.leaves(eqx.filter(net, lambda x: hasattr(x, "shape")))
    fourier = 3 * 128
    assert sum(x.size for x in leaves) == (2 + 9) * dense + 3 + 256 + fourier == 727_171


def test_embedding_parameters_are_trained_where_asked():
    for kind, count in [("fourier", 3 * 2), ("radial", 4 * 3), ("none", 0), ("spectral", 0)]:
        frozen = network_config("mlp", kind)
        free = dataclasses.replace(frozen, embedding=dataclasses.replace(frozen.embedding,
                                                                         trainable=True))
        net = network(frozen)
        assert parameter_count(net, free) - parameter_count(net, frozen) == count


def test_what_is_trained():
    frozen = network_config("pirate", layers=6, train_alpha=False)
    net = network(frozen)
    mask = trainable(net, frozen)
    assert [b.alpha for b in mask.blocks] == [False, False]
    assert mask.embedding.frequencies is False
    assert mask.gates.first.gain is True
    config = dataclasses.replace(frozen, train_alpha=True,
                                 embedding=EmbeddingConfig(size=4, trainable=True))
    assert all(jax.tree.leaves(trainable(net, config)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_to_be_fitted_is_plain_and_without_bias(kind):
    for fitted in (True, False):
        head = network(network_config(kind), outputs=2, fitted=fitted).head
        assert head.weight.shape == (4, 2)
        assert (head.gain is None, head.bias is None) == (fitted, fitted)


@pytest.mark.parametrize("kind", KINDS)
def test_precision(kind):
    def evaluated(point):
        net = network(network_config(kind, size=6, alpha=0.5), dtype="float32")
        return jax.tree.leaves(net), net(point)

    leaves, value = jax.eval_shape(evaluated, jax.ShapeDtypeStruct((2,), "float32"))
    assert {x.dtype for x in [*leaves, value]} == {jnp.dtype("float32")}


# What a network sees ------------------------------------------------------------------------------

def product(t, x):
    return t * x


def test_a_frame_adds_known_functions_of_the_problem_s_own_coordinates():
    frame = Frame(np.array([0.25, 0.0]), np.array([4.0, 1.0]), (product, jnp.hypot))
    points = np.array([[0.5, 2.0], [0.25, -1.0]])
    expected = [[1.0, 2.0, 1.0, 4.25**0.5], [0.0, -1.0, -0.25, 1.0625**0.5]]
    np.testing.assert_allclose(frame.seen(points), expected, rtol=1e-15)
    np.testing.assert_allclose(frame.seen(points[0]), expected[0], rtol=1e-15)
