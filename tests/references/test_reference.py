"""References as they are kept: found again, never believed blindly, floor of every error."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import ConvergenceError
from piratenets.problems.problem import Exact, Problem, Spectral, initial, interior, periodic
from piratenets.references import reference as references
from piratenets.references.reference import compute_reference, from_bytes, load_reference
from piratenets.runs.evaluation import evaluate


def heat(residual=lambda u, c: u.t - c.k * u.xx, **fields):
    return Problem(**{
        "name": "heat", "coordinates": {"t": (0, 1), "x": periodic(-1, 1)}, "unknowns": ["u"],
        "coefficients": {"k": 0.1}, "reference": Spectral(16, 20, 3, 8),
        "conditions": [interior(residual), initial(lambda x: jnp.sin(jnp.pi * x))], **fields})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PIRATENETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def computed(monkeypatch):
    """The coefficients of the references that were computed."""
    seen = []

    def counted(problem, coefficients, progress=None):
        seen.append(dict(coefficients))
        return compute_reference(problem, coefficients, progress)

    monkeypatch.setattr(references, "compute_reference", counted)
    return seen


def test_a_reference_is_computed_once(cache, computed):
    first, second = (load_reference(heat(), {"k": 0.1}) for _ in range(2))
    assert computed == [{"k": 0.1}]
    np.testing.assert_array_equal(first.values["u"], second.values["u"])
    assert (first.error, first.method) == (second.error, second.method)
    exact = np.exp(-0.1 * np.pi**2 * np.array([0, 0.5, 1]))[:, None] \
        * np.sin(np.pi * np.arange(-1, 1, 0.25))
    np.testing.assert_allclose(second.values["u"], exact, atol=1e-14)


def test_what_it_depends_on_makes_another(cache, computed):
    def other(u, c):
        return u.t - c.k * u.xx + 0.01 * u

    problems = [heat(), heat(other), heat(name="cold"), heat(reference=Spectral(16, 20, 3, 16)),
                heat(conditions=[interior(heat().conditions[0].residual), initial(jnp.cos)])]
    for problem in problems:
        load_reference(problem, {"k": 0.1})
    load_reference(problems[0], {"k": 0.2})
    assert len(computed) == len(list(cache.iterdir())) == 6


@pytest.mark.parametrize("damage", ["truncated", "a bit flipped", "empty"])
def test_a_damaged_copy_is_computed_again(cache, computed, damage):
    whole = load_reference(heat(), {"k": 0.1})
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "a bit flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[: {"truncated": 100, "empty": 0}.get(damage)])
    again = load_reference(heat(), {"k": 0.1})
    assert len(computed) == 2
    np.testing.assert_array_equal(again.values["u"], whole.values["u"])
    assert load_reference(heat(), {"k": 0.1}).error == whole.error
    assert len(computed) == 2


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch, computed):
    monkeypatch.setenv("PIRATENETS_CACHE", "/proc/no-such-place")
    for count in (1, 2):
        with pytest.warns(UserWarning, match="the reference is not kept.*Set PIRATENETS_CACHE"):
            found = load_reference(heat(), {"k": 0.1})
        assert len(computed) == count
    assert found.error["u"] < 1e-12


def test_the_archive_has_arrays_by_name(tmp_path):
    made = compute_reference(heat(), {"k": 0.1})
    path = tmp_path / "x.npz"
    path.write_bytes(made.to_bytes())
    with np.load(path) as archive:
        assert [archive[n].shape for n in ("t", "x", "u", "error")] == [(3,), (8,), (3, 8), (1,)]
        assert archive["error"][0] == made.error["u"]
    read = from_bytes(heat(), path.read_bytes())
    np.testing.assert_array_equal(read.points()[:, 1], np.tile(np.arange(-1, 1, 0.25), 3))
    np.testing.assert_array_equal(read.table()[:, 0], made.values["u"].ravel())


def test_arrays_over_a_plane_are_kept_in_single_precision_and_say_so():
    plane = Problem("plane", {"t": (0, 1), "x": periodic(-1, 1), "y": periodic(-1, 1)}, ["u"],
                    [interior(lambda u, c: u.t - 0.1 * (u.xx + u.yy)),
                     initial(lambda x, y: jnp.sin(jnp.pi * x) + 0.3)],
                    reference=Spectral(16, 20, 3, 8))
    made = compute_reference(plane, {})
    assert made.values["u"].dtype == np.float32
    # The equation itself is solved exactly: what is left is rounding to 24 bits.
    assert 1e-9 < made.error["u"] < 2.0**-24


def shock(modes):
    return heat(lambda u, c: u.t + u * u.x - 0.01 * u.xx, reference=Spectral(modes, 400, 3, 16))


def test_one_that_does_not_converge_is_refused_with_its_error(cache):
    with pytest.raises(ConvergenceError,
                       match=r"its relative error is u \d.\de-0[12], above the tolerance 1.0e-02"):
        load_reference(shock(32), {"k": 0.1})
    assert not cache.exists()


def test_one_that_hardly_converges_says_so_and_scores_no_lower(cache):
    for _ in range(2):                         # Computed, then from the cache.
        with pytest.warns(UserWarning, match=r"error is u \d.\de-0[345], and no score is quoted"):
            reference = load_reference(shock(96), {"k": 0.1})
    assert 1e-6 < reference.error["u"] < 1e-2
    scored = evaluate(shock(96), reference, lambda points: reference.table(), 1.0)
    assert scored.relative_l2 == reference.error
    assert scored.measured["u"] == 0.0


def test_no_error_is_quoted_below_the_reference_s_own():
    problem = heat(reference=Exact(lambda t, x: jnp.sin(jnp.pi * x) * jnp.exp(-t), grid=9))
    reference = dataclasses.replace(compute_reference(problem, {"k": 0.1}), error={"u": 1e-3})

    def field(factor):
        return lambda points: factor * reference.table()[: len(points)]

    near, far = (evaluate(problem, reference, field(f), 1.0) for f in (1 + 1e-5, 1.01))
    assert near.relative_l2["u"] == 1e-3
    assert near.measured["u"] == pytest.approx(1e-5, rel=1e-9)
    assert far.relative_l2["u"] == far.measured["u"] == pytest.approx(0.01, rel=1e-9)
