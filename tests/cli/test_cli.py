"""Every command as a user calls it, and what bad input gets."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from piratenets.cli.commands import BenchDerivatives, BenchOptimiser
from piratenets.cli.main import main, parse
from piratenets.presets import preset

from ..runs.common import PROBLEM, TINY

OPTIONS = [word for path, value in TINY.items() for word in (f"--{path}", str(value))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "heat.py").write_text(PROBLEM)
    return folder


@pytest.fixture(scope="module")
def solved(folder):
    assert main(["solve", str(folder / "heat.py"), "--preset", "smoke", "--out",
                 str(folder / "run"), *OPTIONS]) == 0
    return folder / "run"


def test_solve_writes_a_summary_with_all_that_is_promised(solved):
    summary = json.loads((solved / "summary.json").read_text())
    assert {"problem", "preset", "seed", "relative_l2", "reference_error", "parameters", "steps",
            "wall_seconds", "finished", "commit", "machine"} <= summary.keys()
    assert summary["problem"] == "heat"
    assert summary["steps"] == 60
    assert summary["finished"] is True
    # 5 dense layers of 8 x 8 + 8 + 8 (weights, gains, biases), one alpha, 8 weights of the head.
    assert summary["parameters"] == 5 * 80 + 1 + 8
    assert 0 < summary["relative_l2"]["u"] < 1
    assert summary["reference_error"] < 1e-6
    assert (solved / "report.html").stat().st_size > 10_000


def test_metrics_have_a_line_every_few_steps(solved):
    lines = [json.loads(text) for text in (solved / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    for line in lines:
        assert line["losses"].keys() == {"pde", "initial"} == line["weights"].keys()
        assert len(line["causal"]) == 4
        assert line["causal"][0] == 1.0
        assert len(line["alpha"]) == 1
        assert line["gradient_norm"] > 0
        assert line["error"]["u"] > 0
    assert lines[0]["seconds"] < lines[-1]["seconds"]


def test_a_second_solve_and_resume_change_nothing(solved, folder):
    before = {p: p.read_bytes() for p in solved.rglob("*") if p.is_file()}
    assert main(["solve", str(folder / "heat.py"), "--preset", "smoke", "--out", str(solved),
                 *OPTIONS]) == 0
    assert main(["resume", str(solved)]) == 0
    assert {p: p.read_bytes() for p in solved.rglob("*") if p.is_file()} == before


def test_evaluate_says_what_is_compared(solved, capsys):
    assert main(["evaluate", str(solved)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "t: 11 points in [0, 1]; x: 16 points in [-1, 0.875]" in said
    summary = json.loads((solved / "summary.json").read_text())
    assert f"{summary['relative_l2']['u']:.6e}" in said


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_predict_writes_unknowns_then_derivatives(solved, tmp_path, suffix):
    points = np.array([[0.5, 0.25], [0.0, -1.0], [1.0, 1.0]])
    source, target = tmp_path / f"P{suffix}", tmp_path / f"V{suffix}"
    if suffix == ".npy":
        np.save(source, points)
    else:
        np.savetxt(source, points, delimiter=",", header="t,x", comments="")
    assert main(["predict", str(solved), "--points", str(source), "--out", str(target),
                 "--derivatives", "u.x,u.xx"]) == 0
    if suffix == ".npy":
        values = np.load(target)
    else:
        assert target.read_text().splitlines()[0] == "u,u.x,u.xx"
        values = np.loadtxt(target, delimiter=",", skiprows=1)
    assert values.shape == (3, 3)
    from piratenets import load
    step = 1e-2
    near = load(solved).predict([[0.5, 0.25 - step], [0.5, 0.25], [0.5, 0.25 + step]])[:, 0]
    # The network is float32: differences of neighbours give the derivatives to a few digits.
    assert values[0, 0] == pytest.approx(near[1], abs=1e-6)
    assert values[0, 1] == pytest.approx((near[2] - near[0]) / (2 * step), abs=1e-2)
    assert values[0, 2] == pytest.approx((near[2] - 2 * near[1] + near[0]) / step**2, abs=1e-1)


def test_reference_is_an_archive_by_name(folder, tmp_path):
    out = tmp_path / "heat.npz"
    assert main(["reference", str(folder / "heat.py"), "--out", str(out),
                 "--coefficients.k", "0.1"]) == 0
    with np.load(out) as archive:
        t, x, u = archive["t"], archive["x"], archive["u"]
        assert u.shape == (11, 16)
        exact = np.exp(-0.1 * np.pi**2 * t)[:, None] * np.sin(np.pi * x)[None, :]
        np.testing.assert_allclose(u, exact, atol=1e-9)
        assert archive["error"].shape == (1,)


def test_table_writes_a_row_for_each_run_of_a_directory(solved, capsys):
    assert main(["table", str(solved.parent)]) == 0
    page = solved.parent / "README.md"
    assert str(page) in "".join(capsys.readouterr().out.split("\n"))
    summary = json.loads((solved / "summary.json").read_text())
    (row,) = [line for line in page.read_text().splitlines() if line.startswith("| heat")]
    assert f"{summary['relative_l2']['u']:.2e}" in row
    assert f"[{solved.name}]({solved.name})" in row
    page.unlink()


@pytest.mark.parametrize(("words", "expected"), [
    (["bench", "derivatives", "--width", "8", "--orders", "2"], BenchDerivatives(8, orders=(2,))),
    (["bench", "optimiser"], BenchOptimiser()),
    (["bench", "optimiser", "--problem", "kdv", "--preset", "smoke", "--repeats", "3"],
     BenchOptimiser(("kdv",), "smoke", 3)),
])
def test_each_bench_has_its_own_options(words, expected):
    assert parse(words).what == expected


def test_bench_optimiser_measures_the_preset_of_each_problem(monkeypatch):
    asked = []
    monkeypatch.setattr("piratenets.cli.main.bench_optimiser",
                        lambda console, configs, repeats: asked.append((configs, repeats)))
    assert main(["bench", "optimiser", "--repeats", "3"]) == 0
    assert asked == [([preset("laptop", "allen-cahn"), preset("laptop", "kdv")], 3)]


def test_list_names_problems_presets_and_networks(capsys):
    assert main(["list"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for name in ("allen-cahn", "smoke", "laptop", "paper", "pirate", "modified-mlp", "resnet",
                 "chebyshev"):
        assert name in said


@pytest.mark.parametrize(("words", "message"), [
    (["solve", "allen-chan"], "Did you mean 'allen-cahn'"),
    (["solve", "allen-cahn", "--preset", "laptpo"], "Did you mean 'laptop'"),
    (["solve", "allen-cahn", "--network.widht", "3"], "--network.width"),
    (["solve", "allen-cahn", "--network.width", "many"], "--network.width"),
    (["solve", "allen-cahn", "--network.width", "-3"], "it must be positive"),
    (["solve", "allen-cahn", "--network.layers", "4"], "Use a multiple of 3"),
    (["solve", "allen-cahn", "--coefficients.nu", "3"], "--coefficients.epsilon"),
    (["solve", "allen-cahn", "--preset", "smoke", "--weighting.chunks", "7"],
     "does not divide sampling.batch"),
    (["solve", "allen-cahn", "--training.windows", "0"], "it must be positive"),
    (["resume", "nowhere"], "it holds no run"),
    (["table", "nowhere"], "there is no such directory"),
    (["table", "."], "Train one there"),
    (["bench"], "{derivatives, optimiser}"),
    (["bench", "optimiser", "--problem", "allen-chan"], "Did you mean 'allen-cahn'"),
    (["bench", "optimiser", "--repeats", "0"], "Give 1 or more"),
    (["reference", "allen-cahn", "--out", "x.csv"], "End its name in .npz"),
    (["reference", "allen-cahn", "--out", "x.npz", "--coefficients.mu", "1"],
     "--coefficients."),
])
def test_bad_words_get_a_remedy_and_no_traceback(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as stopped:
        code = stopped.code
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert code in (2, 3)
    assert message in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("points", "derivatives", "message"), [
    ([[0.5, 2.0]], "", "row 0: x = 2"),
    ([[0.5, 0.0], [1.5, 0.0]], "", "row 1: t = 1.5"),
    ([[0.5, 0.0, 0.0]], "", "Give an array of shape (n, 2)"),
    ([[0.5, float("nan")]], "", "it is not finite"),
    ([[0.5, 0.0]], "u.z", "The names are: t, x"),
    ([[0.5, 0.0]], "w.x", "the unknowns are u"),
])
def test_bad_points_get_a_remedy(solved, tmp_path, capsys, points, derivatives, message):
    np.save(tmp_path / "P.npy", np.array(points))
    code = main(["predict", str(solved), "--points", str(tmp_path / "P.npy"), "--out",
                 str(tmp_path / "V.npy"), "--derivatives", derivatives])
    assert code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "V.npy").exists()


def test_a_directory_of_another_configuration_is_refused(solved, folder, capsys):
    before = (solved / "config.json").read_bytes()
    code = main(["solve", str(folder / "heat.py"), "--preset", "smoke", "--out", str(solved),
                 *OPTIONS, "--seed", "5"])
    assert code == 2
    assert "seed 0, not 5" in " ".join(capsys.readouterr().err.split())
    assert (solved / "config.json").read_bytes() == before


def test_a_place_that_cannot_be_written_is_said_before_training(folder, capsys):
    code = main(["solve", str(folder / "heat.py"), "--preset", "smoke", "--out",
                 "/proc/no-such-place/run", *OPTIONS])
    assert code == 3
    assert "it cannot be written" in capsys.readouterr().err


def test_divergence_has_its_own_exit_code_and_keeps_the_last_good_state(folder, capsys):
    code = main(["solve", str(folder / "heat.py"), "--preset", "smoke", "--out",
                 str(folder / "diverged"), *OPTIONS, "--optimiser.learning-rate", "1e20",
                 "--optimiser.warmup-steps", "0"])
    said = " ".join(capsys.readouterr().err.split())
    assert code == 4
    assert "step 2: loss term" in said
    assert "step-000000001.safetensors" in said
    assert json.loads((folder / "diverged" / "summary.json").read_text())["finished"] is False


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="allen-chan"):
        main(["solve", "allen-chan", "--debug"])


def test_ctrl_c_saves_and_says_how_to_go_on(folder):
    out = folder / "stopped"
    words = [sys.executable, "-m", "piratenets.cli.main", "solve", str(folder / "heat.py"),
             "--preset", "smoke", "--out", str(out), *OPTIONS, "--training.steps", "100000000",
             "--record.checkpoint-seconds", "1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ)) as process:
        deadline = time.monotonic() + 240
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"piratenets resume {out}" in " ".join(said.split())
    from piratenets import load
    assert load(out).step > 1
    assert json.loads((out / "summary.json").read_text())["finished"] is False
