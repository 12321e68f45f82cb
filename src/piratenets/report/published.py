"""What others have published: points for a report's centre-line profiles, errors for the table."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

import numpy as np


class PublishedErrors(NamedTuple):
    """Relative L2 errors of a benchmark by quantity, as others report them."""

    paper: Mapping[str, float]
    """The paper's PirateNet."""
    best: Mapping[str, float] = MappingProxyType({})
    """The least error published for this very benchmark, by any method on any hardware; nothing
    where no figure could be verified."""
    best_by: str = ""
    """The method and machine of `best`."""
    literature: bool = False
    """Whether they are errors against the problem's `literature` reference."""


ERRORS: dict[str, PublishedErrors] = {
    "allen-cahn": PublishedErrors({"u": 2.24e-5}, {"u": 1.88e-6},
                                  "self-scaled Broyden, a small network in float64"),
    "kdv": PublishedErrors({"u": 4.27e-4}, {"u": 8.2e-11},
                           "Levenberg-Marquardt, 11,000 parameters, on an H100"),
    "gray-scott": PublishedErrors({"u": 3.61e-3, "v": 9.39e-3}),
    "ginzburg-landau": PublishedErrors({"u": 1.49e-2, "v": 1.90e-2}),
    "cavity": PublishedErrors({"speed": 4.21e-2}, {"speed": 1.73e-2}, literature=True),
}
"""By the problem's name, for the coefficients and times of the paper."""


class Published(NamedTuple):
    """Values of one unknown along a centre line, as someone else has published them."""

    source: str
    """What the legend calls them: 'Ghia et al. 1982'."""
    unknown: str
    along: str
    """The coordinate that varies; the other one is at the middle of its interval."""
    positions: np.ndarray
    values: np.ndarray


GHIA = {"u": ("y", "ghia1982_u_vertical_centreline.csv"),
        "v": ("x", "ghia1982_v_horizontal_centreline.csv")}
"""Ghia, Ghia and Shin 1982, tables I and II: the coordinate that varies, and the file."""

MISPRINTS = {("u", 3200.0, 0.4531), ("v", 400.0, 0.9063)}
"""Printed values far from their neighbours, by unknown, Reynolds number and place."""


def ghia(coefficients: Mapping[str, float]) -> list[Published]:
    """The classical-lid cavity's velocities at this Reynolds number, without the misprints."""
    reynolds, found = float(coefficients["Re"]), list[Published]()
    for unknown, (along, name) in GHIA.items():
        text = resources.files("piratenets.references").joinpath("data", name).read_text()
        table = np.genfromtxt(io.StringIO(text), delimiter=",", names=True)
        column = f"{unknown}_Re{reynolds:g}"
        if column in (table.dtype.names or ()):
            kept = np.array([(unknown, reynolds, float(x)) not in MISPRINTS for x in table[along]])
            found.append(Published("Ghia et al. 1982 (lid u = 1)", unknown, along,
                                   table[along][kept], table[column][kept]))
    return found


PUBLISHED: dict[str, Callable[[Mapping[str, float]], Sequence[Published]]] = {"cavity": ghia}
"""By the problem's name: the points that belong to these coefficients (none, if there are none)."""


def published_points(problem: str, coefficients: Mapping[str, float]) -> Sequence[Published]:
    return PUBLISHED[problem](coefficients) if problem in PUBLISHED else ()
