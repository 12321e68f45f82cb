"""Reference solutions of periodic semilinear problems, derived from their own residuals.

A residual that is first order in time, with coefficient one, says

    u_t = L u + N(u, t, x),

L being its terms that are linear in u with constant coefficients and couple no unknown to
another. Both are read off the residual function: L from its derivatives with respect to
each D^a u at u = 0, N as what remains, evaluated on a grid. In Fourier space L is a number
for each wave number and is integrated exactly; N is integrated to fourth order by the
exponential Runge-Kutta method ETDRK4 (Cox and Matthews 2002), whose coefficients are
contour means (Kassam and Trefethen 2005). The contour is the full circle and the means stay
complex: dispersion (Korteweg-De Vries) has imaginary symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from piratenets.errors import ConvergenceError, InputError
from piratenets.problems.problem import TIME, Condition, Problem, Spectral, evaluate_residual
from piratenets.problems.unknown import Index

Progress = Callable[[str, float], None]
Entry = tuple[int, Index]
"""One entry of the unknowns' jet: (unknown, multi-index of the derivative)."""

PROBES = 32
CONTOUR = 32

REACTION = True
DEALIAS = 0.0
PROJECT = True


@dataclass(frozen=True)
class Semilinear:
    """u_t = L u + N(u, t, x), as found in a problem's residual."""

    problem: Problem
    condition: Condition
    coefficients: dict[str, float]
    linear: dict[Entry, float]
    """L's coefficient of each derivative of each unknown in that unknown's equation."""
    used: tuple[Entry, ...]
    """The derivatives that N depends on; all others it may take as zero."""

    def nonlinear(self, jet: Mapping[Entry, Any], t: Any, space: tuple[Any, ...]) -> list[Any]:
        """N by unknown, given the derivatives it uses as arrays on a grid."""
        point = list(space)
        point.insert(self.problem.names.index(TIME), t)
        residuals = evaluate_residual(
            self.problem, self.condition, lambda k, index: jet.get((k, index), jnp.zeros(())),
            self.coefficients, point)
        return [-r - sum(self.linear.get((k, a), 0.0) * d for (j, a), d in jet.items() if j == k)
                for k, r in enumerate(residuals.values())]


def semilinear(problem: Problem, coefficients: Mapping[str, float]) -> Semilinear:
    """L and N of a problem's PDE, or an error that says why it has no such form."""
    condition = _differential_equation(problem)
    values = problem.coefficients_with(coefficients)
    derivatives = sorted(problem.derivatives[condition.name])
    entries = [(k, a) for k in range(len(problem.unknowns)) for a in derivatives]
    jacobians = _jacobians(problem, condition, values, entries)
    column = {entry: jacobians[:, :, i] for i, entry in enumerate(entries)}
    zero, spread = slice(0, PROBES), np.ptp
    _check_time_derivatives(problem, condition, column)
    linear: dict[Entry, float] = {}
    used: list[Entry] = []
    for (k, a), d in column.items():
        if a[problem.names.index(TIME)]:
            continue
        own = d[zero, k]
        if (REACTION or sum(a)) and np.isfinite(own).all() and spread(own) <= 1e-12 * abs(own[0]) and own[0]:
            linear[k, a] = -float(own[0])
        rest = d.copy()
        rest[:, k] += linear.get((k, a), 0.0)
        if not (abs(rest) <= 1e-12 * abs(linear.get((k, a), 0.0))).all():
            used.append((k, a))
    return Semilinear(problem, condition, values, linear, tuple(used))


