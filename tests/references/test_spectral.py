"""The spectral references: against closed forms, an independent solver, and themselves."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import ConvergenceError, InputError, PirateError
from piratenets.problems import allen_cahn, ginzburg_landau, gray_scott, kdv
from piratenets.problems.problem import (
    Problem,
    Spectral,
    boundary,
    initial,
    interior,
    periodic,
)
from piratenets.references.spectral import (
    Fourier,
    etdrk4,
    linearised_solution,
    semilinear,
    solve_spectral,
    spectral_reference,
)

jax.config.update("jax_enable_x64", True)


CIRCLE = periodic(-1, 1)


def line(residual, u0=lambda x: jnp.cos(jnp.pi * x), end=1.0, x=CIRCLE, **changes):
    """A problem for u(t, x) with this residual."""
    settings = {
        "name": "line", "coordinates": {"t": (0, end), "x": x}, "unknowns": ["u"],
        "conditions": [interior(residual), initial(u0)], **changes,
    }
    return Problem(**settings)


def solve(problem, modes, steps, times=2, grid=None, **changes):
    lower, upper = problem.lower[problem.time], problem.upper[problem.time]
    return solve_spectral(problem, problem.coefficients_with(changes), modes, steps,
                          np.linspace(lower, upper, times), grid or modes)


def relative(approximate, exact):
    return np.linalg.norm(approximate - exact) / np.linalg.norm(exact)


def phi(k, z):
    """phi_k(z) = integral over s in (0, 1) of e^((1 - s) z) s^(k - 1) / (k - 1)!, k <= 3."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    s, w = (nodes + 1) / 2, weights / 2
    return np.sum(w * np.exp(np.multiply.outer(z, 1 - s)) * s ** (k - 1), axis=-1) / max(k - 1, 1)


# Coefficients.


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-4, 0.1, 0.5, 0.51, 0.999, 1.0, 1.49, 1.5, 2, 7, 40])
def test_coefficients_equal_the_phi_functions_for_decay_and_dispersion(size):
    z = size * np.exp(1j * np.linspace(np.pi / 2, 3 * np.pi / 2, 25))
    c = etdrk4(z)
    first, second, third = phi(1, z), phi(2, z), phi(3, z)
    expected = [np.exp(z), np.exp(z / 2), phi(1, z / 2) / 2, first - 3 * second + 4 * third,
                second - 2 * third, 4 * third - second]
    for name, got, want in zip(c._fields, c, expected, strict=True):
        assert np.max(abs(got - want)) < 1e-14, name


def test_coefficients_at_zero_are_those_of_the_classical_method():
    c = etdrk4(np.zeros(1, complex))
    np.testing.assert_allclose([a[0] for a in c], [1, 1, 1 / 2, 1 / 6, 1 / 6, 1 / 6], atol=1e-15)


# The equation found in a residual.


def test_dispersion_is_linear_and_advection_is_not():
    found = semilinear(kdv.problem, {})
    assert found.linear == {(0, (0, 3)): pytest.approx(-(0.022**2), rel=1e-15)}
    assert found.used == ((0, (0, 0)), (0, (0, 1)))


def test_systems_keep_diffusion_by_unknown_and_need_only_the_values():
    found = semilinear(gray_scott.problem, {"epsilon1": 0.3})
    assert found.linear == {(0, (0, 2, 0)): 0.3, (0, (0, 0, 2)): 0.3,
                            (1, (0, 2, 0)): 0.1, (1, (0, 0, 2)): 0.1}
    assert found.used == ((0, (0, 0, 0)), (1, (0, 0, 0)))


def test_varying_coefficients_and_couplings_are_left_to_the_nonlinear_part():
    def residual(s, c, p):
        u, v = s.u, s.v
        return {"u": u.t - v.x - (1 + u) * u.xx, "v": v.t - p.x * v.xx - u.x}

    problem = line(residual, lambda x: (x, x), unknowns=["u", "v"])
    found = semilinear(problem, {})
    assert found.linear == {(0, (0, 2)): 1.0}
    assert set(found.used) == {(0, (0, 0)), (0, (0, 1)), (0, (0, 2)), (1, (0, 1)), (1, (0, 2))}


