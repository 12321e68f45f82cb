import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers import make_optimiser
from piratenets.optimisers.soap import B1, B2, EPSILON

from .common import LeastSquares, iterations, optimiser_config, steps

pytestmark = pytest.mark.usefixtures("quick_compilation")


def _sides(data, p):
    left, right, target, scale = data
    return jnp.concatenate([jnp.ravel(left @ p["w"] @ right - target), scale * p["b"]])


def turned(spectrum, seed):
    """A symmetric matrix with given eigenvalues, its axes turned at random."""
    axes, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum),) * 2))
    return jnp.asarray(axes * spectrum @ axes.T)


def matrix_quadratic(rows, columns, condition):
    """|A W B - C|^2 + |s b|^2: Shampoo's own curvature for W, a diagonal one for b."""
    left, right = (turned(np.geomspace(1, 1 / condition, n), n) for n in (rows, columns))
    target = jnp.asarray(np.random.default_rng(0).normal(size=(rows, columns)))
    scale = jnp.array([1.0, 3.0])
    return LeastSquares(_sides, (left, right, left @ target @ right, scale),
                        count=rows * columns + 2)


START = {"w": np.zeros((4, 3)), "b": np.array([1.0, -2.0])}
QUADRATIC = matrix_quadratic(4, 3, 5.0)


# By hand --------------------------------------------------------------------------------------

def gradients(x):
    left, right, target, scale = (np.asarray(a) for a in QUADRATIC.data)
    residual = left @ x["w"] @ right - target
    return {"w": 2 * left.T @ residual @ right.T, "b": 2 * scale**2 * x["b"]}


def soap_by_hand(rate, count):
    """The definition, its bases true eigenvectors of the averages: as they are after the first
    step, and stay until they are renewed."""
    x, first, second = START, {"w": 0.0, "b": 0.0}, {"w": 0.0, "b": 0.0}
    left, right = np.zeros((4, 4)), np.zeros((3, 3))
    q, p = np.eye(4), np.eye(3)
    for k in range(count):
        g = gradients(x)
        if k > 0:
            seen = {"w": q.T @ g["w"] @ p, "b": g["b"]}
            first = {n: B1 * first[n] + (1 - B1) * g[n] for n in g}
            second = {n: B2 * second[n] + (1 - B2) * seen[n] ** 2 for n in g}
            mean = {"w": q.T @ first["w"] @ p, "b": first["b"]}
            step = {n: mean[n] / (1 - B1**k) / (np.sqrt(second[n] / (1 - B2**k)) + EPSILON)
                    for n in g}
            x = {"w": x["w"] - rate * q @ step["w"] @ p.T, "b": x["b"] - rate * step["b"]}
        left = B2 * left + (1 - B2) * g["w"] @ g["w"].T
        right = B2 * right + (1 - B2) * g["w"].T @ g["w"]
        if k == 0:
            q, p = np.linalg.eigh(left)[1], np.linalg.eigh(right)[1]
        yield x


def test_steps_by_hand():
    """Up to the first renewal of the bases; the first step moves nothing."""
    optimiser = make_optimiser(optimiser_config("soap", precondition_every=50, decay_rate=1.0))
    found = [x for x, *_ in steps(optimiser, QUADRATIC, START, 6, 0.01)]
    np.testing.assert_array_equal(found[0]["w"], START["w"])
    np.testing.assert_array_equal(found[0]["b"], START["b"])
    for x, expected in zip(found, soap_by_hand(0.01, 6), strict=True):
        # Where a gradient's rank is less than the matrix's, two bases are as good: b is exact.
        np.testing.assert_allclose(x["b"], expected["b"], rtol=1e-10)
        np.testing.assert_allclose(x["w"], expected["w"], rtol=1e-5, atol=1e-7)
    assert float(jnp.abs(found[-1]["w"]).max()) > 0.03


def test_the_bases_become_the_eigenvectors_of_the_averages():
    *_, (_, state, _, _) = steps(make_optimiser(optimiser_config("soap")), QUADRATIC, START, 60,
                                 0.01)
    assert int(state.steps) == 60
    plain, matrix = sorted(state.leaves, key=lambda leaf: len(leaf.sides))
    assert plain.sides == ()
    for side, n in zip(matrix.sides, (4, 3), strict=True):
        basis, moment = np.asarray(side.basis), np.asarray(side.moment)
        np.testing.assert_allclose(basis.T @ basis, np.eye(n), atol=1e-13)
        rotated = basis.T @ moment @ basis
        off = rotated - np.diag(np.diag(rotated))
        assert np.linalg.norm(off) < 0.05 * np.linalg.norm(rotated)
        # In the old axes it is not diagonal at all.
        assert np.linalg.norm(moment - np.diag(np.diag(moment))) > 0.2 * np.linalg.norm(moment)


# Against Adam ---------------------------------------------------------------------------------

def test_fewer_iterations_than_adam_where_the_axes_are_turned():
    objective = matrix_quadratic(8, 8, 30.0)
    start = {"w": np.zeros((8, 8)), "b": np.array([1.0, -2.0])}
    counts = {kind: iterations(optimiser_config(kind, decay_steps=200, decay_rate=0.5), objective,
                               start, 1e-5, 600, 0.05) for kind in ("adam", "soap")}
    assert counts["soap"] < 200
    assert counts["adam"] > 600


def test_a_vector_is_adam_s_with_other_averages():
    """The first step apart, which only gathers: Adam by hand with both b at 0.95."""
    optimiser = make_optimiser(optimiser_config("soap", decay_rate=1.0))
    found = [np.asarray(x["b"]) for x, *_ in steps(optimiser, QUADRATIC, START, 8, 0.02)]
    b, m, v = START["b"], np.zeros(2), np.zeros(2)
    np.testing.assert_array_equal(found[0], b)
    for k, x in enumerate(found[1:], start=1):
        g = 2 * np.array([1.0, 9.0]) * b
        m, v = 0.95 * m + 0.05 * g, 0.95 * v + 0.05 * g**2
        b = b - 0.02 * (m / (1 - 0.95**k)) / (np.sqrt(v / (1 - 0.95**k)) + 1e-8)
        np.testing.assert_allclose(x, b, rtol=1e-12)


def test_parameters_keep_their_precision():
    optimiser = make_optimiser(optimiser_config("soap"))
    x = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), START)
    state = optimiser.init(x, None)
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("float32"),
                                                               jnp.dtype("int32")}