def _jacobians(problem, condition, coefficients, entries):
    """d residual / d jet at PROBES points of the zero state, then of random states."""
    rng = np.random.default_rng(0)
    points = rng.uniform(problem.lower, problem.upper, (2 * PROBES, len(problem.names)))
    jets = rng.standard_normal((2 * PROBES, len(entries)))
    jets *= 10.0 ** rng.uniform(-2, 2, (2 * PROBES, 1))
    jets[:PROBES] = 0.0

    def residuals(jet, point):
        place = {entry: jet[i] for i, entry in enumerate(entries)}
        terms = evaluate_residual(problem, condition, lambda k, a: place[k, a], coefficients,
                                  list(point))
        return jnp.stack([jnp.asarray(r) for r in terms.values()])

    return np.asarray(jax.jit(jax.vmap(jax.jacfwd(residuals)))(jnp.asarray(jets), jnp.asarray(points)))


def _differential_equation(problem):
    pdes = [c for c in problem.conditions if c.sampled]
    return pdes[0]


def _check_time_derivatives(problem, condition, column):
    pass


# --- Fourier

@dataclass(frozen=True)
class Fourier:
    """The real Fourier series of `modes` terms a coordinate on a periodic box."""

    lower: tuple[float, ...]
    lengths: tuple[float, ...]
    modes: int

    @property
    def axes(self):
        return tuple(range(-len(self.lengths), 0))

    @property
    def shape(self):
        return (self.modes,) * len(self.lengths)

    def points(self, count):
        axes = [lo + length * np.arange(count) / count for lo, length in zip(self.lower, self.lengths, strict=True)]
        return tuple(np.meshgrid(*axes, indexing="ij", sparse=True))

    def symbol(self, index):
        """(i k)^a, one factor a coordinate; an odd derivative of the highest mode is 0."""
        result = np.ones((), complex)
        for axis, (order, length) in enumerate(zip(index, self.lengths, strict=True)):
            last = axis == len(self.lengths) - 1
            k = (np.fft.rfftfreq if last else np.fft.fftfreq)(self.modes, length / (2 * np.pi * self.modes))
            factor = (1j * k) ** order
            if order % 2 and self.modes % 2 == 0:
                factor[self.modes // 2] = 0.0
            result = np.multiply.outer(result, factor)
        return result if not np.any(result.imag) else result

    def mask(self, fraction):
        result = np.ones(())
        for axis in range(len(self.lengths)):
            last = axis == len(self.lengths) - 1
            k = (np.fft.rfftfreq if last else np.fft.fftfreq)(self.modes, 1 / self.modes)
            result = np.multiply.outer(result, (abs(k) < fraction * self.modes / 2).astype(float))
        return result

    def to_grid(self, spectra):
        return jnp.fft.irfftn(spectra, s=self.shape, axes=self.axes)

    def to_spectrum(self, values):
        return jnp.fft.rfftn(values, axes=self.axes)

    def project(self, function, nodes=8):
        import itertools
        x, w = np.polynomial.legendre.leggauss(nodes)
        x, w = (x + 1) / 2, w / 2
        base = self.points(self.modes)
        h = [l / self.modes for l in self.lengths]
        total = 0
        for qs in itertools.product(range(nodes), repeat=len(h)):
            shifted = [b + x[q] * hh for b, q, hh in zip(base, qs, h)]
            vals = function(*np.broadcast_arrays(*shifted))
            vals = np.stack([np.asarray(v) for v in (vals if isinstance(vals, tuple) else (vals,))])
            ph = np.ones(())
            for axis, q in enumerate(qs):
                last = axis == len(h) - 1
                k = (np.fft.rfftfreq if last else np.fft.fftfreq)(self.modes, 1 / self.modes)
                f = w[q] * np.exp(-2j * np.pi * k * x[q] / self.modes)
                if self.modes % 2 == 0:
                    f[self.modes // 2] = 0
                ph = np.multiply.outer(ph, f)
            total = total + ph * np.fft.rfftn(vals, axes=self.axes)
        return total


def etdrk4_coefficients(z):
    """e^z, e^(z/2), Q, f1, f2, f3"""
    def mean(f):
        radius = np.where(abs(abs(z) - 1) > 0.5, 1.0, 2.0)
        total = 0
        for j in range(CONTOUR):
            w = z + radius * np.exp(2j * np.pi * (j + 0.5) / CONTOUR)
            total = total + f(w)
        return total / CONTOUR
    q = mean(lambda w: np.expm1(w / 2) / w)
    f1 = mean(lambda w: (-4 - w + np.exp(w) * (4 - 3 * w + w**2)) / w**3)
    f2 = mean(lambda w: (2 + w + np.exp(w) * (w - 2)) / w**3)
    f3 = mean(lambda w: (-4 - 3 * w - w**2 + np.exp(w) * (4 - w)) / w**3)
    return np.exp(z), np.exp(z / 2), q, f1, f2, f3


def solve_spectral(problem, coefficients, modes, steps, times, grid, progress=None):
    pde = semilinear(problem, coefficients)
    box = [i for n, i in problem.intervals.items() if n != TIME]
    fourier = Fourier(tuple(i.lower for i in box), tuple(i.length for i in box), modes)
    unknowns = range(len(problem.unknowns))
    position = problem.names.index(TIME)
    space = lambda a: a[:position] + a[position + 1:]
    symbols = np.stack([sum((c * fourier.symbol(space(a)) for (j, a), c in pde.linear.items() if j == k), np.zeros(fourier.symbol((0,)*len(box)).shape, complex)) for k in unknowns])
    dt = (times[-1] - times[0]) / steps
    inner = steps // (len(times) - 1)
    flat, inverse = np.unique(symbols * dt, return_inverse=True)
    cs = [c[inverse].reshape(symbols.shape) for c in etdrk4_coefficients(flat)]
    if not symbols.imag.any():
        cs = [c.real for c in cs]
    mask = fourier.mask(DEALIAS) if DEALIAS else None
    cs = [dt * c if i > 1 else c for i, c in enumerate(cs)]
    if mask is not None:
        cs = [mask * c if i > 1 else c for i, c in enumerate(cs)]
    e, e2, q, f1, f2, f3 = [jnp.asarray(c) for c in cs]
    derivative = {a: jnp.asarray(fourier.symbol(space(a)) if (fourier.symbol(space(a)).imag.any()) else fourier.symbol(space(a)).real) for _, a in pde.used}
    points = tuple(jnp.asarray(p) for p in fourier.points(modes))

    def N(v, t):
        stack = fourier.to_grid(jnp.stack([v[k] if not any(a) else derivative[a] * v[k] for k, a in pde.used]))
        jet = dict(zip(pde.used, stack))
        return fourier.to_spectrum(jnp.stack([jnp.broadcast_to(n, fourier.shape) for n in pde.nonlinear(jet, t, points)]))

    def step(v, t):
        nv = N(v, t)
        a = e2 * v + q * nv
        na = N(a, t + dt / 2)
        b = e2 * v + q * na
        nb = N(b, t + dt / 2)
        c = e2 * a + q * (2 * nb - nv)
        nc = N(c, t + dt)
        return e * v + f1 * nv + 2 * f2 * (na + nb) + f3 * nc

    @jax.jit
    def advance(v, t):
        return jax.lax.fori_loop(0, inner, lambda i, v: step(v, t + i * dt), v)

    f = lambda *x: problem.initial.values(*x)
    first = f(*np.meshgrid(*[lo + l * np.arange(modes) / modes for lo, l in zip(fourier.lower, fourier.lengths)], indexing="ij"))
    first = np.stack([np.asarray(v) for v in (first if isinstance(first, tuple) else (first,))])
    v = jnp.asarray(fourier.project(f, PROJECT)) if PROJECT else fourier.to_spectrum(jnp.asarray(first))
    stride = modes // grid
    sub = (slice(None),) + (slice(None, None, stride),) * len(box)
    out = [first[sub]]
    for i, t in enumerate(times[:-1]):
        v = advance(v, jnp.asarray(t))
        out.append(np.asarray(fourier.to_grid(v))[sub])
    out = np.stack(out, 1)
    return dict(zip(problem.unknowns, out)), v
