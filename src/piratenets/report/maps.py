"""Maps of a field over two coordinates, and slices through it."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap

from piratenets.problems.problem import TIME
from piratenets.report.fields import Axis, Fields
from piratenets.report.svg import (
    BLANK,
    MOMENTS,
    Drawing,
    Picture,
    label_axis,
    legend,
    logarithmic,
    new_figure,
    panel,
    picture,
    plain_ticks,
)

COLOURS = 250
"""Fewer than 256, so that a map and its blank places fit a palette."""

FIELD, ERROR = "viridis", "magma"
"""Perceptually uniform, and told apart at a glance."""


class Limits(NamedTuple):
    """The values at the ends of a colour scale."""

    low: float
    high: float


def colours(name: str) -> Colormap:
    return colormaps[name].resampled(COLOURS)


def limits(values: np.ndarray) -> Limits:
    """The range of what is finite; never empty."""
    shown = values[np.isfinite(values)]
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    return Limits(low, high) if high > low else Limits(low - 0.5, low + 0.5)


def field_limits(fields: Fields, unknown: str) -> Limits:
    """One scale for prediction and reference: the reference's range, which training cannot move."""
    return visible((fields.reference or fields.prediction)[unknown])


def visible(values: np.ndarray) -> Limits:
    """The range that shows a field: all of it, unless nearly all values share a small part.

    A pressure that is unbounded in two corners would leave one colour for the rest.
    """
    whole, shown = limits(values), values[np.isfinite(values)]
    if not len(shown):
        return whole
    low, high = (float(v) for v in np.percentile(shown, [0.5, 99.5]))
    return Limits(low, high) if 0 < high - low < (whole.high - whole.low) / 3 else whole


def maps(fields: Fields, unknown: str, scale: Limits) -> list[Picture]:
    """Prediction, reference and absolute error over two coordinates; prediction alone without
    a reference."""
    axes, predicted = fields.axes, fields.prediction[unknown]
    first = field_map(axes, predicted, f"{unknown}: prediction", FIELD, scale)
    if not fields.reference:
        return [first]
    reference, error = fields.reference[unknown], fields.error(unknown)
    return [first,
            field_map(axes, reference, f"{unknown}: reference", FIELD, scale),
            field_map(axes, error, f"{unknown}: |prediction − reference|", ERROR,
                      Limits(0.0, visible(error).high))]


@picture
def field_map(axes: tuple[Axis, ...], values: np.ndarray, title: str, colour: str, scale: Limits
              ) -> tuple[Drawing, str]:
    """One map with its colour bar; the first coordinate is horizontal."""
    horizontal, vertical = axes
    square = horizontal.name != TIME
    figure = new_figure(3.4, 3.0 if square else 2.6)
    height = figure.get_figheight()
    box = (0.135, 0.38 / height, 0.69, 1 - 0.68 / height)
    main = figure.add_axes(box)
    mesh = draw_mesh(main, horizontal, vertical, values, colour, scale)
    if square:
        main.set_aspect("equal")
    main.set(title=title, xlim=(horizontal.lower, horizontal.upper),
             ylim=(vertical.lower, vertical.upper), facecolor=BLANK)
    main.locator_params(nbins=5)
    main.set_xlabel(horizontal.name, loc="right", labelpad=1)
    main.set_ylabel(vertical.name, rotation=0, ha="right")
    main.yaxis.set_label_coords(-0.05, 1.02)
    main.grid(visible=False)
    main.apply_aspect()
    place = main.get_position()
    side = figure.add_axes((place.x1 + 0.025, place.y0, 0.025, place.height))
    bar = figure.colorbar(mesh, cax=side, extend=_beyond(values, scale), extendfrac=0.04,
                          format=plain_ticks())
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)
    return figure, f"Map of {title}"


def draw_mesh(axes: Drawing, horizontal: Axis, vertical: Axis, values: np.ndarray, colour: str,
              scale: Limits) -> Drawing:
    """Cells of one colour each; the grid need not be uniform."""
    return axes.pcolormesh(horizontal.closed().edges(), vertical.closed().edges(),
                           cells(horizontal, vertical, values), cmap=colours(colour),
                           vmin=scale.low, vmax=scale.high, rasterized=True)


