import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import chebyshev

from piratenets.config import EmbeddingConfig
from piratenets.errors import InputError
from piratenets.fields.embeddings import Lift, make_embedding
from piratenets.fields.taylor import derivatives
from piratenets.problems.problem import Interval, periodic

KINDS = ("fourier", "spectral", "chebyshev", "radial", "none")
BOX = (Interval(0, 1), periodic(-1, 1), periodic(0, 3))


def embedding(kind, intervals=BOX, *, size=8, scale=1.5, dtype="float64"):
    config = EmbeddingConfig(kind=kind, size=size, scale=scale)
    return eqx.filter_jit(make_embedding)(intervals, config, jax.random.key(0), jnp.dtype(dtype))


@eqx.filter_jit
def value(features, point):
    return features(point)


def shape(features):
    size = len(features.lift.frequency) if hasattr(features, "lift") else len(features.waves[0])
    return jax.eval_shape(features, jax.ShapeDtypeStruct((size,), "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_periodic_with_all_derivatives(kind):
    features = embedding(kind)
    ends = jnp.array([[0.3, -1.0, 0.0], [0.3, 1.0, 3.0], [0.3, 0.4, 1.1]])
    table = jax.jit(jax.vmap(lambda p: derivatives(features, p, [(1, 2, 0), (0, 1, 1)])))(ends)
    assert len(table) == 8
    for derivative in table.values():
        near, far, _ = np.asarray(derivative)
        np.testing.assert_allclose(near, far, rtol=0, atol=1e-12 * max(np.abs(near).max(), 1.0))
    # And not by being constant.
    near, _, inside = np.asarray(table[0, 0, 0])
    assert np.abs(inside - near).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_and_precision(kind):
    features = embedding(kind, dtype="float32")
    expected = 5 if kind == "none" else 8
    assert features.size == expected
    assert (shape(features).shape, shape(features).dtype) == ((expected,), jnp.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_whatever_numbers_the_intervals_are_given_in(kind):
    """A NumPy number, unlike a Python one, would turn float32 features into float64 ones."""
    box = (Interval(np.float64(0), np.float64(1)), periodic(np.float64(-1), np.float64(1)))
    features = embedding(kind, box, dtype="float32")
    assert shape(features).dtype == jnp.float32


def test_lift_of_periodic_coordinates():
    lift = Lift(BOX)
    assert lift.size == 5
    x, y = 0.4, 1.1
    np.testing.assert_allclose(
        lift(jnp.array([0.3, x, y])),
        [0.3, math.cos(math.pi * x), math.sin(math.pi * x),
         math.cos(2 * math.pi * y / 3), math.sin(2 * math.pi * y / 3)], rtol=1e-14)


def test_scaled_lift_maps_intervals_to_minus_one_and_one():
    lift = Lift((Interval(2, 6), Interval(-1, 0)), scaled=True)
    np.testing.assert_allclose(lift(jnp.array([2.0, 0.0])), [-1, 1], rtol=1e-15)
    np.testing.assert_allclose(lift(jnp.array([5.0, -0.75])), [0.5, -0.5], rtol=1e-15)
    np.testing.assert_array_equal(Lift((Interval(2, 6),))(jnp.array([5.0])), [5.0])


def test_fourier_features_by_hand():
    """cos and then sin of x B: all cosines first, no factor 2 pi."""
    features = embedding("fourier", (Interval(0, 1), Interval(0, 1)), size=4)
    features = eqx.tree_at(lambda f: f.frequencies, features, jnp.array([[1.0, 2.0], [3.0, -4.0]]))
    a, b = 0.5 + 3 * 0.25, 2 * 0.5 - 4 * 0.25
    np.testing.assert_allclose(value(features, jnp.array([0.5, 0.25])),
                               [math.cos(a), math.cos(b), math.sin(a), math.sin(b)], rtol=1e-15)


def test_fourier_frequencies_are_normal_with_the_scale():
    features = embedding("fourier", BOX, size=20_000, scale=2.5)
    frequencies = np.asarray(features.frequencies)
    assert frequencies.shape == (5, 10_000)
    assert frequencies.std() == pytest.approx(2.5, rel=0.02)
    assert frequencies.mean() == pytest.approx(0, abs=0.06)
    assert np.mean(np.abs(frequencies) < 2.5) == pytest.approx(0.6827, abs=0.01)


def test_fourier_features_see_periodic_coordinates_lifted():
    features = embedding("fourier")
    point = np.array([0.3, 0.4, 1.1])
    w, v = np.pi * point[1], 2 * np.pi / 3 * point[2]
    phase = np.array([0.3, np.cos(w), np.sin(w), np.cos(v), np.sin(v)]) @ np.asarray(
        features.frequencies)
    np.testing.assert_allclose(value(features, jnp.asarray(point)),
                               np.concatenate([np.cos(phase), np.sin(phase)]), atol=1e-14)


def test_spectral_grid_by_hand():
    """Spacings pi / 2 (half a wave over [0, 2]) and 2 pi / 4; one of each pair +-k."""
    features = embedding("spectral", (Interval(0, 2), periodic(-2, 2)), size=14)
    multiples = [(0, 0), (0, 1), (1, 0), (0, 2), (1, -1), (1, 1), (2, 0)]
    np.testing.assert_allclose(features.waves, np.pi / 2 * np.array(multiples), rtol=1e-15)
    t, x = 0.7, -0.3
    phases = [np.pi / 2 * (m * t + n * x) for m, n in multiples]
    np.testing.assert_allclose(value(features, jnp.array([t, x])),
                               [*np.cos(phases), *np.sin(phases)], atol=1e-14)


def test_spectral_spacing_of_a_periodic_coordinate():
    features = embedding("spectral", (periodic(0, 3),), size=6)
    np.testing.assert_allclose(features.waves, [[0], [2 * np.pi / 3], [4 * np.pi / 3]], rtol=1e-15)


def test_chebyshev_products_against_numpy():
    """Products T_i T_j by total degree, over the interval mapped to [-1, 1]."""
    size = 12
    features = embedding("chebyshev", (Interval(0, 2), Interval(-3, 1)), size=size)
    t, x = 0.3, 0.2
    table = np.outer(chebyshev.chebvander([t - 1], 9)[0], chebyshev.chebvander([(x + 1) / 2], 9)[0])
    order = sorted(itertools.product(range(10), repeat=2), key=lambda a: (sum(a), a))[:size]
    np.testing.assert_allclose(value(features, jnp.array([t, x])), [table[a] for a in order],
                               atol=1e-14)
    assert order[:6] == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)]


def test_chebyshev_at_the_ends_of_the_interval():
    """T_n(1) = 1, T_n(-1) = (-1)^n, T_n'(1) = n^2."""
    features = embedding("chebyshev", (Interval(-1, 1),), size=7)
    table = jax.jit(lambda p: derivatives(features, p, [(1,)]))(jnp.array([1.0]))
    np.testing.assert_allclose(table[0,], np.ones(7), atol=1e-14)
    np.testing.assert_allclose(table[1,], np.arange(7.0) ** 2, atol=1e-13)
    np.testing.assert_allclose(value(features, jnp.array([-1.0])), (-1.0) ** np.arange(7),
                               atol=1e-14)


def test_chebyshev_takes_harmonics_of_a_periodic_coordinate():
    features = embedding("chebyshev", (periodic(0, 3),), size=6)
    z = 2 * np.pi / 3 * 0.7
    np.testing.assert_allclose(
        value(features, jnp.array([0.7])),
        [1, np.cos(z), np.sin(z), np.cos(2 * z), np.sin(2 * z), np.cos(3 * z)], atol=1e-14)


def test_radial_features_by_hand():
    features = embedding("radial", (Interval(0, 2), periodic(-1, 1)), size=2, scale=1.5)
    features = eqx.tree_at(lambda f: f.centres, features,
                           jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]))
    # (t, x) = (2, 0.5) is lifted to (1, 0, 1): squared distances 3 and 4.
    np.testing.assert_allclose(value(features, jnp.array([2.0, 0.5])),
                               [math.exp(-1.125 * 3), math.exp(-1.125 * 4)], rtol=1e-13)


def test_radial_centres_lie_in_the_lifted_domain():
    centres = np.asarray(embedding("radial", size=500).centres)
    assert centres.shape == (500, 5)
    assert np.abs(centres[:, 0]).max() <= 1
    assert centres[:, 0].std() == pytest.approx(1 / np.sqrt(3), rel=0.1)
    np.testing.assert_allclose(centres[:, 1] ** 2 + centres[:, 2] ** 2, 1, rtol=1e-12)
    np.testing.assert_allclose(centres[:, 3] ** 2 + centres[:, 4] ** 2, 1, rtol=1e-12)


@pytest.mark.parametrize("kind", ["fourier", "spectral"])
def test_odd_sizes_are_refused_where_features_come_in_pairs(kind):
    with pytest.raises(InputError, match=r"size = 7.*Use an even size, such as 8"):
        embedding(kind, size=7)


@pytest.mark.parametrize("kind", ["chebyshev", "radial"])
def test_odd_sizes_elsewhere(kind):
    assert shape(embedding(kind, size=7)).shape == (7,)
