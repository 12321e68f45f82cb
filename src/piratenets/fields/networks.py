"""The four backbones: PirateNet, Modified MLP, MLP and ResNet.

Each maps one point, shape (d,), to the unknowns, shape (k,), as head(features(point)):
what comes before the linear head is what physics-informed initialisation fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.config import NetworkConfig
from piratenets.errors import InputError
from piratenets.fields.dense import Dense
from piratenets.fields.embeddings import Embedding, make_embedding
from piratenets.problems.problem import Interval
from piratenets.problems.symmetry import Symmetry

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "swish": jax.nn.swish,
    "gelu": jax.nn.gelu,
    "sine": jnp.sin,
}


class Gates(eqx.Module):
    """U and V, the two encodings of the embedded point that gate the hidden layers."""

    first: Dense
    second: Dense

    def __init__(self, inputs: int, config: NetworkConfig, key: Array, dtype: jnp.dtype) -> None:
        first_key, second_key = jax.random.split(key)
        self.first = Dense(inputs, config.width, config, first_key, dtype)
        self.second = Dense(inputs, config.width, config, second_key, dtype)

    def __call__(self, x: Array, activation: Callable[[Array], Array]) -> tuple[Array, Array]:
        return activation(self.first(x)), activation(self.second(x))


def gate(f: Array, gates: tuple[Array, Array] | None) -> Array:
    """f U + (1 - f) V, or f itself without gates."""
    if gates is None:
        return f
    u, v = gates
    return v + f * (u - v)


class PirateBlock(eqx.Module):
    """Three dense layers, the first two gated, and the adaptive skip connection."""

    layers: tuple[Dense, Dense, Dense]
    alpha: Array

    def __init__(self, config: NetworkConfig, key: Array, dtype: jnp.dtype) -> None:
        self.layers = _three_layers(config, key, dtype)
        self.alpha = jnp.asarray(config.alpha, dtype)

    def __call__(self, x: Array, gates: tuple[Array, Array] | None,
                 activation: Callable[[Array], Array]) -> Array:
        z = gate(activation(self.layers[0](x)), gates)
        z = gate(activation(self.layers[1](z)), gates)
        h = activation(self.layers[2](z))
        return self.alpha * h + (1 - self.alpha) * x


class PlainBlock(eqx.Module):
    """Three dense layers and a plain skip connection: x + h."""

    layers: tuple[Dense, Dense, Dense]

    def __init__(self, config: NetworkConfig, key: Array, dtype: jnp.dtype) -> None:
        self.layers = _three_layers(config, key, dtype)

    def __call__(self, x: Array, gates: tuple[Array, Array] | None,
                 activation: Callable[[Array], Array]) -> Array:
        h = x
        for layer in self.layers:
            h = activation(layer(h))
        return x + h


def _three_layers(config: NetworkConfig, key: Array, dtype: jnp.dtype
                  ) -> tuple[Dense, Dense, Dense]:
    a, b, c = jax.random.split(key, 3)
    width = config.width
    return (Dense(width, width, config, a, dtype), Dense(width, width, config, b, dtype),
            Dense(width, width, config, c, dtype))


class BlockNetwork(eqx.Module):
    """PirateNet: an embedding, gated residual blocks with adaptive skips, a linear head.

    With alpha = 0 every block is the identity and the network is linear in its embedding.
    The identity path needs the embedding to have the network's width; any other size is
    projected linearly first. ResNet, the paper's plain residual baseline, is the same with
    plain blocks and no gates.
    """

    embedding: Embedding
    projection: Dense | None
    gates: Gates | None
    blocks: tuple[PirateBlock | PlainBlock, ...]
    head: Dense
    activation: str = eqx.field(static=True)

    def __init__(self, embedding: Embedding, outputs: int, config: NetworkConfig, key: Array,
                 dtype: jnp.dtype, *, fitted: bool) -> None:
        projection, gates, head, *blocks = jax.random.split(key, 3 + _block_count(config))
        pirate = config.kind == "pirate"
        self.embedding = embedding
        self.projection = None if embedding.size == config.width else Dense(
            embedding.size, config.width, config, projection, dtype)
        self.gates = Gates(embedding.size, config, gates, dtype) \
            if pirate and config.gates else None
        block = PirateBlock if pirate else PlainBlock
        self.blocks = tuple(block(config, k, dtype) for k in blocks)
        self.head = _make_head(outputs, config, head, dtype, fitted=fitted)
        self.activation = config.activation

    def features(self, point: Array) -> Array:
        activation = ACTIVATIONS[self.activation]
        x = self.embedding(point)
        gates = None if self.gates is None else self.gates(x, activation)
        x = x if self.projection is None else self.projection(x)
        for block in self.blocks:
            x = block(x, gates, activation)
        return x

    def __call__(self, point: Array) -> Array:
        return self.head(self.features(point))


class MLP(eqx.Module):
    """Dense layers; with gates, the Modified MLP, whose every layer mixes U and V."""

    embedding: Embedding
    gates: Gates | None
    layers: tuple[Dense, ...]
    head: Dense
    activation: str = eqx.field(static=True)

    def __init__(self, embedding: Embedding, outputs: int, config: NetworkConfig, key: Array,
                 dtype: jnp.dtype, *, gated: bool, fitted: bool) -> None:
        gates, head, *layers = jax.random.split(key, 2 + config.layers)
        sizes = [embedding.size] + [config.width] * config.layers
        self.embedding = embedding
        self.gates = Gates(embedding.size, config, gates, dtype) if gated else None
        self.layers = tuple(Dense(n, config.width, config, k, dtype)
                            for n, k in zip(sizes[:-1], layers, strict=True))
        self.head = _make_head(outputs, config, head, dtype, fitted=fitted)
        self.activation = config.activation

    def features(self, point: Array) -> Array:
        activation = ACTIVATIONS[self.activation]
        x = self.embedding(point)
        gates = None if self.gates is None else self.gates(x, activation)
        for layer in self.layers:
            x = gate(activation(layer(x)), gates)
        return x

    def __call__(self, point: Array) -> Array:
        return self.head(self.features(point))


Network = Any
"""A module that maps one point to the unknowns and has `features` and `head`."""


class Frame(eqx.Module):
    """How a network sees coordinates: from an origin on, in units of its own, and with known
    functions of them beside."""

    origin: Any
    scale: Any
    shapes: tuple[Callable[..., Any], ...] = eqx.field(static=True, default=())
    magnitude: Callable[..., Any] | None = eqx.field(static=True, default=None)
    """What the network's outputs are multiplied by."""
    symmetry: Symmetry | None = eqx.field(static=True, default=None)
    """What the network is averaged over."""

    def seen(self, points: Any) -> Any:
        """What the network is given at one point (d,), or at several (n, d)."""
        plain = (points - self.origin) * self.scale
        if not self.shapes:
            return plain
        columns = [points[..., k] for k in range(points.shape[-1])]
        shapes = jnp.stack([shape(*columns) for shape in self.shapes], axis=-1)
        return jnp.concatenate([plain, shapes], axis=-1)


