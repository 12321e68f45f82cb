"""Published points that a report's centre-line profiles are shown with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Published(NamedTuple):
    """Values of one unknown along a centre line, as someone else has published them."""

    source: str
    """What the legend calls them: 'Ghia et al. 1982'."""
    unknown: str
    along: str
    """The coordinate that varies; the other one is at the middle of its interval."""
    positions: np.ndarray
    values: np.ndarray


PUBLISHED: dict[str, Callable[[Mapping[str, float]], Sequence[Published]]] = {}
"""By the problem's name: the points that belong to these coefficients (none, if there are none)."""


def published_points(problem: str, coefficients: Mapping[str, float]) -> Sequence[Published]:
    return PUBLISHED[problem](coefficients) if problem in PUBLISHED else ()
