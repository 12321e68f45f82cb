"""A problem is data plus plain residual functions.

Coordinates and unknowns have names; PDE, initial, boundary and data conditions are one
concept: a residual on a region. Everything else (derivatives, losses, references, the
linearised equation) is derived from what is stated here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from piratenets.errors import InputError, unknown_name
from piratenets.problems.symmetry import Symmetry
from piratenets.problems.unknown import Index, Names, Unknown

TIME = "t"
"""The coordinate that causal weights, windows and initial conditions refer to."""

Residual = Callable[..., Any]
"""`residual(s, c)` or `residual(s, c, p)`: a scalar, or a dict of scalars by equation.

`s` is the unknown itself when there is one, else the unknowns by name; `c` holds the
coefficients, `p` the point's coordinates and whatever values belong to it.
"""


@dataclass(frozen=True)
class Interval:
    """The range of one coordinate."""

    lower: float
    upper: float
    periodic: bool = False
    even: bool = False

    def __post_init__(self) -> None:
        if self.even and not self.periodic:
            raise InputError(f"interval ({self.lower}, {self.upper}) declared even",
                             "only a periodic coordinate can be", "Use periodic(..., even=True)")
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise InputError(f"interval ({self.lower}, {self.upper})", "its ends must be finite",
                             "Give two finite numbers")
        if not self.lower < self.upper:
            raise InputError(f"interval ({self.lower}, {self.upper})",
                             "the lower end is not below the upper one", "Swap them")

    @property
    def length(self) -> float:
        return self.upper - self.lower


def periodic(lower: float, upper: float, *, even: bool = False) -> Interval:
    """A coordinate on a circle: networks are built exactly periodic in it.

    `even` says that the solution is even about 0 in this coordinate; networks are then built
    so, unless `network.symmetries` is switched off. The equation and its data are checked for it.
    """
    return Interval(lower, upper, periodic=True, even=even)


@dataclass(frozen=True, eq=False)
class Condition:
    """A residual on a region.

    `faces` fixes coordinates: `({},)` is the whole domain, `({"x": 0}, {"x": 1})` two
    walls. `points` replaces them by given points (measurements). `values` are known
    values by unknown, a function of the free coordinates or arrays along `points`; the
    residual finds them in `p`, beside the coordinates, as `p.values`.
    """

    name: str
    residual: Residual
    faces: tuple[Mapping[str, float], ...] = ({},)
    points: np.ndarray | None = None
    values: Callable[..., Any] | np.ndarray | None = None

    @property
    def sampled(self) -> bool:
        """Whether the region has full dimension, so that fresh points are drawn in it."""
        return self.points is None and all(len(face) == 0 for face in self.faces)


def _mismatch(s: Any, c: Any, p: Any) -> Any:
    """The residual of every condition that prescribes values: prediction minus value."""
    unknowns = {"": s} if isinstance(s, Unknown) else {name: s[name] for name in s}
    return {k: u - v for (k, u), v in zip(unknowns.items(), p.values, strict=True)}


def interior(residual: Residual, name: str = "pde") -> Condition:
    """The differential equation (or system), on the whole domain."""
    return Condition(name, residual)


def initial(values: Callable[..., Any], name: str = "initial", at: float = 0.0) -> Condition:
    """Prescribed unknowns at the first time; `values(x, y, ...)` returns one or a tuple."""
    return Condition(name, _mismatch, faces=({TIME: at},), values=values)


def boundary(residual: Residual, *faces: Mapping[str, float], name: str = "boundary") -> Condition:
    """A residual on faces of the domain, each given by its fixed coordinates."""
    return Condition(name, residual, faces=faces)


def data(points: Any, values: Any, name: str = "data") -> Condition:
    """Measurements: `points` one row each in the order of the coordinates, `values` one
    column an unknown."""
    points, values = np.asarray(points, dtype=float), np.asarray(values, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    for label, array in (("points", points), ("values", values)):
        if array.ndim != 2:
            raise InputError(f"data {label} of shape {array.shape}", "a table is needed",
                             "Give one row a point")
        if not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise InputError(f"data {label}, row {row}: {array[row]}", "it is not finite",
                             "Remove or repair that row")
    if len(points) != len(values):
        raise InputError(f"{len(points)} data points with {len(values)} rows of values",
                         "each point needs its values", "Give as many rows in both")
    return Condition(name, _mismatch, points=points, values=values)


@dataclass(frozen=True)
class Spectral:
    """A periodic problem's reference: Fourier modes and ETDRK4, derived from the residual.

    `modes` a periodic coordinate and `steps` over the whole time; the solver repeats the
    computation with twice the modes and half the step to measure its own error. `times`
    and `grid` say how much of it is stored.
    """

    modes: int
    steps: int
    times: int
    grid: int


@dataclass(frozen=True)
class FiniteElements:
    """The lid-driven cavity's reference, with the regularised or the classical lid.

    `grid` equidistant points in each direction are stored.
    """

    lid: Literal["regularised", "classical"]
    grid: int = 257


@dataclass(frozen=True)
class Exact:
    """A reference in closed form: `solution(t, x, ...)` returns one value or a tuple."""

    solution: Callable[..., Any]
    grid: int = 101


ReferenceKind = Spectral | FiniteElements | Exact


@dataclass(frozen=True, eq=False)
class Problem:
    """Coordinates, unknowns, coefficients, conditions, and how to get a reference.

    Compared by identity: compiled functions are kept per problem object.
    """

    name: str
    coordinates: Mapping[str, Interval | tuple[float, float]]
    unknowns: Sequence[str]
    conditions: Sequence[Condition]
    coefficients: Mapping[str, float] = field(default_factory=dict[str, float])
    ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]])
    """Open intervals that coefficients must lie in, where the equation has such limits."""
    reference: ReferenceKind | None = None
    literature: ReferenceKind | None = None
    """What the literature scores this problem against, where that is another problem's solution."""
    measures: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(
        default_factory=dict[str, Callable[[Mapping[str, Any]], Any]])
    """Quantities to score beside the unknowns, computed from them."""
    up_to_constant: Sequence[str] = ()
    """Unknowns that the equations determine up to a constant: compared less their means."""
    milestones: Sequence[float] = ()
    """Times before the last one up to which the error is stated as well."""
    rough: Sequence[Mapping[str, float]] = ()
    """Places, each given by some coordinates, where data or solution are rough: sampling may be
    graded towards them."""
    shapes: Sequence[Callable[..., Any]] = ()
    """Known functions of the coordinates (all of them, in order) that have the shape of a
    roughness: networks see their values, which should be of order one, beside the coordinates,
    unless `network.shapes` is switched off."""
    magnitude: Callable[..., Any] | None = None
    """A positive function of the coordinates that is about as large as the unknowns, where they
    are smaller by orders in one place than in another and grow from there: networks then give
    the unknowns in its units, and residuals are taken in them, unless `network.shapes` is off."""
    symmetry: Symmetry | None = None
    """A motion that takes the solution into itself: networks are built so, unless
    `network.symmetries` is off. The equation and its data are checked for it."""
    terms: tuple[str, ...] = field(init=False)
    """Names of the scalar residuals of all conditions, in order: 'pde', 'initial' ..."""
    derivatives: Mapping[str, frozenset[Index]] = field(init=False)
    """The multi-indices each condition's residual uses, found by recording it once."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        intervals = {k: v if isinstance(v, Interval) else Interval(*v)
                     for k, v in self.coordinates.items()}
        put(self, "coordinates", intervals)
        put(self, "unknowns", tuple(self.unknowns))
        put(self, "conditions", tuple(self.conditions))
        self._check_names()
        for condition in self.conditions:
            self._check_region(condition)
        for place in self.rough:
            self._check_place("rough place", place)
        recorded = {c.name: record(self, c) for c in self.conditions}
        put(self, "derivatives", {k: used for k, (used, _) in recorded.items()})
        put(self, "terms", tuple(t for _, terms in recorded.values() for t in terms))
        for axis, interval in enumerate(intervals.values()):
            if interval.even:
                self._check_even(axis)
        if self.symmetry is not None:
            self._check_symmetry(self.symmetry)

    def _check_symmetry(self, symmetry: Symmetry) -> None:
        """Raise unless `order` motions are none, and residuals and prescribed values of a
        symmetric field keep their size under one."""
        random = np.random.default_rng(0)
        point = jnp.asarray(self.lower + (self.upper - self.lower) * random.random(len(self.names)))
        moved = jnp.stack(symmetry.move(*point))
        waves = random.standard_normal((len(self.unknowns), len(self.names)))

        def some(p: Any) -> Any:
            return jnp.sin(waves @ p + 1.0)

        whole, value = point, some(point)
        for _ in range(symmetry.order):
            whole = jnp.stack(symmetry.move(*whole))
            value = jnp.stack(symmetry.back(*value))
        kept = [("the motion", whole, point), ("what it does to the unknowns", value, some(point))]
        for condition in self.conditions:
            name = f"the size of condition {condition.name!r}"
            if condition.sampled:
                kept.append((name, *(self._square(condition, symmetry, some, p)
                                     for p in (point, moved))))
            elif callable(condition.values):
                kept.append((name, *(np.sum(prescribed_values(self, condition,
                                                              np.asarray(p)[None])**2)
                                     for p in (point, moved))))
        for name, a, b in kept:
            if not np.allclose(a, b, rtol=1e-6, atol=1e-9):
                raise InputError(f"the symmetry of problem {self.name!r}",
                                 f"{name} is not kept by {symmetry.order} motions from {point}"
                                 if name.startswith(("the m", "what")) else
                                 f"{name} differs at {point} and {moved}",
                                 "Leave `symmetry` away, or give the right motion")

    def _square(self, condition: Condition, symmetry: Symmetry, some: Callable[[Any], Any],
                point: Any) -> Any:
        """The sum of a condition's squared residuals for a field made symmetric."""
        def lookup(k: int, index: Index) -> Any:
            at: Callable[[Any], Any] = lambda p: symmetry.average(some, p)[k]  # noqa: E731
            for axis, n in enumerate(index):
                for _ in range(n):
                    at = _along(at, axis)
            return at(point)

        found = evaluate_residual(self, condition, lookup, self.coefficients, list(point))
        return sum(float(r) ** 2 for r in found.values())

    def _check_even(self, axis: int) -> None:
        """Raise unless residuals and prescribed values are the same at x and -x."""
        random = np.random.default_rng(0)
        length = self.upper - self.lower
        point = self.lower + length * random.random(len(self.names))
        mirrored = point.copy()
        mirrored[axis] = self.lower[axis] + (-point[axis] - self.lower[axis]) % length[axis]
        for condition in self.conditions:
            if condition.sampled:
                table = {(k, a): random.standard_normal() for k in range(len(self.unknowns))
                         for a in self.derivatives[condition.name]}
                sides = [evaluate_residual(self, condition,
                                           lambda k, a, s=sign, t=table: t[k, a] * s ** a[axis],
                                           self.coefficients, list(place))
                         for sign, place in ((1, point), (-1, mirrored))]
                pairs = [[float(v) for v in side.values()] for side in sides]
            elif callable(condition.values):
                pairs = [prescribed_values(self, condition, p[None, :]).ravel().tolist()
                         for p in (point, mirrored)]
            else:
                continue
            if not np.allclose(*pairs, rtol=1e-6, atol=1e-9):
                raise InputError(f"coordinate {self.names[axis]!r} of problem {self.name!r}, "
                                 "declared even",
                                 f"condition {condition.name!r} differs at {point} and {mirrored}",
                                 "Leave even=True away")

    def _check_names(self) -> None:
        names = [*self.coordinates, *self.unknowns]
        for name in names:
            if not name.isidentifier() or names.count(name) > 1:
                raise InputError(f"name {name!r} in problem {self.name!r}",
                                 "coordinates and unknowns need distinct names that Python accepts",
                                 "Rename it")
        conditions = [c.name for c in self.conditions]
        for name in conditions:
            if conditions.count(name) > 1:
                raise InputError(f"condition {name!r} in problem {self.name!r}",
                                 "two conditions have that name", "Give each its own `name=`")
        if not self.conditions:
            raise InputError(f"problem {self.name!r}", "it has no conditions",
                             "Give at least a PDE: conditions=[interior(residual)]")

    def _check_region(self, condition: Condition) -> None:
        for face in condition.faces:
            self._check_place(f"condition {condition.name!r}", face)
        if condition.points is not None:
            self.check_points(condition.points, f"condition {condition.name!r}")
            columns = np.asarray(condition.values).shape[1]
            if columns != len(self.unknowns):
                raise InputError(f"condition {condition.name!r}: {columns} columns of values",
                                 f"there are {len(self.unknowns)} unknowns", "Give one column each")

    def _check_place(self, what: str, place: Mapping[str, float]) -> None:
        for name, value in place.items():
            if name not in self.coordinates:
                raise unknown_name(f"{what}: coordinate", name, self.coordinates)
            interval = self.intervals[name]
            if not interval.lower <= value <= interval.upper:
                raise InputError(f"{what} at {name} = {value}",
                                 f"that is outside [{interval.lower}, {interval.upper}]",
                                 "Put it on the domain")

    @property
    def intervals(self) -> dict[str, Interval]:
        return {k: v for k, v in self.coordinates.items() if isinstance(v, Interval)}

    @property
    def names(self) -> tuple[str, ...]:
        """The coordinates' names, in order."""
        return tuple(self.coordinates)

    @property
    def time(self) -> int | None:
        """The position of time among the coordinates, if the problem has one."""
        return self.names.index(TIME) if TIME in self.names else None

    @property
    def lower(self) -> np.ndarray:
        return np.array([i.lower for i in self.intervals.values()], dtype=float)

    @property
    def upper(self) -> np.ndarray:
        return np.array([i.upper for i in self.intervals.values()], dtype=float)

    @property
    def initial(self) -> Condition | None:
        """The condition that prescribes the unknowns at the first time, if there is one."""
        for condition in self.conditions:
            if condition.values is not None and any(set(f) == {TIME} for f in condition.faces):
                return condition
        return None

    def coefficients_with(self, changes: Mapping[str, float] | None = None) -> dict[str, float]:
        """The coefficients, with some of them changed."""
        for name, value in (changes or {}).items():
            if name not in self.coefficients:
                raise unknown_name(f"coefficient of {self.name}", name, self.coefficients)
            lower, upper = self.ranges.get(name, (-math.inf, math.inf))
            if not lower < value < upper:
                raise InputError(f"coefficient {name} = {value}",
                                 f"{self.name} needs it between {lower:g} and {upper:g}",
                                 f"Its usual value is {self.coefficients[name]:g}")
        return {**self.coefficients, **(changes or {})}

    def check_points(self, points: np.ndarray, what: str = "points") -> None:
        """Raise unless `points` is a finite table of points inside the domain."""
        if points.ndim != 2 or points.shape[1] != len(self.names):
            raise InputError(f"{what} of shape {points.shape}",
                             f"one column is needed for each of {', '.join(self.names)}",
                             f"Give an array of shape (n, {len(self.names)})")
        if not np.isfinite(points).all():
            row = int(np.argwhere(~np.isfinite(points))[0, 0])
            raise InputError(f"{what}, row {row}: {points[row]}", "it is not finite",
                             "Remove or repair that row")
        slack = 1e-6 * (self.upper - self.lower)
        outside = (points < self.lower - slack) | (points > self.upper + slack)
        if outside.any():
            row, column = (int(i) for i in np.argwhere(outside)[0])
            interval = self.intervals[self.names[column]]
            raise InputError(
                f"{what}, row {row}: {self.names[column]} = {points[row, column]:g}",
                f"that is outside the domain [{interval.lower:g}, {interval.upper:g}]",
                "Ask for points inside it (a trained field is not extrapolated)")