def cells(horizontal: Axis, vertical: Axis, values: np.ndarray) -> np.ndarray:
    """What `draw_mesh` shows: periodic axes closed, rows vertical, blanks masked."""
    table = values
    for k, axis in enumerate((horizontal, vertical)):
        if len(axis.closed().values) > table.shape[k]:
            table = np.concatenate([table, table.take([0], axis=k)], axis=k)
    return np.ma.masked_invalid(table.T)


def _beyond(values: np.ndarray, scale: Limits) -> str:
    """Which ends of the scale the values exceed visibly."""
    low, high = limits(values)
    slack = 0.01 * (scale.high - scale.low)
    below, above = low < scale.low - slack, high > scale.high + slack
    return {(False, False): "neither", (True, False): "min", (False, True): "max",
            (True, True): "both"}[below, above]


class Slice(NamedTuple):
    """An unknown along one coordinate."""

    label: str
    axis: Axis
    prediction: np.ndarray
    reference: np.ndarray | None


def slices(fields: Fields, unknown: str, along: str, indices: list[int]) -> list[Slice]:
    """An unknown along one coordinate at some times; everything else at its middle."""
    def one(cut: Fields, label: str) -> Slice:
        for axis in cut.axes:
            if axis.name != along:
                cut = cut.cut(axis.name, len(axis.values) // 2)
        reference = cut.reference[unknown] if cut.reference else None
        axis = cut.axes[0].closed()
        # np.resize repeats from the start: it closes what is periodic.
        close = partial(np.resize, new_shape=len(axis.values))
        return Slice(label, axis, close(cut.prediction[unknown]),
                     None if reference is None else close(reference))

    if fields.time is None or along == TIME:
        return [one(fields, "")]
    times = fields.time.values
    return [one(fields.cut(TIME, i), f"{TIME} = {times[i]:.3g}") for i in indices]


@picture
def slice_values(lines: list[Slice], unknown: str) -> tuple[Drawing, str]:
    """Predictions as thin lines in the wide, pale bands of the reference."""
    figure, axes = panel(line.label for line in lines)
    for line, colour in zip(lines, _moment_colours(len(lines)), strict=True):
        if line.reference is not None:
            axes.plot(line.axis.values, line.reference, color=colour, alpha=0.3, linewidth=4.5,
                      solid_capstyle="butt")
        axes.plot(line.axis.values, line.prediction, color=colour, label=line.label)
    scored = any(line.reference is not None for line in lines)
    kinds = "thin: prediction, wide: reference" if scored else "prediction"
    _finish(axes, lines, f"{unknown} along {lines[0].axis.name} ({kinds})")
    return figure, f"Slices of {unknown} along {lines[0].axis.name}"


@picture
def slice_errors(lines: list[Slice], unknown: str) -> tuple[Drawing, str]:
    """The absolute errors along the same slices."""
    figure, axes = panel(line.label for line in lines)
    errors: list[np.ndarray] = []
    for line, colour in zip(lines, _moment_colours(len(lines)), strict=True):
        if line.reference is not None:
            errors.append(abs(line.prediction - line.reference))
            axes.plot(line.axis.values, errors[-1], color=colour, label=line.label)
    # The zeros between two signs reach far down: the scale shows the six decades that count.
    logarithmic(axes, *(np.maximum(e, 1e-6 * np.nanmax(e)) for e in errors if np.isfinite(e).any()))
    _finish(axes, lines, f"|prediction − reference| of {unknown} along {lines[0].axis.name}")
    return figure, f"Absolute errors of {unknown} along {lines[0].axis.name}"


def _moment_colours(count: int) -> list[str]:
    return [MOMENTS[round(k * (len(MOMENTS) - 1) / max(count - 1, 1))] for k in range(count)]


def _finish(axes: Drawing, lines: list[Slice], title: str) -> None:
    axis = lines[0].axis
    label_axis(axes, axis.name, title=title, xlim=(axis.lower, axis.upper))
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_formatter(plain_ticks())
    legend(axes)
