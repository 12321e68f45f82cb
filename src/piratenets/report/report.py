"""The report of a run: one page that a scientist can send to a colleague."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from piratenets.files import write_atomically
from piratenets.problems.problem import TIME
from piratenets.report import page
from piratenets.report.animation import animation
from piratenets.report.fields import (
    Fields,
    error_by_time,
    largest_by_time,
    predicted_fields,
    scored_fields,
)
from piratenets.report.flow import PROFILES, centre_profile, is_flow, streamlines
from piratenets.report.header import header
from piratenets.report.history import History, causal_map, constant, over_steps, over_time
from piratenets.report.maps import field_limits, maps, slice_errors, slice_values, slices
from piratenets.report.page import Markup
from piratenets.report.published import Published, published_points
from piratenets.report.reproduce import commands, configuration, versions
from piratenets.report.svg import Picture
from piratenets.report.trust import trust
from piratenets.runs.evaluation import Evaluation, errors_between
from piratenets.runs.run import Run

SNAPSHOTS = (1 / 3, 2 / 3, 1.0)
SLICES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The times of maps and slices, as fractions of what is trained."""


def write_report(run: Run, published: Sequence[Published] | None = None) -> Path:
    """Write the run's report.html: whatever there is to show of it, finished or not.

    `published` are points for the profiles of a flow; by default those known for the problem.
    """
    scored = run.evaluate() if run.state is not None and run.reference is not None else None
    fields = _fields(run, scored)
    if published is None:
        published = published_points(run.problem.name, run.stages[-1].coefficients)
    body = header(run, scored)
    if fields is not None:
        body += page.section("Solution", *_maps(fields), *_flow(fields, published))
        body += page.section("Slices", *_slices(fields))
        body += page.section("Where the error is", *_error_by_time(run, fields),
                             _stage_errors(run, scored))
    body += page.section("Trust", *trust(run))
    body += page.section("Training", *_training(run))
    body += page.section("Initialisation", _initialisation(run))
    body += page.section("Configuration", configuration(run), versions(run))
    body += page.section("How to reproduce", commands(run))
    content = page.document(f"{run.problem.name}: report", body)
    write_atomically(run.directory.report, content.encode())
    return run.directory.report


def _fields(run: Run, scored: Evaluation | None) -> Fields | None:
    """What there is to draw: on the reference's grid, or on one of our own without a reference."""
    if run.state is None:
        return None
    solution = run.solution()
    if scored is None or run.reference is None:
        return predicted_fields(run.problem, solution)
    return scored_fields(run.problem, run.reference, scored, solution.end)


def _maps(fields: Fields) -> list[Markup]:
    """Maps over the plane: of all times, or at some times and moving."""
    flat = fields.middle(2)
    columns = 3 if flat.reference else 1
    if len(flat.axes) == 2:
        return [_fixed(flat), *(page.pictures(maps(flat, n, field_limits(flat, n)), columns)
                                for n in flat.prediction)]
    if len(flat.axes) < 2 or flat.time is None:
        return []
    rows: list[Markup] = [_fixed(flat)]
    if columns == 3:
        hint = "Swipe sideways for the reference and the error."
        rows.append(page.paragraph(hint, "small phone"))
    for unknown in flat.prediction:
        for index in flat.times(SNAPSHOTS):
            rows.append(f"<h3>{page.text(unknown)} at {TIME} = {flat.time.values[index]:.3g}</h3>")
            shown = maps(flat.cut(TIME, index), unknown, field_limits(flat, unknown))
            rows.append(page.pictures(shown, columns, swipe=True))
    moving = animation(flat)
    return [*rows, "<h3>In motion</h3>", f'<figure class="wide">{moving.markup}</figure>']


def _fixed(fields: Fields) -> Markup:
    """Where a field of many coordinates was cut."""
    where = ", ".join(f"{name} = {value:.3g}" for name, value in fields.fixed.items())
    return page.paragraph(f"At {page.text(where)}.", "small") if where else ""


def _flow(fields: Fields, published: Sequence[Published]) -> list[Markup]:
    """Streamlines and centre-line profiles of a steady flow."""
    if not is_flow(fields):
        return []
    kinds = {"prediction": fields.prediction, "reference": fields.reference}
    lines = [streamlines(fields, v, f"Streamlines over the speed: {k}")
             for k, v in kinds.items() if v]
    profiles = [centre_profile(fields, *which, published) for which in PROFILES]
    return [page.pictures(lines, 2), page.pictures(profiles, 2)]


def _slices(fields: Fields) -> list[Markup]:
    """Each unknown along a coordinate, through the middle of the others."""
    rows: list[Picture] = []
    steady = fields.time is None
    along = [a.name for a in (fields.space if steady else fields.space[:1])] or [TIME]
    for unknown in fields.prediction:
        for name in along:
            if is_flow(fields) and (unknown, name) in PROFILES:
                continue
            lines = slices(fields, unknown, name, fields.times(SLICES))
            rows.append(slice_values(lines, unknown))
            if fields.reference:
                rows.append(slice_errors(lines, unknown))
    others = ", ".join(f"{a.name} = {a.values[len(a.values) // 2]:.3g}" for a in fields.space
                       if len(fields.space) > 1 and (steady or a.name not in along))
    return [page.paragraph(page.text(f"Through the middle: {others}."), "small") if others else "",
            page.pictures(rows, 2)]


