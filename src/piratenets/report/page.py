"""The page: HTML in one file, for screens light and dark, phones and paper."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from piratenets.report.svg import Picture

Markup = str
"""HTML that is safe to put in a page: every text in it has gone through `text`."""

LIGHT = {
    "paper": "#ffffff", "card": "#f5f6f8", "ink": "#1b2127", "muted": "#5c6570",
    "line": "#dde1e6", "blank": "#e7eaee", "accent": "#0b5cad", "warn": "#fff3d6",
    "warn-ink": "#6b4300",
    "s0": "#0b63b5", "s1": "#c8440a", "s2": "#15803d", "s3": "#7c3aed", "s4": "#a16207",
    "s5": "#0e7c93", "s6": "#be185d", "s7": "#57534e",
    "t0": "#440154", "t1": "#3b528b", "t2": "#1f8a8c", "t3": "#3a9f4a", "t4": "#b89400",
}
DARK = {
    "paper": "#14181d", "card": "#1d232a", "ink": "#e6e9ec", "muted": "#9aa4ae",
    "line": "#323a43", "blank": "#2a3138", "accent": "#7ab8ff", "warn": "#3b2f12",
    "warn-ink": "#ffd98a",
    "s0": "#6cb2ff", "s1": "#ff9a62", "s2": "#5fd38a", "s3": "#b99cff", "s4": "#e8c14a",
    "s5": "#4fd0e4", "s6": "#ff7ab3", "s7": "#b8b2a9",
    "t0": "#b57edc", "t1": "#7f9be8", "t2": "#3fc0b8", "t3": "#7ad151", "t4": "#fde725",
}


def _variables(theme: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in theme.items())


CSS = f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
@media print{{:root{{color-scheme:light;{_variables(LIGHT)}}}}}
""" + """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:2rem 1.25rem 4rem;background:var(--paper);
  color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:2rem;line-height:1.2;margin:.1em 0 .5em}
h2{font-size:1.2rem;margin:2rem 0 .8rem;padding-top:.7rem;border-top:1px solid var(--line)}
sup{line-height:0;font-size:.75em}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.5em 0;max-width:46rem}
small,.small,figcaption{font-size:.84rem;color:var(--muted)}
.eyebrow{color:var(--muted);letter-spacing:.04em;font-size:.84rem;margin:0}
pre{margin:.7em 0;padding:.7em 1em;background:var(--card);border-radius:6px;overflow-x:auto;
  font:.84rem/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}
.notice{background:var(--warn);color:var(--warn-ink);border-radius:6px;padding:.6em 1em;
  margin:.6em 0;max-width:none}
.scores{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0 .6rem}
.score{background:var(--card);border-radius:8px;padding:.8rem 1.2rem;min-width:14rem;flex:0 1 auto}
.score b{display:block;font-size:1.7rem;line-height:1.3;font-variant-numeric:tabular-nums}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(13.5rem,1fr));gap:.7rem 1.5rem;
  margin:1.2rem 0}
dt{font-size:.84rem;color:var(--muted)}
dd{margin:0;overflow-wrap:anywhere}
figure{margin:0;break-inside:avoid}
svg,.raster{display:block;width:100%;height:auto}
svg *{stroke-linejoin:round;stroke-linecap:butt}
.raster{background:#fff;border-radius:6px}
.wide{max-width:52rem}
.row{display:grid;gap:1rem 1.4rem;margin:.6rem 0;grid-template-columns:repeat(var(--n),1fr)}
.one{--n:1;max-width:24rem}.two{--n:2}.three{--n:3}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.22em .9em .22em 0;text-align:left;vertical-align:top;
  border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--muted)}
.groups{columns:3 17rem;column-gap:2rem}
.groups table{width:100%;margin:0 0 1.2rem;break-inside:avoid}
.groups caption{text-align:left;font-weight:600;padding:.2em 0}
.groups td:first-child{color:var(--muted);width:55%}
.groups td{overflow-wrap:anywhere}
tr.changed td{font-weight:700;color:var(--ink)!important}
tr.changed small{font-weight:400;display:block}
.phone{display:none}
@media screen and (max-width:760px){
  .phone{display:block}dl{grid-template-columns:1fr 1fr}.score{flex:1 1 auto}
  body{padding:1.2rem .9rem 3rem}h1{font-size:1.6rem}
  .row{grid-template-columns:1fr}
  .row.swipe{grid-template-columns:none;grid-auto-flow:column;grid-auto-columns:74%;
    overflow-x:auto;scroll-snap-type:x proximity}
  .row.swipe figure{scroll-snap-align:start}}
@media print{body{max-width:none;padding:0;font-size:11pt}h2,h3{break-after:avoid}
  pre{white-space:pre-wrap;overflow-wrap:anywhere}}
"""


def text(value: object) -> Markup:
    """Any value as text of the page."""
    return html.escape(str(value))


def number(value: float | None, digits: int = 3) -> Markup:
    """A measured number to so many digits, its full value kept for programs and copying."""
    if value is None or not math.isfinite(value):
        return "not available" if value is None or math.isnan(value) else "infinite"
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        shown = f"{value:.{digits}g}"
    else:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        shown = f"{mantissa} × 10<sup>{int(exponent)}</sup>".replace("-", "−")
    return f'<data value="{value!r}">{shown}</data>'


def paragraph(content: Markup, kind: str = "") -> Markup:
    return f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>"


def notice(message: str) -> Markup:
    return f'<p class="notice" role="note">{text(message)}</p>'


def code(content: str, *, wrap: bool = False) -> Markup:
    """Code or formulas; long commands are wrapped so that they can be read and copied whole."""
    return f'<pre class="{"wrap" if wrap else "plain"}">{text(content)}</pre>'


def facts(entries: Iterable[tuple[str, Markup]]) -> Markup:
    """A list of names and values."""
    items = "".join(f"<div><dt>{text(k)}</dt><dd>{v}</dd></div>" for k, v in entries)
    return f"<dl>{items}</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[Markup]]) -> Markup:
    top = "".join(f"<th>{text(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def pictures(shown: Sequence[Picture], columns: int, *, swipe: bool = False) -> Markup:
    """Pictures in rows; on a phone below one another, or side by side to be swiped through."""
    kind = {1: "one", 2: "two", 3: "three"}[columns] + (" swipe" if swipe else "")
    figures = "".join(f"<figure>{p.markup}</figure>" for p in shown)
    return f'<div class="row {kind}">{figures}</div>' if shown else ""


def section(title: str, *content: Markup) -> Markup:
    """A section with a heading; nothing at all if it has no content."""
    body = "\n".join(c for c in content if c)
    return f"<section><h2>{text(title)}</h2>\n{body}</section>\n" if body else ""


def document(title: str, body: Markup) -> str:
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f'<title>{text(title)}</title><style>{CSS}</style></head>\n'
            f"<body>\n{body}</body></html>\n")