SMALLEST = 1e-6
"""A magnitude below this is as good as none: residuals there are not taken relative to it."""


class Framed(eqx.Module):
    """A network in a frame: a time window's own clock, a problem's symmetry and magnitude."""

    network: Network
    frame: Frame

    def __call__(self, point: Array) -> Array:
        frame = self.frame

        def plain(p: Array) -> Array:
            return self.network(frame.seen(p))

        value = plain(point) if frame.symmetry is None else frame.symmetry.average(plain, point)
        return value if frame.magnitude is None else frame.magnitude(*point) * value

    def unit(self, point: Array) -> Array | float:
        """What residuals at a point are measured in."""
        magnitude = self.frame.magnitude
        return 1.0 if magnitude is None else magnitude(*point) + SMALLEST


def _make_head(outputs: int, config: NetworkConfig, key: Array, dtype: jnp.dtype, *,
               fitted: bool) -> Dense:
    """The last, linear layer: plain and without bias where least squares will fill it."""
    return Dense(config.width, outputs, config, key, dtype, bias=not fitted,
                 factorized=config.factorization and not fitted)


def _block_count(config: NetworkConfig) -> int:
    if config.layers % 3:
        raise InputError(f"network.layers = {config.layers}",
                         f"a {config.kind} block has three layers", "Use a multiple of 3")
    return config.layers // 3


def make_network(intervals: tuple[Interval, ...], outputs: int, config: NetworkConfig, key: Array,
                 dtype: jnp.dtype, *, fitted: bool) -> Network:
    """The network that the configuration names; `fitted` if least squares fills its head."""
    if not config.symmetries:
        intervals = tuple(replace(interval, even=False) for interval in intervals)
    embedding_key, key = jax.random.split(key)
    embedding = make_embedding(intervals, config.embedding, embedding_key, dtype)
    if config.kind in ("pirate", "resnet"):
        return BlockNetwork(embedding, outputs, config, key, dtype, fitted=fitted)
    gated = config.kind == "modified-mlp"
    return MLP(embedding, outputs, config, key, dtype, gated=gated, fitted=fitted)


def adaptive_blocks(network: Network) -> list[PirateBlock]:
    """The residual blocks that have an alpha."""
    return [b for b in getattr(network, "blocks", ()) if isinstance(b, PirateBlock)]


def trainable(network: Network, config: NetworkConfig) -> Any:
    """Which leaves of the network are trained: True or False in place of each."""
    mask = jax.tree.map(eqx.is_inexact_array, network)
    if not config.embedding.trainable:
        mask = eqx.tree_at(lambda m: m.embedding, mask, jax.tree.map(lambda _: False,
                                                                     mask.embedding))
    if not config.train_alpha:
        for k, _ in enumerate(adaptive_blocks(network)):
            mask = eqx.tree_at(lambda m, k=k: m.blocks[k].alpha, mask, False)
    return mask


def parameter_count(network: Network, config: NetworkConfig) -> int:
    """The number of trained parameters."""
    trained = eqx.filter(network, trainable(network, config))
    return sum(x.size for x in jax.tree.leaves(trained))
