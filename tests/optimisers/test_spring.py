import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers.spring import SMALLEST_STEP, Samples, Trial, searched, spring
from piratenets.weighting import system as weighting

from .common import BLANK, ROWS, SMALL, compiled, dense, linear, small_system, steps

pytestmark = pytest.mark.usefixtures("quick_compilation")

RANDOM = np.random.default_rng(5)
WIDE, TARGET = RANDOM.normal(size=(4, 10)), RANDOM.normal(size=4)
START = RANDOM.normal(size=10)


def stepped(optimiser, x, state):
    return compiled(optimiser)(linear(WIDE, TARGET), {"x": jnp.asarray(x)}, jnp.asarray(state),
                               jnp.asarray(1.0), jnp.asarray(0), jnp.asarray(True))


# A step by hand -------------------------------------------------------------------------------

def test_without_momentum_and_damping_it_is_the_shortest_solution():
    found, phi, losses, norm = stepped(spring(1e-15, 0.0), np.zeros(10), np.zeros(10))
    np.testing.assert_allclose(found["x"], np.linalg.pinv(WIDE) @ TARGET, rtol=1e-11)
    np.testing.assert_allclose(phi, -found["x"], rtol=1e-12)
    assert float(losses.terms["pde"]) < 1e-24
    assert float(norm) == pytest.approx(2 * np.linalg.norm(WIDE.T @ TARGET), rel=1e-13)


