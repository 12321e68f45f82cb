"""Time windows and a curriculum: one field, resumed where it stopped, scored stage by stage."""

import json

import numpy as np
import pytest

from piratenets.errors import InputError, UnknownName
from piratenets.report.report import write_report
from piratenets.runs import checkpoints
from piratenets.runs.evaluation import relative_l2
from piratenets.runs.run import Run

from .common import tiny_run

WINDOWS = {"training.windows": 3, "training.steps": 20}
CURRICULUM = {"curriculum": {"coefficient": "k", "values": (0.01, 0.02), "steps": (14, 20)},
              "coefficients.k": 0.05}


class Killed(Exception):
    pass


def killed_at(step):
    """An observer that stops a run the hard way."""
    def observe(report):
        if report.phase == "training" and report.step >= step:
            raise Killed

    return observe


@pytest.fixture(scope="module", params=["windows", "curriculum"])
def whole(request, tmp_path_factory):
    changes = WINDOWS if request.param == "windows" else CURRICULUM
    return tiny_run(tmp_path_factory.mktemp(request.param), **changes).train(), changes


def test_a_run_killed_in_a_later_stage_goes_on_there(whole, tmp_path):
    run, changes = whole
    killed = tiny_run(tmp_path, **changes)
    with pytest.raises(Killed):
        killed.train(killed_at(30))
    again = Run.open(tmp_path / "run")
    assert int(again.state.stage) == 1
    assert int(again.state.step) > 0
    again.train()
    expected = checkpoints.named_arrays(run.state)
    for name, array in checkpoints.named_arrays(again.state).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert again.facts["fits"] == run.facts["fits"]
    assert again.facts["stages"] == run.facts["stages"]


def test_windows_are_one_field_that_is_continuous_at_their_edges(tmp_path):
    run = tiny_run(tmp_path, **{**WINDOWS, "initialisation.grid": 32, "network.width": 16,
                                "network.embedding.size": 16}).train()
    x = np.linspace(-1, 1, 20, endpoint=False)
    for edge in (1 / 3, 2 / 3):
        before, after = (run.predict(np.stack([np.full(20, t), x], axis=1))
                         for t in (edge - 1e-6, edge + 1e-6))
        # The later window is initialised at the earlier one's end and hardly trained.
        assert relative_l2(after, before) < 0.2
    everywhere = run.predict(np.stack([np.linspace(0, 1, 50), np.zeros(50)], axis=1))
    assert np.isfinite(everywhere).all()


def test_window_errors_are_reported_alone_and_together(tmp_path):
    run = tiny_run(tmp_path, **WINDOWS).train()
    summary = json.loads(run.directory.summary.read_text())
    assert [s["stage"] for s in summary["stages"]] == [
        "t in [0, 0.333333]", "t in [0.333333, 0.666667]", "t in [0.666667, 1]"]
    assert summary["stages"][0]["cumulative"] == summary["stages"][0]["relative_l2"]
    assert summary["stages"][-1]["cumulative"]["u"] == pytest.approx(summary["relative_l2"]["u"])
    # By hand for the second window: times 0.4, 0.5 and 0.6 of the reference's 0, 0.1 ... 1.
    reference = run.reference
    t, x = reference.coordinates["t"], reference.coordinates["x"]
    points = np.stack([a.ravel() for a in np.meshgrid(t[4:7], x, indexing="ij")], axis=1)
    by_hand = relative_l2(run.predict(points)[:, 0], reference.values["u"][4:7].ravel())
    assert summary["stages"][1]["relative_l2"]["u"] == pytest.approx(by_hand, rel=1e-12)


def test_a_half_trained_run_answers_only_for_the_times_it_knows(tmp_path):
    run = tiny_run(tmp_path, **WINDOWS)
    with pytest.raises(Killed):
        run.train(killed_at(25))
    half = Run.open(tmp_path / "run")
    assert half.solution().end == pytest.approx(2 / 3)
    assert np.isfinite(half.predict([[0.6, 0.0]])).all()
    with pytest.raises(InputError, match="trained to t = 0.666667 so far"):
        half.predict([[0.9, 0.0]])
    assert "up to t = 0.666667" in half.evaluate().compared


def test_a_curriculum_reports_each_stage_against_its_own_reference(tmp_path):
    run = tiny_run(tmp_path, **CURRICULUM).train()
    summary = json.loads(run.directory.summary.read_text())
    assert [s["stage"] for s in summary["stages"]] == ["k = 0.01", "k = 0.02", "k = 0.05"]
    assert summary["steps"] == 14 + 20 + 20
    assert summary["stages"][-1]["relative_l2"] == summary["relative_l2"]
    exact = np.exp(-0.05 * np.pi**2 * run.reference.coordinates["t"])
    np.testing.assert_allclose(run.reference.values["u"][:, 12], exact, atol=1e-8)


def test_a_curriculum_compiles_once(tmp_path):
    from piratenets.training.loop import _advance_compiled as advance
    run = tiny_run(tmp_path, **CURRICULUM)
    before = advance._cache_size()
    run.train()
    assert advance._cache_size() <= before + 1


@pytest.mark.parametrize(("changes", "message"), [
    ({"training.windows": 2, **CURRICULUM}, "cannot be combined"),
    ({"curriculum": {"coefficient": "nu", "values": (1.0,), "steps": (5,)}}, "The names are: k"),
    ({"curriculum": {"coefficient": "k", "values": (0.01, 0.04, 0.02), "steps": (5, 5, 5)},
      "coefficients.k": 0.03}, "neither rise nor fall"),
    ({"curriculum": {"coefficient": "k", "values": (0.01,), "steps": (5, 5)}}, "Give as many"),
])
def test_stages_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises((InputError, UnknownName), match=message):
        tiny_run(tmp_path, **changes)
    assert not (tmp_path / "run").exists()


def test_a_window_between_two_times_of_the_reference_has_no_error_of_its_own(tmp_path):
    """Lengths 1, 2, 4 ... 128 of 255, the reference stored at every tenth of the whole."""
    run = tiny_run(tmp_path, **{"training.windows": 8, "training.window_growth": 2.0,
                                "training.steps": 2}).train()
    stages = json.loads(run.directory.summary.read_text())["stages"]
    own = [s["relative_l2"] for s in stages]
    assert [bool(e) for e in own] == [True, False, False, False, True, True, True, True]
    assert all(s["cumulative"] for s in stages)
    write_report(run)
    assert "not available" in run.directory.report.read_text()
