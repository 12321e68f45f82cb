"""How long a training gradient takes: one Taylor pass against nested reverse mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table

from piratenets.config import EmbeddingConfig, NetworkConfig
from piratenets.fields.networks import Network, make_network
from piratenets.problems.problem import Problem, interior, periodic
from piratenets.residuals.residuals import Points, residuals
from piratenets.runs.directory import commit, machine


def equation(order: int) -> Problem:
    """u_t + u u_x + d^order u / dx^order = 0, as a user would write it."""
    return Problem(
        name=f"order-{order}", coordinates={"t": (0, 1), "x": periodic(-1, 1)}, unknowns=["u"],
        conditions=[interior(lambda u, c: u.t + u * u.x + getattr(u, "x" * order))])


def nested_residual(network: Network, point: Array, order: int) -> Array:
    """The same residual with every derivative a reverse-mode gradient of the one before."""
    def u(t: Array, x: Array) -> Array:
        return network(jnp.stack([t, x]))[0]

    derivative: Callable[[Array, Array], Array] = u
    for _ in range(order):
        derivative = jax.grad(derivative, 1)
    t, x = point
    return jax.grad(u, 0)(t, x) + u(t, x) * jax.grad(u, 1)(t, x) + derivative(t, x)


def gradients(order: int) -> dict[str, Callable[[Network, Array], Any]]:
    """The gradient of the mean squared residual, both ways."""
    problem = equation(order)

    def taylor(network: Network, points: Array) -> Array:
        return jnp.mean(residuals(problem, network, {"pde": Points(points)}, {})["pde"] ** 2)

    def nested(network: Network, points: Array) -> Array:
        return jnp.mean(jax.vmap(lambda p: nested_residual(network, p, order))(points) ** 2)

    return {name: eqx.filter_jit(eqx.filter_value_and_grad(loss))
            for name, loss in (("taylor", taylor), ("nested", nested))}


def fastest(functions: dict[str, Callable[..., Any]], arguments: tuple[Any, ...], repeats: int
            ) -> dict[str, float]:
    """The shortest time of each function, called in turn so that both meet the same machine."""
    for function in functions.values():
        jax.block_until_ready(function(*arguments))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            times[name].append(time.perf_counter() - began)
    return {name: min(seconds) for name, seconds in times.items()}


def bench_derivatives(console: Console, width: int, layers: int, batches: Sequence[int],
                      orders: Sequence[int], repeats: int) -> list[dict[str, float]]:
    """Print, and return, the times for all orders and batches."""
    config = NetworkConfig(width=width, layers=layers, embedding=EmbeddingConfig(size=width))
    table = Table("order", "batch", "Taylor (s)", "nested reverse (s)", "nested / Taylor",
                  title=f"Gradient of mean (u_t + u u_x + d^k u/dx^k)^2: PirateNet, {layers} "
                        f"layers of width {width}, float32")
    rows: list[dict[str, float]] = []
    for order in orders:
        intervals = tuple(equation(order).intervals.values())
        network = make_network(intervals, 1, config, jax.random.key(0), jnp.dtype("float32"),
                               fitted=True)
        network = eqx.tree_at(lambda n: [b.alpha for b in n.blocks], network,
                              [jnp.float32(0.1)] * (layers // 3))
        for batch in batches:
            points = jax.random.uniform(jax.random.key(1), (batch, 2), jnp.float32)
            seconds = fastest(gradients(order), (network, points), repeats)
            ratio = seconds["nested"] / seconds["taylor"]
            rows.append({"order": order, "batch": batch, "ratio": ratio, **seconds})
            table.add_row(str(order), str(batch), f"{seconds['taylor']:.3f}",
                          f"{seconds['nested']:.3f}", f"{ratio:.2f}")
            console.print(f"order {order}, batch {batch}: {ratio:.2f} times as fast")
    console.print(table)
    console.print(f"{machine()}; commit {commit()}; fastest of {repeats}", highlight=False)
    return rows
