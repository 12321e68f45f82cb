"""Reference solutions of periodic semilinear problems, derived from their own residuals.

A residual that is first order in time, with coefficient one, says

    u_t = L u + N(u, t, x),

where L holds the terms linear in u's own space derivatives, with constant coefficients.
Both are read off the residual function: L from its derivatives with respect to each D^a u
at u = 0, N as what remains, evaluated on the grid. In Fourier space L is one number for
each wave number and is integrated exactly; N is integrated by the fourth-order exponential
Runge-Kutta method ETDRK4 (Cox and Matthews 2002) with coefficients by contour means (Kassam
and Trefethen 2005). The contour is the full circle and the means stay complex: dispersion
(Korteweg-De Vries) has imaginary symbols, for which real parts leave a first-order method.

Choices made by measurement:

* Terms without derivatives belong to N, even where they are linear: with them in L the error
  at the same step is 10 times larger for Gray-Scott, 3 times for Ginzburg-Landau.
* N is not dealiased: zeroing the upper third of the modes loses more than it saves (3 times
  the error for Allen-Cahn, 11 for Korteweg-De Vries, 700 or more for the other two).
* The initial series has the exact Fourier coefficients of the initial data, not those of
  their values on the grid: for the kink of Allen-Cahn, 1000 times less error at 2048 modes.
* JAX's real transforms (on one core) took 0.55 to 0.85 of the time of scipy's on one core
  or two in two dimensions; in one, about as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from piratenets.errors import ConvergenceError, InputError
from piratenets.problems.problem import (
    TIME,
    Condition,
    Problem,
    Spectral,
    evaluate_residual,
    prescribed_values,
)
from piratenets.problems.unknown import Index

Progress = Callable[[str, float], None]
Entry = tuple[int, Index]
"""One derivative of one unknown: the unknown's position and the multi-index."""

PROBES = 32
"""States at which a residual is differentiated: as many zero ones, as many random."""
ROUNDING = 1e-12
CONTOUR = 32
"""Points of the contour: its means of entire functions are exact to rounding by then."""
NODES = 4
"""Gauss points a grid cell (and coordinate) for the Fourier coefficients of initial data."""
LINEARISED_MODES = {1: 2**12, 2: 2**8}
"""Modes of the linearised solution by number of space coordinates (further ones: 64)."""


def solve_spectral(problem: Problem, coefficients: Mapping[str, float], modes: int, steps: int,
                   times: np.ndarray, grid: int, progress: Progress | None = None
                   ) -> dict[str, np.ndarray]:
    """The problem's solution by unknown, of shape (times, grid[, grid]).

    `modes` a periodic coordinate and `steps` from the first to the last of `times`, which
    are equally spaced and start at the initial time. The grid is x_j = lower + j length /
    grid. Initial values are stored as they are given, later ones from the Fourier series.
    """
    equation = semilinear(problem, coefficients)
    fourier = Fourier.of(problem, modes)
    inner = _steps_between(problem, steps, times)
    _check_resolution(modes, grid)
    advance = _stepper(equation, fourier, (times[-1] - times[0]) / steps, inner)
    label = f"{problem.name}: {modes} modes, {steps} steps"
    spectra = jnp.asarray(fourier.coefficients(equation.initial))
    stored = [equation.initial(fourier.points(grid))]
    for done, t in enumerate(times[:-1], start=1):
        spectra = advance(spectra, jnp.asarray(t))
        stored.append(fourier.values(np.asarray(spectra), grid))
        if not np.isfinite(stored[-1]).all():
            raise ConvergenceError(label, f"the solution is not finite at t = {times[done]:g}",
                                   "Take more steps")
        if progress is not None:
            progress(label, done / (len(times) - 1))
    return dict(zip(problem.unknowns, np.stack(stored, axis=1), strict=True))


