"""The measurements behind docs/second-order.md: what matters on a few cores.

A study is a list of named changes to the preset `laptop`, its windows of fixed lengths (16 of them
for kdv, whose preset lets them choose their own). Each is trained for the same wall time on the
same cores, the time shared equally between the windows: the clock alone ends a window (neither
patience nor a target does), and the next one starts from there. Of kdv's windows the first 4 are
trained, to bound the time.

The clock counts training steps alone. Each compiled function has its first call before the clock
starts, on a state that is thrown away (`compilation`, reported apart), and the clock stands still
while a window is set up and while the error is measured: relative to the reference, in L2, over
its whole grid in the times of all windows begun so far.

Second-order training in float32 is in no study: the configuration refuses it.

    python benchmarks/second_order.py run optimisers --seconds 60 --problem allen-cahn
    python benchmarks/second_order.py plot
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

from piratenets.config import Config, changed
from piratenets.fields.networks import parameter_count
from piratenets.files import write_atomically
from piratenets.presets import preset
from piratenets.problems import find_problem
from piratenets.problems.problem import Problem
from piratenets.references.reference import Reference, load_reference
from piratenets.runs.directory import commit, machine
from piratenets.runs.evaluation import evaluate
from piratenets.training.loop import Setting, advance, sane
from piratenets.training.solution import Solution
from piratenets.training.state import TrainingState
from piratenets.training.trainer import Trainer

ROOT = Path(__file__).parent
PROBLEMS = {"allen-cahn": 10, "kdv": 4}
"""The problems, and the most windows that are trained of each."""
FIXED = {"allen-cahn": {}, "kdv": {"training.window_steps": 0, "training.windows": 16}}
"""What makes the windows of their presets such as have fixed lengths."""
SHARE_OF_RECORD, SHARE_OF_CALL = 0.05, 0.02
"""Parts of a window's time between two records, and that a compiled call aims at."""
CALIBRATION_STEPS = 10
DECAY_RATE, LAST_RATE = 0.9, 1e-4
"""A first-order method's learning rate falls to the second by the end of a window."""

Changes = Mapping[str, Any]

# What suits each optimiser: first-order methods get many cheap steps on points that are always
# new, the quasi-Newton methods points that stay while they learn the curvature.
FIRST_ORDER: Changes = {"sampling.batch": 1024, "sampling.redraw": 1,
                        "optimiser.learning_rate": 5e-3, "optimiser.warmup_steps": 100}
QUASI_NEWTON: Changes = {"sampling.redraw": 100}
OPTIMISERS: dict[str, Changes] = {
    "adam": {"optimiser.kind": "adam", **FIRST_ORDER},
    "soap": {"optimiser.kind": "soap", **FIRST_ORDER},
    "lbfgs": {"optimiser.kind": "lbfgs", **QUASI_NEWTON},
    "ssbroyden": {"optimiser.kind": "ssbroyden", **QUASI_NEWTON},
    "lm": {},
}

WIDTHS = {"allen-cahn": {"modified-mlp": 16, "mlp": 22, "mlp-5": 16, "pirate-6": 12},
          "kdv": {"modified-mlp": 20, "mlp": 27, "mlp-5": 20, "pirate-6": 16}}
"""Where parameters are about as many as in the preset: 1481 on allen-cahn, 2251 on kdv."""


def base(problem: str) -> Config:
    """What is changed: the preset, its windows of fixed lengths."""
    return changed(preset("laptop", problem), FIXED[problem])


def backbones(problem: str) -> dict[str, Changes]:
    def of(kind: str, layers: int, width: int) -> Changes:
        return {"network.kind": kind, "network.layers": layers, "network.width": width}

    width = WIDTHS[problem]
    blocks = {**of("pirate", 6, width["pirate-6"]), "network.embedding.size": width["pirate-6"]}
    return {"pirate": {}, "pirate-6": blocks,
            "modified-mlp": of("modified-mlp", 3, width["modified-mlp"]),
            "mlp": of("mlp", 3, width["mlp"]), "mlp-5": of("mlp", 5, width["mlp-5"])}


def initialisation(problem: str) -> dict[str, Changes]:
    """By the preset only the first window is initialised: the others start from the weights of
    the one before. `each-window` starts every one afresh."""
    sources = {source: {"initialisation.source": source} for source in ("initial", "none")}
    fresh = {"training.warm_start": False}
    return {**sources, **{f"{name}-each-window": {**c, **fresh} for name, c in sources.items()}}


def precision(problem: str) -> dict[str, Changes]:
    first_order = {f"{name}-{digits}": {**OPTIMISERS[name], "training.precision": digits}
                   for name in ("adam", "soap") for digits in ("float32", "float64")}
    return {**first_order, "lm-float64": {}}


