"""The configuration of a run: one frozen, typed tree.

Every field can be set on the command line by its path (`--network.width 64`) and from
Python by `changed(config, {"network.width": 64})`. Values are checked where they are made.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from piratenets.errors import InputError, unknown_name


def _require(holds: bool, what: str, why: str, remedy: str) -> None:
    if not holds:
        raise InputError(what, why, remedy)


def _positive(path: str, value: float) -> None:
    _require(value > 0 and math.isfinite(value), f"{path} = {value}", "it must be positive",
             "Give a positive number")


@dataclass(frozen=True)
class EmbeddingConfig:
    kind: Literal["fourier", "spectral", "chebyshev", "radial", "none"] = "fourier"
    """Random Fourier features, a grid of frequencies, Chebyshev polynomials, Gaussians, none."""
    size: int = 256
    """Number of features. With the network's width, PirateNet needs no projection."""
    scale: float = 2.0
    """Standard deviation of the Fourier frequencies; inverse width of the Gaussians."""
    trainable: bool = False
    """Whether the Fourier frequencies (the Gaussians' centres) are trained too."""

    def __post_init__(self) -> None:
        _positive("network.embedding.size", self.size)
        _positive("network.embedding.scale", self.scale)


@dataclass(frozen=True)
class NetworkConfig:
    kind: Literal["pirate", "modified-mlp", "mlp", "resnet"] = "pirate"
    """The backbone."""
    layers: int = 9
    """Number of hidden layers; a block of a PirateNet or ResNet has three."""
    width: int = 256
    """Number of channels of a hidden layer."""
    activation: Literal["tanh", "swish", "gelu", "sine"] = "tanh"
    gates: bool = True
    """PirateNet: whether the blocks are gated by U and V."""
    alpha: float = 0.0
    """PirateNet: the nonlinearity every block starts with."""
    train_alpha: bool = True
    """PirateNet: whether alpha is trained."""
    factorization: bool = True
    """Random weight factorization W = V diag(g), g = exp(s), s ~ N(mean, std^2)."""
    factorization_mean: float = 1.0
    factorization_std: float = 0.1
    symmetries: bool = True
    """Whether symmetries that the problem declares (even in x, a turn) are built into the
    network."""
    shapes: bool = True
    """Whether the network is given the known functions that the problem declares: shapes it sees
    beside the coordinates, and the magnitude of the unknowns."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)

    def __post_init__(self) -> None:
        _positive("network.layers", self.layers)
        _positive("network.width", self.width)


@dataclass(frozen=True)
class InitialisationConfig:
    source: Literal["initial", "linearised", "data", "none"] = "initial"
    """What the last layer is fitted to by least squares: the initial condition at all times,
    the linearised PDE's solution, the data file, or nothing."""
    data: str = ""
    """An .npz file with `points` (n, d) and `values` (n, k), for source 'data'."""
    grid: int = 128
    """Points a coordinate in the fit (fewer in time and in several dimensions)."""

    def __post_init__(self) -> None:
        _positive("initialisation.grid", self.grid)
        _require((self.source == "data") == bool(self.data), f"initialisation.data = {self.data!r}",
                 f"initialisation.source is {self.source!r}",
                 "Give both source 'data' and the path of the data")


@dataclass(frozen=True)
class WeightingConfig:
    kind: Literal["none", "fixed", "grad-norm", "ntk"] = "grad-norm"
    """How the terms of the loss are balanced. 'fixed' keeps `start`; 'none' ignores it."""
    start: dict[str, float] = field(default_factory=dict[str, float])
    """Starting weights by condition or term; 1 where none is given."""
    update_every: int = 1000
    """Steps between updates of the weights."""
    momentum: float = 0.9
    """w <- momentum w + (1 - momentum) w_new."""
    causal: bool = True
    """Whether the time chunks of the PDE's residual are weighted causally."""
    tolerance: float = 1.0
    """The causal weights' epsilon: w_i = exp(-epsilon (L_1 + ... + L_{i-1}))."""
    chunks: int = 32
    """Number of chunks, equal in count, that the points are sorted into by time."""

    def __post_init__(self) -> None:
        _positive("weighting.update_every", self.update_every)
        _positive("weighting.chunks", self.chunks)
        _require(0 <= self.momentum < 1, f"weighting.momentum = {self.momentum}",
                 "it must lie in [0, 1)", "The paper's is 0.9")
        _require(self.tolerance >= 0, f"weighting.tolerance = {self.tolerance}",
                 "it must not be negative", "The paper's is 1.0")
        for name, value in self.start.items():
            _positive(f"weighting.start.{name}", value)


