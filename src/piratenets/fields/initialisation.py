"""Physics-informed initialisation: the last, linear layer fitted by least squares.

    min_W | Phi W - Y |^2

over the network's features Phi at points that carry known values Y. For PirateNets with
alpha = 0 the features are the embedding itself. Computed in float64 whatever the network's
precision; directions in which the features are numerically dependent are left out, so that
the head stays small and the network evaluates stably.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array

from piratenets.errors import InputError
from piratenets.fields.networks import Network

CUTOFF = {"float32": 1e-6, "float64": 1e-12}
"""Singular values below this fraction of the largest one are left out."""


@dataclass(frozen=True)
class Fit:
    """What the least squares achieved."""

    residual: float
    """|Phi W - Y| / |Y| with the head as stored, in the network's precision."""
    rank: int
    features: int
    points: int
    stage: int = 0
    """Which window's network it began."""


@eqx.filter_jit
def features_at(network: Network, points: Array) -> Array:
    """The features before the head, one row a point."""
    return jax.vmap(network.features)(points)


def _least_squares(features: np.ndarray, values: np.ndarray, cutoff: float
                   ) -> tuple[np.ndarray, int]:
    """The least-squares solution of smallest norm, and the rank it was found in."""
    result: Any = scipy.linalg.lstsq(features, values, cond=cutoff, lapack_driver="gelsd",
                                     check_finite=False)
    return result[0], int(result[2])


def fit_head(network: Network, points: np.ndarray, values: np.ndarray) -> tuple[Network, Fit]:
    """The network with its head fitted to `values` (n, k) at `points` (n, d)."""
    head = network.head
    if head.gain is not None:
        raise InputError("a factorized head", "its gain and weight cannot be fitted apart",
                         "Make the network with fitted=True")
    if not np.isfinite(values).all():
        raise InputError("values to initialise from", "some are not finite", "Remove those rows")
    if len(points) < head.weight.shape[0]:
        raise InputError(f"{len(points)} points to initialise from",
                         f"the network has {head.weight.shape[0]} features",
                         "Give more points than features (a finer initialisation.grid)")
    dtype = head.weight.dtype
    double = jax.tree.map(lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x,
                          network)
    features = np.asarray(features_at(double, jnp.asarray(points, jnp.float64)))
    if head.bias is not None:
        features = np.concatenate([features, np.ones((len(points), 1))], axis=1)
    solution, rank = _least_squares(features, values, CUTOFF[str(dtype)])
    stored = solution.astype(dtype)
    mismatch = np.linalg.norm(features @ stored - values)
    fit = Fit(residual=float(mismatch / max(float(np.linalg.norm(values)), 1e-300)),
              rank=rank, features=features.shape[1], points=len(points))
    if head.bias is None:
        head = eqx.tree_at(lambda h: h.weight, head, jnp.asarray(stored))
    else:
        head = eqx.tree_at(lambda h: (h.weight, h.bias), head,
                           (jnp.asarray(stored[:-1]), jnp.asarray(stored[-1])))
    return eqx.tree_at(lambda n: n.head, network, head), fit
