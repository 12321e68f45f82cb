"""Compare, on Allen-Cahn, what a user would pick instead: `install`, then `run`, then `table`.

    python benchmarks/peers/compare.py install          # an environment for each requirements file
    python benchmarks/peers/compare.py run              # every entry, one after the other
    python benchmarks/peers/compare.py table            # README.md and the figure, from the results

Entries run in turn, each in its own environment and on the same cores. An entry's clock starts
before its interpreter does. Run it with the Python of the repository's environment (`table` needs
matplotlib), on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from entries import BY_NAME, ENTRIES, HERE, INSTALLED, PIRATENETS, ROOT, Entry, Environment

RESULTS = HERE / "results"
GRACE = 300.0
"""Seconds that an entry may take past its budget: it looks at the clock between iterations."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# What would make an entry another one: foreign modules, compilation done before the clock started.
LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")

CIRCUMSTANCES = """
import sys
from json import dumps
from numpy import load
from piratenets.runs.directory import commit, machine
error = float(load(sys.argv[1])["error"].max())
print(dumps({"commit": commit(), "machine": machine(), "reference_error": error}))
"""
VERSIONS = """
import platform, sys
from importlib.metadata import version
from json import dumps
print(dumps({"Python": platform.python_version(), **{p: version(p) for p in sys.argv[1:]}}))
"""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    install = actions.add_parser(
        "install", help="make the environments; pip's own settings (PIP_FIND_LINKS, ...) say where"
        " torch's CPU build comes from")
    install.add_argument("--only", nargs="+", choices=[e.name for e in INSTALLED], metavar="NAME")
    run = actions.add_parser("run", help="train the entries and write results/NAME-seed-N.jsonl")
    run.add_argument("--only", nargs="+", choices=list(BY_NAME), metavar="NAME",
                     help=", ".join(BY_NAME))
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--budget", type=float, default=480.0, help="wall seconds of each entry")
    run.add_argument("--cores", type=core_list, default=[0, 1], metavar="0,1",
                     help="the cores that every entry is pinned to")
    table = actions.add_parser("table", help="write README.md beside the results")
    for action in (run, table):
        action.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    return parser.parse_args()


def core_list(text: str) -> list[int]:
    cores = sorted({int(word) for word in text.split(",")})
    there = sorted(os.sched_getaffinity(0))
    if not set(cores) <= set(there):
        raise argparse.ArgumentTypeError(f"{text}: this process may use the cores {there}")
    return cores


def install(names: Sequence[str] | None) -> None:
    for environment in INSTALLED:
        if names is None or environment.name in names:
            print(f"{environment.name}: {environment.folder}", flush=True)
            venv.create(environment.folder, with_pip=True)
            # From the root, where a requirements file's relative paths hold.
            subprocess.run([environment.python, "-m", "pip", "install", "--quiet",
                            "--requirement", environment.requirements], cwd=ROOT, check=True)


def run(options: argparse.Namespace) -> None:
    entries = [entry for entry in ENTRIES if options.only is None or entry.name in options.only]
    for entry in entries:
        if not entry.environment.python.exists():
            sys.exit(f"{entry.name}: {entry.environment.folder} is missing. Run `install` first")
    os.sched_setaffinity(0, options.cores)  # Children inherit it.
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "reference.npz"
        make_reference(reference, len(options.cores))
        facts = {"seed": options.seed, "budget": options.budget, "cores": options.cores,
                 "command": command(options),
                 **asked(PIRATENETS, CIRCUMSTANCES, len(options.cores), str(reference))}
        failures = [e.name for e in entries if not train(e, reference, facts, options.results)]
    if failures:
        sys.exit(f"ended with an error: {', '.join(failures)}")


def command(options: argparse.Namespace) -> str:
    """The command that makes the same results, one entry or all of them."""
    only = f" --only {' '.join(options.only)}" if options.only else ""
    return (f"python benchmarks/peers/compare.py run{only} --seed {options.seed}"
            f" --budget {options.budget:g} --cores {','.join(map(str, options.cores))}")


def make_reference(path: Path, threads: int) -> None:
    """The reference (and with it the cache that ours looks in: no entry pays for it)."""
    piratenets = PIRATENETS.python.with_name("piratenets")
    subprocess.run([piratenets, "reference", "allen-cahn", "--out", path],
                   env=variables(threads), cwd=ROOT, check=True)


def train(entry: Entry, reference: Path, facts: Mapping[str, Any], results: Path) -> bool:
    """Run an entry, and add to its file the circumstances; whether it ended well."""
    out = results.resolve() / f"{entry.name}-seed-{facts['seed']}.jsonl"
    print(f"{out.stem}: {facts['budget']:g} s", flush=True)
    threads = len(facts["cores"])
    load, date = os.getloadavg()[0], datetime.now(UTC).date().isoformat()
    versions = asked(entry.environment, VERSIONS, threads, *entry.environment.packages)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)  # Lest an entry that fails at once keeps an earlier run's records.
    started = time.monotonic()
    words = [entry.environment.python, HERE / entry.script, *entry.options,
             "--seed", facts["seed"], "--budget", facts["budget"], "--reference", reference,
             "--out", out, "--started", started]
    code = exit_code(list(map(str, words)), facts["budget"] + GRACE, threads)
    note = {"entry": entry.name, **facts, "date": date, "load": round(load, 2),
            "versions": versions, "wall_seconds": round(time.monotonic() - started, 3),
            "exit": code}
    with open(out, "a") as file:
        file.write(json.dumps({"note": note}) + "\n")
    return code == 0


def exit_code(words: Sequence[str], limit: float, threads: int) -> int | None:
    """None: it was ended because it did not look at the clock."""
    try:
        return subprocess.run(words, env=variables(threads), cwd=ROOT, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        return None


def asked(environment: Environment, code: str, threads: int, *words: str) -> dict[str, Any]:
    """What a few lines of Python print in an environment, as JSON."""
    done = subprocess.run([environment.python, "-c", code, *words], env=variables(threads),
                          cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def variables(threads: int) -> dict[str, str]:
    """The environment variables of every entry: the CPU alone, a thread for each pinned core."""
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return {**kept, **dict.fromkeys(THREADS, str(threads)), "JAX_PLATFORMS": "cpu",
            "CUDA_VISIBLE_DEVICES": ""}


def main() -> None:
    options = parsed()
    match options.action:
        case "install":
            install(options.only)
        case "run":
            run(options)
        case "table":
            from page import write_page  # Matplotlib is not needed to install or run.

            write_page(options.results)


if __name__ == "__main__":
    main()
