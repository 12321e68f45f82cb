"""The page of the comparison: a table, a figure, and what the numbers depend on.

Everything is read from results/NAME-seed-N.jsonl: records of the error, and notes of the facts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from entries import BY_NAME, ENTRIES, Entry
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from recorder import TIMES

FIGURE = "error-against-seconds.svg"
TICKS = (5, 10, 20, 30, 60, 120, 240, 480, 960, 1920)

# Okabe and Ito's palette, which the colour-blind can tell apart; ours are the two blues.
COLOURS = {"jinns-ssbroyden": "#d55e00", "jinns-natural-gradient": "#e69f00",
           "deepxde": "#888888", "piratenets": "#0072b2", "piratenets-plain": "#56b4e9"}

PAGE = """\
# What a user would pick instead, on Allen-Cahn

`compare.py table` writes this page from the files in [results](results), and from nothing else.

Each entry is one process on the same cores of the same machine, with the same reference and \
error: relative L2 over the reference's whole grid. The clock starts before the interpreter does \
and never stops: imports, compilation, training and the evaluations of the error (a forward pass \
over the grid each) all count.

{table}

An error at a time is that of the last record before it. † The training was over before, so that \
the last error stands. – There is no record yet, or the budget was shorter. Times that none of \
our time windows has reached yet are given what the latest window's network says of them, which is \
what a user would have who stopped then: until the last window is under way the error may be large.

![Relative L2 error against seconds](results/{figure})

Dotted: training over, the last error stands.

## Settings

{settings}

The settings of jinns and DeepXDE are the best of those tried by hand for this problem and budget; \
ours are the preset's.

## Circumstances

{circumstances}

## Again

```sh
python benchmarks/peers/compare.py install
{commands}
python benchmarks/peers/compare.py table
```
"""


class Result(NamedTuple):
    """The records (seconds, error or None) and the facts of one file."""

    entry: Entry
    seconds: list[float]
    errors: list[float | None]
    facts: dict[str, Any]

    @property
    def over(self) -> bool:
        """Whether the training came to its own end, rather than the budget's or a failure's."""
        return self.facts["exit"] == 0 and self.facts["wall_seconds"] < self.facts["budget"]

    def last_before(self, time: float) -> int | None:
        """The last record before a time."""
        earlier = [k for k, seconds in enumerate(self.seconds) if seconds <= time]
        return earlier[-1] if earlier else None


def write_page(results: Path) -> None:
    found = read_results(results)
    if not found:
        raise SystemExit(f"{results} has no complete results. Call `compare.py run` first")
    draw(found, results / FIGURE)
    commands = unique(found, "command")
    page = PAGE.format(table=table(found), figure=FIGURE, settings=settings(found),
                       circumstances=circumstances(found), commands="\n".join(commands))
    (results.parent / "README.md").write_text(page)
    print(f"{results.parent / 'README.md'}, {results / FIGURE}")


def read_results(results: Path) -> list[Result]:
    """In the order of the entries; files whose run was cut off are left out."""
    found = [read_result(path) for path in sorted(results.glob("*-seed-*.jsonl"))]
    order = [entry.name for entry in ENTRIES]
    complete = [result for result in found if result is not None]
    return sorted(complete, key=lambda r: (order.index(r.entry.name), r.facts["seed"]))


def read_result(path: Path) -> Result | None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    facts: dict[str, Any] = {}
    for line in lines:
        facts |= line.get("note", {})
    records = [line for line in lines if "error" in line]
    if "exit" not in facts or facts["entry"] not in BY_NAME:
        print(f"{path} is left out: its run was cut off, or its entry is unknown")
        return None
    return Result(BY_NAME[facts["entry"]], [r["seconds"] for r in records],
                  [r["error"] for r in records], facts)


def table(results: Sequence[Result]) -> str:
    head = ["entry", "seed", *(f"error at {time:g} s" for time in TIMES), "training over",
            "iterations", "parameters"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *map(row, results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(result: Result) -> list[str]:
    facts = result.facts
    return [result.entry.name, str(facts["seed"]), *(error_at(result, time) for time in TIMES),
            ending(result), number(facts.get("iterations")), parameters(facts)]


def error_at(result: Result, time: float) -> str:
    index = result.last_before(time)
    over = result.over and time >= result.facts["wall_seconds"]
    if index is None or (time > result.facts["budget"] and not over):
        return "–"
    error = result.errors[index]
    return ("not finite" if error is None else f"{error:.1e}") + ("†" if over else "")


def ending(result: Result) -> str:
    match result.facts["exit"]:
        case 0 if result.over:
            return f"{result.facts['wall_seconds']:.0f} s"
        case 0:
            return "no"
        case None:
            return "did not heed the clock"
        case code:
            return f"exit code {code}"


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def parameters(facts: dict[str, Any]) -> str:
    """One network's, and how many networks (one a time window) there are."""
    windows = facts.get("windows", 1)
    return number(facts.get("parameters")) + (f" x {windows} windows" if windows > 1 else "")


