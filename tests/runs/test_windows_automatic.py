"""A run whose windows choose their own lengths: trained, killed, resumed, scored, reported."""

import json

import numpy as np
import pytest

from piratenets.cli.main import main
from piratenets.report.report import write_report
from piratenets.report.table import markdown
from piratenets.runs import checkpoints
from piratenets.runs.run import Run

from .common import tiny_run

AUTOMATIC = {
    "network.kind": "mlp", "network.layers": 2, "network.embedding.kind": "none",
    "sampling.batch": 256,
    "weighting.kind": "fixed", "weighting.causal": False, "optimiser.kind": "lm",
    "training.precision": "float64", "training.stretch": True, "training.windows": 6,
    "training.window_growth": 0.5, "training.window_steps": 6, "training.steps": 8,
    "training.target": 1e-4}


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
    assert 1 < len(stages) <= 6
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


@pytest.mark.parametrize("step", [5, 8, 9, 20])
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
    assert "of 6 at most (t in [" in text
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
