from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers.ssbroyden import LOSSES_EVERY, scaling, ssbroyden, updated_inverse

from .common import (
    compiled,
    iterations,
    loss_of,
    optimiser_config,
    random_linear,
    rosenbrock,
    steps,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")

SSBROYDEN = {bfgs: ssbroyden(bfgs=bfgs) for bfgs in (False, True)}
START = {"x": np.array(-1.2), "y": np.array(1.0)}


# The update by hand ---------------------------------------------------------------------------

def transcribed(inverse, s, y, g, alpha):
    """The published formulas, one after the other, and theta."""
    n = len(s)
    rho = 1 / (y @ s)
    h = rho * (y @ inverse @ y)
    b = -alpha * rho * (s @ g)
    a = b * h - 1
    c = np.sqrt(abs(a) / (1 + a))
    rm = min(1, h * (1 - c))
    tm = (rm - 1) / a
    tp = 1 / rm
    th = max(tm, min(tp, (1 - b) / b))
    sg = 1 + a * th
    rk = min(1, 1 / b)
    sn = abs(sg) ** (1 / (1 - n))
    tau = min(rk * sn, sg) if th <= 0 else rk * min(sn, 1 / th)
    phi = (1 - th) / (1 + a * th)
    hy = inverse @ y
    v = rho * s - hy / (y @ hy)
    changed = (inverse - np.outer(hy, hy) / (y @ hy)
               + phi * (y @ hy) * np.outer(v, v)) / tau + rho * np.outer(s, s)
    return changed, th


UPDATED = {bfgs: jax.jit(partial(updated_inverse, bfgs=bfgs)) for bfgs in (False, True)}


def step_data(seed, scale, n=5):
    """An inverse Hessian, a step along -H g, and the change of the gradient under a curvature."""
    random = np.random.default_rng(seed)
    root, other = random.normal(size=(2, n, n))
    inverse = root @ root.T + 0.1 * np.eye(n)
    g, alpha = random.normal(size=n), random.uniform(0.2, 1.5)
    s = -alpha * inverse @ g
    y = scale * (other @ other.T + 0.1 * np.eye(n)) @ s
    return inverse, s, y, g, alpha


CASES = [(seed, scale) for seed in range(4) for scale in (1e-3, 0.1, 1.0, 10.0)]


def test_the_update_is_the_published_one():
    thetas = []
    for case in CASES:
        data = step_data(*case)
        found = UPDATED[False](*map(jnp.asarray, data))
        expected, theta = transcribed(*data)
        thetas.append(theta)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * abs(expected).max())
    # Both branches of tau have been taken, and not the ends of theta's range alone.
    assert min(thetas) < -0.1 and 1.0 in thetas and any(0.01 < theta < 0.99 for theta in thetas)


def test_without_theta_it_is_self_scaled_bfgs():
    """(1 - rho s y') H (1 - rho y s') / tau + rho s s' with tau = min(1, y's / s'Bs)."""
    taus = set()
    for case in CASES:
        inverse, s, y, g, alpha = step_data(*case)
        found = UPDATED[True](*map(jnp.asarray, (inverse, s, y, g, alpha)))
        rho = 1 / (y @ s)
        left = np.eye(5) - rho * np.outer(s, y)
        tau = min(1.0, (y @ s) / (s @ np.linalg.solve(inverse, s)))
        expected = left @ inverse @ left.T / tau + rho * np.outer(s, s)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10 * abs(expected).max())
        taus.add(tau)
    assert 1.0 in taus and min(taus) < 0.1


def test_theta_zero_and_phi_one():
    tau, phi = scaling(jnp.asarray(2.0), jnp.asarray(3.0), 5, bfgs=True)
    assert (float(tau), float(phi)) == (pytest.approx(1 / 3), 1.0)


@pytest.mark.parametrize("bfgs", [False, True])
def test_the_secant_equation_and_a_positive_definite_inverse(bfgs):
    for case in CASES:
        inverse, s, y, g, alpha = step_data(*case)
        found = np.asarray(UPDATED[bfgs](*map(jnp.asarray, (inverse, s, y, g, alpha))))
        np.testing.assert_allclose(found @ y, s, rtol=1e-8, atol=1e-10 * np.abs(s).max())
        np.testing.assert_array_equal(found, found.T)
        assert np.linalg.eigvalsh(found).min() > 0


def test_a_step_without_curvature_changes_nothing():
    inverse, s, y, g, alpha = step_data(0, 1.0)
    for wrong in (-y, 0 * y):
        found = UPDATED[False](*map(jnp.asarray, (inverse, s, wrong, g, alpha)))
        np.testing.assert_array_equal(found, inverse)


def test_a_single_parameter():
    """n = 1: H+ = s / y, the secant, whatever the scale."""
    found = UPDATED[False](jnp.eye(1), jnp.array([0.5]), jnp.array([4.0]), jnp.array([-1.0]),
                           jnp.asarray(0.5))
    np.testing.assert_allclose(found, [[0.125]], rtol=1e-14)


# Whole iterations --------------------------------------------------------------------------------

def gradient_at(objective, x):
    found = jax.grad(lambda p: objective(p)[0])(x)
    return np.array([float(found["x"]), float(found["y"])])


