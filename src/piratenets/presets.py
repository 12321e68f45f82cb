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
from piratenets.problems.problem import TIME, Problem

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

# Second-order training of a small network in float64: see docs/second-order.md.
LAPTOP: dict[str, Any] = {
    "network.layers": 3,
    "network.width": 16,
    "network.embedding.size": 16,
    "network.embedding.scale": 1.0,
    "network.embedding.trainable": True,
    "sampling.batch": 4096,
    "sampling.kind": "sobol",
    "sampling.redraw": 10,
    "sampling.graded": 0.25,
    "weighting.kind": "fixed",
    "weighting.start": {"initial": 100.0, "boundary": 100.0},
    "weighting.causal": False,
    "optimiser.kind": "lm",
    "training.precision": "float64",
    "training.steps": 400,
    "training.patience": 60,
    "record.every": 10,
}

# Short windows in a time of their own, where a problem can be cut into windows.
WINDOWS: dict[str, Any] = {
    "weighting.start": {"initial": 100.0, "pde": 10.0},
    "training.windows": 5,
    "training.stretch": True,
    "training.warm_start": True,
    # A few dozen in most windows; what some need more of, such as an unlucky start, is here.
    "training.steps": 300,
    "training.patience": 60,
    "training.target": 1e-12,
}

# The same with lengths that the windows choose themselves.
AUTOMATIC: dict[str, Any] = {
    "training.window_steps": 20,
    "training.steps": 50,
    "training.start_steps": 25,
    "training.patience": 40,
}

# What a problem adds to the general presets.
PARTICULAR: dict[str, dict[str, dict[str, Any]]] = {
    "allen-cahn": {
        "laptop": {"training.starts": 5, "training.start_steps": 25, "training.patience": 40,
                   "training.target": 1e-11},
    },
    "kdv": {
        "laptop": {**AUTOMATIC, "network.width": 20, "network.embedding.size": 20,
                   "sampling.batch": 6144, "weighting.start": {"initial": 100.0, "pde": 25.0},
                   "training.windows": 60, "training.window_steps": 25,
                   "training.target": 5e-10},
    },
    "gray-scott": {
        "smoke": {"network.activation": "swish", "training.windows": 2, "training.steps": 200},
        # The reactions set in within a thousandth of the whole time. Windows that choose their own
        # lengths end in ever shorter ones here: docs/second-order.md says why.
        "laptop": {"network.activation": "swish", "network.width": 24,
                   "network.embedding.size": 24, "sampling.batch": 8192, "sampling.grid": 48,
                   "weighting.start": {"initial": 100.0, "pde": 1.0},
                   "training.windows": 30, "training.window_growth": 1.1,
                   "training.steps": 80, "training.patience": 40, "training.target": 1e-7},
    },
    "ginzburg-landau": {
        # The symmetry takes four evaluations of the network.
        "smoke": {"network.activation": "swish", "network.symmetries": False,
                  "training.windows": 2, "training.steps": 200,
                  "weighting.start": {"initial": 100.0}},
        # By its symmetry a point stands for four.
        "laptop": {**AUTOMATIC, "network.activation": "swish", "network.width": 20,
                   "network.embedding.size": 20, "network.embedding.scale": 2.0,
                   "sampling.batch": 4096, "sampling.grid": 40,
                   "weighting.start": {"initial": 1000.0, "pde": 10.0},
                   "training.windows": 60, "training.window_steps": 25,
                   "training.starts": 4, "training.target": 5e-7},
    },
    "cavity": {
        "smoke": {"weighting.start": {"boundary": 100.0, "pde.continuity": 10.0},
                  "curriculum": {"coefficient": "Re", "values": (100.0, 400.0),
                                 "steps": (200, 200)},
                  "coefficients": {"Re": 400.0}},
        "laptop": {"weighting.start": {"boundary": 100.0, "pde.continuity": 10.0},
                   "network.kind": "mlp", "network.layers": 4, "network.width": 32,
                   "network.embedding.size": 32, "network.embedding.scale": 2.0,
                   "sampling.batch": 8192, "sampling.redraw": 5,
                   # The loss jumps at each redraw: what it was before says nothing of progress.
                   "training.patience": 0,
                   "curriculum": {"coefficient": "Re",
                                  "values": (100.0, 400.0, 1000.0, 1600.0, 3200.0),
                                  "steps": (30, 40, 50, 50, 200)}},
    },
}

