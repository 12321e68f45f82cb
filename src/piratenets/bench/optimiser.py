"""How long the parts of a second-order iteration take, against the machine's own limit.

The limit is what a product of two large matrices reaches, on all cores and in the same run.
An iteration's work is counted in floating-point operations: N P^2 for J'J (one triangle, N rows
of P columns), P^3 / 3 for a Cholesky factorisation, 8 P^2 for an update of the inverse Hessian
(two products with a vector, a symmetric change of rank two), and what XLA's cost analysis says
of the Jacobian, residuals and gradients (a transcendental function counts as one operation).
Work / limit is the time that an iteration could not beat.

Points are held while iterations are timed. Drawing them is timed alone, and shared by the
iterations that use them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from statistics import median
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.table import Table
from scipy.linalg import get_blas_funcs

from piratenets.config import Config, changed
from piratenets.errors import InputError
from piratenets.optimisers.ssbroyden import QuasiNewton, updated_inverse
from piratenets.problems import find_problem
from piratenets.runs.directory import commit, machine
from piratenets.training.loop import Setting, advance, draw, one_step, prepared, split
from piratenets.training.state import TrainingState
from piratenets.training.trainer import Trainer
from piratenets.weighting.losses import Losses
from piratenets.weighting.system import System

SIZE = 2048
"""Of the matrices whose product is the limit: 17 billion operations."""
WARM_UP = 4
"""Iterations before the first that is timed: compilation, and a start unlike what follows."""
AT_ONCE = 5
"""Iterations of a compiled loop that are timed together."""
AIM = 2.5
"""An iteration within this many times the limit's time is good enough."""

Seconds = dict[str, list[float]]
"""Times of each part, a list entry an iteration."""


class Part(NamedTuple):
    """A part of an iteration: how often it is done in one, its time and work in all."""

    name: str
    calls: float
    seconds: float
    work: float


class Iteration(NamedTuple):
    """One iteration of an optimiser, from medians."""

    problem: str
    optimiser: str
    rows: int
    parameters: int
    seconds: float
    parts: list[Part]
    limit: float
    """Floating-point operations a second of a large matrix product."""

    @property
    def rest(self) -> float:
        """The time that belongs to no part (negative if the parts, timed alone, took longer)."""
        return self.seconds - sum(part.seconds for part in self.parts)

    @property
    def least(self) -> float:
        """The time that the work would take at the limit."""
        return sum(part.work for part in self.parts) / self.limit

    @property
    def ratio(self) -> float:
        return self.seconds / self.least


class Bench:
    """A problem at the point where iterations are timed: its points drawn, an optimiser chosen."""

    def __init__(self, config: Config, kind: str) -> None:
        # Points and weights hold from one drawing to the next: neither may come due while timed.
        self.trainer = Trainer(find_problem(config.problem), changed(config, {
            "optimiser.kind": kind, "optimiser.then": "none", "optimiser.then_at": 0,
            "training.precision": "float64", "sampling.redraw": 10**9,
            "weighting.update_every": 10**9, "training.patience": 0, "training.target": 0.0}))
        self.plan, self.redraw = self.trainer.plan, config.sampling.redraw
        self.state = self.trainer.start()
        self.setting: Setting = self.trainer.setting(self.state)
        self.state, self.system, _ = jax.jit(prepared, static_argnums=0)(
            self.plan, self.setting, self.state)

    @property
    def parameters(self) -> Any:
        return split(self.plan, self.state.network)[0]

    @property
    def size(self) -> int:
        return sum(p.size for p in jax.tree.leaves(self.parameters))

    @property
    def rows(self) -> int:
        return self.system.residual(self.parameters).size

    def iterate(self, count: int) -> None:
        until = jnp.asarray(int(self.state.step) + count, jnp.int32)
        self.state, _ = jax.block_until_ready(
            advance(self.plan, self.setting, self.state, until))

    def drawing(self, repeats: int) -> Part:
        """The points' share of an iteration."""
        drawn = jax.jit(draw, static_argnums=0)
        arguments = (self.plan, self.setting, jax.random.key(0), self.state.step,
                     self.state.network)
        jax.block_until_ready(drawn(*arguments))
        seconds = [timed(drawn, *arguments)[0] for _ in range(repeats)]
        return Part("points", 1 / self.redraw, median(seconds) / self.redraw, 0.0)


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """The seconds that a call takes until its result is there, and the result."""
    began = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - began, result


def matrix_product(size: int = SIZE) -> Callable[[], float]:
    """A function that measures the operations a second of one double-precision product."""
    a = np.asfortranarray(np.random.default_rng(0).standard_normal((size, size)))
    product: Any = get_blas_funcs("gemm", (a,))
    product(1.0, a, a)  # The first call starts the threads.
    return lambda: 2 * size**3 / timed(product, 1.0, a, a)[0]


