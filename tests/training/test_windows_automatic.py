"""Windows that choose their own lengths."""

import dataclasses
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import TrainingConfig
from piratenets.errors import InputError
from piratenets.problems.problem import Problem, initial, interior, periodic
from piratenets.runs import checkpoints
from piratenets.training.solution import Solution
from piratenets.training.state import Edges
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
    (1.0, 0.1, 5.0, 8, 1.125),  # No shorter than a quarter of an eighth of 4,
    (1.0, 0.13, 5.0, 8, 1.13),  # which this is not.
    (1.0, 9.0, 5.0, 8, 5.0),
    (1.0, 3.999, 5.0, 8, 5.0),
    (1.0, 0.1, 5.0, 1, 5.0),   # The last there may be.
    (1.0, 3.0, 5.0, 8, 3.0),   # What would leave 1 of 4 takes it in two equal parts,
    (1.0, 2.6, 5.0, 8, 3.6),   # and this leaves more than its half.
])
def test_the_end_of_a_window(start, length, end, windows, expected):
    assert window_end(start, length, end, windows) == pytest.approx(expected, rel=1e-14)


def test_a_window_tried_again_has_half_its_length_but_not_less_than_the_least():
    """A quarter of an eighth of 4 is 0.125; the last one there may be takes all of it."""
    assert shortest(1.0, 5.0, 8) == 0.125
    assert shortest(1.0, 5.0, 2) == 0.5
    assert shortest(1.0, 5.0, 1) == 4.0
    assert earlier_end(1.0, 3.0, 5.0, 8) == 2.0
    assert earlier_end(1.0, 1.5, 5.0, 8) == 1.25
    assert earlier_end(1.0, 1.1875, 5.0, 8) == 1.125
    assert earlier_end(1.0, 1.125, 5.0, 8) is None
    assert earlier_end(0.0, 0.03, 1.0, 8) is None
    assert earlier_end(0.0, 0.025 + 1e-17, 0.8, 8) is None
    assert earlier_end(1.0, 5.0, 5.0, 2) == 3.0
    assert earlier_end(1.0, 5.0, 5.0, 1) is None


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


def run(trainer):
    return list(trainer.run(trainer.start()))


def lengths(trainer, state):
    return [s.upper[0] - s.lower[0] for s in trainer.stages_of(state)]


def ends_of(progress):
    """Where tries end: windows that are tried again, and those that are kept."""
    return [p for p in progress if p.again or p.stage_ended]


# What follows a window ----------------------------------------------------------------------------

def window(trainer, times, *, best=1.0, step=30, longest=np.inf):
    """A state in the window that ends at the last of the times, with its best loss and steps."""
    state = trainer.start()
    edges = np.full(len(state.edges.times), np.inf)
    edges[: len(times)] = times
    return dataclasses.replace(
        state, stage=jnp.asarray(len(times) - 2, jnp.int32), step=jnp.asarray(step, jnp.int32),
        best=jnp.asarray(best), edges=Edges(jnp.asarray(edges), jnp.asarray(longest)))


@pytest.fixture(scope="module")
def warm():
    return trainer()


def followed(trainer, state):
    """How long the next window is, and what it could have been at most."""
    stage, edges = int(state.stage), trainer._windows.followed(state)
    np.testing.assert_array_equal(edges.times[: stage + 2], state.edges.times[: stage + 2])
    assert np.isinf(edges.times[stage + 3:]).all()
    return float(edges.times[stage + 2] - edges.times[stage + 1]), float(edges.longest)


@pytest.mark.parametrize(("best", "step", "length"), [
    (0.99e-5, 12, 0.1), (0.99e-5, 3, 0.15), (0.99e-5, 27, 0.2 / 3),   # 12 steps are wanted.
    (0.99e-5, 1, 0.15), (0.99e-5, 200, 0.05),
    (1.01e-5, 3, 0.1), (1.0, 30, 0.1),   # No good, but as short as may be.
])
def test_the_next_window_is_as_long_as_the_present_one_was_easy(warm, best, step, length):
    found, longest = followed(warm, window(warm, [0, 0.1, 0.2], best=best, step=step))
    assert found == pytest.approx(length, rel=1e-12)
    assert longest == np.inf


@pytest.mark.parametrize(("longest", "step", "length"), [
    (0.08, 12, 0.088), (0.1, 3, 0.11), (0.11, 3, 0.121),   # A tenth longer each time.
    (0.08, 27, 0.2 / 3), (0.2, 3, 0.15),   # Others are shorter anyway.
    (0.01, 12, 0.8 / 14 / 4),   # It is no shorter than the least.
])
def test_after_one_that_failed_windows_grow_slowly(warm, longest, step, length):
    state = window(warm, [0, 0.1, 0.2], best=0.99e-5, step=step, longest=longest)
    assert followed(warm, state) == pytest.approx((length, 1.1 * longest), rel=1e-12)


