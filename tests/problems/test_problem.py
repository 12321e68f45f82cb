import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import InputError, StorageError, UnknownName
from piratenets.problems import PROBLEMS, find_problem, ginzburg_landau, gray_scott, kdv
from piratenets.problems.problem import (
    Interval,
    Problem,
    boundary,
    data,
    evaluate_residual,
    initial,
    interior,
    periodic,
    prescribed_values,
)

from ..common import burgers


def make(residual=lambda u, c: u.t - u.xx, conditions=None, **fields):
    return Problem(**{
        "name": "example", "coordinates": {"t": (0, 1), "x": periodic(-1, 1)}, "unknowns": ["u"],
        "conditions": conditions or [interior(residual)], **fields})


# What is derived from the statement -------------------------------------------------------------

def test_terms_and_derivatives_are_read_off_the_residuals():
    problem = make(
        unknowns=["u", "v"], coordinates={"t": (0, 2), "x": (-1, 1), "y": (0, 3)},
        conditions=[interior(lambda s, c: {"u": s.u.t - s.v.xxy, "v": s.v * s.u.xx}),
                    initial(lambda x, y: (x, y)),
                    boundary(lambda s, c: s.u.x, {"x": -1}, {"x": 1}, name="walls")])
    # Initial values have one term an unknown.
    assert problem.terms == ("pde.u", "pde.v", "initial.u", "initial.v", "walls")
    assert problem.derivatives == {
        "pde": {(1, 0, 0), (0, 2, 1), (0, 0, 0), (0, 2, 0)},
        "initial": {(0, 0, 0)}, "walls": {(0, 1, 0)}}
    assert problem.names == ("t", "x", "y")
    assert problem.time == 0
    np.testing.assert_array_equal(problem.lower, [0, -1, 0])
    np.testing.assert_array_equal(problem.upper, [2, 1, 3])
    assert problem.initial is problem.conditions[1]


def test_a_problem_without_time_or_initial_condition():
    problem = make(lambda u, c: u.xx, coordinates={"x": (0, 1)})
    assert problem.time is None
    assert problem.initial is None
    assert make(coordinates={"x": (0, 1), "t": (0, 1)}).time == 1
    assert make(conditions=[boundary(lambda u, c: u - 1, {"t": 0})]).initial is None


def test_which_conditions_are_sampled():
    assert interior(lambda u, c: u.t).sampled
    assert not initial(lambda x: x).sampled
    assert not boundary(lambda u, c: u.x, {"x": 0}).sampled
    assert not data([[0, 0]], [1]).sampled


def test_coefficients_can_be_changed_but_not_invented():
    problem = burgers()
    assert problem.coefficients_with() == {"nu": 0.05}
    assert problem.coefficients_with({"nu": 2.0}) == {"nu": 2.0}
    with pytest.raises(UnknownName, match=r"coefficient of burgers 'mu'.*names are: nu"):
        problem.coefficients_with({"mu": 2.0})
    with pytest.raises(InputError, match="coefficient nu = nan: burgers needs it between -inf"):
        problem.coefficients_with({"nu": float("nan")})


def test_a_residual_may_take_the_point_and_name_its_equations():
    problem = make(lambda u, c, p: {"a": u.x - c.k * p.x, "b": u - p.t}, coefficients={"k": 3.0})
    values = {(0, 0): 7.0, (0, 1): 5.0}
    terms = evaluate_residual(problem, problem.conditions[0], lambda k, a: values[a],
                              {"k": 3.0}, [0.5, 2.0])
    assert terms == {"pde.a": -1.0, "pde.b": 6.5}


def test_a_residual_may_be_an_unknown_itself():
    problem = make(lambda u, c: u)
    terms = evaluate_residual(problem, problem.conditions[0], lambda k, a: 4.0, {}, [0.0, 0.0])
    assert terms == {"pde": 4.0}


def test_prescribed_values_of_the_free_coordinates():
    problem = make(unknowns=["u", "v"], coordinates={"x": (-1, 1), "t": (0, 1), "y": (0, 3)},
                   conditions=[initial(lambda x, y: (x + 10 * y, 1.0))])
    points = np.array([[0.5, 0.0, 1.0], [-1.0, 0.0, 2.0]])
    np.testing.assert_array_equal(
        prescribed_values(problem, problem.conditions[0], points), [[10.5, 1.0], [19.0, 1.0]])


# What is refused --------------------------------------------------------------------------------

def test_a_derivative_by_no_coordinate_is_found_when_the_problem_is_made():
    with pytest.raises(UnknownName, match=r"derivative 'z'.*names are: t, x"):
        make(lambda u, c: u.t - u.z)


def test_an_unknown_that_does_not_exist_is_found_when_the_problem_is_made():
    with pytest.raises(UnknownName, match=r"unknown 'w'.*names are: u, v"):
        make(lambda s, c: s.w.t, unknowns=["u", "v"])


