import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.errors import InputError, UnknownName
from piratenets.fields.networks import Frame
from piratenets.problems.problem import Problem, boundary, data, initial, interior
from piratenets.training.loop import advance
from piratenets.training.solution import Solution, evaluate_network, stage_frame
from piratenets.training.stages import stages, window_edges
from piratenets.training.state import STARTS, derived_key
from piratenets.training.trainer import Trainer

from ..common import burgers, training_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

BURGERS = burgers()


def frame_at(time):
    return Frame(np.array([time, 0.0]), np.ones(2))


def same(a, b):
    """Whether two trees of arrays are equal to the last bit."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b),
                                                    strict=True))


# Which stages there are ---------------------------------------------------------------------------

def test_one_stage():
    (stage,) = stages(BURGERS, training_config(**{"coefficients.nu": 0.2, "training.steps": 7}))
    np.testing.assert_array_equal([stage.lower, stage.upper], [[0, -1], [1, 1]])
    assert (stage.coefficients, stage.steps, stage.label) == ({"nu": 0.2}, 7, "")


def test_windows_share_out_the_time():
    problem = dataclasses.replace(BURGERS, coordinates={"x": (-1, 1), "t": (2, 4)},
                                  conditions=[interior(lambda u, c: u.t),
                                              initial(lambda x: x, at=2.0)])
    found = stages(problem, training_config(**{"training.windows": 4, "training.steps": 7}))
    np.testing.assert_array_equal([s.lower for s in found], [[-1, t] for t in (2, 2.5, 3, 3.5)])
    np.testing.assert_array_equal([s.upper for s in found], [[1, t] for t in (2.5, 3, 3.5, 4)])
    assert [s.steps for s in found] == [7] * 4
    assert [s.label for s in found][1] == "t in [2.5, 3]"
    np.testing.assert_array_equal(window_edges(problem, 4), [2, 2.5, 3, 3.5, 4])
    assert all((s.scale == 1).all() for s in found)
    # The problem's own box is as it was.
    np.testing.assert_array_equal(problem.lower, [-1, 2])


def test_windows_that_grow_with_their_time_stretched():
    """Lengths 1, 2, 4 of 7; each network sees a time as long as the whole interval, from its
    beginning on, and the equation's weight is that of the stretched time."""
    config = training_config(**{"training.windows": 3, "training.window_growth": 2.0,
                                "training.stretch": True, "weighting.kind": "fixed",
                                "weighting.start": {"pde": 5.0, "initial": 3.0}})
    found = stages(BURGERS, config)
    np.testing.assert_allclose([s.lower[0] for s in found], [0, 1 / 7, 3 / 7], rtol=1e-15)
    assert found[-1].upper[0] == 1
    np.testing.assert_allclose([s.scale for s in found], [[7, 1], [3.5, 1], [1.75, 1]], rtol=1e-14)
    frame = stage_frame(BURGERS, found[1])
    np.testing.assert_allclose(frame.seen(np.array([[1 / 7, 0.3], [3 / 7, 0.3]])),
                               [[0, 0.3], [1, 0.3]], atol=1e-15)
    weights = Trainer(BURGERS, config).start().weights
    assert {k: float(w) for k, w in weights.items()} == pytest.approx({"pde": 5 / 49, "initial": 3})


def test_a_stretched_window_begins_at_the_problem_s_first_time():
    problem = dataclasses.replace(BURGERS, coordinates={"t": (2, 4), "x": (-1, 1)},
                                  conditions=[interior(lambda u, c: u.t),
                                              initial(lambda x: x, at=2.0)])
    config = training_config(**{"training.windows": 4, "training.stretch": True})
    frame = stage_frame(problem, stages(problem, config)[1])
    np.testing.assert_allclose(frame.seen(np.array([[2.5, 0.3], [3.0, 0.3]])),
                               [[2, 0.3], [4, 0.3]], atol=1e-14)


def curriculum(values, steps, target=0.05):
    return training_config(**{"curriculum": {"coefficient": "nu", "values": values,
                                             "steps": steps}, "coefficients.nu": target})


