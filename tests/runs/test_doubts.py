"""A run says what fresh points make of it, stage by stage."""

import json

import pytest

from piratenets.report.report import write_report

from .common import tiny_run

FEW = {"optimiser.kind": "lm", "training.precision": "float64", "weighting.causal": False,
       "weighting.kind": "fixed", "sampling.batch": 16, "sampling.grid": 8, "sampling.redraw": 100,
       "training.steps": 40}


def test_as_many_points_as_a_second_order_method_can_fit_are_not_enough(tmp_path):
    """24 residuals for some 420 parameters: the training sees its points solved, and the run says
    before and after that this means nothing."""
    run = tiny_run(tmp_path, **FEW)
    with pytest.warns(UserWarning, match=r"24 residuals for 4\d\d parameters: lm can fit"):
        run.train()
    summary = json.loads(run.directory.summary.read_text())
    (stage,) = summary["trust"]
    assert stage["trained_residual"]["pde"] < 1e-8
    assert stage["fresh_residual"]["pde"] > 1e4 * stage["trained_residual"]["pde"]
    assert any("does not hold between its points" in d for d in summary["doubts"])
    assert summary["doubts"] == run.doubts
    write_report(run)
    assert "does not hold between its points" in run.directory.report.read_text()


def test_enough_points_leave_nothing_to_doubt(tmp_path):
    run = tiny_run(tmp_path, **{**FEW, "sampling.batch": 1024, "sampling.redraw": 5,
                                "training.windows": 2}).train()
    assert [s["stage"] for s in run.facts["trust"]] == ["t in [0, 0.5]", "t in [0.5, 1]"]
    assert all(s["defect"] < 1e-2 for s in run.facts["trust"])
    assert run.doubts == []
    write_report(run)
    assert "Nothing speaks against the solution" in run.directory.report.read_text()
