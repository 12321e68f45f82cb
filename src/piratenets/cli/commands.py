"""The commands: what each takes, as dataclasses whose fields are the options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from piratenets.config import Config


@dataclass(frozen=True)
class List:
    """Show the problems, presets and networks there are."""


@dataclass(frozen=True)
class Solve(Config):
    """Solve a problem: train a network, score it and write a report.

    Every field of the configuration is an option; its default is the preset's.
    """

    problem: Annotated[str, tyro.conf.Positional] = "allen-cahn"
    """A problem's name (see `piratenets list`), or a Python file that defines `problem`."""
    out: Path | None = None
    """The run's directory; runs/PROBLEM-PRESET-SEED by default."""

    def config(self) -> Config:
        """The configuration without what is the command line's own."""
        return Config(**{name: getattr(self, name) for name in Config.__dataclass_fields__})


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped. A finished run is left as it is."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""


@dataclass(frozen=True)
class Evaluate:
    """Score a run against the reference, on its whole grid."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""


@dataclass(frozen=True)
class WriteReport:
    """Write a run's report again."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""


@dataclass(frozen=True)
class Predict:
    """Evaluate a run's solution at points."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""
    points: Path
    """A .npy or .csv file: one row a point, in the order of the problem's coordinates."""
    out: Path
    """The .npy or .csv file to write: one column an unknown, then the derivatives."""
    derivatives: str = ""
    """Derivatives as in a residual, separated by commas: u.x,u.xx"""


@dataclass(frozen=True)
class Reference:
    """Compute (or take from the cache) a problem's reference solution and save it."""

    problem: Annotated[str, tyro.conf.Positional]
    """A problem's name, or a Python file that defines `problem`."""
    out: Path
    """The .npz file to write: arrays named by coordinate and unknown, and `error`."""
    coefficients: dict[str, float] = field(default_factory=dict[str, float])
    """The problem's coefficients."""


@dataclass(frozen=True)
class Table:
    """Write README.md for a directory of runs: a row a benchmark, from the runs alone."""

    results: Annotated[Path, tyro.conf.Positional] = Path("results")
    """The directory that holds the runs' directories."""


@dataclass(frozen=True)
class BenchDerivatives:
    """A training gradient by Taylor passes against nested reverse mode."""

    width: int = 256
    """Channels of a hidden layer."""
    layers: int = 9
    """Hidden layers."""
    batches: tuple[int, ...] = (1024, 4096)
    """Numbers of points."""
    orders: tuple[int, ...] = (2, 3, 4)
    """Orders of the derivatives in the residual."""
    repeats: int = 5
    """Timed calls of each kind, taken in turn; the fastest counts."""


@dataclass(frozen=True)
class BenchOptimiser:
    """The parts of an iteration of Levenberg-Marquardt and of self-scaled Broyden, and how far
    each iteration is from the machine's matrix-product limit."""

    problem: tuple[str, ...] = ("allen-cahn", "kdv")
    """Problems by name, or Python files that define `problem`."""
    preset: str = "laptop"
    """Whose network, points and weights are used."""
    repeats: int = 11
    """Timed iterations; medians count."""


@dataclass(frozen=True)
class Bench:
    """Measure on this machine, in one run."""

    what: Annotated[Annotated[BenchDerivatives, tyro.conf.subcommand("derivatives")]
                    | Annotated[BenchOptimiser, tyro.conf.subcommand("optimiser")],
                    tyro.conf.arg(name="")]


Command = List | Solve | Resume | Evaluate | WriteReport | Predict | Reference | Table | Bench
