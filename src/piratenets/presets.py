"""Presets: the configurations that have a name.

`smoke` shows that everything works, in under a minute; its error means nothing.
`laptop` is what to use on a few cores.
`paper` is the paper's table of hyper-parameters for its five benchmarks, for an accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from piratenets.config import Config, changed
from piratenets.errors import InputError, unknown_name
from piratenets.problems import find_problem
from piratenets.problems.problem import Problem

PRESETS = ("smoke", "laptop", "paper")

SMOKE: dict[str, Any] = {
    "network.layers": 3,
    "network.width": 32,
    "network.embedding.size": 32,
    "network.embedding.scale": 1.0,
    "initialisation.grid": 64,
    "sampling.batch": 256,
    "sampling.grid": 32,
    "weighting.chunks": 8,
    "weighting.update_every": 100,
    "optimiser.warmup_steps": 100,
    "optimiser.decay_steps": 200,
    "training.steps": 500,
    "record.every": 50,
    "record.error_points": 1024,
}

LAPTOP: dict[str, Any] = {
    "network.layers": 3,
    "network.width": 64,
    "network.embedding.size": 64,
    "sampling.batch": 1024,
    "weighting.chunks": 16,
    "weighting.update_every": 500,
    "optimiser.learning_rate": 2e-3,
    "optimiser.warmup_steps": 500,
    "optimiser.decay_steps": 1500,
    "training.steps": 30_000,
}

# The rows of the paper's tables that differ from the defaults of `Config`.
PAPER: dict[str, dict[str, Any]] = {
    "allen-cahn": {
        "network.embedding.scale": 2.0,
        "optimiser.decay_steps": 5000,
        "training.steps": 300_000,
        "sampling.batch": 8192,
        "weighting.kind": "ntk",
        "weighting.tolerance": 1.0,
        "weighting.chunks": 32,
    },
}


def preset(name: str, problem: str | Problem) -> Config:
    """The configuration of that name for a problem."""
    found = find_problem(problem) if isinstance(problem, str) else problem
    known = problem if isinstance(problem, str) else problem.name
    changes = _changes(name, found)
    base: dict[str, Any] = {"problem": known, "preset": name,
                            "coefficients": dict(found.coefficients)}
    if found.initial is None:
        base["initialisation.source"] = "none"
    if found.time is None:
        base["weighting.causal"] = False
    return changed(Config(), {**base, **changes})


def _changes(name: str, problem: Problem) -> Mapping[str, Any]:
    match name:
        case "smoke":
            return SMOKE
        case "laptop":
            return LAPTOP
        case "paper":
            if problem.name not in PAPER:
                raise InputError(f"preset 'paper' for {problem.name}",
                                 "the paper has no such benchmark", "Use smoke or laptop")
            return PAPER[problem.name]
        case _:
            raise unknown_name("preset", name, PRESETS)
