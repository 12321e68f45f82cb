"""A run's directory: who may write to it, and what it is when something was stopped half way."""

import errno
import json
import os
import subprocess
import sys

import pytest

from piratenets.errors import InputError, StorageError
from piratenets.files import write_atomically
from piratenets.runs.directory import RunDirectory
from piratenets.runs.run import Run

from .common import PROBLEM, tiny_config, tiny_run


def test_a_second_process_may_not_train_in_it(tmp_path):
    run = tiny_run(tmp_path)
    code = ("import fcntl, sys, time\n"
            f"file = open({str(run.directory.path / '.lock')!r}, 'w')\n"
            "fcntl.flock(file, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()\n")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match="another process is training in it. Wait for it"):
            run.train()
        assert run.state is None
        other.communicate("")
    with run.directory.locked():
        pass


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    run = tiny_run(tmp_path)
    half = [run.directory.path / ".metrics.jsonl.17.tmp",
            run.directory.checkpoints / ".step-000000007.safetensors.17.tmp"]
    kept = [run.directory.path / "notes.txt", run.directory.checkpoints / "step.damaged"]
    for path in half + kept:
        path.write_text("half")
    with run.directory.locked():
        assert [p.exists() for p in half + kept] == [False, False, True, True]


def test_a_disk_that_is_full_from_the_start_can_be_freed(tmp_path, monkeypatch):
    """The same command is answered as it would have been."""
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    for failing in ("problem.py", "config.json"):
        def full_later(descriptor, name=failing):
            if name in os.readlink(f"/proc/self/fd/{descriptor}"):
                full(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full_later)
            with pytest.raises(StorageError, match="No space left.*Free some space"):
                tiny_run(tmp_path, failing)
        assert not (tmp_path / failing / "config.json").exists()
        run = tiny_run(tmp_path, failing)
        assert (run.directory.problem.read_text(), run.step) == (PROBLEM, 0)


@pytest.mark.parametrize("name", ["a.txt", "problem.py", ".hidden", "checkpoints/step-1"])
def test_a_directory_that_holds_something_else_is_left_alone(tmp_path, name):
    other = tmp_path / "run" / name
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    with pytest.raises(InputError, match=rf"it holds other files \({name.split('/')[0]}\)"):
        tiny_run(tmp_path)
    assert other.read_text() == "mine"
    assert [p for p in (tmp_path / "run").rglob("*") if p.is_file()] == [other]


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises((InputError, StorageError), match=r"run: it (is a file|cannot be read)"):
        tiny_run(tmp_path)
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.parametrize(("content", "message"), [
    ("", "it is not JSON"), ("[1, 2]", "it holds no configuration"), ("{}", "no configuration"),
    ('{"config": {"network": {"widht": 3}}}', "Did you mean 'network.width'"),
])
def test_a_configuration_that_cannot_be_read(tmp_path, content, message):
    run = tiny_run(tmp_path)
    run.directory.config.write_text(content)
    with pytest.raises(Exception, match=message) as caught:
        Run.open(tmp_path / "run")
    assert caught.value.exit_code in (2, 3)


def test_a_line_of_metrics_that_was_cut_off_is_left_out(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in (10, 20, 30):
        directory.append_metrics({"step": step})
    with open(directory.metrics, "a") as file:
        file.write('{"step": 4')
    assert [line["step"] for line in directory.read_metrics()] == [10, 20, 30]
    directory.cut_metrics(20)
    assert directory.metrics.read_text() == '{"step": 10}\n{"step": 20}\n'


def test_ctrl_c_leaves_no_half_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    path.write_text("whole")

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("summary.json", "whole")]


def test_the_configuration_says_what_the_numbers_depend_on(tmp_path):
    run = tiny_run(tmp_path)
    written = json.loads(run.directory.config.read_text())
    assert written["versions"].keys() >= {"piratenets", "jax", "numpy"}
    assert written["machine"].endswith(f"{len(os.sched_getaffinity(0))} cores")
    assert written["config"]["training"]["steps"] == 60
    assert run.directory.read_config() == tiny_config(tmp_path)
