"""What all entries of the comparison share: the clock, the error and the file they write.

One line of JSON for each record: the seconds since the process was started, the relative L2
error over the whole reference grid, and the iteration. The clock never stops: imports,
compilation, training and the evaluations themselves (a forward pass over the grid each) all count.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

TIMES = (60.0, 120.0, 240.0, 480.0)
"""The seconds at which the table quotes the error."""


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that the driver gives to every entry."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=480.0, help="wall seconds, all included")
    parser.add_argument("--reference", type=Path, required=True,
                        help="what `piratenets reference allen-cahn --out FILE.npz` wrote")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines to write")
    parser.add_argument("--started", type=float, default=None,
                        help="time.monotonic() when the process was started; now by default")
    return parser


class Recorder:
    """The reference, the clock, and the records of one training."""

    def __init__(self, options: argparse.Namespace, began: float) -> None:
        """`began`: time.monotonic() at the top of the script, used if the driver gave no start."""
        self.started = began if options.started is None else options.started
        self.budget, self.out = options.budget, options.out
        with np.load(options.reference) as reference:
            t, x, u = reference["t"], reference["x"], reference["u"]
        tt, xx = np.meshgrid(t, x, indexing="ij")
        self.points = np.stack([tt.ravel(), xx.ravel()], axis=1)
        """(t, x) of the whole grid, times outermost."""
        self.values = u.ravel()
        self.scale = float(np.linalg.norm(self.values))
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text("")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def over(self) -> bool:
        return self.seconds >= self.budget

    def score(self, prediction: np.ndarray) -> float:
        """The relative L2 error of values at `points`."""
        difference = np.asarray(prediction, dtype=np.float64).ravel() - self.values
        return float(np.linalg.norm(difference)) / self.scale

    def record(self, error: float, iteration: int | None = None) -> None:
        """Write a line; a prediction that is not finite is recorded as a null error."""
        self._write(seconds=round(self.seconds, 3),
                    error=float(error) if math.isfinite(error) else None, iteration=iteration)

    def note(self, **facts: Any) -> None:
        """Write a line of facts about the training that are no record of the error."""
        self._write(note=facts)

    def _write(self, **line: Any) -> None:
        with open(self.out, "a") as file:
            file.write(json.dumps(line) + "\n")
