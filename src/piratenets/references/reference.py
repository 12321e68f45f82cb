"""Reference solutions that know their own error, computed once and kept in a cache."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from piratenets.errors import ConvergenceError, InputError, StorageError
from piratenets.files import read_bytes, write_atomically
from piratenets.problems.problem import (
    Exact,
    FiniteElements,
    Problem,
    Spectral,
    evaluate_residual,
    prescribed_values,
)
from piratenets.references.cavity import cavity_with_error
from piratenets.references.spectral import spectral_reference

Progress = Callable[[str, float], None]
"""Called with what is being computed and the fraction done."""

CONTINUATION = (100.0, 400.0, 1000.0, 1600.0, 3200.0)
"""Reynolds numbers that the cavity's continuation passes, kept as they are found."""

CONVERGED, USABLE = 1e-6, 1e-2
"""Relative errors of a spectral reference: above the first it comes with a warning, above the
second it is refused. (Scores are never quoted below it in any case.)"""

CAVITY_TOLERANCE = 1e-3
"""Relative error of a velocity above which a flow is not resolved (the curriculum's are 4e-5)."""

LIDS = {"regularised": "regularised lid", "classical": "classical lid (u = 1, its row included)"}

FORMAT = 2
"""Part of a cached reference's key: raised when a solver changes what it computes."""


@dataclass(frozen=True)
class Reference:
    """Values on a tensor grid, and the measured relative L2 error of each unknown."""

    coordinates: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    error: dict[str, float]
    method: str

    @property
    def largest_error(self) -> float:
        return max(self.error.values())

    def points(self) -> np.ndarray:
        """The grid's points, one row each."""
        axes = np.meshgrid(*self.coordinates.values(), indexing="ij")
        return np.stack([a.ravel() for a in axes], axis=1)

    def table(self) -> np.ndarray:
        """The unknowns at those points, one column each."""
        return np.stack([v.ravel() for v in self.values.values()], axis=1).astype(float)

    def to_bytes(self) -> bytes:
        """An .npz archive: arrays named by coordinate and unknown, `error` and `method`."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {**self.coordinates, **self.values,
                                  "error": np.array(list(self.error.values())),
                                  "error_of": np.array(list(self.error)),
                                  "method": np.array(self.method)}
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()


def from_bytes(problem: Problem, content: bytes) -> Reference:
    with np.load(io.BytesIO(content)) as archive:
        errors = archive["error"]
        return Reference({n: archive[n] for n in problem.names},
                         {n: archive[n] for n in problem.unknowns},
                         {str(n): float(e) for n, e in zip(archive["error_of"], errors,
                                                           strict=True)},
                         str(archive["method"]))


def load_reference(problem: Problem, coefficients: Mapping[str, float],
                   progress: Progress | None = None) -> Reference:
    """The reference of a problem with these coefficients, from the cache or computed now."""
    content = _cached(_path(problem, coefficients))
    if content is None:
        content = _compute_and_keep(problem, coefficients, progress).to_bytes()
    reference = from_bytes(problem, content)
    if isinstance(problem.reference, Spectral) and reference.largest_error > CONVERGED:
        warnings.warn(f"the reference of {problem.name} is not converged: its measured error is "
                      f"{_listing(reference.error)}, and no score is quoted below it. Raise "
                      "`modes` or `steps` in its Spectral(...)", stacklevel=2)
    return reference


def _listing(error: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {e:.1e}" for name, e in error.items())


def _compute_and_keep(problem: Problem, coefficients: Mapping[str, float],
                      progress: Progress | None) -> Reference:
    """Compute a reference, and cache it with whatever else was found on the way."""
    if isinstance(problem.reference, FiniteElements):
        found = _cavity(problem.reference, coefficients, progress)
    else:
        found = [(coefficients, compute_reference(problem, coefficients, progress))]
    for changed, reference in found:
        content = reference.to_bytes()
        try:
            write_atomically(_path(problem, changed), hashlib.sha256(content).digest() + content)
        except StorageError as error:
            warnings.warn(f"{error.what}: the reference is not kept, as {error.why}. Set "
                          "PIRATENETS_CACHE to a directory you may write to", stacklevel=2)
    return found[-1][1]


def compute_reference(problem: Problem, coefficients: Mapping[str, float],
                      progress: Progress | None = None) -> Reference:
    """Compute a reference, whatever the cache holds."""
    match problem.reference:
        case Spectral() as s:
            coordinates, values, error = spectral_reference(problem, coefficients, progress,
                                                            USABLE)
            return Reference(coordinates, *_in_single(values, error),
                             f"Fourier, {2 * s.modes} modes, ETDRK4, {2 * s.steps} steps; error "
                             f"against {s.modes} modes, {s.steps} steps")
        case FiniteElements() as elements:
            return _cavity(elements, coefficients, progress)[-1][1]
        case Exact() as exact:
            return _exact(problem, exact)
        case None:
            raise InputError(f"problem {problem.name!r}", "it has no reference solution",
                             "Give it one: reference=Spectral(...) or reference=Exact(...)")


def _in_single(values: dict[str, np.ndarray], error: dict[str, float]
               ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Arrays over a plane and time in single precision, their rounding added to the error.

    In double precision the cache of the five benchmarks would exceed 100 MB.
    """
    if next(iter(values.values())).ndim < 3:
        return values, error
    single = {name: v.astype(np.float32) for name, v in values.items()}
    rounding = {n: float(np.linalg.norm(single[n] - v) / np.linalg.norm(v))
                for n, v in values.items()}
    return single, {name: e + rounding[name] for name, e in error.items()}