@pytest.mark.parametrize("damping", [1e-3, 0.3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_by_hand(damping, momentum):
    """phi = argmin |J phi - R|^2 + lambda |phi - mu last|^2, lambda relative to the mean
    diagonal of the kernel: the same from the normal equations in the space of parameters."""
    last = 0.3 * np.random.default_rng(6).normal(size=10)
    found, phi, _, _ = stepped(spring(damping, momentum), START, last)
    shift = damping * np.mean(np.sum(WIDE**2, axis=1))
    expected = np.linalg.solve(WIDE.T @ WIDE + shift * np.eye(10),
                               WIDE.T @ (WIDE @ START - TARGET) + shift * momentum * last)
    np.testing.assert_allclose(phi, expected, rtol=1e-10)
    # The whole step is taken: on a linear problem its half is worse.
    np.testing.assert_allclose(found["x"], START - expected, rtol=1e-10, atol=1e-12)


def test_momentum_is_kept_where_the_rows_say_nothing():
    """Off the rows' span the step is mu times the last one, step after step."""
    off = np.eye(10) - np.linalg.pinv(WIDE) @ WIDE
    last = 0.1 * np.random.default_rng(8).normal(size=10)
    _, phi, _, _ = stepped(spring(1e-3, 0.8), START, last)
    np.testing.assert_allclose(off @ np.asarray(phi), 0.8 * off @ last, rtol=1e-11)


def test_where_no_step_is_better_the_momentum_is_dropped():
    """At a solution whose residual is zero to the last bit."""
    objective = linear(np.eye(3), np.zeros(3))
    found, phi, losses, norm = compiled(spring())(
        objective, {"x": jnp.zeros(3)}, jnp.ones(3), jnp.asarray(1.0), jnp.asarray(3),
        jnp.asarray(False))
    np.testing.assert_array_equal(found["x"], np.zeros(3))
    np.testing.assert_array_equal(phi, np.zeros(3))
    assert (float(losses.terms["pde"]), float(norm)) == (0.0, 0.0)


def test_rows_of_zeros_do_not_count():
    """Four rows come in two blocks of three: the damping is relative to the mean of the four."""
    objective = linear(WIDE, TARGET)
    assert len(objective.blocks) * ROWS == 6
    _, phi, _, _ = stepped(spring(1.0, 0.0), START, np.zeros(10))
    kernel = WIDE @ WIDE.T
    dual = np.linalg.solve(kernel + np.mean(np.diag(kernel)) * np.eye(4), WIDE @ START - TARGET)
    np.testing.assert_allclose(phi, WIDE.T @ dual, rtol=1e-11)


def test_rows_that_depend_on_each_other():
    """A kernel that is singular but for its damping."""
    doubled = linear(np.concatenate([WIDE, WIDE]), np.concatenate([TARGET, TARGET]))
    *_, (found, _, losses, _) = steps(spring(1e-10, 0.0), doubled, {"x": np.zeros(10)}, 2)
    np.testing.assert_allclose(found["x"], np.linalg.pinv(WIDE) @ TARGET, rtol=1e-6)
    assert float(losses.terms["pde"]) < 1e-16


# The search -----------------------------------------------------------------------------------

@pytest.mark.parametrize(("values", "alpha"), [
    (lambda a: (a - 1.0) ** 2, 1.0),       # The whole step is best.
    (lambda a: (a - 0.3) ** 2, 0.25),      # 0.49, 0.04, 0.0025, then 0.03: its half is worse.
    (lambda a: (a - 0.05) ** 2, 0.0625),
    (lambda a: 1.0 + a, 0.0),              # Every step is worse.
    (lambda a: jnp.where(a > 0.2, jnp.nan, (a - 0.2) ** 2), 0.125),
    (lambda a: jnp.where(a < 1e-5, (a - 1.0) ** 2, 3.0), 2.0**-17),
])
def test_the_first_length_that_beats_the_start_and_its_half(values, alpha):
    best = jax.jit(lambda: searched(
        lambda a: Trial(a, values(a), BLANK), Trial(jnp.zeros(()), values(jnp.zeros(())), BLANK)))()
    assert float(best.alpha) == alpha
    assert float(best.value) == pytest.approx(float(values(jnp.asarray(alpha))))


def test_lengths_are_tried_down_to_a_millionth():
    best = jax.jit(lambda: searched(
        lambda a: Trial(a, jnp.where(a <= SMALLEST_STEP, -a, 1.0), BLANK),
        Trial(jnp.zeros(()), jnp.zeros(()), BLANK)))()
    assert float(best.alpha) == SMALLEST_STEP


# The kernel of a problem --------------------------------------------------------------------------

def test_products_by_blocks_are_those_of_the_dense_jacobian(monkeypatch):
    """Blocks of 7 points out of 20 inside, the last of which overlaps, and of 5 at the start.
    The rows come in another order, with rows of zeros where points come twice."""
    monkeypatch.setattr(weighting, "ROWS", 14)
    system = small_system()
    jacobian, residual = dense(system, SMALL)
    direction = np.linspace(-1, 1, 6)

    @jax.jit
    def found():
        samples = Samples(system, SMALL)
        vector, image = samples.residual_and_image(jnp.asarray(direction))
        return samples.kernel(), vector, image, samples.pulled_back(jnp.stack([vector, image]))

    kernel, vector, image, pulled = (np.asarray(a) for a in found())
    assert kernel.shape == (3 * 14 + 10,) * 2
    np.testing.assert_array_equal(kernel, kernel.T)
    # The same numbers in another order: spectra, norms and pulled-back vectors agree.
    np.testing.assert_allclose(np.linalg.eigvalsh(kernel)[-6:],
                               np.linalg.eigvalsh(jacobian.T @ jacobian), rtol=1e-9)
    np.testing.assert_allclose(np.sort(vector[vector != 0]), np.sort(residual[residual != 0]),
                               rtol=1e-12)
    assert np.sum(image**2) == pytest.approx(np.sum((jacobian @ direction) ** 2), rel=1e-11)
    np.testing.assert_allclose(pulled[0], jacobian.T @ residual, rtol=1e-11)
    np.testing.assert_allclose(pulled[1], jacobian.T @ (jacobian @ direction), rtol=1e-11)
    np.testing.assert_allclose(kernel @ vector @ vector, np.sum((jacobian.T @ residual) ** 2),
                               rtol=1e-11)
