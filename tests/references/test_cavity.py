"""The cavity's flows: against published ones, the problem's own equations, and themselves."""

import dataclasses
import functools
import time

import numpy as np
import pytest

from piratenets.errors import ConvergenceError, InputError, UnknownName
from piratenets.problems import cavity
from piratenets.problems.problem import FiniteElements, evaluate_residual
from piratenets.references import reference as references
from piratenets.references.cavity import cavity_with_error, relative_difference, solve_cavity
from piratenets.references.reference import CONTINUATION, load_reference
from piratenets.report.published import GHIA, MISPRINTS, ghia

# The largest differences from the tables of Ghia, Ghia and Shin, a converged flow's as well as a
# coarse one's: they are the tables' own errors (129 points each way, second order, in 1982).
GHIA_ERRORS = {100: 0.0094, 400: 0.0064, 1000: 0.0187, 3200: 0.05}

# Botella and Peyret 1998, Re = 1000, on the centre lines: spectral, to all digits given here.
U_MIN, V_MAX, V_MIN = -0.38857, 0.37694, -0.52708


@pytest.fixture(scope="module")
def classical():
    """Flows on a coarse mesh by Reynolds number."""
    flows = solve_cavity([100.0, 400.0, 1000.0], "classical", elements=16, grid=513)
    return {flow.reynolds: flow for flow in flows}


@pytest.fixture(scope="module")
def regularised():
    return solve_cavity([100.0], elements=16, grid=257)[0]


def centre_lines(flow):
    middle = len(flow.x) // 2
    assert flow.x[middle] == 0.5
    return {"u": flow.u[middle], "v": flow.v[:, middle]}


def extreme(values, sign):
    """The largest (or smallest) value of the parabola through the three largest ones."""
    k = int(np.argmax(sign * values))
    before, top, after = values[k - 1 : k + 2]
    return top - (after - before) ** 2 / (8 * (after - 2 * top + before))


def check_against_ghia(flow):
    lines = centre_lines(flow)
    tables = ghia({"Re": flow.reynolds})
    assert [(p.unknown, p.along) for p in tables] == [("u", "y"), ("v", "x")]
    for points in tables:
        found = np.interp(points.positions, flow.x, lines[points.unknown])
        assert np.max(abs(found - points.values)) < GHIA_ERRORS[flow.reynolds], points.unknown


def check_against_botella_and_peyret(flow, accuracy):
    u, v = centre_lines(flow).values()
    found = [extreme(u, -1), extreme(v, 1), extreme(v, -1)]
    np.testing.assert_allclose(found, [U_MIN, V_MAX, V_MIN], rtol=0, atol=accuracy)


# Published flows.


@pytest.mark.parametrize("reynolds", [100, 400, 1000])
def test_agrees_with_ghia(classical, reynolds):
    check_against_ghia(classical[reynolds])


def test_agrees_with_botella_and_peyret(classical):
    check_against_botella_and_peyret(classical[1000], 5e-5)


def test_the_tables_are_read_without_their_misprints(classical):
    count = {(re, p.unknown): len(p.values) for re in (*GHIA_ERRORS, 5000)
             for p in ghia({"Re": re})}
    assert count == {(re, n): 17 - ((n, re) in {("u", 3200), ("v", 400)})
                     for re in (*GHIA_ERRORS, 5000) for n in GHIA}
    assert ghia({"Re": 1600.0}) == []
    # The misprint at Re = 400 is 24 times as far off as any other value there.
    assert ("v", 400.0, 0.9063) in MISPRINTS
    flow = classical[400]
    assert abs(np.interp(0.9063, flow.x, centre_lines(flow)["v"]) + 0.23827) > 0.15


# The problem's own equations.


def differences(f, h):
    """First and second derivatives along both axes, of fourth order, two points off the edges."""
    def along(axis, weights):
        shifted = [np.roll(f, 2 - k, axis) for k in range(5)]
        return sum(w * s for w, s in zip(weights, shifted, strict=True))

    first = np.array([1, -8, 0, 8, -1]) / (12 * h)
    second = np.array([-1, 16, -30, 16, -1]) / (12 * h**2)
    return {(0, 0): f, (1, 0): along(0, first), (0, 1): along(1, first),
            (2, 0): along(0, second), (0, 2): along(1, second)}


def test_solves_the_equations_that_the_problem_states(regularised):
    flow, problem = regularised, cavity.problem
    tables = [differences(f, flow.x[1]) for f in (flow.u, flow.v, flow.p)]
    terms = evaluate_residual(problem, problem.conditions[0], lambda k, a: tables[k][a],
                              {"Re": 100.0}, [flow.x[:, None], flow.y])
    core = np.s_[40:-40, 40:-40]                # away from the walls' thin elements
    sizes = {"pde.x": tables[2][1, 0], "pde.y": tables[2][0, 1], "pde.continuity": tables[0][1, 0]}
    for name, size in sizes.items():
        assert np.linalg.norm(terms[name][core]) < 1e-2 * np.linalg.norm(size[core]), name