def declared(problem: str) -> dict[str, Changes]:
    """Stretching divides an equation's weight by the square of the number of windows, which
    `no-stretch-same-weight` does too."""
    config = base(problem)
    weight = config.weighting.start["pde"] / config.training.windows**2
    no_stretch, no_shapes = {"training.stretch": False}, {"network.shapes": False}
    stretch = {"preset": {}, "no-stretch": no_stretch,
               "no-stretch-same-weight": {**no_stretch, "weighting.start": {"pde": weight}}}
    if problem == "kdv":
        return stretch
    no_symmetries = {"network.symmetries": False}
    return {**stretch, "no-shapes": no_shapes, "no-symmetries": no_symmetries,
            "no-shapes-no-symmetries": {**no_shapes, **no_symmetries},
            "1-window": {"training.windows": 1}, "10-windows": {"training.windows": 10}}


STUDIES: dict[str, Callable[[str], dict[str, Changes]]] = {
    "optimisers": lambda problem: OPTIMISERS, "backbones": backbones,
    "initialisation": initialisation, "precision": precision, "declared": declared}


def train(trainer: Trainer, reference: Reference, seconds: float, windows: int
          ) -> tuple[list[dict[str, float]], bool]:
    """The error curve of a training against the clock, and whether it has not diverged."""
    curve: list[dict[str, float]] = []
    share, clock, taken, fine = seconds / windows, 0.0, 0, True
    state = trainer.start()
    for window in range(windows):
        state = trainer.next_stage(state) if window else state
        # What one window oversteps, the next does not have.
        setting, end, due, at_once = trainer.setting(state), (window + 1) * share, clock, 1
        while True:
            if clock >= min(due, end) or not fine:
                curve.append({"seconds": round(clock, 3), "window": window, "steps": taken,
                              "error": error_of(trainer, reference, state)})
                due = clock + SHARE_OF_RECORD * share
            if not fine:
                return curve, False
            if clock >= end:
                break
            before = int(state.step)
            state, spent, fine = steps(trainer, setting, state, before + at_once)
            clock, done = clock + spent, int(state.step) - before
            taken += done
            aim = min(SHARE_OF_CALL * share, end - clock)
            at_once = min(max(1, int(aim * done / spent)), 2 * at_once)
    return curve, True


def error_of(trainer: Trainer, reference: Reference, state: TrainingState) -> float:
    solution = Solution(trainer.problem, trainer.stages_of(state), state)
    found = evaluate(trainer.problem, reference, solution, solution.end)
    return max(found.relative_l2.values())


def steps(trainer: Trainer, setting: Setting, state: TrainingState, until: int
          ) -> tuple[TrainingState, float, bool]:
    """Train up to a step: the state, the seconds it took, and whether the losses are sane."""
    began = time.perf_counter()
    state, snapshot = jax.block_until_ready(
        advance(trainer.plan, setting, state, jnp.asarray(until, jnp.int32)))
    spent = time.perf_counter() - began
    return state, max(spent, 1e-6), bool(sane(setting, snapshot))


def first_calls(trainer: Trainer) -> tuple[float, float]:
    """Make all first calls: the seconds they take, and those of a step afterwards."""
    state = trainer.start()
    setting = trainer.setting(state)
    state, first, _ = steps(trainer, setting, state, 1)
    state, second, _ = steps(trainer, setting, state, 2)
    _, later, _ = steps(trainer, setting, state, 2 + CALIBRATION_STEPS)
    return first + second, later / CALIBRATION_STEPS


def decay(config: Config, count: float) -> Changes:
    """The schedule that takes a learning rate to LAST_RATE in so many steps."""
    warmup = min(config.optimiser.warmup_steps, int(count / 5))
    falls = math.log(LAST_RATE / config.optimiser.learning_rate) / math.log(DECAY_RATE)
    return {"optimiser.warmup_steps": warmup, "optimiser.decay_rate": DECAY_RATE,
            "optimiser.decay_steps": max(1, round((count - warmup) / falls))}


def measure(problem: Problem, changes: Changes, seconds: float, seed: int) -> dict[str, Any]:
    """Train one configuration for so many seconds."""
    changes = {**changes, "seed": seed, "training.patience": 0, "training.target": 0.0}
    config = changed(base(problem.name), changes)
    windows = min(config.training.windows, PROBLEMS[problem.name])
    trainer = Trainer(problem, config)
    compilation, each = first_calls(trainer)
    if config.optimiser.kind in ("adam", "soap"):
        changes = {**changes, **decay(config, seconds / windows / each)}
        trainer = Trainer(problem, changed(config, changes))
        compilation, _ = first_calls(trainer)
    reference = load_reference(problem, problem.coefficients)
    curve, fine = train(trainer, reference, seconds, windows)
    return {"changes": changes, "windows": windows, "diverged": not fine,
            "parameters": parameter_count(trainer.start().network, config.network),
            "compilation": compilation, **curve[-1], "curve": curve}


