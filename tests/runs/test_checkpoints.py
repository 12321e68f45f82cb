import errno
import os
import warnings

import numpy as np
import pytest

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