# The rows of the paper's tables that differ from the defaults of `Config`.
PAPER: dict[str, dict[str, Any]] = {
    "allen-cahn": {
        "network.symmetries": False,
        "network.shapes": False,
        "network.embedding.scale": 2.0,
        "optimiser.decay_steps": 5000,
        "training.steps": 300_000,
        "sampling.batch": 8192,
        "weighting.kind": "ntk",
        "weighting.tolerance": 1.0,
        "weighting.chunks": 32,
    },
    "kdv": {
        "network.embedding.scale": 1.0,
        "optimiser.decay_steps": 2000,
        "training.steps": 200_000,
        "sampling.batch": 4096,
        "weighting.kind": "grad-norm",
        # Other published settings for this benchmark have 0.1.
        "weighting.tolerance": 1.0,
        "weighting.chunks": 16,
    },
    "gray-scott": {
        "network.activation": "swish",
        "network.embedding.scale": 1.0,
        "network.factorization_mean": 0.5,
        "optimiser.decay_steps": 2000,
        "training.windows": 10,
        "training.steps": 100_000,
        "sampling.batch": 4096,
        "sampling.grid": 100,
        "weighting.kind": "grad-norm",
        "weighting.tolerance": 1.0,
        "weighting.chunks": 32,
    },
    "ginzburg-landau": {
        "network.symmetries": False,
        "network.shapes": False,
        "network.activation": "swish",
        "network.embedding.scale": 1.0,
        "network.factorization_mean": 0.5,
        "optimiser.decay_steps": 2000,
        "training.windows": 5,
        "training.steps": 100_000,
        "sampling.batch": 8192,
        "sampling.grid": 100,
        "weighting.kind": "grad-norm",
        "weighting.start": {"initial": 100.0},
        "weighting.tolerance": 5.0,
        "weighting.chunks": 16,
    },
    "cavity": {
        "network.layers": 18,
        "network.embedding.scale": 15.0,
        "optimiser.decay_steps": 10_000,
        "curriculum": {"coefficient": "Re", "values": (100.0, 400.0, 1000.0, 1600.0, 3200.0),
                       "steps": (10_000, 20_000, 50_000, 50_000, 500_000)},
        "sampling.batch": 4096,
        "weighting.kind": "grad-norm",
        "weighting.start": {"boundary": 100.0, "pde.continuity": 10.0},
    },
}


def preset(name: str, problem: str | Problem) -> Config:
    """The configuration of that name for a problem."""
    found = find_problem(problem) if isinstance(problem, str) else problem
    known = problem if isinstance(problem, str) else problem.name
    changes = dict(_changes(name, found))
    given = changes.pop("weighting.start", {})
    start = {term: given.get(term, given.get(term.split(".")[0], 1.0)) for term in found.terms}
    coefficients = {**found.coefficients, **changes.pop("coefficients", {})}
    base: dict[str, Any] = {"problem": known, "preset": name, "coefficients": coefficients,
                            "weighting": {"start": start}}
    if found.initial is None:
        base["initialisation.source"] = "none"
    if found.time is None:
        base["weighting.causal"] = False
    return changed(Config(), {**base, **changes})


def _changes(name: str, problem: Problem) -> Mapping[str, Any]:
    match name:
        case "smoke" | "laptop":
            particular = PARTICULAR.get(problem.name, {}).get(name, {})
            if name == "smoke":
                return {**SMOKE, **particular}
            return {**LAPTOP, **(WINDOWS if _has_windows(problem) else {}), **particular}
        case "paper":
            if problem.name not in PAPER:
                raise InputError(f"preset 'paper' for {problem.name}",
                                 "the paper has no such benchmark", "Use smoke or laptop")
            return PAPER[problem.name]
        case _:
            raise unknown_name("preset", name, PRESETS)


def _has_windows(problem: Problem) -> bool:
    """Whether a problem can be solved one time window after the other: nothing but the initial
    condition belongs to a certain time."""
    others = [c for c in problem.conditions if c is not problem.initial]
    return problem.initial is not None and all(
        c.points is None and not any(TIME in face for face in c.faces) for c in others)
