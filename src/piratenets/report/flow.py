"""Steady flows in the plane: streamlines, and the profiles along the centre lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from piratenets.problems.problem import TIME
from piratenets.report.fields import Axis, Fields
from piratenets.report.maps import FIELD, colours
from piratenets.report.published import Published
from piratenets.report.svg import (
    INK,
    SERIES,
    Drawing,
    label_axis,
    legend,
    new_figure,
    panel,
    picture,
)

Values = dict[str, np.ndarray]

PROFILES = (("u", "y"), ("v", "x"))
"""Each velocity along the centre line that it crosses."""

GRID = 121
"""Points a coordinate of the uniform grid that streamlines are traced on."""


def is_flow(fields: Fields) -> bool:
    """Whether this is a steady field over x and y with the velocities u and v."""
    names = [a.name for a in fields.axes]
    return TIME not in names and names == ["x", "y"] and {"u", "v"} <= set(fields.prediction)


@picture
def streamlines(fields: Fields, values: Values, title: str) -> tuple[Drawing, str]:
    """Streamlines over the speed."""
    x, y = (np.linspace(a.lower, a.upper, GRID) for a in fields.axes)
    u, v = (interpolated(fields.axes, values[n], x, y).T for n in ("u", "v"))
    figure = new_figure(4.5, 4.2)
    axes = figure.add_axes((0.11, 0.1, 0.75, 0.82))
    axes.set_aspect("equal")
    axes.set(title=title, xlabel="x", ylabel="y", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.grid(visible=False)
    mesh = axes.pcolormesh(x, y, np.hypot(u, v), cmap=colours(FIELD), rasterized=True,
                           shading="nearest")
    axes.streamplot(x, y, u, v, density=1.5, color="white", linewidth=0.6, arrowsize=0.6)
    axes.apply_aspect()
    place = axes.get_position()
    side = figure.add_axes((place.x1 + 0.02, place.y0, 0.02, place.height))
    bar = figure.colorbar(mesh, cax=side)
    bar.outline.set_visible(False)
    bar.solids.set_rasterized(True)
    return figure, title


def interpolated(axes: Sequence[Axis], values: np.ndarray, x: np.ndarray, y: np.ndarray
                 ) -> np.ndarray:
    """A field at the points of another tensor grid, linearly (constant past the last points)."""
    first, second = (a.values for a in axes)
    rows = np.stack([np.interp(y, second, row) for row in values])
    return np.stack([np.interp(x, first, column) for column in rows.T], axis=1)


@picture
def centre_profile(fields: Fields, unknown: str, along: str, published: Sequence[Published]
                   ) -> tuple[Drawing, str]:
    """A velocity along a centre line, with the reference's and any published points."""
    shown = [p for p in published if (p.unknown, p.along) == (unknown, along)]
    figure, axes = panel(["reference", "prediction", *(p.source for p in shown)])
    k = [a.name for a in fields.axes].index(along)
    line, other = fields.axes[k], fields.axes[1 - k]
    centre = (other.lower + other.upper) / 2
    where = (line.values, np.array([centre])) if k == 0 else (np.array([centre]), line.values)
    if fields.reference:
        reference = interpolated(fields.axes, fields.reference[unknown], *where).ravel()
        axes.plot(line.values, reference, color=SERIES[0], alpha=0.3, linewidth=4.5,
                  label="reference")
    predicted = interpolated(fields.axes, fields.prediction[unknown], *where).ravel()
    axes.plot(line.values, predicted, color=SERIES[0], label="prediction")
    for points, marker in zip(shown, "osD^v" * len(shown), strict=False):
        axes.plot(points.positions, points.values, linestyle="", marker=marker, markersize=3.5,
                  markerfacecolor="none", markeredgecolor=INK, label=points.source)
    place = f"{unknown}({centre:g}, {along})" if k else f"{unknown}({along}, {centre:g})"
    label_axis(axes, along, title=f"{place} on the centre line", xlim=(line.lower, line.upper))
    legend(axes)
    return figure, f"Profile {place}"