@pytest.mark.parametrize(("values", "steps", "target", "expected"), [
    # Rungs on the way, and the coefficient's own value last.
    ((1.0, 2.0, 5.0), (10, 20, 30), 5.0, [(1.0, 10), (2.0, 20), (5.0, 30)]),
    ((1.0, 2.0, 5.0), (10, 20, 30), 3.0, [(1.0, 10), (2.0, 20), (3.0, 30)]),
    ((1.0, 2.0, 5.0), (10, 20, 30), 2.0, [(1.0, 10), (2.0, 20)]),
    ((1.0, 2.0, 5.0), (10, 20, 30), 0.5, [(0.5, 10)]),
    ((1.0, 2.0, 5.0), (10, 20, 30), 9.0, [(1.0, 10), (2.0, 20), (5.0, 30), (9.0, 30)]),
    ((0.5, 0.1), (10, 20), 0.1, [(0.5, 10), (0.1, 20)]),
    ((0.5, 0.1), (10, 20), 0.05, [(0.5, 10), (0.1, 20), (0.05, 20)]),
    ((2.0,), (10,), 5.0, [(2.0, 10), (5.0, 10)]),
    ((0.5,), (10,), 0.05, [(0.5, 10), (0.05, 10)]),
])
def test_curriculum(values, steps, target, expected):
    found = stages(BURGERS, curriculum(values, steps, target))
    assert [(s.coefficients["nu"], s.steps) for s in found] == expected
    assert found[-1].label == f"nu = {target:g}"
    for stage in found:
        np.testing.assert_array_equal([stage.lower, stage.upper], [[0, -1], [1, 1]])


# What cannot be a stage ------------------------------------------------------------------------

def test_a_curriculum_of_a_coefficient_that_does_not_exist():
    config = training_config(curriculum={"coefficient": "nv", "values": (1.0,),
                                               "steps": (1,)})
    with pytest.raises(UnknownName, match="curriculum.coefficient 'nv'.*names are: nu"):
        stages(BURGERS, config)


@pytest.mark.parametrize("values", [(1.0, 0.5, 2.0), (0.4, 0.5, 0.1), (2.0, 1.0, 5.0, 3.0)])
def test_a_curriculum_goes_one_way(values):
    with pytest.raises(InputError, match="neither rise nor fall"):
        stages(BURGERS, curriculum(values, (1,) * len(values), target=0.01))


def test_coefficients_that_do_not_exist():
    with pytest.raises(UnknownName, match=r"coefficient of burgers 'mu'.*names are: nu"):
        stages(BURGERS, training_config(**{"coefficients.mu": 1.0}))


def test_windows_exclude_a_curriculum():
    with pytest.raises(InputError, match="time windows and a curriculum cannot be combined"):
        training_config(**{"training.windows": 2, "curriculum": {
            "coefficient": "nu", "values": (1.0,), "steps": (1,)}})


def test_chunks_must_divide_the_batch():
    with pytest.raises(InputError, match=r"chunks = 5: it does not divide sampling.batch = 16. "
                                         "Use 4 chunks, or a batch of 15"):
        training_config(**{"weighting.chunks": 5})
    assert training_config(**{"weighting.chunks": 5, "weighting.causal": False})


@pytest.mark.parametrize(("coordinates", "conditions", "why"), [
    ({"x": (0, 1)}, [interior(lambda u, c: u.xx)], "no time with an initial condition"),
    ({"t": (0, 1)}, [interior(lambda u, c: u.t)], "no time with an initial condition"),
    ({"t": (0, 1), "x": (0, 1)}, [initial(lambda x: x), data([[0.5, 0.5]], [1.0])],
     "data that may lie in any window"),
    # A velocity given at the first time says nothing in a later window.
    ({"t": (0, 1), "x": (0, 1)},
     [initial(lambda x: x), boundary(lambda u, c: u.t, {"t": 0}, name="velocity")],
     "condition 'velocity' holds at one time"),
])
def test_problems_without_windows(coordinates, conditions, why):
    problem = Problem(name="other", coordinates=coordinates, unknowns=["u"], conditions=conditions)
    with pytest.raises(InputError, match=rf"training.windows = 2: .*{why}"):
        stages(problem, training_config(**{"training.windows": 2}))