def test_a_term_singular_at_zero_does_not_hide_the_diffusion():
    found = semilinear(line(lambda u, c: u.t - 0.1 * u.xx - 1 / u), {})
    assert found.linear == {(0, (0, 2)): pytest.approx(0.1)}


# Exact solutions.


def test_heat_decays_exactly_whatever_the_step_and_the_place_of_time():
    a, b = 2 * np.pi / 2, 2 * np.pi / 3
    problem = Problem(
        "heat", {"x": periodic(0, 2), "y": periodic(1, 4), "t": (0.5, 1.5)}, ["u"],
        [interior(lambda u, c: u.t - c.k * (u.xx + 2 * u.yy)),
         initial(lambda x, y: jnp.cos(a * x) * jnp.sin(2 * b * y) + 3, at=0.5)], {"k": 0.1})
    for modes, grid in [(16, 16), (16, 8), (16, 12), (15, 40), (12, 40)]:
        got = solve(problem, modes, 3, times=4, grid=grid)["u"]
        t = np.linspace(0, 1, 4)[:, None, None]
        x, y = 2 * np.arange(grid) / grid, 1 + 3 * np.arange(grid) / grid
        decay = np.exp(-0.1 * (a**2 + 8 * b**2) * t)
        exact = 3 + decay * np.outer(np.cos(a * x), np.sin(2 * b * y))
        assert got.shape == (4, grid, grid)
        assert np.max(abs(got - exact)) < 1e-13, (modes, grid)


def test_advection_travels_without_change():
    problem = line(lambda u, c: u.t + 3 * u.x, lambda x: jnp.exp(jnp.sin(jnp.pi * x)), end=2.0)
    got = solve(problem, 64, 5, times=6)["u"]
    x, t = -1 + 2 * np.arange(64) / 64, np.linspace(0, 2, 6)[:, None]
    assert np.max(abs(got - np.exp(np.sin(np.pi * (x - 3 * t))))) < 1e-13


def test_sources_may_depend_on_time_and_place():
    def residual(u, c, p):                      # u = sin(t) cos(pi x)
        forcing = (jnp.cos(p.t) + 0.1 * jnp.pi**2 * jnp.sin(p.t)) * jnp.cos(jnp.pi * p.x)
        return u.t - 0.1 * u.xx - forcing

    got = solve(line(residual, lambda x: 0 * x), 16, 400, times=5)["u"]
    x, t = -1 + 2 * np.arange(16) / 16, np.linspace(0, 1, 5)[:, None]
    assert np.max(abs(got - np.sin(t) * np.cos(np.pi * x))) < 1e-12


def test_coupled_waves_travel():
    problem = line(lambda s, c: {"u": s.u.t - s.v.x, "v": s.v.t - s.u.x},
                   lambda x: (jnp.sin(jnp.pi * x), 0 * x), unknowns=["u", "v"])
    got = solve(problem, 16, 800)
    x = -1 + 2 * np.arange(16) / 16
    np.testing.assert_allclose(got["u"][-1], np.sin(np.pi * x) * np.cos(np.pi), atol=1e-9)
    np.testing.assert_allclose(got["v"][-1], np.cos(np.pi * x) * np.sin(np.pi), atol=1e-9)


def test_a_soliton_keeps_its_shape():
    mu, speed = 0.5, 1.5

    def soliton(x):
        return 3 * speed / jnp.cosh(jnp.sqrt(speed) / (2 * mu) * x) ** 2

    problem = line(kdv.residual, soliton, end=4.0, x=periodic(-20, 20),
                   coefficients={"eta": 1.0, "mu": mu})
    got = solve(problem, 512, 8000, times=5)["u"]
    x, t = -20 + 40 * np.arange(512) / 512, np.linspace(0, 4, 5)[:, None]
    assert relative(got, np.asarray(soliton(x - speed * t))) < 1e-10


