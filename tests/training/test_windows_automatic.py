"""Windows that choose their own lengths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import TrainingConfig
from piratenets.errors import InputError
from piratenets.problems.problem import Problem, initial, interior, periodic
from piratenets.runs import checkpoints
from piratenets.training.solution import Solution
from piratenets.training.trainer import Trainer
from piratenets.training.windows import earlier_end, next_length, shortest, window_end

from ..common import training_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

HEAT = Problem(
    name="heat", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
    coefficients={"k": 0.1},
    conditions=[interior(lambda u, c: u.t - c.k * u.xx), initial(lambda x: jnp.sin(jnp.pi * x))])


# The rule -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("steps", "expected"), [
    (20, 0.2), (5, 0.3), (1, 0.3), (80, 0.1), (500, 0.1), (16, 0.2 * 1.25**0.5), (45, 0.4 / 3)])
def test_the_next_length(steps, expected):
    assert next_length(0.2, steps, wanted=20) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("start", "length", "end", "windows", "expected"), [
    (1.0, 1.0, 5.0, 8, 2.0),
    (1.0, 0.1, 5.0, 8, 1.5),   # No shorter than an eighth of 4.
    (1.0, 9.0, 5.0, 8, 5.0),
    (1.0, 3.999, 5.0, 8, 5.0),
    (1.0, 0.1, 5.0, 1, 5.0),   # The last there may be.
    (1.0, 3.0, 5.0, 8, 3.0),   # What would leave 1 of 4 takes it in two equal parts,
    (1.0, 2.6, 5.0, 8, 3.6),   # and this leaves more than its half.
])
def test_the_end_of_a_window(start, length, end, windows, expected):
    assert window_end(start, length, end, windows) == pytest.approx(expected, rel=1e-14)


def test_a_window_tried_again_has_half_its_length_but_not_less_than_the_least():
    assert shortest(1.0, 5.0, 8) == 0.5
    assert earlier_end(1.0, 3.0, 5.0, 8) == 2.0
    assert earlier_end(1.0, 1.75, 5.0, 8) == 1.5
    assert earlier_end(1.0, 1.5, 5.0, 8) is None
    assert earlier_end(0.0, 0.05, 1.0, 8) is None
    assert earlier_end(0.0, 0.1 + 1e-16, 0.8, 8) is None


@pytest.mark.parametrize("windows", [2, 3, 7, 40])
def test_the_end_is_reached_with_the_windows_there_are(windows):
    random = np.random.default_rng(windows)
    for _ in range(100):
        time, length = 0.0, random.uniform(0.001, 0.9)
        for left in range(windows, 0, -1):
            last = window_end(time, length, 1.0, left)
            while random.uniform() < 0.5 and (earlier := earlier_end(time, last, 1.0, left)):
                assert time < earlier < last
                last = earlier
            length, time = next_length(last - time, random.integers(1, 100), 20), last
            if time == 1.0:
                break
        assert time == 1.0


# What is asked for wrongly ------------------------------------------------------------------------

@pytest.mark.parametrize(("changes", "message"), [
    ({"window_steps": -1}, "training.window_steps = -1: it must not be negative. Use 0"),
    ({"window_steps": 5, "windows": 4}, "= 5: no window reaches training.target = 0. Give a pos"),
    ({"window_steps": 5, "target": 1e-6}, "= 5: training.windows = 1 leaves no lengths to choose"),
    ({"window_steps": 5, "target": 1e-6, "windows": 4, "steps": 4},
     "= 5: a window has 4 steps at most. Use no more"),
])
def test_bad_input(changes, message):
    with pytest.raises(InputError, match=message):
        TrainingConfig(**changes)


# Trainings ----------------------------------------------------------------------------------------

def trainer(**changes):
    return Trainer(HEAT, training_config(**{
        "network.kind": "mlp", "network.layers": 2, "network.width": 8,
        "network.embedding.kind": "none", "weighting.causal": False, "weighting.kind": "fixed",
        "sampling.batch": 64, "sampling.kind": "sobol", "optimiser.kind": "lm",
        "training.windows": 16, "training.steps": 30, "training.target": 1e-5,
        "training.window_steps": 12, "training.stretch": True, "training.warm_start": True,
        "record.every": 4, **changes}))


def lengths(trainer, state):
    return [s.upper[0] - s.lower[0] for s in trainer.stages_of(state)]


@pytest.fixture(scope="module")
def longer():
    """A training whose windows are easy, and all its progress."""
    easy = trainer()
    return easy, list(easy.run(easy.start()))


def test_windows_get_longer_and_reach_the_end(longer):
    easy, progress = longer
    last = progress[-1].state
    assert [p.done for p in progress] == [False] * (len(progress) - 1) + [True]
    found = lengths(easy, last)
    assert found[0] == 1 / 16
    assert 3 < len(found) < 12
    assert max(found) > 2 / 16
    ends = [p.state for p in progress if p.stage_ended]
    assert [int(s.stage) for s in ends] == list(range(len(found)))
    # All but the last two, which share what is left.
    expected = [np.clip(np.sqrt(12 / int(s.step)), 0.5, 1.5) for s in ends[:-3]]
    np.testing.assert_allclose(np.divide(found[1:-2], found[:-3]), expected, rtol=1e-12)
    edges = np.asarray(last.edges)
    assert edges[len(found)] == 1.0
    assert np.isinf(edges[len(found) + 1:]).all()
    assert easy.fraction(last) == 1.0
    fractions = [easy.fraction(p.state) for p in progress if p.stage_ended]
    assert fractions == sorted(fractions)


def test_the_solution_of_such_windows(longer):
    easy, progress = longer
    last = progress[-1].state
    axes = np.meshgrid(np.linspace(0, 1, 9), np.linspace(-1, 1, 16), indexing="ij")
    points = np.stack([a.ravel() for a in axes], axis=1)
    exact = np.exp(-0.1 * np.pi**2 * points[:, 0]) * np.sin(np.pi * points[:, 1])
    found = Solution(HEAT, easy.stages_of(last), last)(points)[:, 0]
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize("starts", [1, 2])
def test_a_window_that_fails_is_halved_down_to_the_least_and_accepted(starts):
    """The first is 0.64 of the time, and may be a quarter of it: 0.32, then 0.25."""
    hard = trainer(**{"training.windows": 4, "training.window_growth": 0.375,
                      "training.steps": 3, "training.window_steps": 3, "training.target": 1e-300,
                      "training.starts": starts, "training.start_steps": 2})
    first = hard.start()
    progress = list(hard.run(first))
    ends = [(int(p.state.stage), p.again) for p in progress if p.again or p.stage_ended]
    assert ends == [(0, True), (0, True), *((k, False) for k in range(4))]
    assert [p.stage_ended for p in progress if p.again] == [False, False]
    assert all(p.recorded for p in progress if p.again or p.stage_ended)
    assert progress[-1].step == 6 * 3
    np.testing.assert_allclose(progress[-1].state.edges, [0, 0.25, 0.5, 0.75, 1], rtol=1e-14)
    again = hard._begun_again(next(p.state for p in progress if p.again))
    np.testing.assert_allclose(lengths(hard, again), [lengths(hard, first)[0] / 2])
    assert (int(again.step), int(again.before), int(again.stage)) == (0, 3, 0)


def test_a_window_tried_again_begins_as_the_first_try_did():
    hard = trainer(**{"training.windows": 4, "training.window_growth": 0.375,
                      "training.steps": 3, "training.window_steps": 3, "training.target": 1e-300,
                      "initialisation.source": "none"})
    first = hard.start()
    ended = next(p.state for p in hard.run(first) if p.again)
    same_networks(hard._begun_again(ended).network, first.network)


def same_networks(a, b):
    assert jax.tree.all(jax.tree.map(np.array_equal, a, b))


def test_in_float32_the_end_is_the_problem_s_own():
    """0.1 is none of float32's numbers."""
    problem = Problem("short", {"t": (0.0, 0.1), "x": (-1, 1)}, ["u"],
                      [interior(lambda u, c: u.t), initial(lambda x: x)])
    config = training_config(**{
        "training.precision": "float32", "training.windows": 3, "training.steps": 2,
        "training.window_steps": 2, "training.target": 1e9, "record.every": 1})
    single = Trainer(problem, config)
    *_, last = single.run(single.start())
    assert last.done
    assert last.state.edges.dtype == jnp.float32
    assert single.stages_of(last.state)[-1].upper[0] == 0.1


def test_a_resumed_training_is_the_same_to_the_last_bit(tmp_path):
    """From every call's state, a window tried again and its last step among them."""
    changes = {"training.windows": 5, "training.window_growth": 0.5, "training.steps": 8,
               "training.window_steps": 6, "training.target": 1e-4}
    whole = trainer(**changes)
    progress = list(whole.run(whole.start()))
    assert any(p.again for p in progress)
    assert any(float(p.state.best) < 1e-4 for p in progress)
    expected = checkpoints.named_arrays(progress[-1].state)
    for p in progress[:-1]:
        path = checkpoints.save(tmp_path, p.step, p.state, {}, keep=2)
        other = trainer(**changes)
        read, _ = checkpoints.read(path, other.template())
        *_, last = other.run(read)
        found = checkpoints.named_arrays(last.state)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_fixed_windows_have_no_edges_in_their_state():
    fixed = trainer(**{"training.window_steps": 0})
    assert fixed.start().edges is None
    assert not any("edges" in name for name in checkpoints.named_arrays(fixed.start()))
    assert fixed.total_steps == 16 * 30
    assert len(fixed.stages_of(None)) == 16