def spectral_reference(problem: Problem, coefficients: Mapping[str, float],
                       progress: Progress | None = None, tolerance: float = 1e-6
                       ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, float]]:
    """Coordinates, values and error (relative L2, by unknown) of a problem's reference.

    The values are those with twice the modes and half the step that `problem.reference`
    asks for; the error is the difference from the solution with just that, so it bounds
    the error of what is returned from above (16 times too large where the step limits it).
    """
    reference = problem.reference
    if not isinstance(reference, Spectral):
        raise InputError(f"problem {problem.name!r}", "it has no spectral reference",
                         "Give it reference=Spectral(modes=..., steps=..., times=..., grid=...)")
    lower, upper = _time_interval(problem)
    times = np.linspace(lower, upper, reference.times)
    coarse, values = (
        solve_spectral(problem, coefficients, k * reference.modes, k * reference.steps, times,
                       reference.grid, progress)
        for k in (1, 2)
    )
    error = {name: _relative(coarse[name], values[name]) for name in problem.unknowns}
    if not all(e <= tolerance for e in error.values()):
        listing = ", ".join(f"{name} {e:.1e}" for name, e in error.items())
        raise ConvergenceError(
            f"the reference of {problem.name!r} with {reference.modes} and {2 * reference.modes} "
            f"modes, {reference.steps} and {2 * reference.steps} steps",
            f"its relative error is {listing}, above the tolerance {tolerance:.1e}",
            "Raise `modes` or `steps` in its Spectral(...), or take milder coefficients")
    axes = Fourier.of(problem, reference.modes).axes(reference.grid)
    space = dict(zip(_space_names(problem), axes, strict=True))
    return {name: times if name == TIME else space[name] for name in problem.names}, values, error


