import errno
import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

from piratenets.cli.main import main
from piratenets.errors import InputError, StorageError
from piratenets.runs import checkpoints
from piratenets.runs.run import Run

from .common import tiny_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("trained")).train()


@pytest.fixture
def saved(trained, tmp_path):
    """Two checkpoints of a trained run, at steps 1 and 2."""
    for step in (1, 2):
        checkpoints.save(tmp_path, step, trained.state, {"step": step}, keep=2)
    return tmp_path


def test_a_checkpoint_is_read_back_to_the_last_bit(trained, saved):
    state, facts = checkpoints.read_newest(saved, trained.trainer.template())
    assert facts == {"step": 2}
    expected = checkpoints.named_arrays(trained.state)
    read = checkpoints.named_arrays(state)
    assert read.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(read[name], expected[name])
        assert read[name].dtype == expected[name].dtype


def test_only_the_newest_are_kept(trained, saved):
    checkpoints.save(saved, 3, trained.state, {}, keep=2)
    assert [p.name for p in checkpoints.saved(saved)] == [
        "step-000000002.safetensors", "step-000000003.safetensors"]


@pytest.mark.parametrize("damage", ["truncated", "bit in an array", "bit in the header", "empty"])
def test_a_damaged_newest_checkpoint_is_set_aside(trained, saved, damage):
    newest = checkpoints.saved(saved)[-1]
    content = bytearray(newest.read_bytes())
    match damage:
        case "truncated":
            content = content[: len(content) // 2]
        case "bit in an array":
            content[-5] ^= 1
        case "bit in the header":
            content[content.index(b'"facts"') + 14] ^= 1
        case "empty":
            content = bytearray()
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged.*set aside"):
        _, facts = checkpoints.read_newest(saved, trained.trainer.template())
    assert facts == {"step": 1}
    assert newest.with_suffix(".damaged").exists()


def test_every_flipped_byte_is_noticed(trained, saved):
    """A sample of positions over the whole file, header and arrays."""
    path = checkpoints.saved(saved)[-1]
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for position in random.choice(len(whole), 100, replace=False):
        content = bytearray(whole)
        content[position] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
        try:
            state, facts = checkpoints.read(path, trained.trainer.template())
        except (StorageError, InputError):
            continue
        # Only white space that pads the header can change without a consequence.
        assert whole[position : position + 1] == b" "
        assert facts == {"step": 2}
        assert state is not None


def test_a_checkpoint_of_another_network_is_refused(trained, tmp_path):
    other = tiny_run(tmp_path, **{"network.width": 16, "network.embedding.size": 16})
    path = checkpoints.saved(trained.directory.checkpoints)[-1]
    with pytest.raises(InputError, match="another network.*should be float32"):
        checkpoints.read(path, other.trainer.template())


def test_a_full_disk_loses_nothing(trained, saved, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left.*Free some space"):
        checkpoints.save(saved, 3, trained.state, {}, keep=2)
    monkeypatch.undo()
    assert sorted(p.name for p in saved.iterdir()) == [
        "step-000000001.safetensors", "step-000000002.safetensors"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoints.read_newest(saved, trained.trainer.template()) is not None


def test_a_run_whose_disk_fills_goes_on_from_its_last_checkpoint(tmp_path, monkeypatch):
    run = tiny_run(tmp_path)
    real, calls = os.fsync, []

    def full_later(descriptor):
        calls.append(descriptor)
        if len(calls) > 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full_later)
    with pytest.raises(StorageError, match="No space left"):
        run.train()
    monkeypatch.undo()
    again = Run.open(tmp_path / "run")
    assert 0 < again.step < 60
    assert again.train().finished


@pytest.fixture(scope="module")
def broyden(tmp_path_factory):
    """A finished run whose optimiser has a matrix of parameters by parameters."""
    return tiny_run(tmp_path_factory.mktemp("broyden"), **{
        "optimiser.kind": "ssbroyden", "training.precision": "float64", "weighting.kind": "fixed",
        "sampling.batch": 1024, "training.steps": 12, "record.every": 4}).train()


def copied(run, folder):
    shutil.copytree(run.directory.path, folder / "run")
    return folder / "run"


def test_a_finished_run_keeps_nothing_of_its_optimiser(broyden):
    *_, full, final = checkpoints.saved(broyden.directory.checkpoints)
    assert final.name == "step-000000012-final.safetensors"
    names = {n.split(".")[0] for n in safetensors.numpy.load(final.read_bytes())}
    assert "network" in names
    assert not names & {"optimiser", "points"}
    matrix = 8 * sum(p.size for p in jax.tree.leaves(broyden.state.network)) ** 2
    assert final.stat().st_size < matrix / 20
    assert full.stat().st_size > matrix / 2


def test_what_is_left_says_the_same_and_is_not_trained_again(broyden, tmp_path):
    folder = copied(broyden, tmp_path)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    run = Run.open(folder)
    assert run.finished and run.complete
    points = [[0.3, 0.1], [0.9, -0.7]]
    np.testing.assert_array_equal(run.predict(points, ["u.x"]), broyden.predict(points, ["u.x"]))
    assert run.evaluate().relative_l2 == broyden.evaluate().relative_l2
    run.train()
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_a_damaged_last_checkpoint_costs_the_steps_since_the_full_one_before(broyden, tmp_path):
    folder = copied(broyden, tmp_path)
    *_, full, final = checkpoints.saved(folder / "checkpoints")
    whole = final.read_bytes()
    final.write_bytes(whole[:-8] + bytes(8))
    with pytest.warns(UserWarning, match="set aside as step-000000012-final.damaged"):
        run = Run.open(folder)
    assert f"step-{run.step:09d}.safetensors" == full.name
    assert 0 < run.step < 12
    run.train()
    again = safetensors.numpy.load(final.read_bytes())
    for name, array in safetensors.numpy.load(whole).items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_a_finished_run_is_not_gone_on_with_when_its_steps_are_edited(broyden, tmp_path):
    folder = copied(broyden, tmp_path)
    content = json.loads((folder / "config.json").read_text())
    content["config"]["training"]["steps"] = 20
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="keeps nothing of its optimiser"):
        Run.open(folder).train()


def test_a_full_last_checkpoint_is_read_as_well(broyden, tmp_path):
    """As earlier versions wrote it."""
    checkpoints.save(tmp_path, 12, broyden.state, {"step": 12}, keep=2)
    state, _ = checkpoints.read_newest(tmp_path, broyden.trainer.template())
    np.testing.assert_array_equal(state.optimiser.inverse, broyden.state.optimiser.inverse)


def test_what_git_keeps_of_a_run_is_what_reading_it_takes(broyden, tmp_path, monkeypatch):
    """The repository's own .gitignore leaves out all but the files that a clone works with."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "tree"))
    results = tmp_path / "tree" / "results"
    shutil.copytree(broyden.directory.path, results / "heat")
    (results / "heat" / "report.html").write_text("large")
    (results / "heat" / ".summary.json.7.tmp").write_text("half")
    shutil.copy(Path(__file__).parents[2] / ".gitignore", tmp_path / "tree")

    def git(*words):
        return subprocess.run(["git", *words], cwd=tmp_path / "tree", capture_output=True,
                              text=True, check=True).stdout

    git("init")
    git("add", "--all")
    kept = {line.removeprefix("results/heat/") for line in git("ls-files", "results").splitlines()}
    assert kept == {"config.json", "metrics.jsonl", "summary.json", "problem.py",
                    "checkpoints/step-000000012-final.safetensors"}

    git("checkout-index", "--all", f"--prefix={tmp_path / 'clone'}/")
    clone = tmp_path / "clone" / "results" / "heat"
    before = {p: p.stat().st_mtime_ns for p in clone.rglob("*")}
    np.save(tmp_path / "P.npy", [[0.5, 0.25]])
    assert main(["evaluate", str(clone)]) == 0
    assert main(["predict", str(clone), "--points", str(tmp_path / "P.npy"), "--out",
                 str(tmp_path / "V.npy")]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "V.npy"), broyden.predict([[0.5, 0.25]]))
    # Nothing is written, so a checkout that cannot be written to will do.
    assert {p: p.stat().st_mtime_ns for p in clone.rglob("*")} == before
