import pytest

from piratenets.errors import InputError, UnknownName
from piratenets.presets import PAPER, PRESETS, preset
from piratenets.problems import PROBLEMS
from piratenets.problems.problem import Problem, interior
from piratenets.training.trainer import Trainer

from .common import burgers


def value_at(config, path):
    for name in path.split("."):
        config = getattr(config, name)
    return config


# The rows of the paper's tables of hyper-parameters, one dictionary a table. A row that is empty
# in a table or not in it is not here.
COMMON = {
    "network.kind": "pirate", "network.width": 256, "network.factorization": True,
    "network.factorization_std": 0.1, "network.embedding.kind": "fourier",
    "optimiser.learning_rate": 1e-3, "optimiser.decay_rate": 0.9, "optimiser.warmup_steps": 5000,
}
TABLES = {
    "allen-cahn": {
        "network.layers": 9, "network.activation": "tanh", "network.embedding.scale": 2.0,
        "network.factorization_mean": 1.0, "optimiser.decay_steps": 5000,
        "training.steps": 300_000, "sampling.batch": 8192, "weighting.kind": "ntk",
        "weighting.causal": True, "weighting.tolerance": 1.0, "weighting.chunks": 32},
    "kdv": {
        "network.layers": 9, "network.activation": "tanh", "network.embedding.scale": 1.0,
        "network.factorization_mean": 1.0, "optimiser.decay_steps": 2000,
        "training.steps": 200_000, "sampling.batch": 4096, "weighting.kind": "grad-norm",
        "weighting.causal": True, "weighting.tolerance": 1.0, "weighting.chunks": 16},
    "gray-scott": {
        "network.layers": 9, "network.activation": "swish", "network.embedding.scale": 1.0,
        "network.factorization_mean": 0.5, "optimiser.decay_steps": 2000,
        "training.windows": 10, "training.steps": 100_000, "sampling.batch": 4096,
        "weighting.kind": "grad-norm", "weighting.causal": True, "weighting.tolerance": 1.0,
        "weighting.chunks": 32},
    "ginzburg-landau": {
        "network.layers": 9, "network.activation": "swish", "network.embedding.scale": 1.0,
        "network.factorization_mean": 0.5, "optimiser.decay_steps": 2000,
        "training.windows": 5, "training.steps": 100_000, "sampling.batch": 8192,
        "weighting.kind": "grad-norm", "weighting.causal": True, "weighting.tolerance": 5.0,
        "weighting.chunks": 16},
    "cavity": {
        "network.layers": 18, "network.activation": "tanh", "network.embedding.scale": 15.0,
        "network.factorization_mean": 1.0, "optimiser.decay_steps": 10_000,
        "curriculum.coefficient": "Re", "curriculum.values": (100, 400, 1000, 1600, 3200),
        "curriculum.steps": (10_000, 20_000, 50_000, 50_000, 500_000), "sampling.batch": 4096,
        "weighting.kind": "grad-norm", "weighting.causal": False},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_paper_s_tables(problem):
    config, expected = preset("paper", problem), {**COMMON, **TABLES[problem]}
    assert {path: value_at(config, path) for path in expected} == expected


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_the_tables_leave_to_the_text(problem):
    """Weights updated every 1000 steps with momentum 0.9; alpha at 0 and trained; gates; as many
    Fourier features as channels, not trained; the last layer fitted to the initial data."""
    config = preset("paper", problem)
    assert (config.weighting.update_every, config.weighting.momentum) == (1000, 0.9)
    network = config.network
    assert (network.alpha, network.train_alpha, network.gates) == (0.0, True, True)
    assert (network.embedding.size, network.embedding.trainable) == (256, False)
    assert config.initialisation.source == ("none" if problem == "cavity" else "initial")
    assert config.coefficients == dict(PROBLEMS[problem].coefficients)


@pytest.mark.parametrize(("problem", "weights"), [
    ("allen-cahn", {"pde": 1, "initial": 1}), ("kdv", {"pde": 1, "initial": 1}),
    ("gray-scott", {"pde.u": 1, "pde.v": 1, "initial.u": 1, "initial.v": 1}),
    ("ginzburg-landau", {"pde.u": 1, "pde.v": 1, "initial.u": 100, "initial.v": 100}),
    ("cavity", {"pde.x": 1, "pde.y": 1, "pde.continuity": 10,
                "boundary.u": 100, "boundary.v": 100}),
])
def test_starting_weights_of_the_paper_s_runs(problem, weights):
    assert preset("paper", problem).weighting.start == weights


@pytest.mark.parametrize(("problem", "total"), [
    ("allen-cahn", 300_000), ("kdv", 200_000), ("gray-scott", 1_000_000),
    ("ginzburg-landau", 500_000), ("cavity", 630_000),
])
def test_steps_of_the_paper_s_runs(problem, total):
    assert Trainer(PROBLEMS[problem], preset("paper", problem)).total_steps == total


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_every_problem(name, problem):
    """The trainer checks names, sizes and stages."""
    config = preset(name, problem)
    assert (config.problem, config.preset) == (problem, name)
    assert config.coefficients.keys() == PROBLEMS[problem].coefficients.keys()
    assert all(stage.steps > 0 for stage in Trainer(PROBLEMS[problem], config).stages_of(None))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_smoke_test_is_short_and_a_laptop_has_no_paper_network(problem):
    smoke, laptop, paper = (preset(name, problem) for name in PRESETS)
    assert Trainer(PROBLEMS[problem], smoke).total_steps <= 500
    assert laptop.network.width < paper.network.width
    # Second-order methods need more digits than the paper's Adam.
    assert (laptop.training.precision, paper.training.precision) == ("float64", "float32")


def test_presets_of_a_problem_of_one_s_own():
    config = preset("laptop", burgers())
    assert (config.problem, config.coefficients) == ("burgers", {"nu": 0.05})
    assert config.weighting.start.keys() == {"pde", "initial"}
    assert Trainer(burgers(), config).total_steps > 0

    steady = Problem(name="steady", coordinates={"x": (0, 1)}, unknowns=["u"],
                     conditions=[interior(lambda u, c: u.xx - 1)])
    config = preset("smoke", steady)
    # Nothing to fit to, no time to be causal in.
    assert (config.initialisation.source, config.weighting.causal) == ("none", False)


def test_presets_that_do_not_exist():
    with pytest.raises(UnknownName, match=r"preset 'laptob'.*Did you mean 'laptop'\?"):
        preset("laptob", "allen-cahn")
    with pytest.raises(InputError, match="preset 'paper' for burgers: the paper has no such"):
        preset("paper", burgers())
    assert set(PAPER) == set(PROBLEMS)
    assert PRESETS == ("smoke", "laptop", "paper")
