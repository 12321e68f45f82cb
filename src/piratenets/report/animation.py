"""An animation of a field over a plane: prediction, reference and error side by side."""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.animation import PillowWriter

from piratenets.problems.problem import TIME
from piratenets.report.fields import Fields
from piratenets.report.maps import (
    ERROR,
    FIELD,
    Limits,
    cells,
    draw_mesh,
    field_limits,
    limits,
)
from piratenets.report.svg import Drawing, Picture, new_figure, plain_ticks

LARGEST = 1_500_000
"""Bytes of the GIF; a third more in the page."""

SIZES = ((100, 25), (80, 25), (65, 20), (50, 12))
"""Dots an inch and frames, tried in turn until the animation is small enough."""

STYLE: dict[str, Any] = {"font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 9,
                         "text.parse_math": False, "axes.linewidth": 0.5}
FRAMES_PER_SECOND = 8

Update = Callable[[int], None]


def animation(fields: Fields) -> Picture:
    """The unknowns over two space coordinates and time, one row each."""
    with style.context(["default", STYLE]):
        content = b""
        for dpi, frames in SIZES:
            content = _gif(fields, dpi, fields.times(np.linspace(0, 1, frames).tolist()))
            if len(content) <= LARGEST:
                break
    label = f"Animation of {', '.join(fields.prediction)} over time"
    source = f"data:image/gif;base64,{b64encode(content).decode()}"
    return Picture(f'<img class="raster" alt="{label}" src="{source}">', label)


def _gif(fields: Fields, dpi: int, indices: list[int]) -> bytes:
    assert fields.time is not None
    figure, show = _stage(fields)
    writer: Any = PillowWriter(fps=FRAMES_PER_SECOND)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "animation.gif"
        with writer.saving(figure, str(path), dpi):
            # The last state stays for a moment before all begins again.
            for index in indices + indices[-1:] * FRAMES_PER_SECOND:
                show(index)
                writer.grab_frame()
        return path.read_bytes()


def _stage(fields: Fields) -> tuple[Drawing, Update]:
    """The figure, and a function that makes it show the fields at one of their times."""
    time, unknowns = fields.time, list(fields.prediction)
    assert time is not None
    kinds = ["prediction", "reference", "error"] if fields.reference else ["prediction"]
    figure = new_figure(2.45 * len(kinds) + 0.2, 2.2 * len(unknowns) + 0.3)
    grid = figure.subplots(len(unknowns), len(kinds), squeeze=False)
    figure.subplots_adjust(left=0.03, right=0.96, bottom=0.04, wspace=0.3, hspace=0.22,
                           top=1 - 0.55 / figure.get_figheight())
    updates = [_map(figure, grid[i, j], fields, name, kind)
               for i, name in enumerate(unknowns) for j, kind in enumerate(kinds)]
    heading = figure.suptitle("", fontsize=10)

    def show(index: int) -> None:
        heading.set_text(f"{TIME} = {time.values[index]:.3f}")
        for update in updates:
            update(index)

    return figure, show


def _map(figure: Drawing, axes: Drawing, fields: Fields, unknown: str, kind: str) -> Update:
    """One map, as a function that makes it show one of the times."""
    errors = kind == "error"
    table = fields.error(unknown) if errors else getattr(fields, kind)[unknown]
    scale = Limits(0.0, limits(table).high) if errors else field_limits(fields, unknown)
    plane = fields.space
    mesh = draw_mesh(axes, *plane, table[0], ERROR if errors else FIELD, scale)
    axes.set(title=f"{unknown}: {kind}", xticks=[], yticks=[], aspect="equal")
    figure.colorbar(mesh, ax=axes, fraction=0.046, pad=0.03, format=plain_ticks())
    return lambda index: mesh.set_array(cells(*plane, table[index]))