# From one stage to the next ----------------------------------------------------------------------

def ended(trainer, state):
    """The state as if its stage had been trained: other weights, all its steps taken."""
    network = jax.tree.map(lambda x: jnp.asarray(np.asarray(x) * 1.25 + 0.01), state.network)
    steps = jnp.asarray(trainer.stages_of(state)[int(state.stage)].steps, jnp.int32)
    weights = {t: w * 3 for t, w in state.weights.items()}
    return dataclasses.replace(state, network=network, step=steps, weights=weights)


@pytest.fixture(scope="module")
def windowed():
    """A trainer in two windows, the first one's end and the second one's start."""
    trainer = Trainer(BURGERS, training_config(**{"training.windows": 2, "network.alpha": 0.5}))
    state = ended(trainer, trainer.start())
    return trainer, state, trainer.next_stage(state)


def test_a_window_starts_where_the_last_one_ended(windowed):
    trainer, first, second = windowed
    points, values = trainer.setting(second).fixed["initial"]
    # The grid of 8 points, at the window's first time.
    np.testing.assert_array_equal(points, [[0.5, x] for x in np.arange(-1, 1, 0.25)])
    exact = evaluate_network(first.network, frame_at(0.0), np.asarray(points))
    np.testing.assert_array_equal(values, exact)
    np.testing.assert_allclose(values, jax.jit(jax.vmap(first.network))(points),
                               rtol=0, atol=1e-14)
    assert float(jnp.abs(values).max()) > 0.01
    # Not the problem's own initial values.
    own = trainer.setting(first).fixed["initial"]
    assert float(jnp.abs(values - own.values).max()) > 0.1
    np.testing.assert_array_equal(own.points[:, 0], np.zeros(8))


def test_a_window_has_its_own_box_and_clock(windowed):
    trainer, first, second = windowed
    for state, times, origin in ((first, (0, 0.5), 0), (second, (0.5, 1), 0.5)):
        setting = trainer.setting(state)
        assert (float(setting.lower[0]), float(setting.upper[0])) == times
        np.testing.assert_array_equal(setting.frame.origin, [origin, 0])
        np.testing.assert_array_equal(setting.frame.scale, [1, 1])


def test_a_window_starts_afresh_and_keeps_the_networks_before_it(windowed):
    _, first, second = windowed
    assert same(jax.tree.map(lambda x: x[0], second.finished), first.network)
    assert (int(second.stage), int(second.step)) == (1, 0)
    assert {t: float(w) for t, w in second.weights.items()} == {"pde": 1.0, "initial": 1.0}
    assert not same(second.network.blocks, first.network.blocks)
    np.testing.assert_array_equal(second.key, first.key)


def test_a_window_s_network_is_fitted_to_the_last_one_s_end(windowed):
    trainer, first, _ = windowed
    # The first window's fit, then the second's: its residual is measured on the grid in x.
    assert [f.points for f in trainer.fits] == [2 * 16, 2 * 16]
    assert 0 < trainer.fits[1].residual < 1
    # It is the least-squares fit of the end, repeated in time.
    points, _ = trainer._known_values(1, first.network, None)
    np.testing.assert_array_equal(np.unique(points[:, 0]), [0, 0.5])
    _, known = trainer._known_values(1, first.network, None)
    np.testing.assert_array_equal(known[:16], known[16:])
    end = np.stack([np.full(16, 0.5), np.linspace(-1, 1, 16, endpoint=False)], axis=1)
    np.testing.assert_array_equal(known[:16], evaluate_network(first.network, frame_at(0.0), end))


def test_a_warm_window_starts_from_the_previous_network(windowed):
    _, first, _ = windowed
    trainer = Trainer(BURGERS, training_config(**{
        "training.windows": 2, "network.alpha": 0.5, "training.warm_start": True}))
    second = trainer.next_stage(first)
    assert same(second.network, first.network)
    assert int(second.step) == 0


