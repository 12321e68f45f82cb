"""A process killed at any moment loses at most the steps since its last checkpoint."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from piratenets.config import to_json
from piratenets.runs import checkpoints
from piratenets.runs.run import Run

from .common import tiny_config, tiny_run

# Trains a run, and kills itself at the n-th time it comes to a certain place.
KILLED = """
import builtins, json, os, signal, sys
from pathlib import Path
from piratenets import files
from piratenets.config import from_json
from piratenets.runs.run import Run

folder, place, when = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seen = 0

def visit(here):
    global seen
    if here == place:
        seen += 1
        if seen == when:
            os.kill(os.getpid(), signal.SIGKILL)

def before(name, function, here):
    def wrapped(*arguments, **options):
        visit(here(*arguments) if callable(here) else here)
        return function(*arguments, **options)
    setattr(os, name, wrapped)

class HalfWritten:
    def __init__(self, file, path): self.file, self.path = file, path
    def __enter__(self): return self
    def __exit__(self, *_): self.file.close()
    def __getattr__(self, name): return getattr(self.file, name)
    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        visit(which(self.path) + "half written")
        self.file.write(content[len(content) // 2 :])

def is_checkpoint(path): return "step-" in str(path)

def which(path): return "final " if "-final" in str(path) else ""

def opened(path, mode="r", *rest, **options):
    file = builtins.open(path, mode, *rest, **options)
    return HalfWritten(file, path) if is_checkpoint(path) and mode == "wb" else file

def descriptor(number):
    link = os.readlink(f"/proc/self/fd/{number}")
    return which(link) + "before fsync" if is_checkpoint(link) else (
        "renamed" if link.endswith("checkpoints") else "")

config = from_json(json.loads((folder / "config-for-test.json").read_text()))
run = Run.create(folder / "run", config)
files.open = opened
before("fsync", os.fsync, descriptor)
before("replace", os.replace,
       lambda source, target: which(target) + "before rename" if is_checkpoint(target) else
       "before the summary" if "summary" in str(target) else "")
run.train(lambda report: visit({"training": "step"}.get(report.phase, report.phase)))
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run = tiny_run(tmp_path_factory.mktemp("whole")).train()
    return checkpoints.named_arrays(run.state)


def killed(folder, place, when):
    """A run whose process was killed there, as one finds it afterwards."""
    config = tiny_config(folder)
    (folder / "config-for-test.json").write_text(json.dumps(to_json(config)))
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), place, str(when)],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Run.open(folder / "run")


@pytest.mark.parametrize(("place", "when"), [
    ("half written", 3), ("before fsync", 4), ("before rename", 2), ("renamed", 5),
    ("step", 1), ("step", 6),
    ("final before rename", 1),
])
def test_a_killed_run_ends_with_the_uninterrupted_parameters(tmp_path, uninterrupted, place, when):
    run = killed(tmp_path, place, when)
    assert run.step < 60
    run.train()
    arrays = checkpoints.named_arrays(run.state)
    assert arrays.keys() == uninterrupted.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, uninterrupted[name], err_msg=name)
    steps = [line["step"] for line in run.directory.read_metrics()]
    assert steps == [7, 14, 21, 28, 35, 42, 49, 56, 60]


def test_a_run_killed_after_its_last_checkpoint_only_lacks_its_summary(tmp_path, uninterrupted):
    run = killed(tmp_path, "before the summary", 1)
    assert run.finished
    assert not run.complete
    assert run.state.optimiser is None
    before = {p: p.read_bytes() for p in run.directory.checkpoints.iterdir()}
    metrics = run.directory.metrics.read_bytes()
    run.train()
    assert run.complete
    assert {p: p.read_bytes() for p in run.directory.checkpoints.iterdir()} == before
    assert run.directory.metrics.read_bytes() == metrics
    arrays = checkpoints.named_arrays(run.state)
    assert any(name.startswith("network.") for name in arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, uninterrupted[name], err_msg=name)
