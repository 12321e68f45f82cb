"""The head of a report: the problem, how well it is solved, by what."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from typing import Any

from piratenets.fields.networks import parameter_count
from piratenets.problems import problem as problem_module
from piratenets.problems.problem import Problem
from piratenets.report import page
from piratenets.report.page import Markup
from piratenets.runs.directory import read_json
from piratenets.runs.evaluation import Evaluation
from piratenets.runs.run import Run

SMOKE = ("This was a smoke test: it shows that everything works, its error means nothing. "
         "Use the preset 'laptop' for a result.")


def header(run: Run, scored: Evaluation | None) -> Markup:
    """Name, notices, equations, errors and facts."""
    return "\n".join([
        f'<header>{page.paragraph("PirateNets: report of a run", "eyebrow")}'
        f"<h1>{page.text(run.problem.name)}</h1>",
        *(page.notice(n) for n in notices(run)), equations(run.problem), setting(run),
        headline(run, scored), page.facts(_facts(run)), "</header>\n"])


def notices(run: Run) -> list[str]:
    """What a reader must know before believing anything below."""
    found: list[str] = []
    if run.state is None:
        found.append("This run has no checkpoint yet: there is nothing to show but its "
                     "configuration.")
    elif not run.finished:
        found.append(f"This run is not finished: {_so_far(run)} steps are done{_standing(run)}.")
    if run.config.preset == "smoke":
        found.append(SMOKE)
    return found


def _standing(run: Run) -> str:
    """Where an unfinished run is among its stages."""
    assert run.state is not None
    stages, current = run.stages, int(run.state.stage)
    if run.trainer.automatic:
        most = run.config.training.windows
        return f", in window {current + 1} of {most} at most ({stages[current].label})"
    if len(stages) == 1:
        return ""
    place = f", in stage {current + 1} of {len(stages)} ({stages[current].label})"
    if run.config.curriculum.values and current + 1 < len(stages):
        return f"{place}; any reference is for {stages[-1].label}"
    return place


def equations(problem: Problem) -> Markup:
    """The problem in its author's words: a docstring, or the residual's own code."""
    residuals = [c.residual for c in problem.conditions
                 if getattr(c.residual, "__module__", "") != problem_module.__name__]
    for residual in residuals:
        module = sys.modules.get(getattr(residual, "__module__", ""))
        # A module is about the problem only if it says so: a script may define many.
        about = getattr(module, "problem", None)
        if isinstance(about, Problem) and about.name == problem.name and module is not None \
                and module.__doc__:
            return formatted(module.__doc__)
    words = [formatted(r.__doc__) for r in residuals if r.__doc__ and inspect.isfunction(r)]
    return "".join(words) or "".join(page.code(s) for s in map(_source, residuals) if s)


def _source(function: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return ""


def formatted(docstring: str) -> Markup:
    """A docstring's paragraphs, the indented ones as they stand (they are formulas)."""
    first, *rest = docstring.expandtabs().splitlines()
    # The closing quotes stand where the text does: formulas alone would not show the margin.
    blank_end = [rest[-1]] if rest and not rest[-1].strip() else []
    lines = [line for line in rest if line.strip()] + blank_end
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    body = "\n".join([first.strip(), *(line[margin:].rstrip() for line in rest)]).strip("\n")
    parts = re.split(r"\n\n+", body)
    return "".join(page.code(textwrap.dedent(p)) if p.startswith(" ") else
                   page.paragraph(page.text(p)) for p in parts if p.strip())


def setting(run: Run) -> Markup:
    """The domain and the coefficients."""
    domain = ", ".join(f"{n} ∈ [{i.lower:g}, {i.upper:g}]" + " periodic" * i.periodic
                       for n, i in run.problem.intervals.items())
    values = ", ".join(f"{n} = {v:g}" for n, v in run.stages[-1].coefficients.items())
    return page.paragraph(page.text(f"{domain}." + (f" {values}." if values else "")), "small")


def headline(run: Run, scored: Evaluation | None) -> Markup:
    """The error of each unknown, the reference's own error, and what is compared."""
    if scored is None:
        missing = ("The problem has no reference solution, so no error can be stated: what follows "
                   "shows the prediction alone.")
        return page.paragraph(missing) if run.state is not None else ""
    cards = "".join(_score(scored, name) for name in scored.relative_l2)
    return (f'<div class="scores">{cards}</div>'
            + page.paragraph(f"Compared: {page.text(scored.compared)}.", "small")
            + _literature(run))


def _literature(run: Run) -> Markup:
    """The error against what the literature scores this problem with, where that differs."""
    if not (run.finished and run.directory.summary.exists()):
        return ""
    summary: dict[str, Any] = read_json(run.directory.summary)
    found: dict[str, float] = summary.get("literature_relative_l2", {})
    errors = ", ".join(f"{page.text(n)} {page.number(e)}" for n, e in found.items())
    lead = "Against what the literature takes for the reference (another problem’s solution): "
    compared = f" Compared: {page.text(summary.get('literature_compared', ''))}."
    return page.paragraph(f"{lead}{errors}.{compared}", "small") if errors else ""


def _score(scored: Evaluation, name: str) -> Markup:
    error, own = scored.relative_l2[name], scored.reference_error.get(name, 0.0)
    measured = scored.measured[name]
    hidden = measured < own
    value = ("≤ " if hidden else "") + page.number(error)
    note = f"measured {page.number(measured)}, below what the reference can tell" if hidden else \
        f"reference’s own error: {page.number(own) if own else 'none (exact)'}"
    return (f'<div class="score"><small>relative L2 error of {page.text(name)}</small>'
            f"<b>{value}</b><small>{note}</small></div>")


def _facts(run: Run) -> list[tuple[str, Markup]]:
    started: dict[str, Any] = read_json(run.directory.config)
    network, entries = run.config.network, list[tuple[str, Markup]]()
    entries.append(("Preset, seed", page.text(f"{run.config.preset}, {run.config.seed}")))
    entries.append(("Network", page.text(f"{network.kind}, {network.layers} layers of "
                                         f"{network.width}, {run.config.training.precision}")))
    if run.state is not None:
        entries.append(("Parameters", f"{parameter_count(run.state.network, network):,}"))
    entries.append(("Steps", _steps(run)))
    entries.append(("Wall time", page.text(duration(float(run.facts["seconds"])))))
    entries.append(("Machine", page.text(started.get("machine", "unknown"))))
    entries.append(("Commit", page.text(_short(str(started.get("commit", "unknown"))))))
    day, _, clock = str(started.get("created", "unknown")).partition("T")
    entries.append(("Started", page.text(f"{day} {clock[:5]} UTC" if clock else day)))
    return entries


def _steps(run: Run) -> Markup:
    """Steps taken; a finished run may have taken fewer than it was given."""
    total = run.trainer.total_steps
    early = total is not None and run.finished and run.step < total
    return f"{run.step:,}, of {total:,} at most" if early else _so_far(run)


def _so_far(run: Run) -> str:
    """Steps taken, and of how many if that is known."""
    total = run.trainer.total_steps
    return f"{run.step:,}" if total is None else f"{run.step:,} of {total:,}"


def _short(commit: str) -> str:
    """A commit as one writes it, saying so if the source had changed since."""
    return f"{commit[:12]} with changes" if commit.endswith("+") else commit[:12]


def duration(seconds: float) -> str:
    """8.3 s, 12 min 5 s, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
