"""A run: a configuration being trained in a directory, and the solution it holds."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from piratenets.config import Config, to_json
from piratenets.errors import DivergenceError, InputError, Interrupted, StorageError
from piratenets.fields.networks import adaptive_blocks, parameter_count
from piratenets.problems import find_problem
from piratenets.problems.problem import Problem
from piratenets.problems.unknown import parse_derivative
from piratenets.references.reference import Reference, load_reference
from piratenets.runs import checkpoints
from piratenets.runs.directory import RunDirectory, circumstances, read_json, write_json
from piratenets.runs.evaluation import ErrorFollower, Evaluation, errors_between, evaluate
from piratenets.training.solution import Solution
from piratenets.training.stages import Stage
from piratenets.training.state import TrainingState
from piratenets.training.trainer import Progress, Trainer, steps_taken
from piratenets.training.trust import Trust


class Report(NamedTuple):
    """What an observer hears: a phase of preparation, or where the training stands."""

    phase: str
    fraction: float
    losses: Mapping[str, float] = MappingProxyType({})
    error: Mapping[str, float] = MappingProxyType({})
    seconds: float = 0.0
    step: int = 0
    solution: Callable[[], Solution] | None = None
    """The field as trained so far, while training."""
    stage: str = ""
    """The stage that is trained."""


Observer = Callable[[Report], None]


class Run:
    """The run in a directory. `Run.create` makes one, `Run.open` finds one."""

    def __init__(self, directory: RunDirectory, config: Config, problem: Problem) -> None:
        self.directory, self.config, self.problem = directory, config, problem
        self.trainer = Trainer(problem, config)
        self.state: TrainingState | None = None
        self.facts: checkpoints.Facts = {"seconds": 0.0, "fits": [], "stages": [], "trust": []}
        self._saved_at = -math.inf
        self._references: dict[Any, Reference] = {}

    @classmethod
    def create(cls, path: Path, config: Config, problem: Problem | None = None) -> Run:
        """A new run in a directory, or the same configuration's run that is already there."""
        directory = RunDirectory(path)
        problem = problem or find_problem(config.problem)
        config = replace(config, coefficients=problem.coefficients_with(config.coefficients))
        if directory.exists:
            existing = directory.read_config()
            if to_json(existing) != to_json(config):
                difference = ", ".join(_differences(to_json(existing), to_json(config)))
                raise InputError(str(path),
                                 f"it holds a run of another configuration ({difference})",
                                 "Name another directory with --out")
            return cls.open(path, problem)
        run = cls(directory, config, problem)  # Checks everything before anything is written.
        directory.create(config)
        return run

    @classmethod
    def open(cls, path: Path, problem: Problem | None = None) -> Run:
        """The run in a directory, at its newest whole checkpoint."""
        directory = RunDirectory(Path(path))
        config = directory.read_config()
        run = cls(directory, config, problem or find_problem(directory.problem_name(config)))
        newest = checkpoints.read_newest(directory.checkpoints, run.trainer.template())
        if newest is not None:
            run.state, run.facts = newest
        return run

    @property
    def step(self) -> int:
        """Steps taken so far, in all stages together."""
        if self.state is None:
            return 0
        return steps_taken(self.state)

    @property
    def finished(self) -> bool:
        return self.state is not None and self.trainer.finished(self.state)

    @property
    def complete(self) -> bool:
        """Whether the run is finished and its summary says so (a kill may come in between)."""
        try:
            return self.finished and bool(read_json(self.directory.summary)["finished"])
        except (StorageError, KeyError, TypeError):
            return False

    @property
    def stages(self) -> list[Stage]:
        """Its stages; of windows that choose their lengths, those begun so far."""
        return self.trainer.stages_of(self.state)

    @property
    def reference(self) -> Reference | None:
        """What the run is scored against: the reference of its last stage's coefficients."""
        return self.reference_of(-1)

    def reference_of(self, stage: int, observe: Observer | None = None) -> Reference | None:
        """The reference of a stage's coefficients (a curriculum changes them)."""
        if self.problem.reference is None:
            return None
        coefficients = self.stages[stage].coefficients
        key = tuple(coefficients.items())
        if key not in self._references:
            self._references[key] = load_reference(self.problem, coefficients, _progress(observe))
        return self._references[key]

    def train(self, observe: Observer | None = None) -> Run:
        """Train to the end from wherever the run stands; a complete run is left as it is."""
        observe = observe or (lambda report: None)
        if not self.complete:
            with self.directory.locked():
                if not self.finished:
                    self._go_on(observe)
                self._summarise(observe)
        return self

    def _go_on(self, observe: Observer) -> None:
        """Prepare what the training needs, and train."""
        if self.state is not None and self.state.optimiser is None:
            raise InputError(f"run {self.directory.path}",
                             "its configuration asks for more steps than it had when it finished, "
                             "and a finished run keeps nothing of its optimiser",
                             "Train it anew in another directory")
        for stage in reversed(range(len(self.stages))):
            self.reference_of(stage, observe)
        observe(Report("compiling", 0.0))
        state = self.trainer.start() if self.state is None else self.state
        few = self.trainer.few_points(state)
        if few:
            warnings.warn(few, stacklevel=2)
        self.directory.cut_metrics(self.step)
        try:
            self._train_from(state, observe)
        except (Interrupted, DivergenceError):
            self._summarise(observe)  # A stopped run has a summary too, `finished` false.
            raise

    def _summarise(self, observe: Observer) -> None:
        if self.state is not None:
            observe(Report("evaluating", 1.0))
            self.write_summary(observe)

    def _train_from(self, state: TrainingState, observe: Observer) -> None:
        followers: dict[int, ErrorFollower] = {}
        began, before = time.perf_counter(), float(self.facts["seconds"])
        error: dict[str, float] = {}
        with _interruptible() as asked_to_stop:
            for progress in self._guarded(self.trainer.run(state)):
                self.state = progress.state
                self.facts["seconds"] = before + time.perf_counter() - began
                if progress.recorded:
                    error = self._followed_error(followers, int(progress.state.stage))
                    self.directory.append_metrics(self._line(progress, error))
                self._note_stage_error(progress)
                if progress.again:
                    self._drop_fits(int(progress.state.stage))
                if progress.stage_ended:
                    self.facts["trust"].append(asdict(self.trainer.examined(progress.state)))
                if self._save_is_due() or progress.done or asked_to_stop():
                    self.save()
                losses = {k: float(v) for k, v in progress.snapshot.losses.items()}
                observe(Report("training", self.trainer.fraction(progress.state), losses,
                               error, self.facts["seconds"], progress.step, self.solution,
                               self.stages[int(progress.state.stage)].label))
                if asked_to_stop() and not progress.done:
                    raise Interrupted(f"run {self.directory.path}",
                                      f"stopped at step {progress.step}, which is saved",
                                      f"Go on with: piratenets resume {self.directory.path}")

    def _followed_error(self, followers: dict[int, ErrorFollower], stage: int) -> dict[str, float]:
        """The error on a sample of the points of the stage's own reference."""
        reference = self.reference_of(stage)
        if reference is None:
            return {}
        if stage not in followers:
            followers[stage] = ErrorFollower(self.problem, reference,
                                             self.config.record.error_points)
        return followers[stage](self.solution())

    def _note_stage_error(self, progress: Progress) -> None:
        """At the end of a curriculum's stage: its error, which later training overwrites."""
        stage = int(progress.state.stage)
        reference = self.reference_of(stage)
        if self.config.curriculum.values and progress.stage_ended and reference is not None:
            solution = self.solution()
            scored = evaluate(self.problem, reference, solution, solution.end)
            self.facts["stages"].append({"stage": self.stages[stage].label,
                                         "relative_l2": scored.relative_l2})

    @property
    def doubts(self) -> list[str]:
        """What fresh points say against the solution, stage by stage; empty if nothing."""
        return [doubt for facts in self.facts["trust"] for doubt in Trust(**facts).doubts]

    def _guarded(self, steps: Iterator[Progress]) -> Iterator[Progress]:
        """The training's progress; if it diverges, the last good state is saved first."""
        try:
            yield from steps
        except DivergenceError as error:
            if self.state is None:
                raise
            path = self.save()
            raise DivergenceError(error.what, f"{error.why}; the last good checkpoint is {path}",
                                  error.remedy) from error

    def _save_is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self.config.record.checkpoint_seconds

    def save(self) -> Path:
        """Write a checkpoint of the state as it is; a finished one without the optimiser's."""
        assert self.state is not None
        self._collect_fits()
        self._saved_at = time.monotonic()
        write = checkpoints.save_final if self.finished else checkpoints.save
        return write(self.directory.checkpoints, self.step, self.state,
                     {**self.facts, "step": self.step}, self.config.record.keep)

    def _collect_fits(self) -> None:
        """Move what the initialisation achieved (one fit a window) into the checkpoint's facts."""
        self.facts["fits"] += [asdict(f) for f in self.trainer.fits]
        self.trainer.fits.clear()

    def _drop_fits(self, stage: int) -> None:
        """Forget the fit that a window began with which is tried again."""
        self._collect_fits()
        self.facts["fits"] = [fit for fit in self.facts["fits"] if fit.get("stage") != stage]

    def _line(self, progress: Progress, error: dict[str, float]) -> dict[str, Any]:
        """A line of metrics."""
        state, snapshot = progress.state, progress.snapshot
        end = {"end": self.solution().end} if self.trainer.automatic else {}
        return {
            "step": progress.step, "stage": int(state.stage), **end,
            "losses": {k: float(v) for k, v in snapshot.losses.items()},
            "weights": {k: float(v) for k, v in state.weights.items()},
            "causal": [float(w) for w in snapshot.causal],
            "alpha": [float(b.alpha) for b in adaptive_blocks(state.network)],
            "gradient_norm": float(snapshot.gradient_norm),
            "error": error, "seconds": round(self.facts["seconds"], 3),
        }

    def solution(self) -> Solution:
        """The field as trained so far."""
        if self.state is None:
            raise InputError(f"run {self.directory.path}", "it has no checkpoint yet",
                             f"Train it with: piratenets resume {self.directory.path}")
        return Solution(self.problem, self.stages, self.state)

    def predict(self, points: Any, derivatives: Sequence[str] = ()) -> np.ndarray:
        """The unknowns at points (n, d), one column each, then the derivatives asked for.

        A derivative is named as in a residual: 'u.x', 'v.xx'.
        """
        table = np.asarray(points, dtype=float)
        solution = self.solution()
        self.problem.check_points(table)
        if solution.end is not None and self.problem.time is not None and len(table):
            latest = float(table[:, self.problem.time].max())
            if latest > solution.end + 1e-6 * abs(solution.end):
                raise InputError(f"points up to t = {latest:g}",
                                 f"the run is trained to t = {solution.end:g} so far",
                                 f"Go on with: piratenets resume {self.directory.path}")
        columns = [self._derivative(name) for name in derivatives]
        zero = (0,) * len(self.problem.names)
        values = solution.derivatives(table, [zero, *(index for _, index in columns)])
        extra = [values[:, 1 + j, k] for j, (k, _) in enumerate(columns)]
        return np.concatenate([values[:, 0], *(e[:, None] for e in extra)], axis=1)

    def _derivative(self, name: str) -> tuple[int, tuple[int, ...]]:
        unknown, _, coordinates = name.partition(".")
        if unknown not in self.problem.unknowns or not coordinates:
            raise InputError(f"derivative {name!r}",
                             f"the unknowns are {', '.join(self.problem.unknowns)}",
                             "Write it as in a residual, such as "
                             f"{self.problem.unknowns[0]}.{self.problem.names[-1]}")
        return (list(self.problem.unknowns).index(unknown),
                parse_derivative(coordinates, self.problem.names))

    def evaluate(self) -> Evaluation:
        """The error against the reference, on its whole grid."""
        if self.reference is None:
            raise InputError(f"problem {self.problem.name}", "it has no reference to compare with",
                             "Give the problem one: reference=Spectral(...) or Exact(...)")
        solution = self.solution()
        return evaluate(self.problem, self.reference, solution, solution.end)

    def evaluate_literature(self, observe: Observer | None = None) -> Evaluation | None:
        """The error against what the literature takes for the reference, where that differs."""
        if self.problem.literature is None:
            return None
        other = replace(self.problem, reference=self.problem.literature)
        reference = load_reference(other, self.stages[-1].coefficients, _progress(observe))
        solution = self.solution()
        return evaluate(other, reference, solution, solution.end)

    def stage_errors(self, scored: Evaluation) -> list[dict[str, Any]]:
        """The error of each stage: a curriculum's as noted when it ended; a window's over its
        own times, and over all times up to its end."""
        time, reference = self.problem.time, self.reference
        if self.config.training.windows == 1 or time is None or reference is None:
            return self.facts["stages"]
        first = float(self.problem.lower[time])
        trained = self.stages[: int(self.state.stage) + 1] if self.state else []

        def between(a: float, b: float) -> dict[str, float]:
            return errors_between(self.problem, reference, scored.prediction, a, b)

        return [{"stage": s.label,
                 "relative_l2": between(float(s.lower[time]), float(s.upper[time])),
                 "cumulative": between(first, float(s.upper[time]))} for s in trained]

    def milestone_errors(self, scored: Evaluation) -> list[dict[str, Any]]:
        """The error up to each of the times that the problem names, as far as it is trained."""
        end, time, reference = self.solution().end, self.problem.time, self.reference
        if end is None or time is None or reference is None:
            return []
        first = float(self.problem.lower[time])
        return [{"t": t, "relative_l2": errors_between(self.problem, reference, scored.prediction,
                                                       first, t)}
                for t in self.problem.milestones if t <= end]

    def write_summary(self, observe: Observer | None = None) -> dict[str, Any]:
        """summary.json: what the run came to."""
        scored = self.evaluate() if self.reference is not None else None
        literature = self.evaluate_literature(observe) if self.finished else None
        assert self.state is not None
        facts = circumstances()
        summary = {
            "problem": self.problem.name, "preset": self.config.preset, "seed": self.config.seed,
            "relative_l2": scored.relative_l2 if scored else {},
            "reference_error": max(scored.reference_error.values()) if scored else None,
            "compared": scored.compared if scored else "the problem has no reference",
            "parameters": parameter_count(self.state.network, self.config.network),
            "steps": self.step, "wall_seconds": round(float(self.facts["seconds"]), 3),
            "finished": self.finished, "commit": facts["commit"], "machine": facts["machine"],
            "initialisation": self.facts["fits"],
            "trust": self.facts["trust"], "doubts": self.doubts,
            "stages": self.stage_errors(scored) if scored else [],
            "until": self.milestone_errors(scored) if scored else [],
            "literature_relative_l2": literature.relative_l2 if literature else {},
            "literature_compared": literature.compared if literature else "",
        }
        write_json(self.directory.summary, summary)
        return summary


def _progress(observe: Observer | None) -> Callable[[str, float], None] | None:
    if observe is None:
        return None
    return lambda phase, fraction: observe(Report(phase, fraction))


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    """Where two configurations differ: 'network.width 64, not 32'."""
    for key in {**old, **new}:
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key} {a}, not {b}"


@contextmanager
def _interruptible() -> Generator[Callable[[], bool]]:
    """Turn Ctrl-C and termination into a request that is looked at between calls.

    A second one interrupts at once. Other threads than the main one cannot be signalled.
    """
    asked = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    previous = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