@dataclass(frozen=True)
class SamplingConfig:
    batch: int = 8192
    """Collocation points."""
    redraw: int = 1
    """Steps between draws of new points."""
    kind: Literal["uniform", "sobol"] = "uniform"
    """Independent points, or a randomly shifted Sobol sequence, which covers more evenly."""
    graded: float = 0.0
    """Share of the points that crowd at the places the problem declares rough."""
    adaptive: float = 0.0
    """Share of the points that are chosen where the residual is large."""
    grid: int = 256
    """Points a free coordinate on the regions that have a fixed grid (initial, boundary)."""

    def __post_init__(self) -> None:
        _positive("sampling.batch", self.batch)
        _positive("sampling.redraw", self.redraw)
        _positive("sampling.grid", self.grid)
        for name, share in (("graded", self.graded), ("adaptive", self.adaptive)):
            _require(0 <= share <= 1 and self.graded + self.adaptive <= 1,
                     f"sampling.{name} = {share}", "the shares must lie in [0, 1] together",
                     "Leave a share for points that cover the whole domain")


SECOND_ORDER = frozenset({"lm", "ssbroyden", "ssbfgs", "lbfgs", "spring"})
"""Optimisers that compare the losses of several steps, to many digits."""


@dataclass(frozen=True)
class OptimiserConfig:
    kind: Literal["adam", "soap", "lm", "ssbroyden", "ssbfgs", "lbfgs", "spring"] = "adam"
    """Adam; SOAP, for wide networks; Levenberg-Marquardt; self-scaled Broyden or BFGS; L-BFGS;
    SPRING, a natural gradient for many more parameters than points."""
    then: Literal["none", "adam", "soap", "lm", "ssbroyden", "ssbfgs", "lbfgs", "spring"] = "none"
    """What takes over at step `then_at` of each stage."""
    then_at: int = 0
    damping: float = 1e-2
    """Levenberg-Marquardt: the damping to start with."""
    ratio: float = 0.15
    """Levenberg-Marquardt: the least damped step is taken that still reduces the loss by this
    fraction of what the model predicts."""
    solver: Literal["normal", "qr"] = "normal"
    """Levenberg-Marquardt: by the normal equations, or by a QR factorisation of the Jacobian
    itself, which takes several times as long and does not square its condition number."""
    precondition_every: int = 2
    """SOAP: steps between renewals of the bases."""
    memory: int = 50
    """L-BFGS: how many steps are remembered."""
    momentum: float = 0.9
    """SPRING: how much of the last step is kept."""
    regularisation: float = 1e-6
    """SPRING: the damping, relative to the mean diagonal of the kernel."""
    learning_rate: float = 1e-3
    """The peak, after the warm-up."""
    warmup_steps: int = 5000
    decay_rate: float = 0.9
    decay_steps: int = 5000
    """After the warm-up: decay_rate^((step - warmup_steps) / decay_steps)."""

    def __post_init__(self) -> None:
        _positive("optimiser.learning_rate", self.learning_rate)
        for name in ("damping", "precondition_every", "memory", "regularisation"):
            _positive(f"optimiser.{name}", getattr(self, name))
        _require(0 <= self.momentum < 1, f"optimiser.momentum = {self.momentum}",
                 "it must lie in [0, 1)", "Usual values are 0.8 to 0.99")
        _require(0 < self.ratio < 1, f"optimiser.ratio = {self.ratio}", "it must lie in (0, 1)",
                 "Usual values are 0.1 to 0.5")
        _require((self.then == "none") == (self.then_at == 0),
                 f"optimiser.then_at = {self.then_at}", f"optimiser.then is {self.then!r}",
                 "Give both the second optimiser and the step it starts at, or neither")
        _positive("optimiser.decay_rate", self.decay_rate)
        _positive("optimiser.decay_steps", self.decay_steps)
        _require(self.warmup_steps >= 0, f"optimiser.warmup_steps = {self.warmup_steps}",
                 "it must not be negative", "Use 0 for no warm-up")


@dataclass(frozen=True)
class CurriculumConfig:
    coefficient: str = ""
    """The coefficient that changes from stage to stage; empty for no curriculum."""
    values: tuple[float, ...] = ()
    """Its values on the way to the one it has in `coefficients`, which always comes last."""
    steps: tuple[int, ...] = ()
    """Training steps of each stage (`training.steps` is not used then)."""

    def __post_init__(self) -> None:
        _require(len(self.values) == len(self.steps), f"curriculum.values = {self.values}",
                 f"there are {len(self.steps)} entries in curriculum.steps", "Give as many of both")
        _require(bool(self.coefficient) == bool(self.values),
                 f"curriculum.coefficient = {self.coefficient!r}",
                 f"curriculum.values is {self.values}", "Give both or neither")
        for steps in self.steps:
            _positive("curriculum.steps", steps)


