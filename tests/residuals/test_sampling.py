import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from piratenets.config import SamplingConfig
from piratenets.problems.problem import Problem, boundary, data, initial, interior, periodic
from piratenets.residuals.sampling import collocation, fixed_points, grid_points

from ..common import burgers

KEY = jax.random.key(0)
LOWER, UPPER = jnp.array([0.0, -1.0]), jnp.array([1.0, 1.0])


def drawn(key=KEY, lower=LOWER, upper=UPPER, count=256, problem=None):
    config = SamplingConfig(batch=count)
    return np.asarray(collocation(problem or burgers(), key, lower, upper, config)["pde"])


def test_points_depend_on_the_key_alone():
    np.testing.assert_array_equal(drawn(jax.random.key(5)), drawn(jax.random.key(5)))
    other = drawn(jax.random.key(6))
    assert not np.isin(other, drawn(jax.random.key(5))).any()


def test_points_are_uniform():
    """Chi-square over 8 x 8 cells: 63 degrees of freedom, 103.4 is passed once in a thousand."""
    points = drawn(count=4096)
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=8, range=[[0, 1], [-1, 1]])
    assert counts.sum() == 4096
    assert ((counts - 64) ** 2 / 64).sum() < scipy.stats.chi2.ppf(0.999, 63)


@pytest.mark.parametrize(("lower", "upper"), [([0.25, -1.0], [0.5, 1.0]), ([0.9, 0.0], [1.0, 0.1])])
def test_points_fill_the_box_of_a_window(lower, upper):
    points = drawn(lower=jnp.array(lower), upper=jnp.array(upper))
    assert (points >= lower).all()
    assert (points <= upper).all()
    margin = 0.03 * (np.array(upper) - lower)
    assert (points.min(axis=0) < lower + margin).all()
    assert (points.max(axis=0) > upper - margin).all()


def test_whole_points_are_sorted_by_time():
    """The rows are those that were drawn, in the order of time: each keeps its own x."""
    points = drawn()
    raw = _raw(256)
    assert (np.diff(points[:, 0]) >= 0).all()
    assert not (np.diff(raw[:, 0]) >= 0).all()
    np.testing.assert_array_equal(points, raw[np.argsort(raw[:, 0])])


def test_time_need_not_be_the_first_coordinate():
    problem = Problem(name="turned", coordinates={"x": (-1, 1), "t": (0, 1)}, unknowns=["u"],
                      conditions=[interior(lambda u, c: u.t)])
    points = drawn(problem=problem, lower=jnp.array([-1.0, 0.0]), upper=jnp.array([1.0, 1.0]))
    assert (np.diff(points[:, 1]) >= 0).all()
    assert not (np.diff(points[:, 0]) >= 0).all()


def test_without_time_points_are_not_sorted():
    problem = Problem(name="steady", coordinates={"x": (0, 1), "y": (-1, 1)}, unknowns=["u"],
                      conditions=[interior(lambda u, c: u.xx + u.yy)])
    np.testing.assert_array_equal(drawn(problem=problem), _raw(256))


def _raw(count):
    key = jax.random.split(jax.random.fold_in(KEY, 0), 4)[0]
    unit = np.asarray(jax.random.uniform(key, (count, 2), jnp.float64))
    return np.array([0.0, -1.0]) + np.array([1.0, 2.0]) * unit


def test_only_conditions_on_the_whole_domain_are_sampled_each_with_its_own_points():
    problem = burgers()
    twice = Problem(name="two", coordinates=problem.coordinates, unknowns=["u"],
                    conditions=[interior(lambda u, c: u.t), initial(lambda x: x),
                                interior(lambda u, c: u.x, name="second")])
    points = collocation(twice, KEY, LOWER, UPPER, SamplingConfig(batch=32))
    assert list(points) == ["pde", "second"]
    assert not np.isin(points["pde"], points["second"]).any()


def test_precision_is_that_of_the_box():
    points = jax.eval_shape(lambda: collocation(burgers(), KEY, LOWER.astype(jnp.float32),
                                                UPPER.astype(jnp.float32), SamplingConfig(batch=8)))
    assert points["pde"].dtype == jnp.float32


# Fixed grids -------------------------------------------------------------------------------------

def fixed(problem, condition, grid=4):
    return fixed_points(problem, condition, problem.lower, problem.upper, SamplingConfig(grid=grid))


def test_initial_grid_leaves_out_the_far_end_of_a_periodic_coordinate():
    problem = burgers()
    points, values = fixed(problem, problem.initial)
    np.testing.assert_array_equal(points, [[0, -1], [0, -0.5], [0, 0], [0, 0.5]])
    np.testing.assert_allclose(values, [[0], [1], [0], [-1]], atol=1e-15)


def test_walls_with_both_ends_of_what_is_not_periodic():
    problem = Problem(
        name="box", coordinates={"t": (0, 2), "x": (-1, 1)}, unknowns=["u"],
        conditions=[boundary(lambda u, c: u, {"x": -1}, {"x": 1}, name="walls")])
    points, values = fixed(problem, problem.conditions[0], grid=3)
    np.testing.assert_array_equal(points, [[0, -1], [1, -1], [2, -1], [0, 1], [1, 1], [2, 1]])
    assert values is None


def test_walls_of_a_window():
    problem = Problem(
        name="box", coordinates={"t": (0, 2), "x": (-1, 1)}, unknowns=["u"],
        conditions=[boundary(lambda u, c: u, {"x": 1}, name="walls")])
    points, _ = fixed_points(problem, problem.conditions[0], np.array([0.5, -1]),
                             np.array([1.5, 1]), SamplingConfig(grid=3))
    np.testing.assert_array_equal(points, [[0.5, 1], [1, 1], [1.5, 1]])


def test_initial_grid_in_two_dimensions():
    problem = Problem(
        name="plane", coordinates={"t": (0, 1), "x": periodic(0, 2), "y": (0, 3)},
        unknowns=["u", "v"],
        conditions=[interior(lambda s, c: {"u": s.u.t, "v": s.v.t}),
                    initial(lambda x, y: (x + 10 * y, 7.0))])
    points, values = fixed(problem, problem.initial)
    # The last coordinate runs fastest.
    np.testing.assert_array_equal(points[:5], [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3],
                                               [0, 0.5, 0]])
    assert points.shape == (16, 3)
    assert points[:, 1].max() == 1.5
    np.testing.assert_array_equal(values[:, 0], points[:, 1] + 10 * points[:, 2])
    np.testing.assert_array_equal(values[:, 1], np.full(16, 7.0))


def test_given_points_are_taken_as_they_are():
    points, values = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([5.0, 6.0])
    problem = dataclasses.replace(burgers(), conditions=[data(points, values)])
    taken, known = fixed(problem, problem.conditions[0])
    np.testing.assert_array_equal(taken, points)
    np.testing.assert_array_equal(known, [[5.0], [6.0]])


def test_tensor_grids():
    np.testing.assert_array_equal(grid_points([np.array([1, 2]), np.array([3, 4, 5])]),
                                  [[1, 3], [1, 4], [1, 5], [2, 3], [2, 4], [2, 5]])