@pytest.mark.parametrize("bfgs", [False, True])
def test_iterations_on_the_valley(bfgs):
    """Every update is the transcription's of the step it was made with; H stays symmetric and
    positive definite and maps the last y to the last s."""
    objective, before, inverse, compared = rosenbrock(), START, None, 0
    for x, state, _, norm in steps(SSBROYDEN[bfgs], objective, START, 30):
        g, new_g = gradient_at(objective, before), gradient_at(objective, x)
        s = np.array([float(x[k]) - float(before[k]) for k in ("x", "y")])
        found = np.asarray(state.inverse)
        np.testing.assert_allclose(found @ (new_g - g), s, rtol=1e-5, atol=1e-7 * abs(s).max())
        np.testing.assert_array_equal(found, found.T)
        assert np.linalg.eigvalsh(found).min() > 0
        assert float(norm) == pytest.approx(np.linalg.norm(new_g), rel=1e-9)
        assert float(state.value) == pytest.approx(float(loss_of(objective, x)), rel=1e-12)
        if inverse is not None and not bfgs:
            alpha = np.linalg.norm(s) / np.linalg.norm(inverse @ g)
            expected, _ = transcribed(inverse, s, new_g - g, g, alpha)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            compared += 1
        before, inverse = x, found
    assert compared == (0 if bfgs else 29)


@pytest.mark.parametrize(("kind", "n", "most"), [
    ("ssbroyden", 4, 14), ("ssbroyden", 16, 33), ("ssbfgs", 4, 14), ("ssbfgs", 16, 33)])
def test_a_quadratic_takes_about_as_many_iterations_as_it_has_dimensions(kind, n, most):
    """To 1e-10 of the loss at the start, without an exact search (2 n to 3 n then)."""
    counts = [iterations(optimiser_config(kind), random_linear(seed, rows=2 * n, columns=n),
                         {"x": np.zeros(n)}, 1e-10, 100) for seed in range(3)]
    assert max(counts) <= most


def test_the_first_step_is_no_longer_than_the_gradient_or_one():
    """H starts as the identity over max(|g|, 1): a steepest descent with a search."""
    objective = rosenbrock()
    g = gradient_at(objective, START)
    (x, _, _, _), = steps(SSBROYDEN[False], objective, START, 1)
    s = np.array([float(x[k]) - float(START[k]) for k in ("x", "y")])
    np.testing.assert_allclose(s / np.linalg.norm(s), -g / np.linalg.norm(g), rtol=1e-12)
    assert np.linalg.norm(s) < 1


def test_the_inverse_is_carried_over_to_new_points():
    """A renewed objective gives value and gradient anew, and the step goes along -H g."""
    *_, (x, state, _, _) = steps(SSBROYDEN[False], rosenbrock(), START, 12)
    other = rosenbrock(2.0)
    moved, after, losses, _ = compiled(SSBROYDEN[False])(
        other, x, state, jnp.asarray(1.0), jnp.asarray(12), jnp.asarray(True))
    direction = -np.asarray(state.inverse) @ gradient_at(other, x)
    s = np.array([float(moved[k]) - float(x[k]) for k in ("x", "y")])
    np.testing.assert_allclose(s / np.linalg.norm(s), direction / np.linalg.norm(direction),
                               rtol=1e-8)
    assert float(after.value) == pytest.approx(float(loss_of(other, moved)), rel=1e-12)
    assert float(losses.terms["pde"]) == pytest.approx(float(after.value), rel=1e-12)


def test_losses_are_evaluated_now_and_then():
    """With a renewed objective, and at every tenth iteration; in between the last ones stand."""
    optimiser = SSBROYDEN[False]
    found = [(float(losses.terms["pde"]), float(state.value))
             for _, state, losses, _ in steps(optimiser, rosenbrock(), START, 24)]
    due = [0, LOSSES_EVERY - 1, 2 * LOSSES_EVERY - 1]
    last = None
    for k, (loss, value) in enumerate(found):
        last = value if k in due else last
        assert loss == pytest.approx(last, rel=1e-12)


# Starting over -----------------------------------------------------------------------------------

def from_inverse(inverse, count):
    """Parameters and states of some iterations that begin with a given H."""
    optimiser = SSBROYDEN[False]
    (x, state, _, _), = steps(optimiser, rosenbrock(), START, 1)
    state, found = state._replace(inverse=jnp.asarray(inverse)), [(x, None)]
    for k in range(count):
        x, state, _, _ = compiled(optimiser)(rosenbrock(), x, state, jnp.asarray(1.0),
                                             jnp.asarray(k + 1), jnp.asarray(False))
        found.append((x, state))
    return found


@pytest.mark.parametrize("inverse", [-np.eye(2), np.zeros((2, 2)), np.full((2, 2), np.nan)])
def test_an_inverse_that_gives_no_descent_starts_over(inverse):
    (before, _), (after, state) = from_inverse(inverse, 1)
    g = gradient_at(rosenbrock(), before)
    s = np.array([float(after[k]) - float(before[k]) for k in ("x", "y")])
    np.testing.assert_allclose(s / np.linalg.norm(s), -g / np.linalg.norm(g), rtol=1e-9)
    assert np.linalg.eigvalsh(np.asarray(state.inverse)).min() > 0


def test_a_search_that_finds_no_other_parameters_starts_over():
    """Along a step of 1e-40 nothing moves; without a new start it never would."""
    found = from_inverse(1e-40 * np.eye(2), 30)
    values = [float(loss_of(rosenbrock(), x)) for x, _ in found]
    assert values[1] == values[0]
    assert values[2] < values[0]
    assert values[-1] < 1e-3 * values[0]
