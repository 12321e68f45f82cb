import dataclasses
import json

import pytest

from piratenets.config import (
    Config,
    CurriculumConfig,
    EmbeddingConfig,
    InitialisationConfig,
    NetworkConfig,
    OptimiserConfig,
    RecordConfig,
    SamplingConfig,
    TrainingConfig,
    WeightingConfig,
    changed,
    from_json,
    to_json,
)
from piratenets.errors import InputError, PirateError, UnknownName
from piratenets.presets import PAPER, PRESETS, preset


def fields(node, prefix=""):
    """Every field of a configuration that holds no others: path and value."""
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        if dataclasses.is_dataclass(value):
            yield from fields(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value


FIELDS = dict(fields(Config()))


def value_at(config, path):
    return dict(fields(config))[path]


# Changing -------------------------------------------------------------------------------------

@pytest.mark.parametrize(("path", "value"), [
    ("network.width", 64), ("network.embedding.kind", "chebyshev"), ("network.gates", False),
    ("training.precision", "float64"), ("weighting.tolerance", 0.5), ("problem", "kdv"),
    ("coefficients", {"a": 1.0}), ("record.checkpoint_seconds", 0.0), ("seed", 7),
])
def test_one_field_is_changed_and_nothing_else(path, value):
    config = changed(Config(), {path: value})
    assert dict(fields(config)) == {**FIELDS, path: value}
    assert dict(fields(Config())) == FIELDS


def test_fields_that_are_checked_together_are_changed_together():
    """64 does not divide the old batch's half, 96: neither change is valid alone."""
    config = changed(Config(), {"weighting.chunks": 96, "sampling.batch": 960})
    assert (config.weighting.chunks, config.sampling.batch) == (96, 960)
    with pytest.raises(InputError):
        changed(Config(), {"weighting.chunks": 96})


def test_whole_numbers_become_numbers_where_numbers_are_meant():
    value = changed(Config(), {"network.alpha": 1}).network.alpha
    assert (value, type(value)) == (1.0, float)


def test_entries_by_name_are_merged():
    config = changed(Config(), {"coefficients.a": 1, "weighting.start.pde.u": 2})
    config = changed(config, {"coefficients.b": 3.0, "weighting.start": {"pde": {"v": 5.0}}})
    assert config.coefficients == {"a": 1.0, "b": 3.0}
    assert config.weighting.start == {"pde.u": 2.0, "pde.v": 5.0}


# What is refused ---------------------------------------------------------------------------------

@pytest.mark.parametrize("path", FIELDS)
def test_a_misspelt_field_is_answered_with_the_right_one(path):
    wrong = path[:-1]
    with pytest.raises(UnknownName, match=rf"field '{wrong}'.*Did you mean '{path}'\?"):
        changed(Config(), {wrong: 1})


@pytest.mark.parametrize("path", ["optimizer.learning_rate", "network.embedding.kind.size",
                                  "training.step"])
def test_unknown_fields(path):
    with pytest.raises(PirateError):
        changed(Config(), {path: 1})


def _wrong_values(value):
    """A value of each type that the field does not take."""
    match value:
        case bool():
            return [1, "yes", None]
        case int():
            return [1.5, "8", True, None]
        case float():
            return ["0.1", True, None, [1.0]]
        case str():
            return [1, None]
        case tuple():
            return [1.0, "12", {"a": 1}]
        case dict():
            return [1.0, "a", [1.0]]
    raise AssertionError(value)


@pytest.mark.parametrize("path", FIELDS)
def test_values_of_another_type_are_refused(path):
    for wrong in _wrong_values(FIELDS[path]):
        with pytest.raises((InputError, UnknownName)) as caught:
            changed(Config(), {path: wrong})
        assert path in str(caught.value)
        assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize(("path", "wrong", "right"), [
    ("network.kind", "pirat", "pirate"), ("network.activation", "tan", "tanh"),
    ("network.embedding.kind", "furier", "fourier"), ("weighting.kind", "gradnorm", "grad-norm"),
    ("initialisation.source", "linearized", "linearised"), ("optimiser.kind", "adams", "adam"),
    ("training.precision", "float23", "float32"),
])
def test_choices_are_answered_with_the_nearest(path, wrong, right):
    with pytest.raises(UnknownName, match=rf"{path}: '{wrong}'.*Did you mean '{right}'\?"):
        changed(Config(), {path: wrong})


def test_entries_of_another_type():
    with pytest.raises(InputError, match="coefficients = 'one': it is not a number"):
        changed(Config(), {"coefficients": {"a": "one"}})
    with pytest.raises(InputError, match=r"curriculum.steps = 1.5: it is not a whole number"):
        changed(Config(), {"curriculum": {"coefficient": "a", "values": [1], "steps": [1.5]}})


def test_a_group_is_not_a_field():
    with pytest.raises(InputError, match="'network': it is a group of fields. Set one, such as "
                                         "network.kind"):
        changed(Config(), {"network": "pirate"})


@pytest.mark.parametrize(("make", "why"), [
    (lambda: NetworkConfig(layers=0), "network.layers = 0: it must be positive"),
    (lambda: NetworkConfig(width=-1), "network.width = -1: it must be positive"),
    (lambda: EmbeddingConfig(size=0), "network.embedding.size = 0"),
    (lambda: EmbeddingConfig(scale=float("nan")), "network.embedding.scale = nan"),
    (lambda: InitialisationConfig(grid=0), "initialisation.grid = 0"),
    (lambda: InitialisationConfig(source="data"), "initialisation.data = ''"),
    (lambda: InitialisationConfig(data="u0.npz"), "initialisation.data = 'u0.npz'"),
    (lambda: WeightingConfig(update_every=0), "weighting.update_every = 0"),
    (lambda: WeightingConfig(momentum=1.0), "weighting.momentum = 1.0"),
    (lambda: WeightingConfig(tolerance=-0.1), "weighting.tolerance = -0.1"),
    (lambda: WeightingConfig(start={"pde": 0.0}), "weighting.start.pde = 0.0"),
    (lambda: SamplingConfig(batch=0), "sampling.batch = 0"),
    (lambda: SamplingConfig(grid=0), "sampling.grid = 0"),
    (lambda: OptimiserConfig(learning_rate=float("inf")), "optimiser.learning_rate = inf"),
    (lambda: OptimiserConfig(decay_rate=0.0), "optimiser.decay_rate = 0.0"),
    (lambda: OptimiserConfig(decay_steps=0), "optimiser.decay_steps = 0"),
    (lambda: OptimiserConfig(warmup_steps=-1), "optimiser.warmup_steps = -1"),
    (lambda: CurriculumConfig(coefficient="a", values=(1.0,), steps=()), "0 entries"),
    (lambda: CurriculumConfig(values=(1.0,), steps=(1,)), "curriculum.coefficient = ''"),
    (lambda: CurriculumConfig(coefficient="a", values=(1.0,), steps=(0,)), "curriculum.steps = 0"),
    (lambda: TrainingConfig(steps=0), "training.steps = 0"),
    (lambda: TrainingConfig(windows=0), "training.windows = 0"),
    (lambda: TrainingConfig(divergence=0.0), "training.divergence = 0.0"),
    (lambda: RecordConfig(every=0), "record.every = 0"),
    (lambda: RecordConfig(keep=1), "record.keep = 1"),
    (lambda: RecordConfig(checkpoint_seconds=-1.0), "record.checkpoint_seconds = -1.0"),
    (lambda: RecordConfig(error_points=0), "record.error_points = 0"),
    (lambda: Config(seed=-1), "seed = -1"),
])
def test_values_out_of_range_are_refused_where_they_are_made(make, why):
    with pytest.raises(InputError) as caught:
        make()
    assert why in str(caught.value)


@pytest.mark.parametrize("make", [
    lambda: WeightingConfig(momentum=0.0), lambda: WeightingConfig(tolerance=0.0),
    lambda: OptimiserConfig(warmup_steps=0), lambda: RecordConfig(keep=2, checkpoint_seconds=0.0),
])
def test_values_at_the_edge_are_taken(make):
    assert dataclasses.is_dataclass(make())


# Saving -------------------------------------------------------------------------------------------

CONFIGS = {f"{name} {problem}": preset(name, problem) for name in PRESETS for problem in PAPER}
CONFIGS["default"] = Config()
CONFIGS["changed"] = changed(Config(), {
    "coefficients": {"a": 0.1}, "weighting.start": {"pde.u": 3.0, "initial": 100.0},
    "curriculum": {"coefficient": "a", "values": (0.1, 0.3), "steps": (10, 20)},
    "network.alpha": 1e-17, "seed": 2**40})


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_and_read_back(name):
    config = CONFIGS[name]
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert from_json(to_json(config)) == config


def test_saved_form_is_plain():
    tree = to_json(CONFIGS["changed"])
    assert tree["network"]["embedding"]["kind"] == "fourier"
    assert tree["weighting"]["start"] == {"pde.u": 3.0, "initial": 100.0}
    assert tree["seed"] == 2**40


def test_a_saved_configuration_with_an_unknown_key_is_refused():
    tree = to_json(Config())
    tree["network"]["depth"] = 3
    with pytest.raises(UnknownName, match=r"configuration field 'network.depth'"):
        from_json(tree)
    tree = to_json(Config())
    tree["training"]["steps"] = "many"
    with pytest.raises(InputError, match="training.steps = 'many': it is not a whole number"):
        from_json(tree)
