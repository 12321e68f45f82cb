"""A run small enough to train in a second."""

from pathlib import Path

from piratenets.config import Config, changed
from piratenets.presets import preset
from piratenets.runs.run import Run

TINY = {
    "network.width": 8, "network.embedding.size": 8, "network.layers": 3,
    "sampling.batch": 32, "sampling.grid": 16, "weighting.chunks": 4,
    "weighting.update_every": 10, "initialisation.grid": 16, "training.steps": 60,
    "record.every": 7, "record.checkpoint_seconds": 0.0, "record.error_points": 64,
}

# A reference cheap enough for tests that run one in a fresh process; its error is not looked at.
PROBLEM = """
import jax.numpy as jnp
from piratenets import Problem, Spectral, initial, interior, periodic

problem = Problem(
    name="heat", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
    coefficients={"k": 0.05},
    conditions=[interior(lambda u, c: u.t - c.k * u.xx), initial(lambda x: jnp.sin(jnp.pi * x))],
    reference=Spectral(modes=16, steps=20, times=11, grid=16))
"""


def tiny_config(folder: Path, **changes: object) -> Config:
    """The configuration of a tiny run of a problem file written to a folder."""
    path = folder / "heat.py"
    if not path.exists():
        path.write_text(PROBLEM)
    return changed(preset("smoke", str(path)), {**TINY, **changes})


def tiny_run(folder: Path, name: str = "run", **changes: object) -> Run:
    return Run.create(folder / name, tiny_config(folder, **changes))
