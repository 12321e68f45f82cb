"""Optimisers by the name the configuration gives them."""

from functools import cache

from piratenets.config import OptimiserConfig
from piratenets.optimisers.adam import adam
from piratenets.optimisers.chain import chain
from piratenets.optimisers.lbfgs import lbfgs
from piratenets.optimisers.levenberg_marquardt import levenberg_marquardt
from piratenets.optimisers.optimiser import Objective, Optimiser
from piratenets.optimisers.soap import soap
from piratenets.optimisers.spring import spring
from piratenets.optimisers.ssbroyden import ssbroyden


@cache
def make_optimiser(config: OptimiserConfig) -> Optimiser:
    """The optimiser that the configuration names, or the chain of two.

    The same one each time, because a chain keeps what it has compiled.
    """
    first = _named(config.kind, config)
    if config.then == "none":
        return first
    return chain(first, _named(config.then, config), config.then_at)


def _named(kind: str, config: OptimiserConfig) -> Optimiser:
    match kind:
        case "lm":
            return levenberg_marquardt(config.damping, config.ratio, qr=config.solver == "qr")
        case "ssbroyden" | "ssbfgs":
            return ssbroyden(bfgs=kind == "ssbfgs")
        case "lbfgs":
            return lbfgs(config.memory)
        case "spring":
            return spring(config.regularisation, config.momentum)
        case "soap":
            return soap(config)
        case _:
            return adam(config)


__all__ = ["Objective", "Optimiser", "make_optimiser"]