def linearised_solution(problem: Problem, coefficients: Mapping[str, float], times: np.ndarray,
                        grid: int) -> dict[str, np.ndarray]:
    """The solution of u_t = L u by unknown, of shape (times, grid[, grid]).

    L holds the terms linear in an unknown's own derivatives (diffusion, dispersion,
    advection), not the reaction: each Fourier coefficient is multiplied by exp(L(k) t).
    """
    equation = semilinear(problem, coefficients)
    space = len(_space_names(problem))
    modes = grid * -(-LINEARISED_MODES.get(space, 64) // grid)
    fourier = Fourier.of(problem, modes)
    start, symbols = fourier.coefficients(equation.initial), equation.symbols(fourier)
    elapsed = np.asarray(times, float) - _time_interval(problem)[0]
    stored = [fourier.values(np.exp(t * symbols) * start, grid) if t else
              equation.initial(fourier.points(grid)) for t in elapsed]
    return dict(zip(problem.unknowns, np.stack(stored, axis=1), strict=True))


# The equation: L and N from the residual.


@dataclass(frozen=True)
class Semilinear:
    """u_t = L u + N(u, t, x), as found in a problem's residual."""

    problem: Problem
    condition: Condition
    coefficients: Mapping[str, float]
    linear: Mapping[Entry, float]
    """L: the coefficient of each derivative of each unknown in that unknown's equation."""
    used: tuple[Entry, ...]
    """The derivatives that N depends on (the others cancel against L)."""

    def nonlinear(self, jet: Mapping[Entry, Any], t: Any, space: Sequence[Any]) -> list[Any]:
        """N by unknown, from the derivatives it uses on a grid: -residual(u_t = 0) - L u."""
        point = list(space)
        point.insert(self.problem.names.index(TIME), t)
        residuals = evaluate_residual(
            self.problem, self.condition, lambda k, a: jet.get((k, a), jnp.zeros(())),
            self.coefficients, point)
        own = [{a: d for (j, a), d in jet.items() if j == k and (k, a) in self.linear}
               for k in range(len(residuals))]
        return [-r - sum(self.linear[k, a] * d for a, d in own[k].items())
                for k, r in enumerate(residuals.values())]

    def symbols(self, fourier: Fourier) -> np.ndarray:
        """L(k) by unknown and wave number."""
        symbols = np.zeros((len(self.problem.unknowns), *fourier.spectrum_shape), complex)
        for (k, index), coefficient in self.linear.items():
            symbols[k] += coefficient * fourier.derivative(_in_space(self.problem, index))
        return symbols

    def initial(self, points: Sequence[np.ndarray]) -> np.ndarray:
        """The initial values by unknown, on a grid given by its coordinates."""
        condition = self.problem.initial
        assert condition is not None
        axes = list(points)
        axes.insert(self.problem.names.index(TIME), np.array(_time_interval(self.problem)[0]))
        grids = np.broadcast_arrays(*axes)
        table = np.stack([g.ravel() for g in grids], axis=1)
        values = prescribed_values(self.problem, condition, table)
        if values.shape[1] != len(self.problem.unknowns):
            raise InputError(f"condition {condition.name!r}: {values.shape[1]} values",
                             f"there are {len(self.problem.unknowns)} unknowns",
                             "Return one value each, in their order")
        return values.T.reshape(-1, *grids[0].shape)


def semilinear(problem: Problem, coefficients: Mapping[str, float]) -> Semilinear:
    """L and N of a problem's equation; raises if it has no such form."""
    condition = _differential_equation(problem)
    values = problem.coefficients_with(coefficients)
    indices = sorted(problem.derivatives[condition.name])
    entries = [(k, index) for k in range(len(problem.unknowns)) for index in indices]
    jacobians = _jacobians(problem, condition, values, entries)
    columns = dict(zip(entries, np.moveaxis(jacobians, 2, 0), strict=True))
    _check_time_derivatives(problem, columns)
    linear: dict[Entry, float] = {}
    used: list[Entry] = []
    for (k, index), column in columns.items():
        if index == _time_index(problem):
            continue
        slope = _constant(-column[:, k])
        if any(index) and slope != 0:
            linear[k, index] = slope
        rest = column.copy()
        rest[:, k] += linear.get((k, index), 0.0)
        # Written so that a derivative that is not finite counts as used.
        if not (abs(rest) <= ROUNDING * abs(linear.get((k, index), 0.0))).all():
            used.append((k, index))
    return Semilinear(problem, condition, values, linear, tuple(used))


def _constant(slopes: np.ndarray) -> float:
    """A slope's value at the zero state if it is the same at all points, else zero.

    Where the residual has no finite slope at u = 0, as with a term 1/u, the random states
    decide.
    """
    for part in (slopes[:PROBES], slopes[PROBES:]):
        finite = part[np.isfinite(part)]
        if len(finite):
            return float(finite[0]) if np.ptp(finite) <= ROUNDING * abs(finite[0]) else 0.0
    return 0.0


def _jacobians(problem: Problem, condition: Condition, coefficients: Mapping[str, float],
               entries: Sequence[Entry]) -> np.ndarray:
    """d residual_e / d entry at random points of the zero state, then of random states."""
    generator = np.random.default_rng(0)
    points = generator.uniform(problem.lower, problem.upper, (2 * PROBES, len(problem.names)))
    jets = generator.standard_normal((2 * PROBES, len(entries)))
    jets *= 10.0 ** generator.uniform(-2, 2, (2 * PROBES, 1))
    jets[:PROBES] = 0.0

    def residuals(jet: jax.Array, point: jax.Array) -> jax.Array:
        place = dict(zip(entries, jet, strict=True))
        terms = evaluate_residual(problem, condition, lambda k, a: place[k, a], coefficients,
                                  list(point))
        return jnp.stack([jnp.asarray(r) for r in terms.values()])

    slopes = jax.jit(jax.vmap(jax.jacfwd(residuals)))(jnp.asarray(jets), jnp.asarray(points))
    return np.asarray(slopes)


def _differential_equation(problem: Problem) -> Condition:
    """The one condition that is the PDE, after checking coordinates and conditions."""
    what = f"problem {problem.name!r}"
    lower, _ = _time_interval(problem)
    for name, interval in problem.intervals.items():
        if name != TIME and not interval.periodic:
            raise InputError(f"{what}: coordinate {name!r}", "it is not periodic",
                             f"Declare it as {name}=periodic(lower, upper), or use another method")
    equations = [c for c in problem.conditions if c.sampled]
    if len(equations) != 1:
        raise InputError(f"{what}: {len(equations)} differential equations",
                         "the spectral method solves one", "State it as one interior(residual)")
    start = problem.initial
    if start is None or not callable(start.values):
        raise InputError(what, "it has no initial condition given by a function",
                         "Add initial(u0) with u0 a function of the space coordinates")
    if any(face[TIME] != lower for face in start.faces):
        raise InputError(f"{what}: condition {start.name!r}", f"it is not at t = {lower:g}",
                         "Prescribe the initial values at the first time")
    for condition in problem.conditions:
        if condition is not start and condition.points is None and not condition.sampled:
            raise InputError(f"{what}: condition {condition.name!r}",
                             "a periodic solution is determined without it", "Leave it out")
    return equations[0]


def _check_time_derivatives(problem: Problem, columns: Mapping[Entry, np.ndarray]) -> None:
    """Raise unless the residuals are u_t + ..., one equation an unknown, in their order."""
    what, first = f"the residual of {problem.name!r}", _time_index(problem)
    position = problem.names.index(TIME)
    count, equations = len(problem.unknowns), next(iter(columns.values())).shape[1]
    if equations != count:
        raise InputError(f"{what}: {equations} equations", f"there are {count} unknowns",
                         "Give one equation for the time derivative of each")
    for (k, index), column in columns.items():
        name = problem.unknowns[k]
        if index[position] and index != first and np.any(column):
            letters = "".join(c * n for c, n in zip(problem.names, index, strict=True))
            raise InputError(f"{what}: {name}.{letters}", "only first order in time is solved",
                             "Write it as a system of first order, without mixed derivatives")
        if index == first:
            finite = column[np.isfinite(column).all(axis=1)]
            if not len(finite) or np.any(abs(finite - np.eye(count)[k]) > ROUNDING):
                raise InputError(
                    f"{what}: {name}.{TIME}", "its coefficient must be 1 in one equation, else 0",
                    f"Divide by it, and write the equation of {name} in place {k + 1}")
    if first not in {index for _, index in columns}:
        raise InputError(what, "it has no time derivative", f"Write it as u.{TIME} + ...")


def _time_interval(problem: Problem) -> tuple[float, float]:
    if problem.time is None:
        raise InputError(f"problem {problem.name!r}", f"it has no coordinate {TIME!r}",
                         "Use the spectral method for evolution equations")
    interval = problem.intervals[TIME]
    return interval.lower, interval.upper


def _time_index(problem: Problem) -> Index:
    return tuple(int(name == TIME) for name in problem.names)


def _space_names(problem: Problem) -> tuple[str, ...]:
    return tuple(name for name in problem.names if name != TIME)


def _in_space(problem: Problem, index: Index) -> Index:
    """A multi-index without its time entry."""
    return tuple(n for name, n in zip(problem.names, index, strict=True) if name != TIME)


# Space: real Fourier series on a periodic box.


@dataclass(frozen=True)
class Fourier:
    """Real Fourier series with `modes` terms a coordinate (half of them stored in the last)."""

    lower: tuple[float, ...]
    lengths: tuple[float, ...]
    modes: int

    @staticmethod
    def of(problem: Problem, modes: int) -> Fourier:
        box = [problem.intervals[name] for name in _space_names(problem)]
        return Fourier(tuple(i.lower for i in box), tuple(i.length for i in box), modes)

    @property
    def dimensions(self) -> tuple[int, ...]:
        return tuple(range(-len(self.lengths), 0))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.modes,) * len(self.lengths)

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.modes // 2 + 1)

    def axes(self, count: int) -> list[np.ndarray]:
        """`count` equally spaced coordinates each, the upper end left out."""
        return [a + length * np.arange(count) / count
                for a, length in zip(self.lower, self.lengths, strict=True)]

    def points(self, count: int) -> list[np.ndarray]:
        """The grid of `count` points a coordinate, ready to broadcast."""
        return list(np.meshgrid(*self.axes(count), indexing="ij", sparse=True))

    def wave_numbers(self) -> list[np.ndarray]:
        """The integer wave numbers along each coordinate, ready to broadcast."""
        full = np.fft.fftfreq(self.modes, 1 / self.modes)
        axes = [full] * (len(self.lengths) - 1) + [np.fft.rfftfreq(self.modes, 1 / self.modes)]
        return list(np.meshgrid(*axes, indexing="ij", sparse=True))

    def derivative(self, index: Index) -> np.ndarray:
        """The symbol of D^a, the product of (i k)^a over the coordinates.

        On a grid the highest mode cos(k x) vanishes in odd derivatives.
        """
        symbol = np.ones(self.spectrum_shape, complex)
        for order, n, length in zip(index, self.wave_numbers(), self.lengths, strict=True):
            factor = (2j * np.pi / length * n) ** order
            symbol *= np.where(abs(2 * n) == self.modes, 0, factor) if order % 2 else factor
        return symbol

    def coefficients(self, function: Callable[[Sequence[np.ndarray]], np.ndarray]) -> np.ndarray:
        """The Fourier coefficients (in the scaling of `rfftn`) of a function by unknown.

        c_n = 1/length integral f exp(-i k x), by Gauss's rule in every grid cell. The s-th
        nodes of all cells make a shifted grid, hence one FFT a node and

            c_n = sum_s w_s exp(-i k (x_s - x_0)) FFT[f(x_j + x_s - x_0)]_n.

        Exact to rounding for data smooth within cells: their periodic continuation may have
        kinks and jumps at the ends of the box. The highest mode is left out.
        """
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        shifts, weights = (nodes + 1) / 2 / self.modes, weights / 2
        total = np.zeros((), complex)
        for choice in itertools.product(range(NODES), repeat=len(self.lengths)):
            moved = [x + length * shifts[s]
                     for x, length, s in zip(self.points(self.modes), self.lengths, choice,
                                             strict=True)]
            factor = np.ones(self.spectrum_shape, complex)
            for n, s in zip(self.wave_numbers(), choice, strict=True):
                factor *= weights[s] * np.exp(-2j * np.pi * shifts[s] * n)
                factor *= abs(2 * n) < self.modes
            total = total + factor * np.fft.rfftn(function(moved), axes=self.dimensions)
        return total

    def values(self, spectra: np.ndarray, count: int) -> np.ndarray:
        """The series on the grid of `count` points a coordinate, by unknown.

        The transform's length is the first multiple of `count` that resolves all modes;
        on a longer one than `modes` the highest, of which a grid knows no phase, is left out.
        """
        stride = -(-self.modes // count)
        length = stride * count
        if length != self.modes:
            last = (self.modes - 1) // 2
            kept = [np.arange(-last, last + 1)] * (len(self.lengths) - 1) + [np.arange(last + 1)]
            place = np.ix_(np.arange(len(spectra)), *kept)
            padded = np.zeros((len(spectra), *(length,) * len(kept[1:]), length // 2 + 1), complex)
            padded[place] = spectra[place] * (length / self.modes) ** len(kept)
            spectra = padded
        values = np.fft.irfftn(spectra, s=(length,) * len(self.lengths), axes=self.dimensions)
        return values[(slice(None), *(slice(None, None, stride),) * len(self.lengths))]


# Time: ETDRK4.


class Exponential(NamedTuple):
    """ETDRK4's coefficients by wave number; all but the exponentials still lack a factor dt."""

    whole: Any
    half: Any
    stage: Any
    first: Any
    middle: Any
    last: Any


def etdrk4(z: np.ndarray) -> Exponential:
    """The coefficients at z = L dt.

        stage = (e^(z/2) - 1)/z                    first = (-4 - z + e^z (4 - 3z + z^2))/z^3
        middle = (2 + z + e^z (z - 2))/z^3         last = (-4 - 3z - z^2 + e^z (4 - z))/z^3

    Entire functions that cancel catastrophically near z = 0, hence taken as their means
    over a circle around z, of radius 1 or 2, whichever keeps away from 0.
    """
    radius = np.where(abs(abs(z) - 1) > 0.5, 1.0, 2.0)
    mean = np.zeros((4, *z.shape), complex)
    for angle in 2 * np.pi * (np.arange(CONTOUR) + 0.5) / CONTOUR:
        w = z + radius * np.exp(1j * angle)
        e = np.exp(w)
        mean[0] += np.expm1(w / 2) / w
        mean[1] += (-4 - w + e * (4 - 3 * w + w**2)) / w**3
        mean[2] += (2 + w + e * (w - 2)) / w**3
        mean[3] += (-4 - 3 * w - w**2 + e * (4 - w)) / w**3
    return Exponential(np.exp(z), np.exp(z / 2), *(mean / CONTOUR))


def _stepper(equation: Semilinear, fourier: Fourier, dt: float, count: int
             ) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The compiled function that takes `count` steps from given spectra at a time t."""
    symbols = equation.symbols(fourier)
    # In two dimensions most symbols occur eight times.
    distinct, place = np.unique(symbols * dt, return_inverse=True)
    method = [c[place].reshape(symbols.shape) for c in etdrk4(distinct)]
    # Diffusion has real symbols; real coefficients then do the same work in half the memory.
    method = method if np.any(np.imag(symbols)) else [np.real(c) for c in method]
    c = Exponential(*(jnp.asarray(m) for m in (*method[:2], *(dt * m for m in method[2:]))))
    nonlinear = _nonlinear(equation, fourier)

    def step(i: Any, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, start = state
        t = start + i * dt
        n = nonlinear(u, t)
        a = c.half * u + c.stage * n
        n_a = nonlinear(a, t + dt / 2)
        b = c.half * u + c.stage * n_a
        n_b = nonlinear(b, t + dt / 2)
        d = c.half * a + c.stage * (2 * n_b - n)
        n_d = nonlinear(d, t + dt)
        return c.whole * u + c.first * n + 2 * c.middle * (n_a + n_b) + c.last * n_d, start

    return jax.jit(lambda u, t: jax.lax.fori_loop(0, count, step, (u, t))[0])


def _nonlinear(equation: Semilinear, fourier: Fourier
               ) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """N from spectra to spectra: one inverse transform for each derivative that N uses."""
    problem = equation.problem
    symbols = {index: fourier.derivative(_in_space(problem, index)) for _, index in equation.used}
    factors = {index: jnp.asarray(s if np.any(np.imag(s)) else np.real(s))
               for index, s in symbols.items()}
    space = [jnp.asarray(x) for x in fourier.points(fourier.modes)]

    def nonlinear(spectra: jax.Array, t: jax.Array) -> jax.Array:
        jet: dict[Entry, jax.Array] = {}
        if equation.used:
            stack = jnp.stack([factors[a] * spectra[k] if any(a) else spectra[k]
                               for k, a in equation.used])
            values = jnp.fft.irfftn(stack, s=fourier.shape, axes=fourier.dimensions)
            jet = dict(zip(equation.used, values, strict=True))
        terms = equation.nonlinear(jet, t, space)
        grid = jnp.stack([jnp.broadcast_to(n, fourier.shape) for n in terms])
        return jnp.fft.rfftn(grid, axes=fourier.dimensions)

    return nonlinear


def _steps_between(problem: Problem, steps: int, times: np.ndarray) -> int:
    """How many steps lie between two stored times; raises unless they are whole."""
    lower, upper = _time_interval(problem)
    gaps = np.diff(times)
    if np.ndim(times) != 1 or len(gaps) < 1 or np.ptp(gaps) > 1e-9 * abs(gaps[0]) or gaps[0] <= 0:
        raise InputError(f"times of shape {np.shape(times)}",
                         "they must increase in equal steps, two of them at least",
                         "Give np.linspace(first, last, count)")
    if abs(times[0] - lower) > 1e-12 * (upper - lower):
        raise InputError(f"first time {times[0]:g}", f"the initial time is {lower:g}",
                         "Start there")
    if steps < 1 or steps % len(gaps):
        raise InputError(f"{steps} steps", f"{len(times)} times make {len(gaps)} equal parts",
                         f"Take a multiple of {len(gaps)} steps")
    return steps // len(gaps)


def _check_resolution(modes: int, grid: int) -> None:
    for name, value in (("modes", modes), ("grid", grid)):
        if value < 2:
            raise InputError(f"{name} = {value}", "at least 2 are needed", "Give more")


def _relative(approximate: np.ndarray, exact: np.ndarray) -> float:
    """The relative L2 difference (the absolute one where `exact` vanishes)."""
    return float(np.linalg.norm(approximate - exact) / (np.linalg.norm(exact) or 1.0))
