"""Optimisers by the name the configuration gives them."""

from piratenets.config import OptimiserConfig
from piratenets.optimisers.adam import adam
from piratenets.optimisers.optimiser import Objective, Optimiser


def make_optimiser(config: OptimiserConfig) -> Optimiser:
    """The optimiser that the configuration names."""
    return adam(config)


__all__ = ["Objective", "Optimiser", "make_optimiser"]
