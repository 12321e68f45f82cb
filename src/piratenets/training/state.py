"""Everything a training is, in one pytree: saving it is the checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from piratenets.fields.networks import Network
from piratenets.weighting.balance import Weights


class Edges(NamedTuple):
    """Where windows begin and end, as part of a training's state."""

    times: Array
    """(windows + 1,), infinite for windows not begun."""
    longest: Array
    """What a window may be at most since one has failed; infinite before."""


class TrainingState(eqx.Module):
    """The state after `step` steps of stage `stage` (a time window or a curriculum stage)."""

    network: Network
    optimiser: Any
    weights: Weights
    points: dict[str, Array]
    """The points of the conditions that are sampled, as last drawn."""
    causal: Array
    """The causal weights that second-order methods hold while points and weights stay."""
    best: Array
    """The loss that counts as the last progress, and the step at which it was made."""
    best_step: Array
    key: Array
    """The run's random key, as raw data. All randomness derives from it, stage and step."""
    step: Array
    before: Array
    """Steps taken in the stages before this one (a stage may end early)."""
    stage: Array
    finished: Network | None
    """The networks of the windows before this one, stacked; None for a single window."""
    edges: Edges | None = None
    """The times at which windows that choose their lengths begin and end, infinite where that is
    not known yet; None for fixed windows."""


INITIALISATION, SAMPLING, STARTS = 0, 1, 2
"""What randomness is for: the first thing that is folded into the run's key."""


def derived_key(key: Array, purpose: int, stage: Array | int) -> Array:
    """The random key of one purpose in one stage."""
    root = jax.random.fold_in(jax.random.wrap_key_data(key), purpose)
    return jax.random.fold_in(root, stage)


class Snapshot(eqx.Module):
    """What one compiled call says about the last step it took."""

    losses: dict[str, Array]
    causal: Array
    gradient_norm: Array


def stacked(network: Network, windows: int) -> Network | None:
    """Room for the networks of all windows but the last, along a new leading axis."""
    if windows == 1:
        return None
    return jax.tree.map(lambda x: jnp.zeros((windows - 1, *x.shape), x.dtype), network)


def stored(finished: Network, network: Network, window: int) -> Network:
    """The stack with the network put at a window's place."""
    return jax.tree.map(lambda all_, one: all_.at[window].set(one), finished, network)


def taken(finished: Network, window: int) -> Network:
    """The network of one window."""
    return jax.tree.map(lambda x: x[window], finished)