def run(options: argparse.Namespace) -> None:
    """Measure a study's configurations; an earlier result of the same name is replaced."""
    problem, chosen = find_problem(options.problem), STUDIES[options.study](options.problem)
    names = options.only or list(chosen)
    if set(names) - set(chosen):
        raise SystemExit(f"{options.study} of {problem.name} has {', '.join(chosen)}")
    path = options.out / f"{options.study}-{problem.name}-seed-{options.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"preset": "laptop", "machine": machine(), "commit": commit(), "seed": options.seed,
             "versions": {n: version(n) for n in ("jax", "numpy", "scipy", "equinox", "optax")},
             "seconds_given": options.seconds}
    for name in names:
        load = os.getloadavg()[0]
        found = measure(problem, chosen[name], options.seconds, options.seed)
        others = [r for r in read(path) if r["name"] != name]
        results = [*others, {"name": name, **facts, "load_before": load, **found}]
        write_atomically(path, json.dumps(results, indent=1).encode())
        print(f"{name}: error {found['error']:.1e} after {found['seconds']:.1f} s, "
              f"{found['steps']} steps; {found['parameters']} parameters; compilation "
              f"{found['compilation']:.1f} s", flush=True)
        jax.clear_caches()


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def results_of(folder: Path, study: str, problem: str) -> dict[str, list[dict[str, Any]]]:
    """A study's results by name in the study's order, for each seed that was measured."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob(f"{study}-{problem}-seed-*.json")):
        for result in read(path):
            found[result["name"]].append(result)
    return {name: found[name] for name in STUDIES[study](problem) if name in found}


def plot(options: argparse.Namespace) -> None:
    """Write the pictures and print the tables of what has been measured."""
    for problem in PROBLEMS:
        for study in STUDIES:
            results = results_of(options.out, study, problem)
            if results:
                print(f"\n### {study}, {problem}\n\n{markdown(results)}")
            if results and study == "optimisers":
                options.images.mkdir(parents=True, exist_ok=True)
                picture(problem, results, options.images / f"second-order-{problem}.png")


def markdown(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """One row a configuration; where several seeds were measured, their errors side by side."""
    rows = ["| configuration | windows | parameters | steps | compilation, s | error |",
            "|---|---|---|---|---|---|"]
    for name, seeds in results.items():
        one = seeds[0]
        shown = ", ".join("diverged" if s["diverged"] else f"{s['error']:.1e}" for s in seeds)
        rows.append(f"| {name} | {one['windows']} | {one['parameters']} | {one['steps']} | "
                    f"{one['compilation']:.0f} | {shown} |")
    facts = sorted({f"{s['machine']}; {s['seconds_given']:g} s each; commit {s['commit'][:10]}"
                    for seeds in results.values() for s in seeds})
    return "\n".join([*rows, "", *facts])


def picture(problem: str, results: Mapping[str, list[dict[str, Any]]], path: Path) -> None:
    """The error against the seconds of training, one colour an optimiser; more seeds are thin."""
    figure = Figure(figsize=(9, 5), dpi=100, layout="constrained")
    axes = figure.subplots()
    for k, (name, seeds) in enumerate(results.items()):
        for number, result in enumerate(seeds):
            curve = result["curve"]
            ends = [i for i, (p, q) in enumerate(pairwise(curve)) if p["window"] < q["window"]]
            axes.semilogy([p["seconds"] for p in curve], [p["error"] for p in curve], "o-",
                          color=f"C{k}", markevery=[*ends, len(curve) - 1], markersize=6,
                          linewidth=0.7 if number else 2, label=None if number else name)
    one = next(iter(results.values()))[0]
    for window in range(1, one["windows"]):
        axes.axvline(window * one["seconds_given"] / one["windows"], color="0.7", linestyle=":")
    axes.set_xlabel("seconds of training (dotted: the next time window begins)", fontsize=13)
    axes.set_ylabel("relative L2 error, windows so far", fontsize=13)
    axes.tick_params(labelsize=12)
    axes.grid(axis="y", color="0.9")
    axes.set_title(f"{problem}: optimisers at equal time", fontsize=14)
    figure.legend(loc="outside right upper", fontsize=12)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running, plotting = commands.add_parser("run"), commands.add_parser("plot")
    running.add_argument("study", choices=STUDIES)
    running.add_argument("--seconds", type=float, default=60.0, help="for each configuration")
    running.add_argument("--problem", choices=PROBLEMS, default="allen-cahn")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--only", nargs="+", metavar="NAME", help="these configurations alone")
    plotting.add_argument("--images", type=Path, default=ROOT.parent / "docs" / "images")
    for command, call in ((running, run), (plotting, plot)):
        command.add_argument("--out", type=Path, default=ROOT / "results" / "second-order",
                             help="folder of the results")
        command.set_defaults(call=call)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
