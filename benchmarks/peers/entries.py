"""The entries of the comparison: what is run, in which environment, and how it is named."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = HERE / ".venvs"


class Environment(NamedTuple):
    """A virtual environment of its own, made from requirements-NAME.txt."""

    name: str
    packages: tuple[str, ...]
    """Those whose versions the numbers depend on."""

    @property
    def requirements(self) -> Path:
        return HERE / f"requirements-{self.name}.txt"

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


class Entry(NamedTuple):
    """A method and its settings; `options` are added to the script's command line."""

    name: str
    environment: Environment
    script: str
    options: tuple[str, ...]
    settings: str
    """In words, for the table."""


JINNS = Environment("jinns", ("jinns", "jax", "optax"))
DEEPXDE = Environment("deepxde", ("DeepXDE", "torch"))
PIRATENETS = Environment("piratenets", ("piratenets", "jax", "scipy"))
INSTALLED = (JINNS, DEEPXDE, PIRATENETS)

TANH = "tanh 3 x 24, periodic inputs, float64, weight 100 on the initial condition"

ENTRIES = (
    Entry("jinns-ssbroyden", JINNS, "peer_jinns.py", ("--optimiser", "ssbroyden"),
          f"self-scaled Broyden; {TANH}; 8192 + 512 fixed points"),
    Entry("jinns-natural-gradient", JINNS, "peer_jinns.py", ("--optimiser", "ngd"),
          f"natural gradient, ridge 1e-5, backtracking; {TANH}; batches of 2048 out of 65,536"
          " points, 512 initial"),
    Entry("deepxde", DEEPXDE, "peer_deepxde.py", (),
          f"1000 iterations of Adam, then L-BFGS; {TANH}; 8192 + 512 fixed Hammersley points"),
    Entry("piratenets", PIRATENETS, "peer_piratenets.py", (),
          "preset `laptop`, as `piratenets solve allen-cahn` runs it"),
    Entry("piratenets-plain", PIRATENETS, "peer_piratenets.py",
          ("--set", "network.shapes=False", "network.symmetries=False"),
          "the same without what the problem declares of its solution (that it is even in x,"
          " and the shape of its kink): no more than the others are told"),
)
BY_NAME = {entry.name: entry for entry in ENTRIES}
