"""piratenets on Allen-Cahn, as `piratenets solve allen-cahn` runs it: the preset `laptop`.

Nothing but the clock is added: an observer, called about once a second, evaluates the field as
trained so far on the whole reference grid. Times that no window has reached yet are given what
the last network says of them, which is what a user would have who stopped then.
"""

import time

BEGAN = time.monotonic()  # Before the expensive imports.

import ast  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402

from recorder import Recorder, arguments  # noqa: E402

import piratenets  # noqa: E402
from piratenets.config import Config, changed  # noqa: E402
from piratenets.fields.networks import parameter_count  # noqa: E402
from piratenets.presets import preset  # noqa: E402
from piratenets.training.solution import Solution  # noqa: E402

SPACING = 1.03
"""Ratio of the times of two records, at least: they are drawn on a logarithmic axis."""


class OverError(Exception):
    """The budget is spent."""


class FollowError:
    def __init__(self, recorder: Recorder, config: Config) -> None:
        self.recorder, self.config = recorder, config
        self.due, self.step, self.parameters = 0.0, 0, 0

    def __call__(self, report: piratenets.Report) -> None:
        over = self.recorder.over
        if report.solution is not None:  # Preparation and evaluation have neither field nor step.
            self.step = report.step
            if over or self.recorder.seconds >= self.due:
                self.follow(report.solution())
        if over:
            raise OverError

    def follow(self, solution: Solution) -> None:
        self.recorder.record(self.recorder.score(solution(self.recorder.points)), self.step)
        self.parameters = parameter_count(solution.networks[-1], self.config.network)
        self.due = SPACING * self.recorder.seconds


def changes(words: Sequence[str]) -> dict[str, object]:
    """Configuration fields to change, from words such as sampling.batch=2048."""
    def value(text: str) -> object:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    return {path: value(text) for path, text in (word.split("=", 1) for word in words)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--set", nargs="*", default=[], metavar="PATH=VALUE")
    options = parser.parse_args()
    recorder = Recorder(options, BEGAN)
    config = changed(preset(options.preset, "allen-cahn"), changes(options.set))
    recorder.note(preset=options.preset, changes=options.set, windows=config.training.windows)
    follow = FollowError(recorder, config)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = piratenets.solve("allen-cahn", options.preset, seed=options.seed,
                                   out=f"{folder}/run", observe=follow,
                                   changes=changes(options.set))
        except OverError:
            finished = False
        else:
            finished = True
            recorder.record(recorder.score(run.predict(recorder.points)), run.step)
    recorder.note(iterations=follow.step, parameters=follow.parameters, finished=finished)


if __name__ == "__main__":
    main()