def test_fourth_order_in_time_for_dispersion():
    """The order that real parts of the contour means would lose."""
    problem = line(kdv.residual, kdv.u0, end=0.4, coefficients=kdv.problem.coefficients)
    exact = solve(problem, 192, 12800)["u"][-1]
    errors = [relative(solve(problem, 192, steps)["u"][-1], exact) for steps in (400, 800, 1600)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert errors[-1] < 1e-8
    assert np.all((orders > 3.8) & (orders < 4.3)), (errors, orders)


def test_kdv_conserves_mass_and_energy():
    u = solve(kdv.problem, 384, 20000, times=21)["u"]
    mass, energy = u.mean(axis=1), (u**2).mean(axis=1)
    assert np.max(abs(mass)) < 1e-12
    assert np.max(abs(energy / 0.5 - 1)) < 1e-10


# An independent solver: exponax, for dissipative problems (its contour takes real parts).


def test_agrees_with_exponax_on_allen_cahn():
    exponax = pytest.importorskip("exponax")
    problem = line(allen_cahn.residual, lambda x: 0.5 * jnp.sin(jnp.pi * x) + 0.2,
                   coefficients={"epsilon": 1e-2, "rate": 5.0})
    stepper = exponax.stepper.reaction.AllenCahn(
        1, 2.0, 192, 1e-3, diffusivity=1e-2, first_order_coefficient=5.0,
        third_order_coefficient=-5.0, order=4, dealiasing_fraction=1.0)
    got = solve(problem, 192, 1000)["u"]
    theirs = exponax.repeat(stepper, 1000)(jnp.asarray(got[:1]))
    assert relative(got[-1], np.asarray(theirs[0])) < 1e-10


def test_agrees_with_exponax_on_gray_scott():
    exponax = pytest.importorskip("exponax")

    def start(x, y):
        v = jnp.exp(jnp.cos(jnp.pi * x) + jnp.cos(jnp.pi * (y - 0.1)) - 2)
        return 1 - 0.7 * v, 0.6 * v

    problem = dataclasses.replace(
        gray_scott.gray_scott(2.0), conditions=[interior(gray_scott.residual), initial(start)])
    rates = {"epsilon1": 0.02, "epsilon2": 0.01, "b1": 0.5, "b2": 1.1, "c1": 1.0, "c2": 1.0}
    stepper = exponax.stepper.reaction.GrayScott(
        2, 2.0, 48, 5e-3, diffusivity_1=0.02, diffusivity_2=0.01, feed_rate=0.5, kill_rate=0.6,
        order=4, dealiasing_fraction=1.0)
    got = solve(problem, 48, 400, **rates)
    theirs = exponax.repeat(stepper, 400)(jnp.stack([got["u"][0], got["v"][0]]))
    for mine, other in zip(got.values(), theirs, strict=True):
        assert relative(mine[-1], np.asarray(other)) < 1e-10


# Initial data and the linearised equation.


def test_fourier_coefficients_are_exact_for_data_that_jump_at_the_ends():
    fourier = Fourier((-1.0,), (2.0,), 256)
    got = fourier.coefficients(lambda points: points[0][None])[0] / 256
    n = np.arange(1, 33)                         # x = sum over n of i e^(i pi n (x + 1)) / (pi n)
    assert abs(got[0]) < 1e-15
    error = abs(got[n] * np.pi * n / 1j - 1)
    assert np.max(error[:8]) < 2e-15
    assert np.max(error) < 1e-10


def test_exact_coefficients_make_the_kink_of_allen_cahn_converge():
    problem = allen_cahn.problem
    short = dataclasses.replace(problem, coordinates={**problem.coordinates, "t": (0, 0.05)})
    fine = solve(short, 4096, 40, times=11, grid=512)["u"]
    assert relative(solve(short, 2048, 40, times=11, grid=512)["u"], fine) < 2e-8


def test_linearised_korteweg_de_vries_is_a_travelling_cosine():
    t = np.array([0.0, 0.3, 0.35, 1.0])
    got = linearised_solution(kdv.problem, {"mu": 0.1}, t, 48)["u"]
    x = -1 + 2 * np.arange(48) / 48
    exact = np.cos(np.pi * x + 0.01 * np.pi**3 * t[:, None])
    assert np.max(abs(got - exact)) < 1e-13


def test_linearised_allen_cahn_is_diffusion_without_reaction():
    t = np.array([0.0, 0.005, 0.5, 1.0])
    got = linearised_solution(allen_cahn.problem, {}, t, 100)["u"]
    x, n = -1 + 2 * np.arange(100) / 100, np.arange(2, 20_000)
    # x^2 cos(pi x) = sum over n of a_n cos(n pi x)
    signs = np.where(n % 2, 1.0, -1.0)
    a = np.concatenate([[-2 / np.pi**2, 1 / 3 + 0.5 / np.pi**2],
                        2 * signs / np.pi**2 * (1 / (n + 1) ** 2 + 1 / (n - 1) ** 2)])
    n = np.arange(len(a))
    decay = np.exp(-1e-4 * np.pi**2 * np.outer(t, n**2))
    exact = (a * decay) @ np.cos(np.pi * np.outer(n, x))
    assert np.max(abs(got[0] - x**2 * np.cos(np.pi * x))) == 0
    assert np.max(abs(got[1:] - exact[1:])) < 1e-11


def test_linearised_ginzburg_landau_spreads_a_gaussian():
    t = np.array([0.0, 0.1, 0.2])
    got = linearised_solution(ginzburg_landau.problem, {}, t, 40)
    x, y = np.meshgrid(*[-1 + 2 * np.arange(40) / 40] * 2, indexing="ij")
    for u, s in zip(np.stack([got["u"], got["v"]], axis=1), 0.02 + 2 * 0.004 * t, strict=True):
        bump = 10 * (0.02 / s) ** 2 * np.exp(-(x**2 + y**2) / (2 * s))
        assert np.max(abs(u - np.stack([y * bump, x * bump]))) < 2e-9


# The reference with its error.


def test_a_reference_states_its_error_and_where_it_is_stored():
    problem = line(lambda u, c: u.t + u * u.x - 0.05 * u.xx,
                   reference=Spectral(modes=64, steps=100, times=11, grid=32))
    seen = []
    coordinates, values, error = spectral_reference(problem, {}, lambda *a: seen.append(a))
    np.testing.assert_allclose(coordinates["t"], np.linspace(0, 1, 11))
    np.testing.assert_allclose(coordinates["x"], -1 + 2 * np.arange(32) / 32)
    fine = solve(problem, 128, 1600, times=11, grid=32)["u"]
    assert list(coordinates) == ["t", "x"]
    assert values["u"].shape == (11, 32)
    assert relative(values["u"], fine) < error["u"] < 1e-6
    assert [fraction for _, fraction in seen] == pytest.approx([*np.arange(1, 11) / 10] * 2)
    assert seen[-1][0] == "line: 128 modes, 200 steps"


def test_a_reference_above_the_tolerance_names_its_error():
    problem = dataclasses.replace(kdv.problem, reference=Spectral(128, 2000, 11, 64))
    with pytest.raises(ConvergenceError, match=r"u [\d.]+e-0\d, above the tolerance 1.0e-06"):
        spectral_reference(problem, {})
    _, _, error = spectral_reference(problem, {}, tolerance=0.1)
    assert 1e-5 < error["u"] < 0.1


def test_a_solution_that_blows_up_is_an_error():
    problem = line(lambda u, c: u.t - 0.01 * u.xx - u**3, lambda x: 5 + 0 * x)
    with pytest.raises(ConvergenceError, match="not finite at t = 0.*Take more steps"):
        solve(problem, 16, 1000, times=11)


# What the method cannot solve.


def heat(u, c):
    return u.t - u.xx


BAD = {
    "twice": (line(lambda u, c: 2 * u.t - u.xx), "u.t: its coefficient must be 1"),
    "state-dependent": (line(lambda u, c: (1 + u) * u.t - u.xx), "u.t: its coefficient must be 1"),
    "nonlinear in u.t": (line(lambda u, c: u.t + u.t**2 - u.xx), "u.t: its coefficient must be 1"),
    "second order": (line(lambda u, c: u.tt - u.xx), r"u.tt: only first order in time"),
    "mixed": (line(lambda u, c: u.t - u.tx), r"u.tx: only first order in time"),
    "no time derivative": (line(lambda u, c: u.xx - u), "it has no time derivative"),
    "one equation": (line(lambda s, c: s.u.t - s.u.xx, lambda x: (x, x), unknowns=["u", "v"]),
                     "1 equations: there are 2 unknowns"),
    "order of equations": (
        line(lambda s, c: {"v": s.v.t, "u": s.u.t}, lambda x: (x, x), unknowns=["u", "v"]),
        "u.t: its coefficient must be 1 in one equation.*equation of u in place 1"),
    "not periodic": (line(heat, x=(-1, 1)), "coordinate 'x': it is not periodic"),
    "no initial": (line(heat, conditions=[interior(heat)]), "no initial condition"),
    "late initial": (line(heat, conditions=[interior(heat), initial(jnp.cos, at=0.5)]),
                     "it is not at t = 0"),
    "too few values": (line(lambda s, c: {"u": s.u.t, "v": s.v.t}, unknowns=["u", "v"]),
                       "1 values: there are 2 unknowns"),
    "two equations": (line(heat, conditions=[interior(heat), interior(heat, name="other"),
                                             initial(jnp.cos)]), "2 differential equations"),
    "boundary": (line(heat, conditions=[interior(heat), initial(jnp.cos),
                                        boundary(lambda u, c: u.x, {"x": 1})]),
                 "condition 'boundary': a periodic solution is determined without it"),
    "no time": (Problem("still", {"x": periodic(0, 1)}, ["u"], [interior(lambda u, c: u.xx)]),
                "no coordinate 't'"),
}


@pytest.mark.parametrize("case", BAD)
def test_problems_of_another_form_are_refused(case):
    problem, message = BAD[case]
    with pytest.raises(InputError, match=message):
        solve_spectral(problem, {}, 16, 10, np.linspace(0, 1, 3), 16)
    with pytest.raises(InputError, match=message):
        linearised_solution(problem, {}, np.linspace(0, 1, 3), 16)


@pytest.mark.parametrize(("changes", "message"), [
    ({"steps": 11}, "11 steps: 3 times make 2 equal parts. Take a multiple of 2 steps"),
    ({"steps": 0}, "0 steps"),
    ({"times": np.array([0, 0.5, 2])}, "must increase in equal steps"),
    ({"times": np.array([0.0])}, "must increase in equal steps"),
    ({"times": np.array([0, -1.0])}, "must increase in equal steps"),
    ({"times": np.array([0.5, 1.0])}, "first time 0.5: the initial time is 0"),
    ({"modes": 1}, "modes = 1"),
    ({"grid": 0}, "grid = 0"),
])
def test_resolutions_that_do_not_fit_are_refused(changes, message):
    settings = {"modes": 16, "steps": 10, "times": np.linspace(0, 1, 3), "grid": 16, **changes}
    with pytest.raises(InputError, match=message):
        solve_spectral(line(heat), {}, **settings)


def test_unknown_coefficients_and_missing_references_are_named():
    with pytest.raises(PirateError, match="'nu'.*eta, mu"):
        solve(kdv.problem, 16, 1, nu=1.0)
    with pytest.raises(InputError, match="no spectral reference"):
        spectral_reference(line(heat), {})


# The references of the benchmarks: minutes.


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "accuracy"), [
    (allen_cahn.problem, 1e-10),
    (kdv.problem, 2e-11),
    (gray_scott.problem, 3e-7),
    (gray_scott.gray_scott(2.0), 2e-7),
    (ginzburg_landau.problem, 5e-8),
], ids=["allen-cahn", "kdv", "gray-scott to 1", "gray-scott to 2", "ginzburg-landau"])
def test_benchmark_references_reach_the_accuracy_they_state(problem, accuracy):
    started = time.process_time()
    _, values, error = spectral_reference(problem, problem.coefficients)
    assert max(error.values()) < accuracy
    assert time.process_time() - started < 180
    assert sum(v.nbytes for v in values.values()) < 60e6
