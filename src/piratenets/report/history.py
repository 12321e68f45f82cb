"""How the training went: what the lines of metrics say, over steps."""

from __future__ import annotations

import itertools
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
    decimal,
    label_axis,
    legend,
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
    def read(cls, lines: Sequence[dict[str, Any]]) -> History:
        """The history of the lines that are worth drawing: every n-th and the last.

        A stage begins where the last line of the one before it stands (stages may end early).
        """
        every = max(1, -(-len(lines) // MOST))
        boundaries = [before["step"] for before, line in itertools.pairwise(lines)
                      if line["stage"] > before["stage"]]
        kept = list(lines[::every])
        if lines and kept[-1] is not lines[-1]:
            kept.append(lines[-1])
        return cls(np.array([line["step"] for line in kept]), kept, tuple(boundaries))

    @property
    def last(self) -> float:
        return max(float(self.steps[-1]), 1.0)

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
               level: float | None = None) -> tuple[Drawing, str]:
    """Curves over steps, with a line at the reference's own error if it is given."""
    figure, axes = panel(series)
    _curves(axes, history.steps, series)
    if log:
        _scale(axes, series, level)
    else:
        axes.yaxis.set_major_formatter(plain_ticks())
    _mark(axes, history.boundaries)
    label_axis(axes, "step", title=title, xlim=(0, history.last))
    legend(axes)
    return figure, f"{title} over steps"


@picture
def over_time(times: Axis, series: Series, title: str, boundaries: Sequence[float], *,
              level: float | None = None) -> tuple[Drawing, str]:
    """Curves over the problem's own time."""
    figure, axes = panel(series)
    _curves(axes, times.values, series)
    _scale(axes, series, level)
    _mark(axes, boundaries)
    label_axis(axes, times.name, title=title, xlim=(times.lower, times.upper))
    legend(axes)
    return figure, title


@picture
def causal_map(history: History, weights: np.ndarray) -> tuple[Drawing, str]:
    """The causal weight of each time chunk over steps."""
    figure, axes = panel()
    count = weights.shape[1]
    steps = Axis("step", history.steps.astype(float), 0.0, history.last, periodic=False)
    chunks = Axis("chunk", np.arange(count, dtype=float) + 0.5, 0.0, float(count), periodic=False)
    mesh = draw_mesh(axes, steps, chunks, weights, FIELD, Limits(0.0, 1.0))
    _mark(axes, history.boundaries)
    label_axis(axes, "step", title="Causal weights of the time chunks (early ones at the bottom)",
               xlim=(0, history.last), ylim=(0, count))
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


def _scale(axes: Drawing, series: Series, level: float | None) -> None:
    """A logarithmic scale, with the reference's own error as a line if that is near enough.

    Far below, it would press the curves into a line of their own: it is told instead.
    """
    shown = np.concatenate([*series.values(), [np.nan]])
    positive = shown[np.isfinite(shown) & (shown > 0)]
    near = bool(level) and (not len(positive) or level > float(positive.min()) / 100)
    logarithmic(axes, shown, np.array([level if near else np.nan]))
    if not level:
        return
    name = "reference’s own error"
    if near:
        axes.axhline(level, color=INK, linewidth=0.9, linestyle="--")
    else:
        name = f"↓ {name}: {decimal(level)}"
    place = (0.995, level) if near else (0.995, 0.0)
    axes.annotate(name, place, xycoords=("axes fraction", "data" if near else "axes fraction"),
                  xytext=(0, 2.5), textcoords="offset points", ha="right", va="bottom", fontsize=7)


def _mark(axes: Drawing, boundaries: Sequence[float]) -> None:
    for position in boundaries:
        axes.axvline(position, color=MUTED, linewidth=0.7, linestyle=(0, (1, 2)))
