import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.optimisers import triangular
from piratenets.optimisers.levenberg_marquardt import (
    BOLDER,
    FACTOR,
    LARGEST,
    PATIENCE,
    RAISED,
    SMALLEST,
    Damping,
    _on_device,
    levenberg_marquardt,
    normal_equations,
    triangle,
)
from piratenets.optimisers.triangular import damped_step
from piratenets.weighting import system as weighting

from .common import BLANK, SMALL, LeastSquares, dense, linear, rosenbrock, small_system, steps

pytestmark = pytest.mark.usefixtures("quick_compilation")

MATRIX = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0], [1.0, 1.0]])
TARGET = np.array([1.0, -1.0, 2.0, 0.5])


def stepped(objective, start, damping, growing=0, ratio=0.15):
    """Parameters and state after one step from a given damping."""
    optimiser = levenberg_marquardt(ratio=ratio)
    state = Damping(jnp.asarray(damping), jnp.asarray(growing, jnp.int32))
    found, state, losses, norm = optimiser.update(
        objective, jax.tree.map(jnp.asarray, start), state, jnp.asarray(1.0), jnp.asarray(0),
        jnp.asarray(True))
    return found, state, float(losses.terms["pde"]), float(norm)


# The normal equations ----------------------------------------------------------------------------

@pytest.mark.parametrize("rows", [1024, 6, 14])
def test_normal_equations_of_a_weighted_system(rows, monkeypatch):
    """Against the dense Jacobian of the residual vector: in one block for each condition, in
    blocks of 3 points out of 20 and 5, of 7: the last ones overlap those before."""
    monkeypatch.setattr(weighting, "ROWS", rows)
    system = small_system()
    assert len(system.blocks) == {1024: 2, 6: 7 + 2, 14: 3 + 1}[rows]
    jacobian, residual = dense(system, SMALL)
    assert jacobian.shape == (50, 6)
    matrix, gradient = normal_equations(system, SMALL)
    np.testing.assert_allclose(np.triu(matrix), np.triu(jacobian.T @ jacobian), rtol=1e-12,
                               atol=1e-13)
    np.testing.assert_allclose(gradient, jacobian.T @ residual, rtol=1e-12, atol=1e-13)
    whole, gradient = _on_device(system, SMALL)
    np.testing.assert_allclose(whole, jacobian.T @ jacobian, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(gradient, jacobian.T @ residual, rtol=1e-12, atol=1e-13)


def test_the_residual_vector_says_the_same_as_the_loss():
    system = small_system()
    _, residual = dense(system, SMALL)
    loss, losses = jax.jit(lambda p: system(p))(SMALL)
    assert np.sum(residual**2) == pytest.approx(float(loss), rel=1e-14)
    assert set(losses.terms) == {"pde.u", "pde.v", "initial.u", "initial.v"}


# A step ---------------------------------------------------------------------------------------

def by_hand(damping):
    """The step from zero."""
    return np.linalg.solve(MATRIX.T @ MATRIX + damping * np.eye(2), MATRIX.T @ TARGET)


def test_a_step_solves_the_damped_normal_equations():
    """On a linear problem the model is exact: every rung succeeds, the boldest is taken."""
    found, state, loss, norm = stepped(linear(MATRIX, TARGET), {"x": np.zeros(2)}, 2.7)
    damping = 2.7 / FACTOR ** (1 + BOLDER)
    assert float(state.value) == pytest.approx(damping, rel=1e-15)
    assert float(state.value) == pytest.approx(0.1, rel=1e-15)
    np.testing.assert_allclose(found["x"], by_hand(0.1), rtol=1e-13)
    assert loss == pytest.approx(np.sum((MATRIX @ by_hand(0.1) - TARGET) ** 2), rel=1e-13)
    # The norm is that of the gradient of |R|^2 before the step.
    assert norm == pytest.approx(2 * np.linalg.norm(MATRIX.T @ TARGET), rel=1e-14)


def test_the_damping_has_a_least_value():
    *_, (_, state, _, _) = steps(levenberg_marquardt(), linear(MATRIX, TARGET),
                                 {"x": np.zeros(2)}, 1)
    assert float(state.value) == pytest.approx(1e-2 / 27, rel=1e-15)
    found, state, _, _ = stepped(linear(MATRIX, TARGET), {"x": np.zeros(2)}, SMALLEST)
    assert float(state.value) == SMALLEST
    np.testing.assert_allclose(found["x"], np.linalg.lstsq(MATRIX, TARGET)[0], rtol=1e-13)


def _bent(bend, p):
    """R(x) = 1 - x + bend x^2: from 0 the model's step is 1 / (1 + lambda)."""
    return 1 - p["x"] + bend * p["x"] ** 2


def ratio_of(bend, damping):
    """Actual over predicted reduction of the step from 0 with J = -1, R = 1."""
    d = 1 / (1 + damping)
    predicted = -(2 * d * -1 + d * d)
    return (1 - (1 - d + bend * d**2) ** 2) / predicted


def bent(bend):
    return LeastSquares(_bent, jnp.full(1, bend), count=1)


@pytest.mark.parametrize("rho", [0.15, 0.4, 0.7])
@pytest.mark.parametrize("bend", [0.8, 1.2, 3.0])
def test_the_least_damped_rung_that_keeps_the_ratio(bend, rho):
    """Up the ladder 1/3, 1, 3, 9, 27, 243 ... of which the ratio is known by hand."""
    found, state, _, _ = stepped(bent(bend), {"x": np.zeros(1)}, 1.0, ratio=rho)
    ladder = [1 / 3, 1.0, 3.0, 9.0, 27.0, *(27.0 * 9.0**k for k in range(1, 11))]
    down = [1 / 27, 1 / 9]
    good = [ratio_of(bend, rung) >= rho for rung in (*down, *ladder)]
    # The ratio grows with the damping, so that there is one first rung that keeps it.
    assert good == sorted(good)
    expected = [*down, *ladder][good.index(True)]
    assert float(state.value) == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(found["x"], [1 / (1 + expected)], rtol=1e-14)


def test_the_rungs_above_tell_the_cases_apart():
    """Of the cases above some take a bolder rung, some the first, some one further up."""
    rungs = {float(stepped(bent(bend), {"x": np.zeros(1)}, 1.0, ratio=rho)[1].value)
             for bend in (0.8, 1.2, 3.0) for rho in (0.15, 0.4, 0.7)}
    assert len(rungs) >= 4 and min(rungs) < 0.2 and max(rungs) > 2


# The ratio that is asked for ---------------------------------------------------------------------

def test_rho_is_raised_when_the_damping_has_not_fallen_for_long():
    """At bend 1.05 the ratio is 0.10 with a ninth, 0.31 with a third, 0.56 with one: the rung
    that is taken says what is asked for."""
    assert ratio_of(1.05, 1 / 9) < 0.15 < ratio_of(1.05, 1 / 3) < RAISED < ratio_of(1.05, 1.0)
    for growing, rung in ((PATIENCE - 1, 1 / 3), (PATIENCE, 1.0)):
        _, state, _, _ = stepped(bent(1.05), {"x": np.zeros(1)}, 1.0, growing)
        assert float(state.value) == pytest.approx(rung, rel=1e-14)


def test_iterations_since_the_damping_last_fell():
    """It need not grow at every step: thirty rungs from 1e-2 would be beyond all use."""
    for start, growing in ((1.0, 0), (1 / 3, 6), (1 / 9, 6)):
        _, state, _, _ = stepped(bent(1.05), {"x": np.zeros(1)}, start, 5)
        assert float(state.value) == pytest.approx(1 / 3, rel=1e-14)
        assert int(state.growing) == growing


# Where nothing succeeds --------------------------------------------------------------------------

def test_at_a_minimum_the_parameters_stay():
    start = {"x": np.array(1.0), "y": np.array(1.0)}
    found, state, loss, norm = stepped(rosenbrock(), start, 1e-2, 3)
    assert {k: float(v) for k, v in found.items()} == {"x": 1.0, "y": 1.0}
    assert (loss, norm) == (0.0, 0.0)
    assert (float(state.value), int(state.growing)) == (LARGEST, 4)


def _cliff(_, p):
    """Finite at zero, where its slope points to where it is not a number."""
    return jnp.where(p["x"] < 0, jnp.nan, 1.0 + p["x"])


def test_steps_to_what_is_not_a_number_are_not_taken():
    found, state, loss, norm = stepped(LeastSquares(_cliff, count=1), {"x": np.zeros(1)}, 1e-2)
    np.testing.assert_array_equal(found["x"], [0.0])
    assert (loss, norm) == (1.0, 2.0)
    assert float(state.value) == LARGEST


def test_it_recovers_from_the_largest_damping():
    """27 times less at every step: 1e8 is gone in a few."""
    optimiser, x = levenberg_marquardt(), {"x": jnp.asarray(-1.2), "y": jnp.asarray(1.0)}
    state = Damping(jnp.asarray(LARGEST), jnp.asarray(0, jnp.int32))
    for k in range(30):
        x, state, losses, _ = optimiser.update(rosenbrock(), x, state, jnp.asarray(1.0),
                                               jnp.asarray(k), jnp.asarray(False))
        if float(losses.terms["pde"]) < 1e-20:
            break
    assert k < 22


# Without squaring the condition number ------------------------------------------------------------

@pytest.mark.parametrize("rows", [1024, 6])
def test_the_triangle_is_that_of_the_jacobian(rows, monkeypatch):
    monkeypatch.setattr(weighting, "ROWS", rows)
    monkeypatch.setattr(triangular, "BATCH", 1)
    system = small_system()
    jacobian, residual = dense(system, SMALL)
    found = triangle(system, SMALL)
    np.testing.assert_array_equal(np.tril(found.factor, -1), 0)
    np.testing.assert_allclose(found.factor.T @ found.factor, jacobian.T @ jacobian, rtol=1e-12,
                               atol=1e-13)
    np.testing.assert_allclose(found.gradient, jacobian.T @ residual, rtol=1e-12, atol=1e-13)


def test_its_step_is_that_of_the_normal_equations():
    system = small_system()
    jacobian, residual = dense(system, SMALL)
    expected = np.linalg.solve(jacobian.T @ jacobian + 0.3 * np.eye(6), -jacobian.T @ residual)
    np.testing.assert_allclose(damped_step(triangle(system, SMALL), 0.3), expected, rtol=1e-11)


def test_fewer_rows_than_parameters():
    system = linear(np.array([[1.0, 2.0, 2.0]]), np.array([9.0]))
    d = damped_step(triangle(system, {"x": jnp.zeros(3)}), 1e-12)
    np.testing.assert_allclose(d, [1, 2, 2], rtol=1e-10)


def test_small_singular_values_are_lost_in_the_normal_equations_alone():
    """Singular values 1 ... 1e-10: their squares are below the rounding of J'J."""
    random = np.random.default_rng(0)
    left, right = (np.linalg.qr(random.standard_normal((n, 6)))[0] for n in (40, 6))
    matrix = left @ np.diag(10.0 ** -np.arange(0, 12, 2)) @ right.T
    objective = linear(matrix, matrix @ np.ones(6))
    misfit = {}
    for qr in (False, True):
        optimiser, x = levenberg_marquardt(qr=qr), {"x": jnp.zeros(6)}
        state = optimiser.init(x, BLANK)
        for step in range(40):
            x, state, _, _ = optimiser.update(objective, x, state, jnp.asarray(1.0),
                                              jnp.asarray(step), jnp.asarray(True))
        misfit[qr] = float(np.abs(np.asarray(x["x"]) - 1).max())
    assert misfit[True] < 1e-3
    assert misfit[False] > 0.1
