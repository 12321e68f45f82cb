"""The problems that can be named on the command line: one file each."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from piratenets.errors import InputError, StorageError, unknown_name
from piratenets.problems import allen_cahn, cavity, ginzburg_landau, gray_scott, kdv
from piratenets.problems.problem import (
    Condition,
    Exact,
    FiniteElements,
    Interval,
    Problem,
    Spectral,
    boundary,
    data,
    initial,
    interior,
    periodic,
)
from piratenets.problems.symmetry import Symmetry

PROBLEMS: dict[str, Problem] = {
    module.problem.name: module.problem
    for module in (allen_cahn, kdv, gray_scott, ginzburg_landau, cavity)
}
"""The benchmarks."""

VARIANTS: dict[str, Problem] = {"gray-scott-to-2": gray_scott.gray_scott(2.0)}
"""Benchmarks in other settings, with the presets (and the name) of the benchmark itself."""

BY_NAME = {**PROBLEMS, **VARIANTS}


def find_problem(name: str) -> Problem:
    """The problem of that name, or the `problem` defined in the Python file of that path."""
    if name in BY_NAME:
        return BY_NAME[name]
    if name.endswith(".py"):
        return _from_file(Path(name))
    raise unknown_name("problem", name, BY_NAME)


def _from_file(path: Path) -> Problem:
    if not path.is_file():
        raise StorageError(str(path), "there is no such file", "Give the path of a Python file")
    # By content: the copy that a run keeps is the same problem, and needs no second compilation.
    key = f"piratenets_problem_{hashlib.sha256(path.read_bytes()).hexdigest()}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise InputError(f"{error.filename}, line {error.lineno}",
                             f"it is not Python ({error.msg})", "Mend it there") from error
        sys.modules[key] = module
    problem = getattr(sys.modules[key], "problem", None)
    if not isinstance(problem, Problem):
        raise InputError(str(path), "it defines no `problem`", "End it with problem = Problem(...)")
    return problem


__all__ = [
    "BY_NAME",
    "PROBLEMS",
    "VARIANTS",
    "Condition",
    "Exact",
    "FiniteElements",
    "Interval",
    "Problem",
    "Spectral",
    "Symmetry",
    "boundary",
    "data",
    "find_problem",
    "initial",
    "interior",
    "periodic",
]
