"""All five benchmarks, from solve to report, as their smoke presets have them."""

import json

import numpy as np
import pytest

from piratenets.cli.main import main
from piratenets.problems import PROBLEMS


@pytest.mark.parametrize("name", PROBLEMS)
def test_solve_evaluate_report_and_predict(name, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["solve", name, "--preset", "smoke", "--out", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    problem = PROBLEMS[name]
    assert summary["finished"] is True
    assert summary["relative_l2"].keys() == {*problem.unknowns, *problem.measures}
    assert all(0 < e < 2 for e in summary["relative_l2"].values())
    assert summary["reference_error"] <= (1e-4 if name == "cavity" else 1e-6)
    # Compilation and training; the references' cache may be cold.
    assert summary["wall_seconds"] < 60

    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    said = capsys.readouterr().out
    assert all(f"{e:.6e}" in said for e in summary["relative_l2"].values())
    assert main(["report", str(run)]) == 0

    points = (problem.lower + problem.upper)[None, :] / 2 + np.zeros((3, 1))
    np.save(tmp_path / "P.npy", points)
    derivative = f"{problem.unknowns[0]}.{problem.names[-1]}"
    assert main(["predict", str(run), "--points", str(tmp_path / "P.npy"), "--out",
                 str(tmp_path / "V.npy"), "--derivatives", derivative]) == 0
    values = np.load(tmp_path / "V.npy")
    assert values.shape == (3, len(problem.unknowns) + 1)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values[0], values[1])