def test_after_one_that_was_no_good_they_are_no_longer_than_that_either(warm):
    state = window(warm, [0, 0.1, 0.2], best=1.0, longest=0.05)
    assert followed(warm, state) == pytest.approx((0.055, 0.055), rel=1e-12)


@pytest.mark.parametrize(("times", "end", "longest"), [
    ([0, 0.1, 0.2], 0.15, 0.05),
    ([0, 0.1, 0.12], 0.115, 0.015),   # No shorter than a quarter of a fifteenth of 0.9.
    ([0, 0.1, 0.115], None, None),
    ([0, 0.8], 0.4, 0.4),
])
def test_a_window_that_does_not_reach_the_target_is_made_shorter(warm, times, end, longest):
    state = window(warm, times, best=1.01e-5, longest=0.5)
    shorter = warm._windows.shortened(state)
    if end is None:
        assert shorter is None
    else:
        np.testing.assert_allclose(shorter.times[: len(times)], [*times[:-1], end], rtol=1e-12)
        assert np.isinf(shorter.times[len(times):]).all()
        assert float(shorter.longest) == pytest.approx(longest, rel=1e-12)
    good = dataclasses.replace(state, best=jnp.asarray(0.99e-5))
    assert warm._windows.shortened(good) is None


@pytest.mark.parametrize("warm_start", [True, False])
def test_windows_with_fresh_networks_have_four_times_the_steps(warm_start):
    """And a quarter of those that they take counts: 12 are wanted."""
    some = trainer(**{"training.warm_start": warm_start})
    for times, fresh in (([0, 0.1], True), ([0, 0.1, 0.2], not warm_start)):
        most = 120 if fresh else 30
        for step in (most - 1, most):
            state = window(some, times, best=1e-5, step=step)
            assert some.steps_of(state) == most
            assert some.attempt_ended(state) == (step == most)
        assert some.fraction(window(some, times, step=15)) == pytest.approx(
            times[-2] + 0.1 * 15 / most, rel=1e-12)
        for step, length in ((48, 0.1), (45, 0.1), (12, 0.15), (108, 0.2 / 3)) if fresh else (
                (12, 0.1), (27, 0.2 / 3)):
            state = window(some, times, best=0.99e-5, step=step)
            assert followed(some, state) == (pytest.approx(length, rel=1e-12), np.inf)


