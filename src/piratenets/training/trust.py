"""Reasons to trust a training, or to doubt it, that need no reference.

A network can satisfy an equation closely at all points it was trained on and still be wrong: with
too few points it is wrong between them, and in a problem with a time it may leave the initial
data within a layer so thin that hardly a point lies in it, and solve the equation exactly from
there on, as another solution. Both show on fresh points:

    defect = (|u(0) - u0| + max_i integral |r_i(t)| dt) / max_t |u(t)|

with |.| the root mean square over space and r_i the residuals of the equations. A jump through a
layer of any thickness costs its own size in the integral, as long as points lie in the layer:
the times are spaced geometrically towards the start of the window. The defect is what the
solution solves another problem by; the equation may amplify it on the way to the error.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import qmc

from piratenets.config import SECOND_ORDER, Config
from piratenets.fields.networks import Framed, Network, parameter_count
from piratenets.problems.problem import Condition, Problem
from piratenets.residuals.residuals import point_residuals
from piratenets.training.solution import evaluate_network, stage_frame
from piratenets.training.stages import Stage

LARGEST_DEFECT = 0.1
"""A defect above this part of the solution is a reason for doubt."""
LARGEST_RATIO = 10.0
"""So is a squared residual this many times as large on fresh points as on those trained on."""
FEWEST_ROWS = 2.0
"""Residuals for each parameter, below which a second-order method can fit the points alone."""
PLACES, PANELS, NODES = 256, 24, 3
"""Fresh places in space; panels in time (as many geometric as even ones) and times in each."""


@dataclass(frozen=True)
class Trust:
    """What fresh points say of one stage."""

    stage: str
    fresh_residual: dict[str, float]
    """Mean squares by equation, at times and places that the training has not seen."""
    trained_residual: dict[str, float]
    """The same at the last points trained on."""
    defect: float | None
    """See the module's docstring; None without a time."""

    @property
    def doubts(self) -> list[str]:
        """What speaks against the solution, in words; empty if nothing does."""
        found: list[str] = []
        where = f"{self.stage}: " if self.stage else ""
        if self.defect is not None and not self.defect <= LARGEST_DEFECT:
            found.append(f"{where}the field misses the equation and its initial data by "
                         f"{self.defect:.1e} of its size, summed over time: it may solve another "
                         "problem. Train longer, or put more points where the residual is")
        for term, fresh in self.fresh_residual.items():
            trained = self.trained_residual[term]
            if not fresh <= LARGEST_RATIO * trained:
                found.append(f"{where}on fresh points the squared residual {term} is {fresh:.1e}, "
                             f"where training saw {trained:.1e}: the fit does not hold between "
                             "its points. Raise sampling.batch")
        return found


def few_points(problem: Problem, config: Config, network: Network, rows: int) -> str | None:
    """A warning if a second-order method is given hardly more residuals than parameters."""
    optimiser, parameters = config.optimiser, parameter_count(network, config.network)
    squares = (SECOND_ORDER - {"spring"}) & {optimiser.kind, optimiser.then}
    if not squares or rows >= FEWEST_ROWS * parameters:
        return None
    equations = sum(1 for c in problem.conditions if c.sampled for t in problem.terms
                    if t.split(".")[0] == c.name)
    missing = int(FEWEST_ROWS * parameters) - rows
    enough = config.sampling.batch + -(-missing // max(equations, 1))
    return (f"{rows} residuals for {parameters} parameters: {' and '.join(sorted(squares))} can "
            f"fit the points exactly and be wrong between them. Raise sampling.batch to {enough} "
            "or more, or take a smaller network")


def examined(problem: Problem, stage: Stage, network: Network, trained: np.ndarray,
             initial: tuple[np.ndarray, np.ndarray] | None) -> Trust:
    """Look at a trained stage on fresh points; `trained` are the last ones trained on, `initial`
    the points and values it began from."""
    fresh = _sobol_points(stage.lower, stage.upper, len(trained))
    fresh_squares, trained_squares = (
        {term: float(np.mean(r**2)) for term, r in _residuals(problem, stage, network, at).items()}
        for at in (fresh, trained))
    defect = None if initial is None else _defect(problem, stage, network, *initial)
    return Trust(stage.label, fresh_squares, trained_squares, defect)


def _sobol_points(lower: np.ndarray, upper: np.ndarray, count: int) -> np.ndarray:
    """Points of the box that no training draws: scrambled with a seed of their own."""
    unit = qmc.Sobol(len(lower), scramble=True, rng=np.random.default_rng(1_000_003))
    return lower + (upper - lower) * unit.random_base2((count - 1).bit_length())


def _defect(problem: Problem, stage: Stage, network: Network, points: np.ndarray,
            values: np.ndarray) -> float:
    time = problem.time
    assert time is not None
    frame = stage_frame(problem, stage)
    start = _root_mean_square(evaluate_network(network, frame, points) - values)
    times, weights = time_quadrature(float(stage.lower[time]), float(stage.upper[time]))
    places = _sobol_points(stage.lower, stage.upper, PLACES)
    grid = np.repeat(places[None], len(times), axis=0)
    grid[:, :, time] = times[:, None]
    flat = grid.reshape(-1, places.shape[1])
    size = evaluate_network(network, frame, flat).reshape(len(times), len(places), -1)
    largest = max(_root_mean_square(u) for u in size)
    integrals = [weights @ np.sqrt(np.mean(r.reshape(len(times), -1)**2, axis=1))
                 for r in _residuals(problem, stage, network, flat).values()]
    return float((start + max(integrals)) / max(largest, 1e-300))


def time_quadrature(first: float, last: float) -> tuple[np.ndarray, np.ndarray]:
    """Times and weights of a Gauss rule on panels that are even, and geometric at the start."""
    length = last - first
    edges = np.unique(np.concatenate([[0.0], 0.5 ** np.arange(PANELS, 0, -1),
                                      np.linspace(0, 1, PANELS + 1)]))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    widths = np.diff(edges)
    times = edges[:-1, None] + 0.5 * widths[:, None] * (nodes[None, :] + 1)
    return first + length * times.ravel(), length * (0.5 * widths[:, None] * weights).ravel()


def _root_mean_square(table: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(table))))


def _residuals(problem: Problem, stage: Stage, network: Network, points: np.ndarray
               ) -> dict[str, np.ndarray]:
    """The equations' residuals at points (n, d), by term."""
    dtype = network.head.weight.dtype
    coefficients = {k: jnp.asarray(v, dtype) for k, v in stage.coefficients.items()}
    frame = jax.tree.map(lambda x: jnp.asarray(x, dtype), stage_frame(problem, stage))
    field = Framed(network, frame)
    found: dict[str, np.ndarray] = {}
    for condition in problem.conditions:
        if condition.sampled:
            rows = _evaluate(problem, condition, field, coefficients, jnp.asarray(points, dtype))
            found.update({term: np.asarray(r, dtype=float) for term, r in rows.items()})
    return found


def _evaluate(problem: Problem, condition: Condition, field: Framed,
              coefficients: dict[str, Array], points: Array) -> dict[str, Array]:
    def at(point: Array) -> dict[str, Array]:
        return point_residuals(problem, condition, field, coefficients, point, None)

    @jax.jit
    def mapped(points: Array) -> dict[str, Array]:
        return jax.lax.map(at, points, batch_size=1024)

    return mapped(points)
