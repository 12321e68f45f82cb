"""What the last layer is fitted to: initial values, the linearised equation, data of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from piratenets.config import changed
from piratenets.errors import InputError, StorageError
from piratenets.fields.networks import SMALLEST
from piratenets.presets import preset
from piratenets.problems import PROBLEMS
from piratenets.problems.problem import Problem, initial, interior, periodic, prescribed_values
from piratenets.training.trainer import Trainer, load_data

from ..common import burgers, training_config

pytestmark = pytest.mark.usefixtures("quick_compilation")

BURGERS = burgers()
IN_TIME = [name for name, problem in PROBLEMS.items() if problem.time is not None]


def trainer_of(name, source, grid=32):
    config = changed(preset("smoke", name), {
        "network.width": 16, "network.embedding.size": 16, "initialisation.grid": grid,
        "initialisation.source": source, "training.windows": 1})
    return Trainer(PROBLEMS[name], config)


def unknowns(trainer, points, values):
    """The unknowns themselves, from values in units of the problem's magnitude."""
    if trainer.problem.magnitude is None:
        return values
    coordinates = points[:, : len(trainer.problem.names)].T
    return values * np.maximum(trainer.problem.magnitude(*coordinates), SMALLEST)[:, None]


@pytest.mark.parametrize("name", IN_TIME)
def test_initial_values_at_all_times(name):
    trainer = trainer_of(name, "initial")
    points, values = trainer._known_values(0, None, None)
    at_start = np.concatenate([np.zeros((len(points), 1)), points[:, 1:]], axis=1)
    expected = prescribed_values(trainer.problem, trainer.problem.initial, at_start)
    rounding = 0 if trainer.problem.magnitude is None else 1e-14
    np.testing.assert_allclose(unknowns(trainer, points, values), expected, rtol=rounding, atol=0)
    assert np.unique(points[:, 0]) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    state = trainer.start()
    (fit,) = trainer.fits
    found = np.asarray(jax.vmap(state.network)(jnp.asarray(points, jnp.float32)))
    residual = np.linalg.norm(found - values) / np.linalg.norm(values)
    assert residual == pytest.approx(fit.residual, rel=1e-3, abs=1e-5)
    assert fit.residual < 0.9


@pytest.mark.parametrize(("name", "mode", "rate"), [
    # Of the lowest mode that the initial data hold and the square leaves alone, by coordinate x.
    ("allen-cahn", 1, -1e-4 * np.pi**2), ("kdv", 1, 1j * 0.022**2 * np.pi**3),
    ("gray-scott", 1, -0.2 * np.pi**2), ("ginzburg-landau", 1, -0.004 * np.pi**2),
])
def test_the_linearised_equation_moves_each_mode_by_its_own_rate(name, mode, rate):
    # Allen-Cahn's kink has high modes, which a coarse grid takes for low ones.
    trainer = trainer_of(name, "linearised", grid=256 if name == "allen-cahn" else 32)
    points, values = trainer._known_values(0, None, None)
    sizes = [len(np.unique(points[:, k])) for k, _ in enumerate(trainer.problem.names)]
    known = unknowns(trainer, points, values)
    spectrum = np.fft.fft(known[:, 0].reshape(sizes), axis=1)[:, mode]
    # In the plane: the same mode in x, averaged over y (or, where that vanishes, sin(pi y)).
    if spectrum.ndim > 1:
        mean = spectrum.mean(axis=1)
        y = np.unique(points[:, 2])
        vanishes = abs(mean).max() < 1e-10 * abs(spectrum).max()
        spectrum = spectrum @ np.sin(np.pi * y) if vanishes else mean
        rate = rate * 2 if vanishes else rate
    times = np.unique(points[:, 0])
    np.testing.assert_allclose(spectrum[1:] / spectrum[0], np.exp(rate * times[1:]), rtol=5e-4)
    trainer.start()
    assert 0 < trainer.fits[0].residual < 0.9


def test_data_of_one_s_own(tmp_path):
    random = np.random.default_rng(0)
    points = random.uniform([0, -1], [1, 1], (200, 2))
    values = 0.3 + 0.5 * np.cos(np.pi * points[:, 1])
    np.savez(tmp_path / "data.npz", points=points, values=values)
    trainer = Trainer(BURGERS, training_config(**{
        "network.width": 16, "network.embedding.size": 16,
        "initialisation": {"source": "data", "data": str(tmp_path / "data.npz")}}))
    network = trainer.start().network
    (fit,) = trainer.fits
    assert (fit.points, fit.features) == (200, 16)
    found = np.asarray(jax.vmap(network)(jnp.asarray(points)))[:, 0]
    assert np.linalg.norm(found - values) / np.linalg.norm(values) == pytest.approx(fit.residual)
    assert fit.residual < 0.05


@pytest.mark.parametrize(("points", "values", "message"), [
    ([[0.1, np.nan]], [1.0], r"data points, row 0: \[0.1 nan\]: it is not finite"),
    ([[0.1, 0.2], [0.3, 0.4]], [1.0, np.nan], r"data values, row 1: \[nan\]: it is not finite"),
    ([[0.1, 2.2]], [1.0], r"points in .*x.npz, row 0: x = 2.2: that is outside the domain"),
    ([[0.1]], [1.0], r"points in .*x.npz of shape \(1, 1\)"),
    ([[0.1, 0.2]], [[1.0, 2.0]], r"values in .*x.npz of shape \(1, 2\): there are 1 unknowns"),
    ([[0.1, 0.2]], [1.0, 2.0], "1 data points with 2 rows of values"),
])
def test_data_that_do_not_fit(tmp_path, points, values, message):
    np.savez(tmp_path / "x.npz", points=points, values=values)
    with pytest.raises(InputError, match=message):
        load_data(BURGERS, tmp_path / "x.npz")


@pytest.mark.parametrize("content", [None, b"junk", {"points": [[0.1, 0.2]]},
                                     {"points": [["a", "b"]], "values": [1.0]}])
def test_data_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "x.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        np.savez(path, **content)
    with pytest.raises(StorageError, match=r"x.npz: it cannot be read as data.*numpy.savez"):
        load_data(BURGERS, path)


def test_initial_values_that_are_not_finite_are_found_before_training():
    problem = Problem("log", {"t": (0, 1), "x": periodic(-1, 1)}, ["u"],
                      [interior(lambda u, c: u.t), initial(lambda x: np.sqrt(x))])
    with np.errstate(invalid="ignore"), pytest.raises(
            InputError, match=r"condition 'initial' at t = 0, x = -1: \[nan\]"):
        Trainer(problem, training_config())