def _cavity(elements: FiniteElements, coefficients: Mapping[str, float],
            progress: Progress | None) -> list[tuple[dict[str, float], Reference]]:
    """The cavity at this Reynolds number, and at those that the continuation passes."""
    target = coefficients["Re"]
    ladder = [*(r for r in CONTINUATION if r < target), target]
    said = [0]

    def report(text: str) -> None:
        said[0] += 1
        if progress is not None:
            # Two meshes, each of which finds every flow once.
            progress(text, min(said[0] / (2 * len(ladder)), 1.0))

    found: list[tuple[dict[str, float], Reference]] = []
    for flow, error in cavity_with_error(ladder, elements.lid, grid=elements.grid,
                                         progress=report):
        _check_resolved(flow.reynolds, error)
        pressure = flow.p.copy()
        # The exact pressure is unbounded at the ends of the lid: nothing to compare with.
        pressure[0, -1] = pressure[-1, -1] = np.nan
        found.append(({**coefficients, "Re": flow.reynolds}, Reference(
            {"x": flow.x, "y": flow.y}, {"u": flow.u, "v": flow.v, "p": pressure},
            {name: error[name] for name in ("u", "v", "p", "speed")},
            f"finite elements, {LIDS[flow.lid]}, Re {flow.reynolds:g}; error against a mesh "
            "coarser by the root of 2")))
    return found


def _check_resolved(reynolds: float, error: Mapping[str, float]) -> None:
    velocities = {name: error[name] for name in ("u", "v")}
    if not max(velocities.values()) <= CAVITY_TOLERANCE:
        raise ConvergenceError(
            f"the reference of the cavity at Re = {reynolds:g}",
            f"its relative error is {_listing(velocities)}, above the tolerance "
            f"{CAVITY_TOLERANCE:.1e}",
            "Take a smaller Reynolds number, or more elements (references/cavity.py)")


def _path(problem: Problem, coefficients: Mapping[str, float]) -> Path:
    return cache_directory() / f"{problem.name}-{_key(problem, coefficients)}.reference"


def _exact(problem: Problem, exact: Exact) -> Reference:
    axes = [np.linspace(i.lower, i.upper, exact.grid, endpoint=not i.periodic)
            for i in problem.intervals.values()]
    grids = np.meshgrid(*axes, indexing="ij")
    values = exact.solution(*grids)
    columns = values if isinstance(values, tuple | list) else (values,)
    named = {n: np.broadcast_to(np.asarray(v, dtype=float), grids[0].shape)
             for n, v in zip(problem.unknowns, columns, strict=True)}
    return Reference(dict(zip(problem.names, axes, strict=True)), named,
                     dict.fromkeys(problem.unknowns, 0.0), "exact solution")


def cache_directory() -> Path:
    """Where references are kept: $PIRATENETS_CACHE, or the user's cache directory."""
    chosen = os.environ.get("PIRATENETS_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("piratenets")


def _key(problem: Problem, coefficients: Mapping[str, float]) -> str:
    """What a cached reference depends on, as a short digest."""
    intervals = {k: (i.lower, i.upper, i.periodic) for k, i in problem.intervals.items()}
    what = json.dumps([FORMAT, problem.name, sorted(coefficients.items()), intervals,
                       repr(problem.reference), _fingerprint(problem, coefficients)])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def _fingerprint(problem: Problem, coefficients: Mapping[str, float]) -> list[str]:
    """Numbers that change when the equations do: residuals and initial values at some points.

    An edited residual must not be answered with the old equation's reference.
    """
    random = np.random.default_rng(0)
    unit = random.random((4, len(problem.names)))
    points = problem.lower + (problem.upper - problem.lower) * unit
    numbers: list[float] = []
    for condition in problem.conditions:
        table = {(k, index): random.standard_normal()
                 for k in range(len(problem.unknowns))
                 for index in sorted(problem.derivatives[condition.name])}
        if condition.sampled:
            terms = evaluate_residual(problem, condition, lambda k, a, t=table: t[k, a],
                                      coefficients, list(points[0]))
            numbers += [float(value) for value in terms.values()]
    if problem.initial is not None:
        numbers += prescribed_values(problem, problem.initial, points).ravel().tolist()
    return [f"{x:.9e}" for x in numbers]


def _cached(path: Path) -> bytes | None:
    """The cached archive, unless it is missing or its digest does not fit (then recomputed)."""
    if not path.exists():
        return None
    content = read_bytes(path)
    digest, archive = content[:32], content[32:]
    return archive if hashlib.sha256(archive).digest() == digest else None