def _error_by_time(run: Run, fields: Fields) -> list[Markup]:
    """Where in time the error grows, and each window's share."""
    by_time = error_by_time(fields) if fields.space else {}
    if not by_time or fields.time is None or run.reference is None:
        return []
    time = run.problem.names.index(TIME)
    bounds = [float(stage.upper[time]) for stage in run.stages[:-1]]
    curves = [over_time(fields.time, by_time, f"Relative L2 error at each {TIME}", bounds,
                        level=run.reference.largest_error),
              over_time(fields.time, largest_by_time(fields),
                        f"Largest |prediction − reference| at each {TIME}", bounds)]
    return [page.pictures(curves, 2)]


def _stage_errors(run: Run, scored: Evaluation | None) -> Markup:
    """The error of each time window, or of each stage of a curriculum when it ended."""
    noted = run.facts.get("stages", [])
    if scored is None:
        return ""
    if run.config.training.windows > 1:
        return _window_errors(run, scored)
    rows = [[page.text(entry["stage"]), *(page.number(e) for e in entry["relative_l2"].values())]
            for entry in noted]
    note = page.paragraph("Relative L2 error at the end of each stage, for its own coefficients.",
                          "small")
    return page.table(["stage", *noted[0]["relative_l2"]], rows) + note if noted else ""


def _window_errors(run: Run, scored: Evaluation) -> Markup:
    """Each window's share of the error, and the error from the beginning to its end."""
    time, reference = run.problem.time, run.reference
    assert time is not None and reference is not None and run.state is not None
    rows: list[list[Markup]] = []
    names = list(scored.measured)
    for k, stage in enumerate(run.stages):
        row = [page.text(stage.label), *["not trained yet"] * (2 * len(names))]
        if k <= int(run.state.stage):
            low, high = float(stage.lower[time]), float(stage.upper[time])
            own, so_far = (errors_between(run.problem, reference, scored.prediction, first, high)
                           for first in (low, float(run.problem.lower[time])))
            row[1:] = [page.number(e.get(n)) for n in names for e in (own, so_far)]
        rows.append(row)
    head = [title for n in names for title in (f"{n}, in it", f"{n}, up to its end")]
    return page.table(["window", *head], rows) + page.paragraph("Relative L2 errors.", "small")


def _training(run: Run) -> list[Markup]:
    """Losses, weights, gradients and errors over steps."""
    lines = run.directory.read_metrics()
    if run.state is None or not lines:
        return [page.paragraph("There are no lines of metrics yet.")] if run.state else []
    history = History.read(lines)
    errors, weights = history.by_name("error"), history.by_name("weights")
    shown = [over_steps(history, history.by_name("losses"), "Losses by term")]
    if errors:
        own = run.reference.largest_error if run.reference is not None else None
        shown.append(over_steps(history, errors, "Relative L2 error (on a sample of points)",
                                level=own))
    if not constant(weights):
        shown.append(over_steps(history, weights, "Weights of the terms"))
    causal = history.table("causal")
    if causal.shape[1] > 1:
        shown.append(causal_map(history, causal))
    gradient = {"gradient norm": history.number("gradient_norm")}
    shown.append(over_steps(history, gradient, "Gradient norm"))
    alphas = history.table("alpha")
    if alphas.shape[1]:
        blocks = {f"block {k + 1}": alphas[:, k] for k in range(alphas.shape[1])}
        shown.append(over_steps(history, blocks, "Nonlinearity α of each block", log=False))
    return [_stage_note(run), page.pictures(shown, 2), _fixed_weights(weights)]


def _stage_note(run: Run) -> Markup:
    labels = [s.label for s in run.stages]
    note = f"Dotted lines: where the stages begin ({'; '.join(labels)})."
    return page.paragraph(page.text(note), "small") if len(labels) > 1 else ""


def _fixed_weights(weights: dict[str, np.ndarray]) -> Markup:
    """Weights that never changed are told in a sentence rather than drawn."""
    if not weights or not constant(weights):
        return ""
    values = ", ".join(f"{name} {v[-1]:g}" for name, v in weights.items())
    return page.paragraph(page.text(f"The weights of the terms never changed: {values}."), "small")


def _initialisation(run: Run) -> Markup:
    """What the least squares for the head achieved, in the windows that began with it."""
    fits = run.facts.get("fits", [])
    if not fits:
        return ""
    stages = run.stages
    labels = ["not recorded" if "stage" not in f else stages[f["stage"]].label or "all times"
              for f in fits] if len(fits) > 1 else [""]
    rows = [[page.text(label), page.number(f["residual"]), page.text(f["rank"]),
             page.text(f["features"]), f"{f['points']:,}"]
            for label, f in zip(labels, fits, strict=True)]
    source = run.config.initialisation.source
    lead = f"The last layer starts from a least-squares fit (source: {source})."
    columns = ["window" if len(fits) > 1 else "", "relative residual", "rank", "features", "points"]
    return page.paragraph(page.text(lead)) + page.table(columns, rows)
