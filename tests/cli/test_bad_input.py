"""What bad input gets: value, reason and remedy in a line, an exit code, nothing lost."""

import errno
import os

import numpy as np
import pytest

from piratenets.cli.main import main

from ..runs.common import PROBLEM, TINY, tiny_run

OPTIONS = [word for path, value in TINY.items() for word in (f"--{path}", str(value))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "heat.py").write_text(PROBLEM)
    return folder


def solve(folder, name):
    return ["solve", str(folder / "heat.py"), "--preset", "smoke", "--out", str(folder / name),
            *OPTIONS]


@pytest.fixture(scope="module")
def solved(folder):
    assert main(solve(folder, "run")) == 0
    return folder / "run"


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def refused(capsys):
    """Checks that a command is refused with this code and message, in one line."""
    def check(words, code, message):
        capsys.readouterr()
        assert main(words) == code
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        line = " ".join(said.err.split())
        assert line.startswith("Error: ")
        assert message in line

    return check


def test_a_checkpoint_of_another_network(folder, solved, refused):
    wide = tiny_run(folder, "wide", **{"network.width": 16, "network.embedding.size": 16})
    wide.state = wide.trainer.start()
    other = wide.save()
    newest = sorted((solved / "checkpoints").iterdir())[-1]
    own, before = newest.read_bytes(), contents(folder)
    try:
        newest.write_bytes(other.read_bytes())
        for command in (["resume"], ["evaluate"], ["report"]):
            refused([*command, str(solved)], 2, "it belongs to another network: network.")
    finally:
        newest.write_bytes(own)
    assert contents(folder) == before


def test_a_disk_that_fills_while_saving(folder, refused, monkeypatch):
    real, saves = os.fsync, []

    def full_later(descriptor):
        saves.append("step-" in os.readlink(f"/proc/self/fd/{descriptor}"))
        if sum(saves) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    words = solve(folder, "filled")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_later)
        refused(words, 3, "it cannot be written (No space left on device). Free some space; "
                          "what was saved before is intact.")
    assert len(list((folder / "filled" / "checkpoints").iterdir())) == 2
    assert main(words) == 0


def test_a_disk_that_is_full_for_results(folder, solved, refused, monkeypatch, tmp_path):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    np.save(tmp_path / "P.npy", [[0.5, 0.25]])
    before = contents(folder)
    monkeypatch.setattr(os, "fsync", full)
    for words in (["report", str(solved)],
                  ["reference", str(folder / "heat.py"), "--out", str(tmp_path / "x.npz")],
                  ["predict", str(solved), "--points", str(tmp_path / "P.npy"), "--out",
                   str(tmp_path / "V.npy")]):
        refused(words, 3, "(No space left on device). Free some space")
    assert contents(folder) == before
    assert [p.name for p in tmp_path.iterdir()] == ["P.npy"]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("c.k * u.xx", "c.k * u.zz", "derivative 'zz': coordinate 'z': there is no such name. "
                                 "The names are: t, x."),
    ("c.k * u.xx", "c.nu * u.xx", "coefficient 'nu': there is no such name. The names are: k."),
    ("jnp.sin(jnp.pi * x)", "jnp.log(x)", "condition 'initial' at t = 0, x = -1: [nan]: it is "
                                          "not finite. Mend its function there."),
    ("conditions=[", "conditions=[pn.data([[0.1, 0.2]], [float('nan')]), ",
     "data values, row 0: [nan]: it is not finite. Remove or repair that row."),
    ("conditions=[", "conditions=[pn.data([[0.1, 1.2]], [1.0]), ",
     "row 0: x = 1.2: that is outside the domain [-1, 1]."),
    ('"u"', '"x"', "name 'x' in problem 'heat': coordinates and unknowns need distinct names"),
    ("problem = Problem", "problem = = Problem", "it is not Python (invalid syntax). Mend it"),
    ("problem = Problem", "other = Problem", "it defines no `problem`. End it with problem ="),
])
def test_a_problem_that_cannot_be_one(tmp_path, refused, old, new, message):
    assert PROBLEM.count(old) == 1
    text = "import piratenets as pn\n" + PROBLEM.replace(old, new)
    (tmp_path / "wrong.py").write_text(text)
    refused(["solve", str(tmp_path / "wrong.py"), "--preset", "smoke", "--out",
             str(tmp_path / "run"), *OPTIONS], 2, message)
    assert [p.name for p in tmp_path.iterdir()] == ["wrong.py"]


@pytest.mark.parametrize(("words", "message"), [
    (["cavity", "--coefficients.Re", "-5"], "Re = -5.0: cavity needs it between 0 and 5000."),
    (["cavity", "--coefficients.Re", "9000"], "Re = 9000.0: cavity needs it between 0 and 5000."),
    (["kdv", "--coefficients.mu", "0"], "mu = 0.0: kdv needs it between 0 and inf. Its usual "
                                        "value is 0.022."),
    (["gray-scott", "--training.windows", "300"], "training.windows = 300: the reference of "
     "gray-scott is stored at 101 times: some windows would have none to be scored at. Use at "
     "most 100."),
])
def test_what_a_benchmark_cannot_have(tmp_path, refused, words, message):
    refused(["solve", *words, "--preset", "smoke", "--out", str(tmp_path / "run")], 2, message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "message"), [
    ("t,x\n0.5,abc\n", "it is not a table of numbers (could not convert string 'abc'"),
    ("x,t\n0.25,0.5\n", "columns x, t: they come in another order. Order them t, x."),
    ("0.5,0.25\n0.5\n", "it is not a table of numbers (the number of columns changed"),
    ("", "it is not a table of numbers (it has no rows). Give one row a point, numbers only."),
    ("t,x\n0.5,\n", "it is not a table of numbers"),
    ("0.5,nan\n", "it is not finite. Remove or repair that row."),
])
def test_points_that_are_no_table(solved, tmp_path, refused, content, message):
    (tmp_path / "P.csv").write_text(content)
    refused(["predict", str(solved), "--points", str(tmp_path / "P.csv"), "--out",
             str(tmp_path / "V.csv")], 2, message)
    assert not (tmp_path / "V.csv").exists()


def test_a_reference_that_does_not_converge(tmp_path, refused):
    text = PROBLEM.replace("u.t - c.k * u.xx", "u.t + u * u.x - 0.2 * c.k * u.xx")
    (tmp_path / "shock.py").write_text(text)
    refused(["reference", str(tmp_path / "shock.py"), "--out", str(tmp_path / "x.npz")], 5,
            "above the tolerance 1.0e-02. Raise `modes` or `steps` in its Spectral(...)")
    assert not (tmp_path / "x.npz").exists()
