"""The section of a report that says what fresh points make of the solution."""

from __future__ import annotations

from piratenets.report import page
from piratenets.report.page import Markup
from piratenets.runs.run import Run
from piratenets.training.trust import LARGEST_DEFECT, LARGEST_RATIO, Trust

EXPLANATION = (
    "These figures need no reference. The defect is what the field misses its initial data and "
    "the equations by, summed over time, as a part of its size: what it solves another problem "
    "by. Fresh points are such as the training has not seen.")


def trust(run: Run) -> list[Markup]:
    """Doubts, if there are any, and the figures behind them stage by stage."""
    stages = [Trust(**facts) for facts in run.facts["trust"]]
    if not stages:
        return []
    clear = (f"Nothing speaks against the solution: no defect is above {LARGEST_DEFECT:g}, and no "
             f"squared residual is {LARGEST_RATIO:g} times as large on fresh points as on those of "
             "the training.")
    verdict = [page.notice(f"{doubt}.") for doubt in run.doubts] or [page.paragraph(clear)]
    head = ["stage", "defect", *(f"{t}, fresh (trained)" for t in stages[0].fresh_residual)]
    rows = [[page.text(s.stage or "all times"), page.number(s.defect, 2),
             *(f"{page.number(v, 2)} ({page.number(s.trained_residual[t], 2)})"
               for t, v in s.fresh_residual.items())] for s in stages]
    return [*verdict, page.paragraph(EXPLANATION, "small"), page.table(head, rows)]