@dataclass(frozen=True)
class TrainingConfig:
    steps: int = 300_000
    """Training steps of each time window."""
    windows: int = 1
    """Time windows, trained one after the other from the previous one's end."""
    window_growth: float = 1.0
    """Each window's length over that of the one before: above 1 where the start is fast."""
    window_steps: int = 0
    """Above 0, windows choose their own lengths: one that reaches `target` in fewer steps than
    this makes the next one longer, in more steps shorter, and one that does not reach it in
    `steps` steps (or stalls) is tried again with half its length, after which windows grow slowly.
    One with a fresh network, as the first has, may take four times `steps`, and a quarter of those
    that it takes counts. `windows` is then the most there may be, the first one's length is what
    fixed windows would have, and it alone has `starts`."""
    stretch: bool = False
    """Whether a window's network sees its time stretched to the length of the whole interval;
    the equations are weighted in that time too."""
    warm_start: bool = False
    """Whether a window starts from the previous one's weights instead of fresh ones."""
    starts: int = 1
    """Networks that a stage begins with, the previous window's or fresh ones: the one with the
    least loss after `start_steps` steps goes on. Second-order methods need many more iterations
    from some than from others."""
    start_steps: int = 30
    precision: Literal["float32", "float64"] = "float32"
    patience: int = 0
    """Steps without progress (the loss falling by a tenth) after which a stage ends; 0: never.
    As with `target`, the steps it has left go to the stages after it."""
    target: float = 0.0
    """A stage ends once its loss is below this. The steps it has left go to the stages after it."""
    divergence: float = 1e10
    """A loss term above this stops the run as diverged."""

    def __post_init__(self) -> None:
        _positive("training.steps", self.steps)
        _positive("training.windows", self.windows)
        _positive("training.window_growth", self.window_growth)
        _positive("training.divergence", self.divergence)
        _positive("training.starts", self.starts)
        _require(0 < self.start_steps <= self.steps or self.starts == 1,
                 f"training.start_steps = {self.start_steps}",
                 f"a stage has {self.steps} steps", "Use fewer")
        for name in ("patience", "target"):
            value = getattr(self, name)
            _require(value >= 0, f"training.{name} = {value}", "it must not be negative",
                     "Use 0 to train all steps")
        self._check_window_steps()

    def _check_window_steps(self) -> None:
        what = f"training.window_steps = {self.window_steps}"
        _require(self.window_steps >= 0, what, "it must not be negative",
                 "Use 0 for windows of fixed lengths")
        if self.window_steps:
            _require(self.target > 0, what, "no window reaches training.target = 0",
                     "Give a positive training.target")
            _require(self.windows > 1, what, "training.windows = 1 leaves no lengths to choose",
                     "Give the most windows there may be")
            _require(self.window_steps <= self.steps, what,
                     f"a window has {self.steps} steps at most", "Use no more than these")


@dataclass(frozen=True)
class RecordConfig:
    every: int = 100
    """Steps between lines of metrics."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints, at the least (one is always written at the end)."""
    keep: int = 2
    """How many of the newest checkpoints are kept."""
    error_points: int = 4096
    """Points of the reference at which the error is followed during training."""

    def __post_init__(self) -> None:
        _positive("record.every", self.every)
        _positive("record.error_points", self.error_points)
        _require(self.checkpoint_seconds >= 0,
                 f"record.checkpoint_seconds = {self.checkpoint_seconds}",
                 "it must not be negative", "Use 0 to save at every line of metrics")
        _require(self.keep >= 2, f"record.keep = {self.keep}",
                 "with fewer than two, a damaged checkpoint would lose the run", "Use 2 or more")


