"""An animation of a field over a plane: prediction, reference and error side by side."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import colormaps, style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

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

LARGEST = 1_400_000
"""Bytes of the GIF; a third more in the page."""

FRAMES, DPI = 25, 90
MOTION, PAUSE = 3000, 1500
"""Milliseconds of all frames together, and of the last one before all begins again."""

STYLE: dict[str, Any] = {"font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 9,
                         "text.parse_math": False, "axes.linewidth": 0.5}

Update = Callable[[int], None]


def animation(fields: Fields) -> Picture:
    """The unknowns over two space coordinates and time, one row each."""
    with style.context(["default", STYLE]):
        frames = _frames(fields, fields.times(np.linspace(0, 1, FRAMES).tolist()))
    content = _gif(frames)
    while len(content) > LARGEST and len(frames) > 3:
        # Half the frames first, then half the pixels: motion suffers less than the maps.
        frames = frames[::-2][::-1] if len(frames) > 10 else [f.reduce(2) for f in frames]
        content = _gif(frames)
    label = f"Animation of {', '.join(fields.prediction)} over time"
    source = f"data:image/gif;base64,{b64encode(content).decode()}"
    return Picture(f'<img class="raster" alt="{label}" src="{source}">', label)


def _frames(fields: Fields, indices: list[int]) -> list[Image.Image]:
    figure, show = _stage(fields)
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    frames: list[Image.Image] = []
    for index in indices:
        show(index)
        canvas.draw()
        frames.append(Image.fromarray(np.array(canvas.buffer_rgba())).convert("RGB"))
    return frames


def _gif(frames: list[Image.Image]) -> bytes:
    buffer, palette = io.BytesIO(), _palette()
    flat = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    durations = [MOTION // len(flat)] * (len(flat) - 1) + [PAUSE]
    flat[0].save(buffer, "GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0)
    return buffer.getvalue()


def _palette() -> Image.Image:
    """The colours of both maps and greys for the text, the same in all frames."""
    maps = [colormaps[name](np.linspace(0, 1, 112))[:, :3] for name in (FIELD, ERROR)]
    greys = np.repeat(np.linspace(0, 1, 32)[:, None], 3, axis=1)
    image = Image.new("P", (1, 1))
    image.putpalette(np.rint(255 * np.concatenate([*maps, greys])).astype(int).ravel().tolist())
    return image


def _stage(fields: Fields) -> tuple[Drawing, Update]:
    """The figure, and a function that makes it show the fields at one of their times."""
    time, unknowns = fields.time, list(fields.prediction)
    assert time is not None
    kinds = ["prediction", "reference", "error"] if fields.reference else ["prediction"]
    figure = new_figure(2.45 * len(kinds) + 0.2, 2.2 * len(unknowns) + 0.3)
    grid = figure.subplots(len(unknowns), len(kinds), squeeze=False)
    figure.subplots_adjust(left=0.03, right=0.95, bottom=0.04, wspace=0.3, hspace=0.22,
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
    across, up = fields.space
    mesh = draw_mesh(axes, across, up, table[0], ERROR if errors else FIELD, scale)
    axes.set(title=f"{unknown}: {kind}", xticks=[], yticks=[], aspect="equal")
    figure.colorbar(mesh, ax=axes, fraction=0.046, pad=0.03, format=plain_ticks())

    def update(index: int) -> None:
        mesh.set_array(cells(across, up, table[index]))

    return update