def test_the_walls_and_the_lid_are_those_of_the_problem(regularised, classical):
    flow = regularised
    np.testing.assert_allclose(flow.u[:, -1], cavity.lid(flow.x), atol=1e-4)
    for walls in (flow.u[0], flow.u[-1], flow.u[:, 0], flow.v[0], flow.v[-1], flow.v[:, 0],
                  flow.v[:, -1]):
        assert np.max(abs(walls)) < 1e-14
    # The classical lid's jump is a ramp over the last element, which has a length of 1/226 here.
    flow = classical[100]
    ramp = np.minimum(1.0, 226 * np.minimum(flow.x, 1 - flow.x))
    np.testing.assert_allclose(flow.u[:, -1], ramp, rtol=0, atol=1e-12)
    assert (flow.u[3:-3, -1] == 1.0).all()


def test_without_inertia_the_flow_is_symmetric():
    flow = solve_cavity([1e-6], elements=6, grid=33)[0]
    assert np.max(abs(flow.u - flow.u[::-1])) < 1e-6
    assert np.max(abs(flow.v + flow.v[::-1])) < 1e-6
    assert np.max(abs(flow.v)) > 0.1


# The error.


def test_the_stated_error_bounds_the_true_one(regularised):
    heard = []
    [(flow, error)] = cavity_with_error([100.0], elements=8, grid=257, progress=heard.append)
    true = relative_difference(flow, regularised)
    assert set(error) == {"u", "v", "speed", "p"}
    for name in ("u", "v", "speed"):
        assert true[name] < error[name] < 1e-2
    assert [line.split(" each way")[0] for line in heard] == ["Re 100, 6 elements",
                                                              "Re 100, 8 elements"]


def coarse(monkeypatch, elements):
    monkeypatch.setattr(references, "cavity_with_error",
                        functools.partial(cavity_with_error, elements=elements))


def test_every_flow_on_the_way_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PIRATENETS_CACHE", str(tmp_path))
    coarse(monkeypatch, 16)
    problem = dataclasses.replace(cavity.problem, reference=FiniteElements("regularised", grid=17))
    seen = []
    last = load_reference(problem, {"Re": 200.0}, lambda text, done: seen.append(done))
    assert len(list(tmp_path.iterdir())) == 2
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1.0])
    monkeypatch.setattr(references, "cavity_with_error", None)      # from the cache, or not at all
    first = load_reference(problem, {"Re": 100.0})
    assert 0.05 < np.max(abs(last.values["u"] - first.values["u"])) < 0.2
    assert "regularised lid, Re 100" in first.method
    # Nothing to compare with where the exact pressure is unbounded.
    assert np.argwhere(np.isnan(last.values["p"])).tolist() == [[0, 16], [16, 16]]


def test_a_flow_that_is_not_resolved_is_not_a_reference(monkeypatch, tmp_path):
    monkeypatch.setenv("PIRATENETS_CACHE", str(tmp_path))
    coarse(monkeypatch, 8)
    with pytest.raises(ConvergenceError,
                       match=r"Re = 100: .* u 4.4e-03, v 6.5e-03, above .* 1.0e-03"):
        load_reference(cavity.problem, {"Re": 100.0})
    assert list(tmp_path.iterdir()) == []


def test_continuation_that_fails_says_where(monkeypatch):
    monkeypatch.setattr("piratenets.references.cavity.NEWTON_ITERATIONS", 1)
    with pytest.raises(ConvergenceError, match="Re = .*on 4 elements .* does not converge, even "
                                               "from the flow at Re = 50"):
        solve_cavity([100.0], elements=4, grid=5)


@pytest.mark.parametrize(("changes", "error", "message"), [
    ({"reynolds": []}, InputError, "there is nothing to solve"),
    ({"reynolds": [0.0]}, InputError, "Re = 0: flows are resolved for 0 < Re <= 5000"),
    ({"reynolds": [5001.0]}, InputError, "Re = 5001"),
    ({"reynolds": [float("nan")]}, InputError, "Re = nan"),
    ({"reynolds": [400.0, 100.0]}, InputError, "the values do not increase"),
    ({"lid": "regularized"}, UnknownName, "Did you mean 'regularised'"),
    ({"elements": 3}, InputError, "Give at least 4"),
    ({"grid": 1}, InputError, "Give at least 2 points"),
])
def test_what_cannot_be_solved_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        solve_cavity(**{"reynolds": [100.0], "elements": 4, **changes})


# The references themselves: minutes.


@pytest.mark.slow
@pytest.mark.parametrize("lid", ["regularised", "classical"])
def test_all_velocities_of_the_curriculum_are_good_to_1e_4(lid):
    started = time.process_time()
    found = cavity_with_error(CONTINUATION, lid)
    assert [flow.reynolds for flow, _ in found] == [100, 400, 1000, 1600, 3200]
    for flow, error in found:
        assert max(error[name] for name in ("u", "v", "speed")) < 1e-4, flow.reynolds
        if lid == "classical" and flow.reynolds in GHIA_ERRORS:
            check_against_ghia(flow)
    assert time.process_time() - started < 600


@pytest.mark.slow
def test_the_extremes_of_botella_and_peyret_to_all_digits():
    *_, flow = solve_cavity([100.0, 400.0, 1000.0], "classical", grid=1025)
    check_against_botella_and_peyret(flow, 1e-5)
