"""Embeddings: how a point becomes a vector of features.

A periodic coordinate x enters as (cos wx, sin wx), w = 2 pi / period, before anything
else, so that every network is periodic by construction; one that is declared even enters as
cos wx alone. Every embedding is a module that
maps one point to `size` features.
"""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from piratenets.config import EmbeddingConfig
from piratenets.errors import InputError
from piratenets.problems.problem import Interval

Embedding = Any
"""A callable module with a `size`: one point, shape (d,), to features, shape (size,)."""


class Lift(eqx.Module):
    """The point with each periodic coordinate x replaced by (cos wx, sin wx), or cos wx if even.

    With `scaled`, the others are mapped from their interval to [-1, 1].
    """

    frequency: tuple[float | None, ...] = eqx.field(static=True)
    even: tuple[bool, ...] = eqx.field(static=True)
    centre: tuple[float, ...] = eqx.field(static=True)
    half: tuple[float, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...], *, scaled: bool = False) -> None:
        # Python numbers: NumPy's would turn float32 features into float64 ones.
        self.frequency = tuple(float(2 * np.pi / i.length) if i.periodic else None
                               for i in intervals)
        self.even = tuple(i.even for i in intervals)
        self.centre = tuple(float(i.lower + i.upper) / 2 if scaled else 0.0 for i in intervals)
        self.half = tuple(float(i.length) / 2 if scaled else 1.0 for i in intervals)
        self.size = sum(2 if i.periodic and not i.even else 1 for i in intervals)

    def __call__(self, point: Array) -> Array:
        lifted: list[Array] = []
        for k, frequency in enumerate(self.frequency):
            if frequency is None:
                lifted.append((point[k] - self.centre[k]) / self.half[k])
                continue
            lifted.append(jnp.cos(frequency * point[k]))
            if not self.even[k]:
                lifted.append(jnp.sin(frequency * point[k]))
        return jnp.stack(lifted)


class Plain(eqx.Module):
    """No features but the (lifted) coordinates themselves."""

    lift: Lift
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...]) -> None:
        self.lift = Lift(intervals)
        self.size = self.lift.size

    def __call__(self, point: Array) -> Array:
        return self.lift(point)


class Fourier(eqx.Module):
    """Random Fourier features [cos(xB), sin(xB)] with B ~ N(0, scale^2)."""

    lift: Lift
    frequencies: Array
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...], config: EmbeddingConfig, key: Array,
                 dtype: jnp.dtype) -> None:
        self.lift = Lift(intervals)
        shape = (self.lift.size, config.size // 2)
        self.frequencies = config.scale * jax.random.normal(key, shape, dtype)
        self.size = config.size

    def __call__(self, point: Array) -> Array:
        phase = self.lift(point) @ self.frequencies
        return jnp.concatenate([jnp.cos(phase), jnp.sin(phase)])


class SpectralGrid(eqx.Module):
    """[cos(k.x), sin(k.x)] with the smallest wave vectors k of a regular grid.

    The grid's spacing is 2 pi / period for a periodic coordinate and pi / length for
    another (half a wave over its interval). No use is made of a coordinate's being even.
    """

    waves: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...], config: EmbeddingConfig) -> None:
        count = config.size // 2
        spacing = [(2 if i.periodic else 1) * np.pi / i.length for i in intervals]
        multiples = _multi_indices(len(intervals), count, signed=True)
        self.waves = tuple(tuple(float(m * s) for m, s in zip(index, spacing, strict=True))
                           for index in multiples)
        self.size = config.size

    def __call__(self, point: Array) -> Array:
        phase = jnp.asarray(np.array(self.waves).T, point.dtype)
        phase = point @ phase
        return jnp.concatenate([jnp.cos(phase), jnp.sin(phase)])


