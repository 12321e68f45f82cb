"""How the training went: what the lines of metrics say, over steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from piratenets.report.fields import Axis
from piratenets.report.maps import FIELD, Limits, draw_mesh
from piratenets.report.svg import (
    INK,
    MUTED,
    SERIES,
    Drawing,
    logarithmic,
    panel,
    picture,
    plain_ticks,
)

MOST = 1200
"""Points of a curve that are drawn: more than the picture has pixels serve nobody."""

DASHES = ("-", "--", ":", "-.")

Series = dict[str, np.ndarray]


@dataclass(frozen=True)
class History:
    """The lines of metrics by quantity, and the steps at which later stages began."""

    steps: np.ndarray
    lines: list[dict[str, Any]]
    boundaries: tuple[int, ...]

    @classmethod
    def read(cls, lines: Sequence[dict[str, Any]], boundaries: Sequence[int]) -> History:
        """The history of the lines that are worth drawing: every n-th and the last."""
        every = max(1, -(-len(lines) // MOST))
        kept = list(lines[::every])
        if lines and kept[-1] is not lines[-1]:
            kept.append(lines[-1])
        return cls(np.array([line["step"] for line in kept]), kept, tuple(boundaries))

    def by_name(self, quantity: str) -> Series:
        """A quantity that has an entry for each term or unknown; gaps are not numbers."""
        entries: list[dict[str, float]] = [line.get(quantity) or {} for line in self.lines]
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {n: np.array([e.get(n, np.nan) for e in entries], dtype=float) for n in names}

    def number(self, quantity: str) -> np.ndarray:
        return np.array([line.get(quantity, np.nan) for line in self.lines], dtype=float)

    def table(self, quantity: str) -> np.ndarray:
        """A quantity with several values a line, one row a line; empty without any."""
        rows: list[list[float]] = [line.get(quantity) or [] for line in self.lines]
        width = max((len(row) for row in rows), default=0)
        return np.array([row + [np.nan] * (width - len(row)) for row in rows],
                        dtype=float).reshape(len(rows), width)


def constant(series: Series) -> bool:
    """Whether nothing in it ever changes (or there is nothing)."""
    return all(np.ptp(v[np.isfinite(v)]) == 0 for v in series.values() if np.isfinite(v).any())


@picture
def over_steps(history: History, series: Series, title: str, *, log: bool = True,
               level: float | None = None, level_name: str = "") -> tuple[Drawing, str]:
    """Curves over steps, with an optional horizontal line."""
    figure, axes = panel()
    _curves(axes, history.steps, series)
    if log:
        logarithmic(axes, *series.values(), np.array([level or np.nan]))
    else:
        axes.yaxis.set_major_formatter(plain_ticks())
    if level:
        _level(axes, level, level_name)
    _mark(axes, history.boundaries)
    axes.set(title=title, xlabel="step")
    axes.set_xlim(0, max(float(history.steps[-1]), 1.0))
    _legend(axes, len(series))
    return figure, f"{title} over steps"


@picture
def over_time(times: Axis, series: Series, title: str, boundaries: Sequence[float], *,
              level: float | None = None, level_name: str = "") -> tuple[Drawing, str]:
    """Curves over the problem's own time."""
    figure, axes = panel()
    _curves(axes, times.values, series)
    logarithmic(axes, *series.values(), np.array([level or np.nan]))
    if level:
        _level(axes, level, level_name)
    _mark(axes, boundaries)
    axes.set(title=title, xlabel=times.name, xlim=(times.lower, times.upper))
    _legend(axes, len(series))
    return figure, title


@picture
def causal_map(history: History, weights: np.ndarray) -> tuple[Drawing, str]:
    """The causal weight of each time chunk over steps."""
    figure, axes = panel()
    last, count = float(history.steps[-1]), weights.shape[1]
    steps = Axis("step", history.steps.astype(float), float(history.steps[0]), last, periodic=False)
    if last == steps.lower:
        steps = Axis("step", steps.values, last - 1, last, periodic=False)
    chunks = Axis("chunk", np.arange(count) + 0.5, 0.0, float(count), periodic=False)
    mesh = draw_mesh(axes, steps, chunks, weights, FIELD, Limits(0.0, 1.0))
    _mark(axes, history.boundaries)
    axes.set(title="Causal weights of the time chunks (early ones at the bottom)", xlabel="step",
             xlim=(0, last), ylim=(0, count))
    axes.set_ylabel("chunk")
    axes.grid(visible=False)
    place = axes.get_position()
    axes.set_position((place.x0, place.y0, place.width * 0.9, place.height))
    side = figure.add_axes((place.x0 + place.width * 0.92, place.y0, 0.02, place.height))
    bar = figure.colorbar(mesh, cax=side)
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)
    return figure, "Causal weights by time chunk over steps"


def _curves(axes: Drawing, positions: np.ndarray, series: Series) -> None:
    marker = "o" if len(positions) < 3 else None
    for k, (name, values) in enumerate(series.items()):
        # A logarithmic axis has no place for zeros; a gap shows that they are not small numbers.
        axes.plot(positions, values, color=SERIES[k % len(SERIES)], label=name, marker=marker,
                  markersize=3, linestyle=DASHES[k // len(SERIES) % len(DASHES)])


def _level(axes: Drawing, level: float, name: str) -> None:
    axes.axhline(level, color=INK, linewidth=0.9, linestyle="--")
    axes.annotate(name, (0.995, level), xycoords=("axes fraction", "data"), xytext=(0, 2.5),
                  textcoords="offset points", ha="right", va="bottom", fontsize=7)


def _mark(axes: Drawing, boundaries: Sequence[float]) -> None:
    for position in boundaries:
        axes.axvline(position, color=MUTED, linewidth=0.7, linestyle=(0, (1, 2)))


def _legend(axes: Drawing, count: int) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.15), ncols=min(count, 5),
                columnspacing=1.0)