# Whole trainings ----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def longer():
    """A training whose windows are easy, and all its progress."""
    easy = trainer(**{"training.window_steps": 4})
    return easy, run(easy)


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
    # All but the last two, which share what is left; a quarter of the first one's steps counts.
    steps = [int(s.step) for s in ends]
    steps[0] = -(-steps[0] // 4)
    expected = np.clip(np.sqrt(4 / np.array(steps[:-3])), 0.5, 1.5)
    assert len(set(expected)) > 1
    np.testing.assert_allclose(np.divide(found[1:-2], found[:-3]), expected, rtol=1e-12)
    edges = np.asarray(last.edges.times)
    assert edges[len(found)] == 1.0
    assert np.isinf(edges[len(found) + 1:]).all()
    assert np.isinf(last.edges.longest)
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


HARD = {"training.windows": 4, "training.window_growth": 0.375, "training.steps": 3,
        "training.window_steps": 3, "training.target": 1e-300}


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("warm_start", [True, False])
def test_a_window_that_fails_is_halved_down_to_the_least_and_accepted(starts, warm_start):
    """The first is 0.64 of the time, and may be a 16th of it: 0.32, 0.16, 0.08, then 0.0625. Those
    after it are the least too: a 12th, and an 8th, of what is left; then all of that."""
    hard = trainer(**HARD, **{"training.starts": starts, "training.start_steps": 2,
                              "training.warm_start": warm_start})
    first = hard.start()
    progress = list(hard.run(first))
    ends = ends_of(progress)
    assert [(int(p.state.stage), p.again) for p in ends] == [
        (0, True), (0, True), (0, True), (0, True), *((k, False) for k in range(4))]
    assert not any(p.stage_ended for p in progress if p.again)
    assert all(p.recorded for p in ends)
    later = 3 if warm_start else 12
    assert [int(p.state.step) for p in ends] == [*[12] * 5, *[later] * 3]
    assert progress[-1].step == 5 * 12 + 3 * later
    edges = progress[-1].state.edges
    np.testing.assert_allclose(edges.times, [0, 0.0625, 0.140625, 0.248046875, 1], rtol=1e-14)
    assert float(edges.longest) == pytest.approx(0.0625 * 1.1**3, rel=1e-14)
    again = hard._begun_again(ends[0].state)
    np.testing.assert_allclose(lengths(hard, again), [lengths(hard, first)[0] / 2])
    np.testing.assert_allclose(again.edges.longest, lengths(hard, again)[0])
    assert (int(again.step), int(again.before), int(again.stage)) == (0, 12, 0)
    # Only the first window, at each try, begins with two steps of several networks.
    begins = [progress[0], *(p for e, p in pairwise(progress) if e.again or e.stage_ended)]
    assert [int(p.state.step) for p in begins] == [2 if starts == 2 else 1] * 5 + [1] * 3


def test_fixed_windows_have_their_starts_each():
    fixed = trainer(**{**HARD, "training.starts": 2, "training.start_steps": 2,
                       "training.window_steps": 0})
    progress = run(fixed)
    assert [(int(p.state.stage), int(p.state.step)) for p in progress] == [
        (k, n) for k in range(4) for n in (2, 3)]


def test_a_window_that_comes_near_its_target_is_tried_again():
    """The first is an eighth of the time; only the target tells its trainings apart."""
    changes = {**HARD, "training.windows": 8, "training.window_growth": 1.0}
    best = float(ends_of(run(trainer(**changes)))[0].state.best)
    for target, again in ((best / 1.01, True), (best * 1.01, False)):
        near = trainer(**{**changes, "training.target": target})
        first, *_ = ends_of(run(near))
        assert (first.again, float(first.state.best)) == (again, best)
    near = trainer(**{**changes, "training.target": best / 1.01})
    np.testing.assert_allclose(lengths(near, near._begun_again(first.state)), [0.0625])


UNEVEN = {"training.windows": 12, "training.window_growth": 0.8, "training.steps": 3,
          "training.window_steps": 2, "training.target": 1e-6}


@pytest.fixture(scope="module")
def uneven():
    """A training whose first window fails twice."""
    return run(trainer(**UNEVEN))


def test_lengths_after_windows_that_failed(uneven):
    ends = ends_of(uneven)
    steps = [1, 2, *[1] * 7, 2, 1]
    assert [(int(p.state.stage), int(p.state.step), p.again) for p in ends] == [
        (0, 12, True), (0, 12, True), (0, 12, False),
        *((k, n, False) for k, n in enumerate(steps, 1))]
    assert [float(p.state.best) < 1e-6 for p in ends] == [False, False, *[True] * 12]
    some, last = trainer(**UNEVEN), uneven[-1].state
    first = lengths(some, some.start())[0] / 4
    # Two steps are wanted, and 12 count as 3: lengths change by the root of 2/3, of 2, of 1; but
    # none is longer than by a tenth each since the failure. The last two share what is left.
    expected = first * np.array([1, (2 / 3)**0.5, (4 / 3)**0.5, (4 / 3)**0.5,
                                 *(1.1 ** np.arange(4, 10))])
    found = lengths(some, last)
    np.testing.assert_allclose(found[:10], expected, rtol=1e-12)
    np.testing.assert_allclose(found[10:], (1 - sum(expected)) / 2, rtol=1e-12)
    longest = [float(p.state.edges.longest) / first for p in ends]
    np.testing.assert_allclose(longest, [np.inf, 2, *(1.1 ** np.arange(12))], rtol=1e-12)


def test_a_window_tried_again_begins_as_the_first_try_did():
    hard = trainer(**HARD, **{"initialisation.source": "none"})
    first = hard.start()
    ended = next(p.state for p in hard.run(first) if p.again)
    same_networks(hard._begun_again(ended).network, first.network)


def test_a_later_window_tried_again_begins_with_the_network_before_it():
    """The first window, an eighth, failed; the second is at the end of its steps."""
    hard = trainer(**{**HARD, "training.windows": 8, "training.window_growth": 1.0})
    first = window(hard, [0, 0.125], longest=0.1)
    other = jax.tree.map(lambda x: x + 1, first.network)
    second = dataclasses.replace(hard.next_stage(first), network=other, best=jnp.asarray(1.0),
                                 step=jnp.asarray(3, jnp.int32))
    assert hard.again(second)
    again = hard._begun_again(second)
    same_networks(again.network, first.network)
    np.testing.assert_allclose(lengths(hard, second), [0.125, 0.11], rtol=1e-12)
    np.testing.assert_allclose(lengths(hard, again), [0.125, 0.055], rtol=1e-12)
    assert float(again.edges.longest) == pytest.approx(0.055, rel=1e-12)
    assert (int(again.stage), int(again.step), int(again.before)) == (1, 0, 33)


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
    assert {a.dtype for a in last.state.edges} == {jnp.dtype(jnp.float32)}
    assert single.stages_of(last.state)[-1].upper[0] == 0.1


def test_a_resumed_training_is_the_same_to_the_last_bit(uneven, tmp_path):
    """From every call's state, windows tried again and their last steps among them."""
    expected = checkpoints.named_arrays(uneven[-1].state)
    for p in uneven[:-1]:
        path = checkpoints.save(tmp_path, p.step, p.state, {}, keep=2)
        other = trainer(**UNEVEN)
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
