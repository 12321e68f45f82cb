"""The table of results says what the runs' own files say, and what is missing."""

import json
from pathlib import Path

import pytest

from piratenets.config import changed, to_json
from piratenets.errors import InputError
from piratenets.presets import preset
from piratenets.problems import PROBLEMS
from piratenets.report import table
from piratenets.report.published import ERRORS
from piratenets.report.table import COLUMNS, markdown, write_table

from ..runs.common import PROBLEM

SUMMARY = {"relative_l2": {"u": 2e-6}, "reference_error": 1e-8, "parameters": 1402, "steps": 9,
           "wall_seconds": 480.0, "finished": True, "commit": "0123456789abcdef",
           "machine": "Abacus, 2 cores", "stages": [], "until": [], "literature_relative_l2": {}}


def record(results, directory, problem="allen-cahn", *, name="laptop", seed=0, changes=(),
           **summary):
    """The files of a run that was never trained."""
    folder = results / directory
    folder.mkdir(parents=True)
    config = changed(preset(name, problem), {"seed": seed, **dict(changes)})
    (folder / "config.json").write_text(json.dumps({"config": to_json(config)}))
    (folder / "summary.json").write_text(json.dumps({**SUMMARY, **summary}))
    return folder


def rows(results):
    """The table's rows as dicts by column."""
    lines = [line for line in markdown(results).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert tuple(cells[0]) == COLUMNS
    assert all(len(c) == len(COLUMNS) for c in cells)
    return [dict(zip(COLUMNS, c, strict=True)) for c in cells[2:]]


def listed(results):
    page = markdown(results)
    _, _, rest = page.partition("## Directories without a finished run")
    return [line for line in rest.split("##")[0].splitlines() if line.startswith("- ")]


def test_a_run_is_a_row(tmp_path):
    record(tmp_path, "allen-cahn")
    (row,) = rows(tmp_path)
    assert row == {
        "benchmark": "allen-cahn", "compared": "u to t = 1", "ours": "2.00e-06",
        "paper": "2.24e-05",
        "best known": "1.88e-06<br>(self-scaled Broyden, a small network in float64)",
        "reference's own error": "1.00e-08", "failures": "0 of 1", "wall time": "8 min 0 s",
        "machine": "Abacus, 2 cores", "parameters": "1402<br>in each of 5 windows",
        "command": "`piratenets solve allen-cahn --preset laptop --seed 0`",
        "commit": "0123456789ab", "runs": "[allen-cahn](allen-cahn)"}
    assert not listed(tmp_path)


def test_seeds_share_a_row_with_their_median_and_failures(tmp_path):
    for seed, (error, seconds) in enumerate([(4e-6, 400.0), (0.38, 500.0), (2e-6, 450.0)]):
        record(tmp_path, f"allen-cahn-seed-{seed}", seed=seed, relative_l2={"u": error},
               wall_seconds=seconds, doubts=["a second solution"] if error > 0.1 else [])
    record(tmp_path, "allen-cahn-seed-3", seed=3, finished=False)
    (row,) = rows(tmp_path)
    assert row["ours"] == "median 4.00e-06 of 4.00e-06, 3.80e-01, 2.00e-06"
    # One ended at another solution, one did not end.
    assert row["failures"] == "2 of 4<br>(1 with doubts)"
    assert row["wall time"] == "7 min 30 s"
    assert row["command"].endswith("--seed 0`<br>and seeds 1, 2")
    assert row["runs"].count("](allen-cahn-seed-") == 3
    assert listed(tmp_path) == ["- `allen-cahn-seed-3`: stopped at step 9"]


def test_windows_that_choose_their_lengths_are_counted_run_by_run(tmp_path):
    """There may be 60 at most."""
    for seed, windows in enumerate((21, 17, 21)):
        record(tmp_path, f"kdv-{seed}", "kdv", seed=seed, stages=[{"stage": ""}] * windows)
    (row,) = rows(tmp_path)
    assert row["parameters"] == "1402<br>in each of 17 or 21 windows"


def test_a_summary_that_does_not_say_which_windows_there_were_is_no_row(tmp_path):
    folder = record(tmp_path, "kdv", "kdv")
    content = {k: v for k, v in SUMMARY.items() if k != "stages"}
    (folder / "summary.json").write_text(json.dumps(content))
    assert listed(tmp_path) == ["- `kdv`: its summary.json says nothing of stages"]


def test_other_configurations_have_rows_of_their_own(tmp_path):
    record(tmp_path, "a")
    record(tmp_path, "b", changes={"network.symmetries": False, "network.width": 20})
    record(tmp_path, "c", name="smoke")
    found = rows(tmp_path)
    assert [r["runs"] for r in found] == ["[a](a)", "[b](b)", "[c](c)"]
    assert found[1]["command"] == ("`piratenets solve allen-cahn --preset laptop --seed 0 "
                                   "--network.width 20 --network.no-symmetries`")
    assert found[2]["benchmark"] == "allen-cahn<br>(smoke test: its error means nothing)"


def test_rows_come_in_the_order_of_the_benchmarks(tmp_path):
    for name in sorted(PROBLEMS):
        quantities = {*PROBLEMS[name].unknowns, *PROBLEMS[name].measures}
        record(tmp_path, name, name, relative_l2=dict.fromkeys(quantities, 1e-3))
    assert [r["benchmark"] for r in rows(tmp_path)] == list(PROBLEMS)
    assert all(r["paper"].replace("<br>", "") or r["benchmark"] == "cavity"
               for r in rows(tmp_path))


def test_an_error_that_the_reference_cannot_tell_from_zero_is_marked(tmp_path):
    record(tmp_path, "a", relative_l2={"u": 1e-6}, reference_error=1e-6)
    assert rows(tmp_path)[0]["ours"] == "≤ 1.00e-06"


def test_the_cavity_has_both_references_and_the_published_figures_at_the_literatures(tmp_path):
    record(tmp_path, "cavity", "cavity", relative_l2={"u": 1e-3, "speed": 2e-3},
           literature_relative_l2={"u": 3e-2, "speed": 4e-2})
    (row,) = rows(tmp_path)
    against = "against the literature's reference"
    assert row["compared"].split("<br>") == ["u", "speed", f"u, {against}", f"speed, {against}"]
    assert row["ours"].split("<br>") == ["1.00e-03", "2.00e-03", "3.00e-02", "4.00e-02"]
    assert row["paper"].split("<br>") == ["", "", "", "4.21e-02"]
    assert row["best known"].split("<br>") == ["", "", "", "1.73e-02"]


def test_published_figures_are_for_the_published_coefficients(tmp_path):
    record(tmp_path, "cavity", "cavity", changes={"coefficients": {"Re": 400.0}},
           literature_relative_l2={"speed": 4e-2})
    assert set(rows(tmp_path)[0]["paper"].split("<br>")) == {""}


def test_gray_scott_beyond_the_benchmark_has_the_error_up_to_both_times(tmp_path):
    record(tmp_path, "gray-scott", "gray-scott", relative_l2={"u": 1e-4, "v": 2e-4})
    record(tmp_path, "longer", "gray-scott-to-2", relative_l2={"u": 1e-3, "v": 2e-3},
           until=[{"t": 1.0, "relative_l2": {"u": 5e-4, "v": 1e-3}}])
    one, two = rows(tmp_path)
    assert one["compared"] == "u to t = 1<br>v to t = 1"
    assert two["benchmark"] == "gray-scott-to-2"
    assert two["compared"].split("<br>") == ["u to t = 1", "v to t = 1", "u to t = 2", "v to t = 2"]
    assert two["ours"].split("<br>") == ["5.00e-04", "1.00e-03", "1.00e-03", "2.00e-03"]
    assert one["paper"] == "3.61e-03<br>9.39e-03"


def test_a_problem_from_a_file_is_solved_again_by_its_copy(tmp_path):
    (tmp_path / "heat.py").write_text(PROBLEM)
    results = tmp_path / "results"
    folder = record(results, "heat", str(tmp_path / "heat.py"))
    (folder / "problem.py").write_text(PROBLEM)
    (row,) = rows(results)
    assert row["benchmark"] == "heat"
    assert row["paper"] == row["best known"] == ""
    assert f"piratenets solve {folder / 'problem.py'} " in row["command"]


def test_directories_without_a_result_are_listed_with_the_reason(tmp_path):
    record(tmp_path, "good")
    (tmp_path / "notes").mkdir()
    (record(tmp_path, "damaged") / "summary.json").write_text("{")
    (record(tmp_path, "old") / "summary.json").write_text(json.dumps({"finished": True}))
    going = record(tmp_path, "going", seed=1)
    (going / "summary.json").unlink()
    (going / "metrics.jsonl").write_text('{"step": 100}\n{"step": 200}\n{"st')
    record(tmp_path, "no-reference", relative_l2={}, reference_error=None)
    reasons = dict(line[3:].split("`: ", 1) for line in listed(tmp_path))
    assert list(reasons) == ["damaged", "going", "no-reference", "notes", "old"]
    assert "not JSON" in reasons["damaged"]
    assert reasons["going"] == "not finished, step 200 so far"
    assert "no reference" in reasons["no-reference"]
    assert "it holds no run" in reasons["notes"]
    assert "nothing of relative_l2" in reasons["old"]
    assert [r["runs"] for r in rows(tmp_path)] == ["[good](good)"]


def test_unfinished_runs_alone_make_a_page_without_a_table(tmp_path):
    record(tmp_path, "a", finished=False)
    assert rows_of(markdown(tmp_path)) == []
    assert "No run is finished yet." in markdown(tmp_path)
    assert listed(tmp_path) == ["- `a`: stopped at step 9"]


def rows_of(page):
    return [line for line in page.splitlines() if line.startswith("|")]


@pytest.mark.parametrize(("folder", "why"), [("empty", "it holds no run"),
                                             ("nowhere", "there is no such directory")])
def test_a_directory_without_runs_is_refused(tmp_path, folder, why):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("an older page")
    with pytest.raises(InputError, match=why):
        write_table(tmp_path / folder)
    assert (tmp_path / "empty" / "README.md").read_text() == "an older page"


def test_the_page_is_written_beside_the_runs_and_says_what_is_kept(tmp_path, monkeypatch):
    record(tmp_path / "results", "allen-cahn")
    monkeypatch.chdir(tmp_path)
    path = write_table(Path("results"))
    assert path == Path("results/README.md")
    page = path.read_text()
    assert page == markdown(Path("results"))
    assert "checkpoints/*-final.safetensors" in page
    assert "`piratenets evaluate results/allen-cahn`" in page
    assert f"whose error is {table.FAILED:g} or more" in page


def test_every_benchmark_has_the_papers_figure():
    assert list(ERRORS) == list(PROBLEMS)
    for name, known in ERRORS.items():
        quantities = {*PROBLEMS[name].unknowns, *PROBLEMS[name].measures}
        assert known.paper.keys() <= quantities
        assert known.literature == (PROBLEMS[name].literature is not None)
        assert all(known.best[q] < known.paper[q] for q in known.best)
