"""A run whose windows choose their own lengths: trained, killed, resumed, scored, reported."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from piratenets.cli.main import main
from piratenets.errors import InputError
from piratenets.report.report import write_report
from piratenets.report.table import markdown
from piratenets.runs import checkpoints
from piratenets.runs.run import Run
from piratenets.training.solution import Solution
from piratenets.training.state import Edges

from .common import tiny_run

AUTOMATIC = {
    "network.kind": "mlp", "network.layers": 2, "network.embedding.kind": "none",
    "sampling.batch": 256,
    "weighting.kind": "fixed", "weighting.causal": False, "optimiser.kind": "lm",
    "training.precision": "float64", "training.stretch": True, "training.windows": 8,
    "training.window_growth": 0.5, "training.window_steps": 3, "training.steps": 3,
    "training.target": 1.5e-5}


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("automatic"), **AUTOMATIC).train()


def metrics(run):
    return [{k: v for k, v in line.items() if k != "seconds"}
            for line in run.directory.read_metrics()]


def test_the_run_is_whole_and_scored_window_by_window(whole):
    stages = whole.stages
    summary = json.loads(whole.directory.summary.read_text())
    assert summary["finished"]
    assert whole.stages[-1].upper[0] == 1.0
    assert 1 < len(stages) < 8
    assert [s["stage"] for s in summary["stages"]] == [s.label for s in stages]
    # One verdict, and one fit, for each window that was kept.
    assert [t["stage"] for t in summary["trust"]] == [s.label for s in stages]
    assert [f["stage"] for f in summary["initialisation"]] == list(range(len(stages)))
    assert np.isfinite(whole.predict([[1.0, 0.0]])).all()
    assert Run.open(whole.directory.path).complete


def test_a_window_made_shorter_shows_in_the_metrics(whole):
    first = [line["end"] for line in metrics(whole) if line["stage"] == 0]
    assert first == sorted(first, reverse=True)
    assert first[-1] < first[0]
    ends = {line["stage"]: line["end"] for line in metrics(whole)}
    assert list(ends.values()) == [s.upper[0] for s in whole.stages]


@pytest.mark.parametrize("step", [5, 12, 13, 30])
def test_a_killed_run_goes_on_to_the_last_bit(whole, tmp_path, step):
    def observe(report):
        if report.phase == "training" and report.step >= step:
            raise Killed

    killed = tiny_run(tmp_path, **AUTOMATIC)
    with pytest.raises(Killed):
        killed.train(observe)
    again = Run.open(tmp_path / "run")
    assert 0 < again.trainer.fraction(again.state) < 1
    text = write_report(again).read_text()
    assert f"{again.step} steps are done, in window " in text
    assert "of 8 at most (t in [" in text
    again.train()
    expected = checkpoints.named_arrays(whole.state)
    for name, array in checkpoints.named_arrays(again.state).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert again.facts["fits"] == whole.facts["fits"]
    assert again.facts["trust"] == whole.facts["trust"]
    assert metrics(again)[-1] == metrics(whole)[-1]


def test_what_reads_a_run_reads_this_one(whole, capsys):
    content = write_report(whole).read_text()
    for stage in whole.stages:
        assert f"<td>{stage.label}</td>" in content
    assert "not trained yet" not in content
    assert f"in each of {len(whole.stages)} windows" in markdown(whole.directory.path.parent)
    assert main(["evaluate", str(whole.directory.path)]) == 0
    assert main(["resume", str(whole.directory.path)]) == 0
    assert whole.stages[-1].label in capsys.readouterr().out


# The last checkpoint ------------------------------------------------------------------------------

def arrays_of(path):
    return safetensors.numpy.load(path.read_bytes())


def with_room(state):
    """A finished state as a checkpoint that keeps room for all windows has it."""
    return dataclasses.replace(state, optimiser=None, points={})


def test_the_last_checkpoint_has_no_room_for_windows_that_were_not_begun(whole, tmp_path):
    *_, path = checkpoints.saved(whole.directory.checkpoints)
    assert path.stem.endswith("-final")
    _, facts = checkpoints.read(path, whole.trainer.template())
    roomy = checkpoints.save(tmp_path, whole.step, with_room(whole.state), facts, keep=1)
    small, large = arrays_of(path), arrays_of(roomy)
    assert small.keys() == large.keys()
    count = len(whole.stages)
    for name, array in large.items():
        if name.startswith("finished."):
            assert (len(small[name]), len(array)) == (count - 1, 7)
            array = array[: count - 1]
        np.testing.assert_array_equal(small[name], array, err_msg=name)
    spared = sum(a.nbytes for a in large.values()) - sum(a.nbytes for a in small.values())
    assert spared == (8 - count) * sum(p.nbytes for p in jax.tree.leaves(whole.state.network))
    assert path.stat().st_size < roomy.stat().st_size


def test_what_the_last_checkpoint_keeps_gives_the_same_values(whole, tmp_path):
    """Read with or without room, as earlier versions wrote it."""
    path = checkpoints.saved(whole.directory.checkpoints)[-1]
    roomy = checkpoints.save(tmp_path, whole.step, with_room(whole.state), {}, keep=1)
    count, expected = len(whole.stages), checkpoints.named_arrays(with_room(whole.state))
    middles = [(s.lower[0] + s.upper[0]) / 2 for s in whole.stages]
    points = np.array([[t, x] for t in (0.0, *middles, 1.0) for x in (-0.9, 0.2)])
    wanted = [(0, 0), (1, 0), (0, 2)]
    values = whole.solution().derivatives(points, wanted)
    for file in (path, roomy):
        state, _ = checkpoints.read(file, whole.trainer.template())
        read = checkpoints.named_arrays(state)
        assert read.keys() == expected.keys()
        for name, array in expected.items():
            there = slice(0, count - 1) if name.startswith("finished.") else ...
            np.testing.assert_array_equal(read[name][there], array[there], err_msg=name)
            assert (read[name].shape, read[name].dtype) == (array.shape, array.dtype)
        solution = Solution(whole.problem, whole.trainer.stages_of(state), state)
        np.testing.assert_array_equal(solution.derivatives(points, wanted), values)
    opened = Run.open(whole.directory.path)
    np.testing.assert_array_equal(opened.predict(points), whole.predict(points))
    assert opened.evaluate().relative_l2 == whole.evaluate().relative_l2


def test_a_single_window_that_took_all_of_the_time(whole, tmp_path):
    first = whole.trainer.start()
    state = dataclasses.replace(first, edges=Edges(first.edges.times.at[1].set(1.0),
                                                   jnp.asarray(np.inf)))
    path = checkpoints.save_final(tmp_path, 0, state, {}, keep=1)
    assert {len(a) for n, a in arrays_of(path).items() if n.startswith("finished.")} == {0}
    read, _ = checkpoints.read(path, whole.trainer.template())
    assert {len(p) for p in jax.tree.leaves(read.finished)} == {7}
    points = np.array([[0.0, 0.3], [1.0, 0.3]])
    values = [Solution(whole.problem, whole.trainer.stages_of(s), s)(points) for s in (state, read)]
    np.testing.assert_array_equal(*values)


FIXED = {**AUTOMATIC, "training.window_steps": 0, "training.windows": 3, "training.target": 0.0}


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("fixed"), **FIXED).train()


def test_the_last_checkpoint_of_fixed_windows_has_all_of_them(fixed):
    path = checkpoints.saved(fixed.directory.checkpoints)[-1]
    found, expected = arrays_of(path), checkpoints.named_arrays(with_room(fixed.state))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    # Wherever such a training is, it keeps the room that it has.
    early = checkpoints.without_workings(fixed.trainer.start())
    assert {len(p) for p in jax.tree.leaves(early.finished)} == {2}
    assert Run.open(fixed.directory.path).complete


@pytest.mark.parametrize("windows", [2, 4])
def test_a_checkpoint_of_another_number_of_fixed_windows_is_refused(fixed, tmp_path, windows):
    shutil.copytree(fixed.directory.path, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    content = json.loads(file.read_text())
    content["config"]["training"]["windows"] = windows
    file.write_text(json.dumps(content))
    message = rf"float64 \({windows - 1}, .* the file has float64 \(2, "
    with pytest.raises(InputError, match=message):
        Run.open(tmp_path / "run")


def test_a_checkpoint_of_another_most_windows_is_refused(whole, tmp_path):
    other = tiny_run(tmp_path, **{**AUTOMATIC, "training.windows": 7})
    path = checkpoints.saved(whole.directory.checkpoints)[-1]
    message = r"edges.times should be float64 \(8,\), the file has float64 \(9,\)"
    with pytest.raises(InputError, match=message):
        checkpoints.read(path, other.trainer.template())