@dataclass(frozen=True)
class Config:
    """Everything that determines a run."""

    problem: str = "allen-cahn"
    """A named problem, or the path of a Python file that defines `problem`."""
    preset: str = "laptop"
    seed: int = 0
    coefficients: dict[str, float] = field(default_factory=dict[str, float])
    """The problem's coefficients."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    initialisation: InitialisationConfig = field(default_factory=InitialisationConfig)
    weighting: WeightingConfig = field(default_factory=WeightingConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    record: RecordConfig = field(default_factory=RecordConfig)

    def __post_init__(self) -> None:
        weighting, sampling = self.weighting, self.sampling
        _require(not weighting.causal or sampling.batch % weighting.chunks == 0,
                 f"weighting.chunks = {weighting.chunks}",
                 f"it does not divide sampling.batch = {sampling.batch}",
                 f"Use {_nearest_divisor(sampling.batch, weighting.chunks)} chunks, or a batch of "
                 f"{weighting.chunks * max(1, round(sampling.batch / weighting.chunks))}")
        _require(self.training.windows == 1 or not self.curriculum.values,
                 f"training.windows = {self.training.windows}",
                 "time windows and a curriculum cannot be combined", "Set one of them")
        second = SECOND_ORDER & {self.optimiser.kind, self.optimiser.then}
        _require(not second or self.training.precision == "float64",
                 f"training.precision = {self.training.precision!r}",
                 f"{' and '.join(sorted(second))} needs more digits", "Use float64")
        _require(self.seed >= 0, f"seed = {self.seed}", "it must not be negative",
                 "Use 0, 1, 2 ...")


def _nearest_divisor(n: int, target: int) -> int:
    return min((d for d in range(1, n + 1) if n % d == 0), key=lambda d: abs(d - target))


def to_json(config: Any) -> Any:
    """The configuration as plain dicts, lists and numbers."""
    return dataclasses.asdict(config)


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with fields changed by path: {"network.width": 64}."""
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        *groups, name = path.split(".")
        branch = tree
        for group in groups:
            branch = branch.setdefault(group, {})
        branch[name] = value
    return _replaced(config, tree, "")


def from_json(tree: Mapping[str, Any]) -> Config:
    """The configuration that `to_json` wrote; unknown keys and wrong types are errors."""
    return _replaced(Config(), tree, "")


def _replaced(node: Any, tree: Mapping[str, Any], prefix: str) -> Any:
    """The dataclass with the tree's fields replaced, all at once (their checks are joint)."""
    hints = typing.get_type_hints(type(node))
    values: dict[str, Any] = {}
    for name, value in tree.items():
        path = prefix + name
        if name not in hints:
            raise unknown_name("configuration field", path, _paths(Config()))
        current = getattr(node, name)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, Mapping):
                raise InputError(f"configuration field {path!r}", "it is a group of fields",
                                 f"Set one, such as {path}.{dataclasses.fields(current)[0].name}")
            values[name] = _replaced(current, typing.cast("Mapping[str, Any]", value), path + ".")
        elif isinstance(current, dict) and isinstance(value, Mapping):
            entries = _flattened(typing.cast("Mapping[str, Any]", value))
            # What is said of a condition ('initial') replaces what was said of its terms.
            kept = {k: v for k, v in current.items()
                    if not any(k.startswith(f"{entry}.") for entry in entries)}
            values[name] = {**kept, **_typed(hints[name], entries, path)}
        else:
            values[name] = _typed(hints[name], value, path)
    return dataclasses.replace(node, **values)


def _paths(node: Any, prefix: str = "") -> list[str]:
    """The paths of all fields below a dataclass."""
    paths: list[str] = []
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        below = dataclasses.is_dataclass(value)
        paths += _paths(value, f"{prefix}{f.name}.") if below else [prefix + f.name]
    return paths


def _flattened(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with its keys joined by dots (terms such as 'pde.u' hold one)."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            below = _flattened(typing.cast("Mapping[str, Any]", value))
            flat.update({f"{name}.{k}": v for k, v in below.items()})
        else:
            flat[name] = value
    return flat


def _typed(kind: Any, value: Any, path: str) -> Any:
    """The value as the field's type, or an error that says what it should be."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    wrong = InputError(f"{path} = {value!r}", f"it is not {_describe(kind)}",
                       f"Give {_describe(kind)}")
    if origin is Literal:
        if value not in arguments:
            raise unknown_name(f"{path}:", value, arguments)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise wrong
        return tuple(_typed(arguments[0], v, path) for v in typing.cast("list[Any]", value))
    if origin is dict:
        if not isinstance(value, dict):
            raise wrong
        return {str(k): _typed(arguments[1], v, path)
                for k, v in typing.cast("dict[Any, Any]", value).items()}
    accepted: dict[Any, Any] = {int: int, float: (int, float), str: str, bool: bool}
    if not isinstance(value, accepted[kind]) or (kind is not bool and isinstance(value, bool)):
        raise wrong
    return kind(value)


def _describe(kind: Any) -> str:
    if isinstance(kind, types.GenericAlias) or typing.get_origin(kind):
        return str(kind).replace("typing.", "")
    return {"int": "a whole number", "float": "a number", "str": "a text",
            "bool": "true or false"}[kind.__name__]