class Chebyshev(eqx.Module):
    """Products of Chebyshev polynomials by total degree; harmonics for periodic coordinates."""

    lift: Lift
    circular: tuple[bool, ...] = eqx.field(static=True)
    products: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...], config: EmbeddingConfig) -> None:
        self.lift = Lift(intervals, scaled=True)
        # In an even coordinate, whose lift is cos wx alone, T_n(cos wx) = cos nwx.
        self.circular = tuple(i.periodic and not i.even for i in intervals)
        self.products = tuple(_multi_indices(len(intervals), config.size, signed=False))
        self.size = config.size

    def __call__(self, point: Array) -> Array:
        lifted = self.lift(point)
        degree = max(max(index) for index in self.products)
        factors: list[Array] = []
        k = 0
        for circular in self.circular:
            if circular:
                factors.append(_harmonics(lifted[k], lifted[k + 1], degree))
            else:
                factors.append(_chebyshev(lifted[k], degree))
            k += 2 if circular else 1
        columns = np.array(self.products)
        features = factors[0][columns[:, 0]]
        for i, factor in enumerate(factors[1:], start=1):
            features = features * factor[columns[:, i]]
        return features


class RadialBasis(eqx.Module):
    """Gaussians exp(-scale^2 |z - z_i|^2 / 2) around random centres of the lifted domain."""

    lift: Lift
    centres: Array
    scale: float = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, intervals: tuple[Interval, ...], config: EmbeddingConfig, key: Array,
                 dtype: jnp.dtype) -> None:
        self.lift = Lift(intervals, scaled=True)
        lower = jnp.array([i.lower for i in intervals], dtype)
        upper = jnp.array([i.upper for i in intervals], dtype)
        shape = (config.size, len(intervals))
        points = lower[None, :] + (upper - lower)[None, :] * jax.random.uniform(key, shape, dtype)
        self.centres = jax.vmap(self.lift)(points)
        self.scale, self.size = config.scale, config.size

    def __call__(self, point: Array) -> Array:
        distance = jnp.sum((self.lift(point)[None, :] - self.centres) ** 2, axis=1)
        return jnp.exp(-0.5 * self.scale**2 * distance)


def _multi_indices(dimensions: int, count: int, *, signed: bool) -> list[tuple[int, ...]]:
    """The first `count` multi-indices by total degree; `signed`, one of each pair +-k."""
    for degree in itertools.count(1):
        span = range(-degree if signed else 0, degree + 1)
        grid = [a for a in itertools.product(span, repeat=dimensions)
                if sum(map(abs, a)) <= degree and (not signed or _leads_positive(a))]
        if len(grid) >= count:
            return sorted(grid, key=lambda a: (sum(map(abs, a)), a))[:count]
    raise AssertionError("unreachable")


def _leads_positive(index: tuple[int, ...]) -> bool:
    return next((a > 0 for a in index if a), True)


def _chebyshev(x: Array, degree: int) -> Array:
    """T_0 ... T_degree by their recurrence (cos(n arccos x) has no derivative at the ends)."""
    values = [jnp.ones_like(x), x]
    while len(values) <= degree:
        values.append(2 * x * values[-1] - values[-2])
    return jnp.stack(values[: degree + 1])


def _harmonics(cosine: Array, sine: Array, degree: int) -> Array:
    """1, cos z, sin z, cos 2z, sin 2z ... from cos z and sin z."""
    values = [jnp.ones_like(cosine)]
    c, s = cosine, sine
    while len(values) <= degree:
        values += [c, s]
        c, s = c * cosine - s * sine, s * cosine + c * sine
    return jnp.stack(values[: degree + 1])


def make_embedding(intervals: tuple[Interval, ...], config: EmbeddingConfig, key: Array,
                   dtype: jnp.dtype) -> Embedding:
    """The embedding that the configuration names."""
    if config.kind in ("fourier", "spectral") and config.size % 2:
        raise InputError(f"network.embedding.size = {config.size}",
                         f"the {config.kind} embedding has a cosine and a sine for each frequency",
                         f"Use an even size, such as {config.size + 1}")
    match config.kind:
        case "none":
            return Plain(intervals)
        case "fourier":
            return Fourier(intervals, config, key, dtype)
        case "spectral":
            return SpectralGrid(intervals, config)
        case "chebyshev":
            return Chebyshev(intervals, config)
        case "radial":
            return RadialBasis(intervals, config, key, dtype)