def work_of(function: Callable[..., Any], *arguments: Any) -> float:
    """The floating-point operations that XLA counts in a function as it is compiled."""
    jitted: Any = eqx.filter_jit(function)
    costs: Any = jitted.lower(*arguments).compile().compiled.cost_analysis()
    return float(costs["flops"]) + float(costs.get("transcendentals", 0.0))


def loss_of(system: System, parameters: Any) -> tuple[Array, Losses]:
    return system(parameters)


def gradient_of(system: System, parameters: Any) -> tuple[Array, Any]:
    """The loss and its gradient, as a line search asks for them."""
    return jax.value_and_grad(lambda p: system(p)[0])(parameters)


STEPS_OF_LM = {"_block": "Jacobian", "syrk": "normal matrix J'J", "_solved": "Cholesky and solve",
               "_value": "trial evaluations"}
"""What the functions of `optimisers/levenberg_marquardt.py` do in an iteration."""


@contextmanager
def watched() -> Generator[Seconds]:
    """The times of every call of these functions, measured where an iteration makes them."""
    seconds: Seconds = defaultdict(list)

    def watch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            spent, result = timed(lambda: function(*arguments, **options))
            seconds[STEPS_OF_LM[name]].append(spent)
            return result

        return called

    def library(name: str, *arguments: Any) -> Any:
        function: Any = get_blas_funcs(name, *arguments)
        return watch(name, function)

    # By name: the package gives the function of the same name.
    module: Any = import_module("piratenets.optimisers.levenberg_marquardt")
    inside = [name for name in STEPS_OF_LM if name.startswith("_")]
    replaced = {**{name: watch(name, getattr(module, name)) for name in inside},
                "get_blas_funcs": library}
    kept = {name: getattr(module, name) for name in replaced}
    try:
        for name, function in replaced.items():
            setattr(module, name, function)
        yield seconds
    finally:
        for name, function in kept.items():
            setattr(module, name, function)


def bench_lm(config: Config, repeats: int) -> Iteration:
    """Iterations of Levenberg-Marquardt, timed part by part as they happen."""
    if jax.default_backend() != "cpu":
        raise InputError(f"backend {jax.default_backend()!r}",
                         "the parts of an iteration are timed on the CPU",
                         "Set JAX_PLATFORMS=cpu")
    bench, product = Bench(config, "lm"), matrix_product()
    bench.iterate(WARM_UP)
    limits: list[float] = []
    iterations: list[Seconds] = []
    for _ in range(repeats):
        limits.append(product())
        with watched() as seconds:
            whole, (bench.state, _) = timed(one_step, bench.plan, bench.setting, bench.state,
                                            _held(bench))
        iterations.append({**seconds, "whole": [whole]})
    return _lm_iteration(bench, iterations, median(limits), repeats)


def _held(bench: Bench) -> Callable[..., Any]:
    """What `prepared` gives while the points stay, without the time it takes to find that out."""
    return lambda plan, setting, state: (state, bench.system, jnp.asarray(False))


def _lm_iteration(bench: Bench, iterations: list[Seconds], limit: float, repeats: int
                  ) -> Iteration:
    size, rows, work = bench.size, bench.rows, _work_of_lm(bench)
    drawing = bench.drawing(repeats)
    parts = [drawing]
    for name in STEPS_OF_LM.values():
        calls = median(len(i.get(name, [])) for i in iterations)
        parts.append(Part(name, calls, median(sum(i.get(name, [])) for i in iterations),
                          work[name] * (calls if name in EACH else 1)))
    whole = median(i["whole"][0] for i in iterations) + drawing.seconds
    return Iteration(bench.trainer.problem.name, "Levenberg-Marquardt", rows, size, whole, parts,
                     limit)


EACH = ("Cholesky and solve", "trial evaluations")
"""Parts whose work is that of one call, of which an iteration makes as many as it needs."""


def _work_of_lm(bench: Bench) -> dict[str, float]:
    """The operations of each part: of one call for solves and trials, else of all together."""
    size, system, parameters = bench.size, bench.system, bench.parameters
    first, piece = jnp.asarray(0), defaultdict[int, int](int)
    for condition, _ in system.blocks:
        piece[condition] += 1
    jacobian = sum(count * work_of(System.block, system, parameters, condition, first)
                   for condition, count in piece.items())
    return dict(zip(STEPS_OF_LM.values(), (
        jacobian, float(bench.rows) * size**2, size**3 / 3 + 2.0 * size**2,
        work_of(loss_of, system, parameters)), strict=True))


class Counted(eqx.Module):
    """An objective that says whenever it is evaluated."""

    system: System
    say: Callable[[], None] = eqx.field(static=True)

    def __call__(self, parameters: Any) -> tuple[Array, Losses]:
        jax.debug.callback(self.say)
        return self.system(parameters)