def test_a_coefficient_that_does_not_exist_is_found_when_the_problem_is_made():
    with pytest.raises(UnknownName, match=r"coefficient 'epsilom'.*Did you mean 'epsilon'"):
        make(lambda u, c: u.t - c.epsilom * u.xx, coefficients={"epsilon": 1.0})


@pytest.mark.parametrize(("residual", "count"), [
    (lambda u: u.t, 1), (lambda u, c, p, q: u.t, 4),
])
def test_residuals_of_another_arity(residual, count):
    with pytest.raises(InputError, match=rf"takes {count} arguments.*residual\(u, c, p\)"):
        make(residual)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,)])
def test_a_residual_is_one_number_at_one_point(shape):
    with pytest.raises(InputError, match=r"residual 'pde' of shape \(.*one number at one point"):
        make(lambda u, c: u.t * jnp.ones(shape))


@pytest.mark.parametrize(("lower", "upper", "why"), [
    (1, 0, "not below"), (1, 1, "not below"), (0, float("inf"), "finite"),
    (float("nan"), 1, "finite"),
])
def test_intervals(lower, upper, why):
    with pytest.raises(InputError, match=why):
        Interval(lower, upper)


def test_lengths():
    assert Interval(-1, 3).length == 4
    assert not Interval(-1, 3).periodic
    assert periodic(-1, 3) == Interval(-1, 3, periodic=True)


@pytest.mark.parametrize(("fields", "why"), [
    ({"unknowns": ["x"]}, "distinct names"),
    ({"unknowns": ["2u"]}, "names that Python accepts"),
    ({"conditions": [boundary(lambda u, c: u, {"x": 2.0})]}, r"x = 2.0.*outside \[-1, 1\]"),
    ({"conditions": [boundary(lambda u, c: u, {"z": 0.0})]}, "coordinate 'z'.*names are: t, x"),
    ({"conditions": [interior(lambda u, c: u.t), interior(lambda u, c: u.x)]},
     "two conditions have that name"),
    ({"conditions": [data([[0.0, 0.0]], [[1.0, 2.0]])]}, "2 columns of values.*1 unknowns"),
    ({"conditions": [data([[0.0]], [1.0])]}, r"shape \(1, 1\).*one column.*t, x"),
    ({"conditions": [data([[0.0, 7.0]], [1.0])]}, r"row 0: x = 7.*outside the domain \[-1, 1\]"),
])
def test_statements_that_contradict_themselves(fields, why):
    with pytest.raises((InputError, UnknownName), match=why):
        make(**fields)


def test_a_problem_needs_conditions():
    with pytest.raises(InputError, match="it has no conditions"):
        Problem(name="empty", coordinates={"x": (0, 1)}, unknowns=["u"], conditions=[])


@pytest.mark.parametrize(("points", "values", "why"), [
    ([0.0, 1.0], [1.0, 2.0], r"data points of shape \(2,\)"),
    ([[0.0, 1.0], [0.0, np.nan]], [1.0, 2.0], "data points, row 1"),
    ([[0.0, 1.0], [0.0, 0.5]], [np.inf, 2.0], "data values, row 0"),
    ([[0.0, 1.0]], [1.0, 2.0], "1 data points with 2 rows"),
])
def test_data_that_cannot_be_used(points, values, why):
    with pytest.raises(InputError, match=why):
        data(points, values)


def test_prescribed_values_that_are_not_finite():
    problem = make(conditions=[initial(lambda x: 1 / x)])
    points = np.array([[0.0, 0.5], [0.0, 0.0]])
    np.testing.assert_array_equal(
        prescribed_values(problem, problem.conditions[0], points[:1]), [[2.0]])
    with np.errstate(divide="ignore"), pytest.raises(
            InputError, match=r"condition 'initial' at t = 0, x = 0: \[inf\]: it is not finite"):
        prescribed_values(problem, problem.conditions[0], points)


def test_points_to_evaluate_at():
    problem = burgers()
    problem.check_points(np.array([[0.0, -1.0], [1.0 + 1e-9, 1.0]]))
    for points, why in [(np.zeros(2), "shape"), (np.zeros((1, 3)), "shape"),
                        (np.array([[0.0, np.nan]]), "not finite"),
                        (np.array([[0.0, 0.0], [1.1, 0.0]]), "row 1: t = 1.1")]:
        with pytest.raises(InputError, match=why):
            problem.check_points(points)


# By name and by file ----------------------------------------------------------------------------

def test_problems_by_name():
    assert find_problem("allen-cahn") is PROBLEMS["allen-cahn"]
    with pytest.raises(UnknownName, match="problem 'allen-can'.*Did you mean 'allen-cahn'"):
        find_problem("allen-can")