def test_a_solution_takes_the_window_that_a_time_lies_in(windowed):
    trainer, first, second = windowed
    solution = Solution(BURGERS, trainer.stages_of(second), second)
    times = np.array([0.0, 0.49, 0.5, 0.51, 1.0])
    points = np.stack([times, np.full(5, 0.3)], axis=1)
    expected = np.concatenate([evaluate_network(first.network, frame_at(0.0), points[:2]),
                               evaluate_network(second.network, frame_at(0.5), points[2:])])
    np.testing.assert_array_equal(solution(points), expected)
    assert solution.end == 1.0
    assert Solution(BURGERS, trainer.stages_of(first), first).end == 0.5


def test_a_curriculum_keeps_the_network():
    trainer = Trainer(BURGERS, curriculum((0.2, 0.1), (5, 5), target=0.05))
    first = ended(trainer, trainer.start())
    second = trainer.next_stage(first)
    assert same(second.network, first.network)
    assert second.finished is None
    assert (int(second.stage), int(second.step)) == (1, 0)
    assert {t: float(w) for t, w in second.weights.items()} == {"pde": 1.0, "initial": 1.0}
    assert [float(trainer.setting(s).coefficients["nu"]) for s in (first, second)] == [0.2, 0.1]
    np.testing.assert_array_equal(trainer.setting(second).fixed["initial"].values,
                                  trainer.setting(first).fixed["initial"].values)


# Starts -------------------------------------------------------------------------------------------

def test_the_start_that_a_few_steps_bring_furthest_goes_on():
    config = training_config(**{"training.starts": 4, "training.start_steps": 11,
                                "record.every": 1})
    trainer = Trainer(BURGERS, config)
    first = trainer.start()
    setting, until = trainer.setting(first), jnp.asarray(11, jnp.int32)
    found = []
    for k in range(4):
        key = first.key if k == 0 else jax.random.key_data(derived_key(first.key, STARTS, k))
        network = trainer._initialised(0, None, key, None)
        state = trainer._at_stage(0, network, None, first.key, None)
        found.append(advance(trainer.plan, setting, state, until))
    losses = [float(sum(s.weights[t] * v for t, v in snap.losses.items())) for s, snap in found]
    assert len(set(losses)) == 4
    progress = next(trainer.run(first))
    assert int(progress.state.step) == 11
    assert same(progress.state.network, found[int(np.argmin(losses))][0].network)


def test_every_window_has_its_starts_and_they_may_end_it():
    """The first ends with its target, reached within the starts; the second starts warm or
    fresh, from the first one's end."""
    config = training_config(**{"training.starts": 2, "training.start_steps": 5,
                                "training.windows": 2, "training.target": 1e6})
    trainer = Trainer(BURGERS, config)
    progress = list(trainer.run(trainer.start()))
    assert [(int(p.state.stage), int(p.state.step)) for p in progress] == [(0, 1), (1, 1)]
    assert [(p.stage_ended, p.done) for p in progress] == [(True, False), (True, True)]


def test_the_same_start_wins_again():
    config = training_config(**{"training.starts": 3, "training.start_steps": 5})
    states = []
    for _ in range(2):
        trainer = Trainer(BURGERS, config)
        states.append(trainer._best_start(trainer.start())[0])
        assert len(trainer.fits) == 1
    assert same(*states)


def test_fits_of_earlier_windows_outlive_later_starts():
    """Each window begins with a fit of its own, whichever of its networks wins."""
    config = training_config(**{"training.starts": 3, "training.start_steps": 5,
                                "training.windows": 3, "training.steps": 5})
    trainer = Trainer(BURGERS, config)
    assert len(list(trainer.run(trainer.start()))) == 3
    assert [fit.stage for fit in trainer.fits] == [0, 1, 2]


def test_more_steps_to_start_with_than_there_are():
    with pytest.raises(InputError, match=r"training.start_steps = 61: a stage has 60 steps"):
        training_config(**{"training.starts": 2, "training.start_steps": 61})