def bench_ssbroyden(config: Config, repeats: int) -> Iteration:
    """Iterations of self-scaled Broyden, which are one compiled loop: the parts timed alone,
    in turn with the loop."""
    bench, product = Bench(config, "ssbroyden"), matrix_product()
    bench.iterate(WARM_UP * AT_ONCE)
    bench.iterate(AT_ONCE)
    evaluations = counting(bench)
    gradient = eqx.filter_jit(gradient_of)
    seconds: Seconds = defaultdict(list)
    limits: list[float] = []
    for k in range(repeats + 1):
        before, counted = bench.state, evaluations(bench.state)
        whole, _ = timed(bench.iterate, AT_ONCE)
        one_gradient, _ = timed(gradient, bench.system, bench.parameters)
        one_update, _ = timed(_update, before.optimiser, bench.state.optimiser)
        limit = product()
        if k:  # The first round compiles.
            limits.append(limit)
            for name, value in (("whole", whole / AT_ONCE), ("evaluations", counted),
                                ("gradient", one_gradient), ("update", one_update)):
                seconds[name].append(value)
    found = {name: median(values) for name, values in seconds.items()}
    return _ssbroyden_iteration(bench, found, median(limits), repeats)


def _ssbroyden_iteration(bench: Bench, found: dict[str, float], limit: float, repeats: int
                         ) -> Iteration:
    calls, drawing = found["evaluations"], bench.drawing(repeats)
    work = work_of(gradient_of, bench.system, bench.parameters)
    parts = [drawing,
             Part("gradient evaluations", calls, calls * found["gradient"], calls * work),
             Part("inverse update", 1.0, found["update"], 8.0 * bench.size**2)]
    return Iteration(bench.trainer.problem.name, "self-scaled Broyden", bench.rows, bench.size,
                     found["whole"] + drawing.seconds, parts, limit)


def counting(bench: Bench) -> Callable[[TrainingState], float]:
    """How many times an iteration evaluates its objective (nearly always with the gradient)."""
    calls: list[None] = []

    def prepare(plan: Any, setting: Any, state: Any) -> tuple[Any, Any, Array]:
        return state, Counted(bench.system, lambda: calls.append(None)), jnp.asarray(False)

    step = eqx.filter_jit(lambda state: one_step(bench.plan, bench.setting, state, prepare)[0])

    def evaluations(state: TrainingState) -> float:
        calls.clear()
        for _ in range(AT_ONCE):
            state = step(state)
        jax.block_until_ready(state)
        jax.effects_barrier()
        return len(calls) / AT_ONCE

    return evaluations


@jax.jit
def _update(before: QuasiNewton, after: QuasiNewton) -> Array:
    """The inverse's product with the gradient, and its change, for steps like the last one."""
    direction = -(before.inverse @ before.gradient)
    change = after.gradient - before.gradient
    # Along the change itself the curvature is positive: the update is never passed over.
    return updated_inverse(before.inverse, change, change + 1e-3 * direction, before.gradient,
                           jnp.asarray(1.0, change.dtype), bfgs=False)


def bench_optimiser(console: Console, configs: Sequence[Config], repeats: int) -> list[Iteration]:
    """Print, and return, the parts of an iteration for each problem and optimiser."""
    if repeats < 1:
        raise InputError(f"repeats = {repeats}", "nothing would be measured", "Give 1 or more")
    found: list[Iteration] = []
    for config in configs:
        for measure in (bench_lm, bench_ssbroyden):
            found.append(measure(config, repeats))
            console.print(_in_words(found[-1]), highlight=False)
    console.print(_table(found))
    presets = ", ".join(dict.fromkeys(c.preset for c in configs))
    console.print(f"Preset {presets}, float64; aim: at most {AIM:g} times the limit's time. "
                  f"{machine()}; commit {commit()}; medians of {repeats}", highlight=False)
    return found


def _in_words(one: Iteration) -> str:
    return (f"{one.problem}, {one.optimiser}: {one.rows} residuals, {one.parameters} parameters; "
            f"{one.ratio:.2f} times the time of its work at {one.limit / 1e9:.1f} GFLOP/s")


def _table(found: Sequence[Iteration]) -> Table:
    table = Table("part", "calls", "ms", "share", "GFLOP", "ms at limit", "ratio",
                  title="One iteration, and its work at the speed of a matrix product")
    for one in found:
        table.add_section()
        table.add_row(f"{one.problem},\n{one.optimiser}", style="bold")
        for part in one.parts:
            table.add_row(*_cells(one, part))
        table.add_row(*_cells(one, Part("the rest", 1.0, one.rest, 0.0)))
        whole = Part("iteration", 1.0, one.seconds, sum(p.work for p in one.parts))
        table.add_row(*_cells(one, whole), style="bold")
    return table


def _cells(one: Iteration, part: Part) -> list[str]:
    cells = [part.name, f"{part.calls:g}", f"{1e3 * part.seconds:.2f}",
             f"{part.seconds / one.seconds:.1%}"]
    if not part.work:
        return [*cells, "", "", ""]
    least = part.work / one.limit
    return [*cells, f"{part.work / 1e9:.3f}", f"{1e3 * least:.2f}", f"{part.seconds / least:.2f}"]