def settings(results: Sequence[Result]) -> str:
    entries = dict.fromkeys(result.entry for result in results)
    return "\n".join(f"- **{e.name}** ([{e.script}]({e.script})"
                     f"{''.join(f' `{word}`' for word in e.options)}): {e.settings}."
                     for e in entries)


def circumstances(results: Sequence[Result]) -> str:
    """What the numbers depend on, each fact once where the runs agree in it."""
    versions = dict.fromkeys(f"{name} {version}" for result in results
                             for name, version in result.facts["versions"].items())
    cores = dict.fromkeys(",".join(map(str, r.facts["cores"])) for r in results)
    error = max(r.facts["reference_error"] for r in results)
    load = max(r.facts["load"] for r in results)
    facts = {"machine": unique(results, "machine"), "pinned to cores": list(cores),
             "versions": list(versions), "date": unique(results, "date"),
             "commit": unique(results, "commit"),
             "load average before a run": [f"at most {load:.2f}"],
             "the reference's own error": [f"{error:.1e}"]}
    return "\n".join(f"- {name}: {', '.join(values)}" for name, values in facts.items())


def unique(results: Sequence[Result], fact: str) -> list[str]:
    return list(dict.fromkeys(str(result.facts[fact]) for result in results))


def draw(results: Sequence[Result], path: Path) -> None:
    """Error against seconds, both on logarithmic axes."""
    # The same numbers give the same file, letter by letter.
    with plt.rc_context({"svg.hashsalt": "peers", "font.size": 11}):
        figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
        named: set[str] = set()
        for result in results:
            draw_result(axes, result, None if result.entry.name in named else result.entry.name)
            named.add(result.entry.name)
        dress(axes, results)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def draw_result(axes: Axes, result: Result, label: str | None) -> None:
    ours = result.entry.name.startswith("piratenets")
    look = {"color": COLOURS[result.entry.name], "linewidth": 2.4 if ours else 1.4,
            "zorder": 3 if ours else 2}
    finite = [(s, e) for s, e in zip(result.seconds, result.errors, strict=True) if e is not None]
    seconds, errors = zip(*finite, strict=True) if finite else ((), ())
    axes.plot(seconds, errors, label=label, **look)
    if result.over and finite:
        axes.plot([seconds[-1], result.facts["budget"]], [errors[-1]] * 2, linestyle=":", **look)


def dress(axes: Axes, results: Sequence[Result]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="seconds since the process was started",
             ylabel="relative L2 error", title="Allen-Cahn, one run a line")
    first = min(seconds for result in results for seconds in result.seconds)
    last = max(max(r.seconds[-1], r.facts["budget"]) for r in results if r.seconds)
    axes.set_xlim(0.9 * first, 1.05 * last)
    ticks = [tick for tick in TICKS if 0.9 * first <= tick <= 1.05 * last]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
