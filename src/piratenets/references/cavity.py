"""Steady flow in the lid-driven cavity: a reference made by finite elements.

The problem, on the unit square with the lid y = 1 sliding in its own plane:

    u . grad u + grad p - (1/Re) lap u = 0,    div u = 0,
    u = (lid velocity, 0) on y = 1,    u = 0 on the other three walls.

Two lids are offered.  The *regularised* lid moves with 1 - cosh(50 (x - 1/2)) / cosh(25),
which is 1 but for layers of width 1/50 where it falls to 0 at the ends.  The *classical*
lid moves with 1 all along; the velocity then jumps at the two upper corners.

The method and the reasons for it:

* **Elements.**  Taylor-Hood of high order: velocity continuous and of degree 4 in each
  direction (Q4), pressure continuous and of degree 3 (Q3).  The pair is inf-sup stable.  At a
  given cost the order 4 measured more accurate by far than 2 and 3, and cheaper than 5.
  A continuous pressure has one value at every point, also on the edges between elements.
* **Mesh.**  A tensor product of one graded set of nodes (`_graded_nodes`), fine at the walls
  and finest in the corners, where even the regularised lid leaves a weak singularity: the
  walls meet at rest but the velocity's slope along the lid jumps, and p grows like log r.
  (With the classical lid p grows like 1/r.)  Against both, grading is the remedy.
* **Nonlinear equations.**  Newton's method with the exact Jacobian, started from the Stokes
  flow and continued through increasing Reynolds numbers.
* **Linear equations.**  Sparse LU in an elimination order of our own, nested dissection along
  the lines of the tensor mesh, after a symmetric scaling that makes the diagonal pivots safe
  (`_Discretisation.solve`).

The pressure is fixed by a zero integral over the cavity.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse
from scipy.sparse.linalg import splu
from skfem import Basis, BilinearForm, ElementQuadP, LinearForm, MeshLine, MeshQuad, condense, solve
from skfem.element import ElementLinePp

from piratenets.errors import ConvergenceError, InputError, unknown_name

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Lid = Literal["regularised", "classical"]
Progress = Callable[[str], None]

LARGEST_REYNOLDS = 5000.0
"""Beyond it the resolution is untested, and from about 8000 on the steady flow is unstable."""

DEGREE = 4
"""Degree of the velocity in each direction; the pressure has one less."""

DEFAULT_ELEMENTS = 40
"""Elements in each direction: an error near 1e-5 at Re = 3200, in about a gigabyte."""

COARSENING = math.sqrt(2.0)
"""Ratio of the two meshes compared by `cavity_with_error`."""

STOKES_REACH = 50.0
"""Continuation treats the Stokes flow as if it were the flow at this Reynolds number."""

LARGEST_STEP = 4.0
"""Largest ratio of successive Reynolds numbers that continuation tries."""

SMALLEST_STEP = 1.05
"""Ratio of successive Reynolds numbers below which continuation gives up."""

NEWTON_ITERATIONS = 12
NEWTON_TOLERANCE = 1e-7
"""Largest last step: convergence is quadratic, so what is left is of its square, near 1e-13."""

DIVERGED = 10.0
"""A Newton step this many times the speed of the lid will not lead back to the solution."""


@dataclass(frozen=True)
class CavityFlow:
    """The steady flow at one Reynolds number, on a tensor grid.

    `u`, `v` and `p` have the shape (len(x), len(y)), x first.  The pressure has zero mean over
    the cavity (of the finite element function, not of the grid's values).  At the two ends of
    the lid the exact pressure is unbounded; there `p` is finite but depends on the mesh.
    """

    reynolds: float
    lid: Lid
    x: Array
    y: Array
    u: Array
    v: Array
    p: Array


@BilinearForm
def _stiffness_form(u: Any, test: Any, _: Any) -> Any:
    return u.grad[0] * test.grad[0] + u.grad[1] * test.grad[1]


@BilinearForm
def _advection_form(u: Any, test: Any, flow: Any) -> Any:
    return (flow.u * u.grad[0] + flow.v * u.grad[1]) * test


@BilinearForm
def _mass_form(u: Any, test: Any, _: Any) -> Any:
    return u * test


@BilinearForm
def _weighted_mass_form(u: Any, test: Any, extra: Any) -> Any:
    return extra.weight * u * test


@BilinearForm
def _slope_x_form(u: Any, test: Any, _: Any) -> Any:
    return u.grad[0] * test


@BilinearForm
def _slope_y_form(u: Any, test: Any, _: Any) -> Any:
    return u.grad[1] * test


def _lid_velocity(lid: Lid, x: Array) -> Array:
    """Velocity of the lid at x; the ends belong to the walls and are at rest for both lids."""
    if lid == "regularised":
        return 1.0 - np.cosh(50.0 * (x - 0.5)) / np.cosh(25.0)
    return np.where((x > 0.0) & (x < 1.0), 1.0, 0.0)


def _lid_slope(lid: Lid, x: Array) -> Array:
    """Derivative of the lid's velocity inside the elements."""
    if lid == "regularised":
        return -50.0 * np.sinh(50.0 * (x - 0.5)) / np.cosh(25.0)
    return np.zeros_like(x)


def _graded_nodes(elements: int) -> Array:
    """Nodes s^2 / (s^2 + (1-s)^2) of equidistant s: spacing about 1/elements^2 at the walls.

    The exponent 2 measured best for the velocity at the default resolution: less grading loses
    the corners, more takes nodes from the core and from the shear layers around it.
    """
    s = np.linspace(0.0, 1.0, elements + 1)
    return s**2 / (s**2 + (1.0 - s) ** 2)


def _tensor_mesh(nodes: Array) -> Any:
    """Rectangles between all nodes; cell (i, j) has number i * n + j and its axes along x and y.

    All cells are oriented alike.  The element functions of odd degree along an edge need that:
    they change sign with the direction of the edge, which both its cells must agree on.
    """
    n = len(nodes) - 1
    points = np.stack(np.meshgrid(nodes, nodes, indexing="ij")).reshape(2, -1)
    corner = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    corners = [corner[:-1, :-1], corner[1:, :-1], corner[1:, 1:], corner[:-1, 1:]]
    return MeshQuad(points, np.stack([c.ravel() for c in corners]))


def _dof_places(element_dofs: Indices, size: int, n: int) -> Indices:
    """Where the degrees of freedom sit, as (2, size) integers in units of half a cell.

    The interior of cell i has the coordinate 2 i + 1, the line between the cells i - 1 and i
    has 2 i: the mean over the cells a degree of freedom belongs to gives both.  (On the outer
    boundary it gives the adjoining cell, which is as good for the purpose.)
    """
    cells = np.arange(n * n)
    places = np.empty((2, size), dtype=np.int64)
    for axis, coordinate in enumerate((cells // n, cells % n)):
        lowest = np.full(size, n, dtype=np.int64)
        highest = np.full(size, -1, dtype=np.int64)
        # Spelled out: `at` with operands of differing shape read beyond them in numpy 2.4.
        repeated = np.broadcast_to(coordinate, element_dofs.shape)
        np.minimum.at(lowest, element_dofs, repeated)
        np.maximum.at(highest, element_dofs, repeated)
        places[axis] = lowest + highest + 1
    return places


def _nested_dissection(unknowns: Indices, places: Indices, n: int) -> Indices:
    """Elimination order: halve the square along a mesh line, each half first, the line last.

    The halves do not couple, so elimination fills in nothing between them; on a tensor mesh
    this order is optimal up to a constant and costs nothing to find.  Inside each group the
    order of the numbering is kept, velocities before pressures: a pressure, with a zero on the
    diagonal, gets its pivot from the velocities eliminated before it.
    """

    def order(group: Indices, box: tuple[tuple[int, int], tuple[int, int]]) -> list[Indices]:
        lengths = [high - low for low, high in box]
        if max(lengths) <= 1:
            return [group]
        axis = lengths.index(max(lengths))
        middle = sum(box[axis]) // 2
        place = places[axis, group]
        low, high = list(box), list(box)
        low[axis], high[axis] = (box[axis][0], middle), (middle, box[axis][1])
        below = order(group[place < 2 * middle], (low[0], low[1]))
        above = order(group[place > 2 * middle], (high[0], high[1]))
        return [*below, *above, group[place == 2 * middle]]

    return np.concatenate(order(unknowns, ((0, n), (0, n))))


class _Discretisation:
    """The finite element spaces on one mesh, and all that does not change with the flow.

    A state is one vector: the coefficients of u, then of v, then of p.
    """

    def __init__(self, lid: Lid, elements: int) -> None:
        self.lid: Lid = lid
        self.nodes = _graded_nodes(elements)
        mesh = _tensor_mesh(self.nodes)
        # Gauss points exact to the degree of (velocity)(velocity)(velocity's derivative).
        self.velocity: Any = Basis(mesh, ElementQuadP(DEGREE), intorder=3 * DEGREE - 1)
        self.pressure: Any = self.velocity.with_element(ElementQuadP(DEGREE - 1))
        self.n_velocity = int(self.velocity.N)
        self.size = 2 * self.n_velocity + int(self.pressure.N)
        self.stiffness: Any = _stiffness_form.assemble(self.velocity)
        self.pressure_mass: Any = _mass_form.assemble(self.pressure)
        self.slope_x: Any = _slope_x_form.assemble(self.velocity, self.pressure)
        self.slope_y: Any = _slope_y_form.assemble(self.velocity, self.pressure)
        self.walls: Indices = np.asarray(self.velocity.get_dofs().flatten(), dtype=np.int64)
        self.lifting = self._lifting()
        self.unknowns = self._unknowns(elements)

    def _lifting(self) -> Array:
        """Coefficients of u that are the lid's velocity on the lid and zero elsewhere.

        On the lid this is the projection in the H1 seminorm: exact at the nodes, and local, so
        that the jump of the classical lid is one linear ramp over the last element, without
        overshoots.  The lid's functions are those of the line's element of the same degree.
        """
        mesh = self.velocity.mesh
        line: Any = Basis(MeshLine(self.nodes), ElementLinePp(DEGREE), intorder=4 * DEGREE)
        stiffness = BilinearForm(lambda u, test, _: u.grad[0] * test.grad[0]).assemble(line)
        load = LinearForm(lambda test, at: _lid_slope(self.lid, at.x[0]) * test.grad[0])
        trace = line.zeros()
        trace[line.nodal_dofs[0]] = _lid_velocity(self.lid, line.mesh.p[0])
        inside = line.interior_dofs.ravel()
        trace = solve(*condense(stiffness, load.assemble(line), x=trace, I=inside))

        lifting = np.zeros(self.n_velocity)
        corners = np.flatnonzero(mesh.p[1] == 1.0)
        lifting[self.velocity.nodal_dofs[0, corners]] = _lid_velocity(self.lid, mesh.p[0, corners])
        edges = np.flatnonzero(np.all(mesh.p[1, mesh.facets] == 1.0, axis=0))
        edges = edges[np.argsort(mesh.p[0, mesh.facets].min(axis=0)[edges])]
        lines = np.argsort(line.mesh.p[0, line.mesh.t].min(axis=0))
        lifting[self.velocity.facet_dofs[:, edges]] = trace[line.interior_dofs[:, lines]]
        return lifting

    def _unknowns(self, elements: int) -> Indices:
        """The degrees of freedom to solve for, in the order of their elimination.

        Known are the velocity at the walls and, to take out the constant, one nodal value of
        the pressure (any would do).
        """
        n = self.n_velocity
        reference_pressure = [2 * n + int(self.pressure.nodal_dofs[0, 0])]
        known = np.concatenate([self.walls, n + self.walls, reference_pressure])
        velocity = _dof_places(self.velocity.element_dofs, n, elements)
        pressure = _dof_places(self.pressure.element_dofs, self.size - 2 * n, elements)
        places = np.concatenate([velocity, velocity, pressure], axis=1)
        return _nested_dissection(np.setdiff1d(np.arange(self.size), known), places, elements)

    def split(self, state: Array) -> tuple[Array, Array, Array]:
        """The coefficients of u, v and p."""
        n = self.n_velocity
        return state[:n], state[n : 2 * n], state[2 * n :]

    def _saddle(self, blocks: Sequence[Sequence[Any]]) -> Any:
        """The whole matrix from the four blocks of the velocity.

        The equation of continuity is taken with a minus, which makes the coupling symmetric.
        """
        (uu, uv), (vu, vv) = blocks
        dx, dy = -self.slope_x, -self.slope_y
        return sparse.bmat([[uu, uv, dx.T], [vu, vv, dy.T], [dx, dy, None]], format="csr")

    def stokes(self) -> Array:
        """The flow without inertia: the state to start from, whose pressure is of no use."""
        jacobian = self._saddle([[self.stiffness, None], [None, self.stiffness]])
        state = np.zeros(self.size)
        state[: self.n_velocity] = self.lifting
        return state + self.solve(jacobian, -(jacobian @ state), 1.0)

    def linearise(self, state: Array, reynolds: float) -> tuple[Any, Array]:
        """Jacobian and residual of the weak equations at a state."""
        u, v, p = self.split(state)
        u_field = self.velocity.interpolate(u)
        v_field = self.velocity.interpolate(v)
        momentum = _advection_form.assemble(self.velocity, u=u_field, v=v_field)
        momentum = momentum + self.stiffness / reynolds
        residual = np.concatenate(
            [
                momentum @ u - self.slope_x.T @ p,
                momentum @ v - self.slope_y.T @ p,
                -(self.slope_x @ u + self.slope_y @ v),
            ]
        )
        mass = _weighted_mass_form
        blocks = [
            [mass.assemble(self.velocity, weight=field.grad[axis]) for axis in (0, 1)]
            for field in (u_field, v_field)
        ]
        blocks[0][0] = blocks[0][0] + momentum
        blocks[1][1] = blocks[1][1] + momentum
        return self._saddle(blocks), residual

    def solve(self, jacobian: Any, right: Array, reynolds: float) -> Array:
        """The solution for the unknowns, zero for the rest; RuntimeError if singular.

        Velocities are scaled by the diagonal of the viscous term, pressures by that of
        Re * (mass), to which the Schur complement of the pressure is equivalent: all pivots
        met on the diagonal are then of order one, and the threshold, which would exchange rows
        and destroy the elimination order, hardly ever acts.  Without the scaling it does, and
        at Re = 100 the factors were three times larger and ten times dearer.
        """
        viscous = self.stiffness.diagonal() / reynolds
        diagonal = np.concatenate([viscous, viscous, self.pressure_mass.diagonal() * reynolds])
        scale = 1.0 / np.sqrt(diagonal[self.unknowns])
        scaling = sparse.diags_array(scale)
        matrix = scaling @ jacobian[self.unknowns][:, self.unknowns] @ scaling
        factors = splu(
            matrix.tocsc(),
            permc_spec="NATURAL",
            diag_pivot_thresh=1e-3,
            options={"SymmetricMode": True, "Equil": False},
        )
        solution = np.zeros(self.size)
        solution[self.unknowns] = scale * factors.solve(scale * right[self.unknowns])
        return solution

    def evaluate(self, state: Array, points: Array) -> tuple[Array, Array, Array]:
        """u, v and p, with zero mean, at points of shape (2, n): the finite element functions."""
        cells_each_way = len(self.nodes) - 1
        place = np.searchsorted(self.nodes, points, side="right") - 1
        place = np.clip(place, 0, cells_each_way - 1)
        local = (points - self.nodes[place]) / np.diff(self.nodes)[place]
        cells = place[0] * cells_each_way + place[1]

        def values(basis: Any, coefficients: Array) -> Array:
            total = np.zeros(points.shape[1])
            for i in range(basis.Nbfun):
                shape, _ = basis.elem.lbasis(local, i)
                total += shape * coefficients[basis.element_dofs[i, cells]]
            return total

        u, v, p = self.split(state)
        mean = float(np.sum(np.asarray(self.pressure.interpolate(p)) * self.pressure.dx))
        return values(self.velocity, u), values(self.velocity, v), values(self.pressure, p) - mean

    def sample(self, state: Array, reynolds: float, grid: int) -> CavityFlow:
        """The flow on the uniform grid of grid x grid points."""
        x = np.linspace(0.0, 1.0, grid)
        points = np.stack(np.meshgrid(x, x, indexing="ij")).reshape(2, -1)
        u, v, p = (field.reshape(grid, grid) for field in self.evaluate(state, points))
        return CavityFlow(reynolds, self.lid, x, x.copy(), u, v, p)

    def project(self, other: _Discretisation, state: Array) -> Array:
        """A state to start Newton from, out of a state on another mesh.

        Its velocity is projected in L2.  Its pressure is left at zero: the equations are
        linear in it, so Newton's first step does not depend on it.
        """
        points = np.asarray(self.velocity.global_coordinates())
        u, v, _ = other.evaluate(state, points.reshape(2, -1))
        projected = np.zeros(self.size)
        for part, field in zip(self.split(projected), (u, v), strict=False):
            part[:] = self.velocity.project(field.reshape(points.shape[1:]))
            part[self.walls] = 0.0
        projected[self.walls] = self.lifting[self.walls]
        return projected


def _newton(
    space: _Discretisation, state: Array, reynolds: float, report: Progress
) -> Array | None:
    """Newton's method from a state; None where it does not converge."""
    start = time.perf_counter()
    for iteration in range(1, NEWTON_ITERATIONS + 1):
        jacobian, residual = space.linearise(state, reynolds)
        try:
            step = space.solve(jacobian, -residual, reynolds)
        except RuntimeError:  # how splu says that the matrix is singular
            return None
        state = state + step
        largest = float(np.max(np.abs(step[: 2 * space.n_velocity])))
        if not largest < DIVERGED:  # also where it is not a number
            return None
        if largest < NEWTON_TOLERANCE:
            seconds = time.perf_counter() - start
            report(
                f"Re {reynolds:g}, {len(space.nodes) - 1} elements each way: "
                f"{iteration} Newton iterations, {seconds:.1f} s"
            )
            return state
    return None


def _advance(
    space: _Discretisation, state: Array, reached: float, target: float, report: Progress
) -> Array:
    """From the state at one Reynolds number to that at another, by as few steps as succeed."""
    goals = [target]
    while goals:
        goal = goals[-1]
        solution = None
        if goal <= LARGEST_STEP * reached:
            solution = _newton(space, state, goal, report)
        if solution is not None:
            state, reached = solution, goals.pop()
            continue
        if goal <= SMALLEST_STEP * reached:
            raise _no_convergence(goal, reached, len(space.nodes) - 1)
        goals.append(math.sqrt(reached * goal))
    return state


def _no_convergence(reynolds: float, reached: float, elements: int) -> ConvergenceError:
    return ConvergenceError(
        f"Re = {reynolds:g} on {elements} elements each way",
        f"Newton's method does not converge, even from the flow at Re = {reached:g}; "
        "the mesh is too coarse for the boundary layers",
        f"Use more elements (the default is {DEFAULT_ELEMENTS})",
    )


def _continue(space: _Discretisation, reynolds: Sequence[float], report: Progress) -> list[Array]:
    """The states at increasing Reynolds numbers, each from the one before."""
    states: list[Array] = []
    state, reached = space.stokes(), STOKES_REACH
    for target in reynolds:
        state = _advance(space, state, reached, target, report)
        reached = target
        states.append(state)
    return states


def _check_arguments(reynolds: Sequence[float], lid: str, elements: int, grid: int) -> None:
    """Raise `InputError` for what cannot be solved, saying what to give instead."""
    if len(reynolds) == 0:
        raise InputError("reynolds = []", "there is nothing to solve", "Give a Reynolds number")
    for value in reynolds:
        if not 0.0 < value <= LARGEST_REYNOLDS:
            raise InputError(
                f"Re = {value:g}",
                f"flows are resolved for 0 < Re <= {LARGEST_REYNOLDS:g}, and not far beyond "
                "the steady flow is unstable",
                f"Give a positive Reynolds number up to {LARGEST_REYNOLDS:g}",
            )
    if any(after <= before for before, after in itertools.pairwise(reynolds)):
        raise InputError(
            f"reynolds = {list(reynolds)}",
            "the values do not increase, but each flow is found from the one before",
            "Sort them and remove repetitions",
        )
    if lid not in ("regularised", "classical"):
        raise unknown_name("lid", lid, ("regularised", "classical"))
    if elements < 4:
        raise InputError(f"elements = {elements}", "it resolves nothing", "Give at least 4")
    if grid < 2:
        raise InputError(f"grid = {grid}", "it cannot hold both walls", "Give at least 2 points")


def _silent(_: str) -> None:
    """The progress report of a caller who wants none."""


def solve_cavity(
    reynolds: Sequence[float],
    lid: Lid = "regularised",
    elements: int = DEFAULT_ELEMENTS,
    grid: int = 257,
    progress: Progress | None = None,
) -> list[CavityFlow]:
    """The steady flows at the given Reynolds numbers.

    The Reynolds numbers must increase, up to `LARGEST_REYNOLDS`; continuation goes through
    them, and through values of its own between them where needed.  `elements` counts the
    elements in each direction, `grid` the equidistant points in each direction, walls
    included, at which the finite element functions are evaluated.  `progress` gets a line of
    text for every flow that is found.

    Raises `InputError` for arguments out of range and `ConvergenceError` where Newton's method
    does not converge however small the steps in the Reynolds number.
    """
    _check_arguments(reynolds, lid, elements, grid)
    space = _Discretisation(lid, elements)
    states = _continue(space, reynolds, progress or _silent)
    return [
        space.sample(state, value, grid) for value, state in zip(reynolds, states, strict=True)
    ]


def cavity_with_error(
    reynolds: Sequence[float],
    lid: Lid = "regularised",
    elements: int = DEFAULT_ELEMENTS,
    grid: int = 257,
    progress: Progress | None = None,
) -> list[tuple[CavityFlow, dict[str, float]]]:
    """The flows of `solve_cavity`, each with its error measured by refinement.

    The flow is that on `elements` in each direction; the errors are its relative L2
    differences on the grid from the flow on a mesh coarser by `COARSENING` (see
    `relative_difference` for the keys).  They are in truth the errors of the coarser mesh: at
    the order of these elements that of the flow returned is several times smaller.

    The continuation is done on the coarser mesh; the finer one starts from its results.
    """
    _check_arguments(reynolds, lid, elements, grid)
    report = progress or _silent
    coarse = _Discretisation(lid, round(elements / COARSENING))
    coarse_states = _continue(coarse, reynolds, report)
    fine = _Discretisation(lid, elements)
    results: list[tuple[CavityFlow, dict[str, float]]] = []
    for value, coarse_state in zip(reynolds, coarse_states, strict=True):
        # The projection is near the solution, so that a full step in Re is never too long.
        state = _advance(fine, fine.project(coarse, coarse_state), value, value, report)
        flow = fine.sample(state, value, grid)
        results.append((flow, relative_difference(coarse.sample(coarse_state, value, grid), flow)))
    return results


def relative_difference(flow: CavityFlow, reference: CavityFlow) -> dict[str, float]:
    """Relative differences of two flows on one grid, in the root of the sum of squares.

    Keys: `u`, `v`, `speed` (the velocity's magnitude) and `p`.  The pressure at the two ends of
    the lid is left out: the exact one is infinite there, and the computed one grows with
    refinement without end.
    """

    def relative(field: Array, exact: Array) -> float:
        return float(np.linalg.norm(field - exact) / np.linalg.norm(exact))

    bounded = np.ones(reference.p.shape, dtype=bool)
    bounded[0, -1] = bounded[-1, -1] = False
    return {
        "u": relative(flow.u, reference.u),
        "v": relative(flow.v, reference.v),
        "speed": relative(np.hypot(flow.u, flow.v), np.hypot(reference.u, reference.v)),
        "p": relative(flow.p[bounded], reference.p[bounded]),
    }