def _along(function: Callable[[Any], Any], axis: int) -> Callable[[Any], Any]:
    """The derivative of a function of a point by one coordinate."""
    return lambda p: jax.jvp(function, (p,), (jnp.zeros_like(p).at[axis].set(1.0),))[1]


def evaluate_residual(problem: Problem, condition: Condition,
                      lookup: Callable[[int, Index], Any], coefficients: Mapping[str, Any],
                      coordinates: Sequence[Any], values: Any = None) -> dict[str, Any]:
    """A condition's residuals by term, for unknowns that `lookup(unknown, index)` provides.

    The arguments may be scalars (one point) or arrays (a grid): residuals are written
    point by point and work on either.
    """
    unknowns = {
        name: Unknown(name, problem.names, lambda index, k=k: lookup(k, index))
        for k, name in enumerate(problem.unknowns)
    }
    s = next(iter(unknowns.values())) if len(unknowns) == 1 else Names("unknown", unknowns)
    point: dict[str, Any] = dict(zip(problem.names, coordinates, strict=True))
    if values is not None:
        point["values"] = values
    arguments = (s, Names("coefficient", coefficients), Names("coordinate", point))
    result = condition.residual(*arguments[: _arity(condition.residual)])
    equations = result if isinstance(result, Mapping) else {"": result}
    return {f"{condition.name}.{k}" if k else condition.name: _value(v)
            for k, v in equations.items()}