def test_problems_from_files(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from piratenets import Problem, interior\n"
                    "problem = Problem(name='mine', coordinates={'x': (0, 1)}, unknowns=['u'],\n"
                    "                  conditions=[interior(lambda u, c: u.xx)])\n")
    found = find_problem(str(file))
    assert (found.name, found.derivatives) == ("mine", {"pde": {(2,)}})
    # Compiled functions are kept by problem: the same file gives the same object.
    assert find_problem(str(file)) is found

    with pytest.raises(StorageError, match="there is no such file"):
        find_problem(str(tmp_path / "other.py"))
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(InputError, match="it defines no `problem`"):
        find_problem(str(tmp_path / "empty.py"))
    (tmp_path / "wrong.py").write_text("x = 1\nproblem = = 2\n")
    with pytest.raises(InputError, match=r"wrong.py, line 2: it is not Python \(invalid syntax\)"):
        find_problem(str(tmp_path / "wrong.py"))


# The benchmarks, as the paper states them -------------------------------------------------------

def residual_at(problem, values, coordinates):
    """The PDE's terms at derivatives given by (unknown, multi-index)."""
    return evaluate_residual(problem, problem.conditions[0], lambda k, a: values[k, a],
                             problem.coefficients, coordinates)


def starting_values(problem, *points):
    return prescribed_values(problem, problem.initial, np.array(points, dtype=float))


def test_allen_cahn():
    """u_t - 0.0001 u_xx + 5 u^3 - 5 u = 0 from x^2 cos(pi x)."""
    problem = find_problem("allen-cahn")
    terms = residual_at(problem, {(0, (0, 0)): 0.5, (0, (1, 0)): 2.0, (0, (0, 2)): 3.0}, [0.3, 0.4])
    assert terms["pde"] == pytest.approx(2.0 - 3e-4 + 5 * 0.125 - 2.5, abs=1e-15)
    assert problem.coordinates == {"t": Interval(0, 1), "x": periodic(-1, 1, even=True)}
    np.testing.assert_allclose(starting_values(problem, [0, 0.25], [0, -1])[:, 0],
                               [0.0625 * np.sqrt(0.5), -1.0], atol=1e-15)


def test_korteweg_de_vries():
    """u_t + u u_x + 0.022^2 u_xxx = 0 from cos(pi x)."""
    problem = kdv.problem
    terms = residual_at(problem, {(0, (0, 0)): 0.5, (0, (1, 0)): 2.0, (0, (0, 1)): 3.0,
                                  (0, (0, 3)): 1000.0}, [0.3, 0.4])
    assert terms["pde"] == pytest.approx(2.0 + 1.5 + 0.484, abs=1e-13)
    assert problem.coordinates == {"t": Interval(0, 1), "x": periodic(-1, 1)}
    np.testing.assert_allclose(starting_values(problem, [0, 0.25], [0, -1])[:, 0],
                               [np.sqrt(0.5), -1.0], atol=1e-15)


def test_gray_scott():
    problem = gray_scott.problem
    laplacian = {(k, a): 1.5 + k for k in (0, 1) for a in ((0, 2, 0), (0, 0, 2))}
    values = {(0, (0, 0, 0)): 0.8, (1, (0, 0, 0)): 0.5, (0, (1, 0, 0)): 7.0, (1, (1, 0, 0)): 9.0}
    terms = residual_at(problem, {**laplacian, **values}, [0.1, 0.2, 0.3])
    # 1000 u v^2 = 200.
    assert terms["pde.u"] == pytest.approx(7.0 - (0.2 * 3 + 40 * 0.2 - 200), abs=1e-12)
    assert terms["pde.v"] == pytest.approx(9.0 - (0.1 * 5 - 100 * 0.5 + 200), abs=1e-12)
    # v starts as a blob; the paper's 1 - exp(...) is a misprint.
    np.testing.assert_allclose(starting_values(problem, [0, 0.05, 0.02], [0, -0.05, -0.02]),
                               [[1 - np.exp(-0.116), 1.0], [0.0, np.exp(-0.116)]], atol=1e-14)


def test_ginzburg_landau():
    """A_t = 0.004 Laplace(A) + 10 A - (10 + 15i) A |A|^2 for A = u + i v."""
    problem = ginzburg_landau.problem
    value, slope, laplacian = 0.3 - 0.4j, 2.0 + 5.0j, 7.0 - 11.0j
    parts = {(0, 0, 0): value, (1, 0, 0): slope, (0, 2, 0): 0.25 * laplacian,
             (0, 0, 2): 0.75 * laplacian}
    table = {(k, a): (z.real, z.imag)[k] for a, z in parts.items() for k in (0, 1)}
    terms = residual_at(problem, table, [0.1, 0.2, 0.3])
    exact = slope - 0.004 * laplacian - 10 * value + (10 + 15j) * value * abs(value) ** 2
    assert terms["pde.u"] == pytest.approx(exact.real, abs=1e-13)
    assert terms["pde.v"] == pytest.approx(exact.imag, abs=1e-13)
    np.testing.assert_allclose(starting_values(problem, [0, 0.2, 0.1]),
                               [[np.exp(-1.25), 2 * np.exp(-1.25)]], atol=1e-14)
