"""The dense layer, with or without random weight factorization."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.config import NetworkConfig


class Dense(eqx.Module):
    """y = x W + b, with W = V diag(g) by output column where the weights are factorized.

    W0 is Glorot normal and b zero. The factorization draws g = exp(s), s ~ N(mean, std^2),
    and sets V = W0 / g, so that it changes the training and not the initial function.
    """

    weight: Array
    gain: Array | None
    bias: Array | None

    def __init__(self, inputs: int, outputs: int, config: NetworkConfig, key: Array,
                 dtype: jnp.dtype, *, bias: bool = True, factorized: bool | None = None) -> None:
        weight_key, gain_key = jax.random.split(key)
        deviation = (2.0 / (inputs + outputs)) ** 0.5
        weight = deviation * jax.random.normal(weight_key, (inputs, outputs), dtype)
        factorized = config.factorization if factorized is None else factorized
        if factorized:
            noise = jax.random.normal(gain_key, (outputs,), dtype)
            gain = jnp.exp(config.factorization_mean + config.factorization_std * noise)
            self.gain, self.weight = gain, weight / gain[None, :]
        else:
            self.gain, self.weight = None, weight
        self.bias = jnp.zeros((outputs,), dtype) if bias else None

    def __call__(self, x: Array) -> Array:
        weight = self.weight if self.gain is None else self.weight * self.gain[None, :]
        y = x @ weight
        return y if self.bias is None else y + self.bias