def _value(result: Any) -> Any:
    return result.value if isinstance(result, Unknown) else result


def _arity(residual: Residual) -> int:
    """Whether a residual takes (s, c) or (s, c, p)."""
    count = len(inspect.signature(residual).parameters)
    if count not in (2, 3):
        raise InputError(f"residual {getattr(residual, '__name__', residual)!r}",
                         f"it takes {count} arguments",
                         "Write it as residual(u, c) or residual(u, c, p)")
    return count


def record(problem: Problem, condition: Condition) -> tuple[frozenset[Index], tuple[str, ...]]:
    """Which derivatives a residual uses and which terms it returns, found by tracing it."""
    used: set[Index] = set()

    def lookup(unknown: int, index: Index) -> Any:
        used.add(index)
        return jnp.ones(())

    def trace() -> dict[str, Any]:
        values = None if condition.values is None else [jnp.ones(())] * len(problem.unknowns)
        point = [jnp.ones(()) for _ in problem.names]
        return evaluate_residual(problem, condition, lookup, problem.coefficients, point, values)

    shapes = jax.eval_shape(trace)
    for term, shape in shapes.items():
        if shape.shape != ():
            raise InputError(f"residual {term!r} of shape {shape.shape}",
                             "a residual is one number at one point",
                             "Return a dict with one scalar for each equation")
    return frozenset(used), tuple(shapes)


def prescribed_values(problem: Problem, condition: Condition, points: np.ndarray) -> np.ndarray:
    """A condition's values (n, k) at points, from its function of the free coordinates."""
    assert callable(condition.values)
    free = [points[:, k] for k, name in enumerate(problem.names)
            if name not in condition.faces[0]]
    values = condition.values(*free)
    columns = values if isinstance(values, tuple | list) else (values,)
    table = np.stack([np.broadcast_to(np.asarray(c, dtype=float), (len(points),))
                      for c in columns], axis=1)
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0, 0])
        place = ", ".join(f"{n} = {x:g}" for n, x in zip(problem.names, points[row], strict=True))
        raise InputError(f"condition {condition.name!r} at {place}: {table[row]}",
                         "it is not finite", "Mend its function there")
    return table
