"""Networks, problems and configurations small enough to compile in about a second."""

import jax
import jax.numpy as jnp

from piratenets.config import Config, EmbeddingConfig, NetworkConfig, changed
from piratenets.fields.networks import make_network
from piratenets.problems.problem import Interval, Problem, initial, interior, periodic

INTERVALS = (Interval(0, 1), periodic(-1, 1))


def network_config(kind="pirate", embedding="fourier", *, size=4, scale=0.7, layers=3, width=4,
                   **fields):
    return NetworkConfig(kind=kind, layers=layers, width=width, **fields,
                         embedding=EmbeddingConfig(kind=embedding, size=size, scale=scale))


def network(config, *, intervals=INTERVALS, outputs=1, seed=0, dtype="float64", fitted=False):
    return make_network(intervals, outputs, config, jax.random.key(seed), jnp.dtype(dtype),
                        fitted=fitted)


def burgers():
    return Problem(
        name="burgers", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
        coefficients={"nu": 0.05},
        conditions=[interior(lambda u, c: u.t + u * u.x - c.nu * u.xx),
                    initial(lambda x: -jnp.sin(jnp.pi * x))])


def training_config(**changes):
    """A PirateNet of 139 parameters in float64, trained for 60 steps."""
    return changed(Config(), {
        "problem": "burgers", "network.layers": 3, "network.width": 4,
        "network.embedding.size": 4, "network.embedding.scale": 0.7,
        "initialisation.grid": 16, "sampling.batch": 16, "sampling.grid": 8,
        "weighting.kind": "grad-norm", "weighting.update_every": 20, "weighting.chunks": 4,
        "optimiser.warmup_steps": 5, "optimiser.decay_steps": 20,
        "training.steps": 60, "training.precision": "float64", "record.every": 25, **changes})
