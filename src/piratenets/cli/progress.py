"""What one sees while a run is going: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from piratenets.runs.run import Observer, Report

LINE_SECONDS = 10.0
"""How often a plain line is printed where there is no terminal."""


@contextmanager
def live_progress(console: Console, out: Path) -> Generator[Observer]:
    """An observer that shows losses, error and time left."""
    console.print(f"Writing to {out}", soft_wrap=True, highlight=False)
    if not console.is_terminal:
        yield _plain(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(),
               TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with _Live(*columns, console=console) as bar:
        task = bar.add_task("starting", total=1.0, left="")
        clock = _Clock()

        def observe(report: Report) -> None:
            bar.numbers = _numbers(report)
            bar.update(task, description=report.phase, completed=report.fraction,
                       left=clock.left(report))

        yield observe


class _Live(Progress):
    """A bar with lines of numbers below it, as many as the terminal's width asks for."""

    numbers = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.numbers:
            yield Text(self.numbers)


def _plain(console: Console) -> Observer:
    last, phase = [float("-inf")], [""]
    clock = _Clock()

    def observe(report: Report) -> None:
        left = clock.left(report)
        due = time.monotonic() - last[0] >= LINE_SECONDS
        if due or report.phase != phase[0] or report.fraction == 1.0:
            last[0], phase[0] = time.monotonic(), report.phase
            console.print(f"{report.phase} {report.fraction:6.1%}  {left}  {_numbers(report)}",
                          soft_wrap=True, highlight=False)

    return observe


class _Clock:
    """The time left in a phase, from its progress since it began."""

    def __init__(self) -> None:
        self.phase, self.began, self.first = "", 0.0, 0.0

    def left(self, report: Report) -> str:
        if report.phase != self.phase:
            self.phase, self.began, self.first = report.phase, time.monotonic(), report.fraction
        done = report.fraction - self.first
        if done <= 0:
            return "time left: ?"
        seconds = (time.monotonic() - self.began) * (1 - report.fraction) / done
        minutes, seconds = divmod(round(seconds), 60)
        return f"time left: {minutes:d}:{seconds:02d}"


def _numbers(report: Report) -> str:
    losses = "  ".join(f"{k} {v:.1e}" for k, v in report.losses.items())
    error = "  ".join(f"error({k}) {v:.2e}" for k, v in report.error.items())
    return "  ".join(part for part in (report.stage, losses, error) if part)
