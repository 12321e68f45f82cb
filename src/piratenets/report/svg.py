"""Matplotlib figures as inline SVG that takes its colours from the page, light or dark.

Figures are drawn in the colours below, which stand for names: each is replaced by the CSS
variable of that name. Text stays text, fields become small PNGs inside the SVG.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, ScalarFormatter
from PIL import Image

INK, MUTED, LINE, BLANK = "#010203", "#010204", "#010205", "#010206"
SERIES = tuple(f"#0102{k:02x}" for k in range(0x10, 0x18))
MOMENTS = tuple(f"#0102{k:02x}" for k in range(0x20, 0x25))
"""Five colours in order, for times."""

VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", BLANK: "blank",
             **{c: f"s{k}" for k, c in enumerate(SERIES)},
             **{c: f"t{k}" for k, c in enumerate(MOMENTS)}}

STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "piratenets", "text.parse_math": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    "font.family": "DejaVu Sans", "font.size": 8,
    "axes.titlesize": 8.5, "axes.titlelocation": "left",
    "text.color": INK, "axes.titlecolor": INK, "axes.labelcolor": INK, "axes.edgecolor": MUTED,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5, "ytick.minor.size": 0, "xtick.minor.size": 0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": LINE,
    "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.2,
    "legend.frameon": False, "legend.fontsize": 7.5, "legend.handlelength": 1.3,
}

LEGEND_WIDTH = 62
"""Characters that fit beside the name of the horizontal axis; a line and its gaps take five."""

DPI = 200
"""Of the fields' pictures inside the SVG."""

Drawing = Any
"""A matplotlib figure, axes or artist: their stubs leave most arguments untyped."""

P = ParamSpec("P")


class Picture(NamedTuple):
    """Markup for a page, and what it shows for those who cannot see it."""

    markup: str
    label: str


def picture(draw: Callable[P, tuple[Drawing, str]]) -> Callable[P, Picture]:
    """Make a function that returns a figure and its label return a `Picture`."""
    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Picture:
        # The user's own matplotlib settings must not show in a report.
        with style.context(["default", STYLE]):
            figure, label = draw(*args, **kwargs)
            return Picture(inline_svg(figure, label), label)

    return drawn


def inline_svg(figure: Drawing, label: str) -> str:
    """A figure as an <svg> element that can stand in a page beside others."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", dpi=DPI)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"data:image/png;base64,([^\"]+)", _smaller, text)
    text = _own_ids(text.replace("xlink:href", "href"))
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    head = f'<svg {box[0]} role="img" aria-label="{html.escape(label)}">'
    text = re.sub(r"<svg[^>]*>", lambda _: head, text, count=1)
    return re.sub(r">\s+<", "><", text).strip()


def _own_ids(text: str) -> str:
    """Ids that no other figure of the page has; those that nothing refers to are dropped."""
    prefix = "p" + hashlib.sha256(text.encode()).hexdigest()[:8]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)', lambda m: m[1] + prefix, text)


def _smaller(match: re.Match[str]) -> str:
    png = base64.b64decode(match[1])
    return "data:image/png;base64," + base64.b64encode(with_palette(png)).decode()


def with_palette(png: bytes) -> bytes:
    """The same picture with a palette, if it has at most 256 colours: a third of the size."""
    pixels = np.array(Image.open(io.BytesIO(png)).convert("RGBA"))
    # One number a pixel: comparing rows of four would take a hundred times as long.
    packed, index = np.unique(pixels.view(np.uint32).ravel(), return_inverse=True)
    if len(packed) > 256:
        return png
    colours = packed.view(np.uint8).reshape(-1, 4)
    image = Image.fromarray(index.reshape(pixels.shape[:2]).astype(np.uint8)).convert("P")
    image.putpalette(colours[:, :3].ravel().tolist())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, transparency=bytes(colours[:, 3].tolist()))
    return buffer.getvalue()


def new_figure(width: float, height: float) -> Drawing:
    """A figure in inches, apart from matplotlib's global state."""
    return Figure((width, height))


def panel(labels: Iterable[str] = ()) -> tuple[Drawing, Drawing]:
    """A figure with one pair of axes at a fixed place, so that those in a row line up.

    `labels` are the entries of its legend, which needs room below.
    """
    names = list(labels)
    below = 0.46 + 0.14 * max(1, -(-len(names) // legend_columns(names)) - 1)
    width, height = 4.5, 2.05 + below
    figure = new_figure(width, height)
    box = (0.6 / width, below / height, 1 - 0.75 / width, 1 - (below + 0.3) / height)
    return figure, figure.add_axes(box)


def label_axis(axes: Drawing, name: str, **settings: Any) -> None:
    """Name the horizontal axis at its right end, leaving the rest of the line to the legend."""
    axes.set(**settings)
    axes.set_xlabel(name, loc="right", labelpad=2)


def legend_columns(labels: Sequence[str]) -> int:
    """The most columns of labels whose rows leave the axis's name its place."""
    for columns in range(min(len(labels), 5), 1, -1):
        parts = np.array_split(np.array([len(label) + 5 for label in labels]), columns)
        if sum(int(part.max()) for part in parts) <= LEGEND_WIDTH:
            return columns
    return 1


def legend(axes: Drawing) -> None:
    """Below the axes, unless there is nothing to tell apart."""
    _, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.11),
                    ncols=legend_columns(labels), columnspacing=0.9, handletextpad=0.5)


def logarithmic(axes: Drawing, *values: np.ndarray) -> None:
    """A logarithmic vertical axis, if there is anything positive to show on it."""
    shown = np.concatenate([np.ravel(v) for v in values]) if values else np.zeros(0)
    shown = shown[np.isfinite(shown) & (shown > 0)]
    if not len(shown):
        return
    axes.set_yscale("log")
    low, high = np.log10(shown.min()), np.log10(shown.max())
    low, high = (low, high) if high - low > 1 else ((low + high - 1) / 2, (low + high + 1) / 2)
    margin = 0.06 * (high - low)
    axes.set_ylim(10 ** (low - margin), 10 ** (high + margin))
    subdivided = high - low < 2
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if subdivided else (1,), numticks=7))
    axes.yaxis.set_major_formatter(FuncFormatter(decimal if subdivided else power_of_ten))
    axes.yaxis.set_minor_locator(NullLocator())


def power_of_ten(value: float, position: int | None = None) -> str:
    """10⁻³: a power of ten without the mathematical typesetting that SVG text lacks."""
    digits = str(round(float(np.log10(value)))) if value > 0 else ""
    return "10" + digits.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def decimal(value: float, position: int | None = None) -> str:
    """0.02, 500, 2·10⁻⁵: a positive number in as few characters as it needs."""
    if 1e-3 <= value < 1e4:
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    power = power_of_ten(10.0 ** int(exponent))
    return power if float(mantissa) == 1 else f"{float(mantissa):g}·{power}"


def plain_ticks() -> ScalarFormatter:
    """Ticks of a linear axis, a common power of ten taken out where numbers would be long."""
    formatter = ScalarFormatter(useMathText=False)
    formatter.set_powerlimits((-2, 4))
    return formatter
