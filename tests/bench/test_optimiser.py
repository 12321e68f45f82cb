"""The parts of an iteration add up to it, and their work is what one counts by hand."""

import importlib
import io

import equinox as eqx
import jax
import numpy as np
import pytest
from rich.console import Console
from scipy.linalg import get_blas_funcs

from piratenets.bench import optimiser as bench
from piratenets.config import changed
from piratenets.errors import InputError
from piratenets.presets import preset
from piratenets.training.loop import split

from ..runs.common import TINY

pytestmark = pytest.mark.usefixtures("quick_compilation")

# 5 dense layers of 8 x 8 + 8 + 8, 4 frequencies of 2 inputs (x is even), alpha, 8 of the head.
POINTS, GRID, PARAMETERS = 32, 16, 5 * 80 + 8 + 1 + 12
ROWS = POINTS + GRID
REPEATS = 3


@pytest.fixture(scope="module")
def config():
    return changed(preset("smoke", "allen-cahn"), {**TINY, "network.embedding.trainable": True,
                                                   "sampling.redraw": 4})


@pytest.fixture(scope="module")
def measured(config):
    """What the command measures, and what it prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.matrix_product, "__defaults__", (256,))
        said = io.StringIO()
        found = bench.bench_optimiser(Console(file=said, width=120), [config], REPEATS)
    return found, said.getvalue()


def by_name(iteration):
    return {part.name: part for part in iteration.parts}


def test_both_optimisers_are_measured_part_by_part(measured):
    lm, broyden = measured[0]
    assert (lm.problem, lm.optimiser) == ("allen-cahn", "Levenberg-Marquardt")
    assert list(by_name(lm)) == ["points", "Jacobian", "normal matrix J'J", "Cholesky and solve",
                                 "trial evaluations"]
    assert broyden.optimiser == "self-scaled Broyden"
    assert list(by_name(broyden)) == ["points", "gradient evaluations", "inverse update"]
    for one in (lm, broyden):
        assert (one.rows, one.parameters) == (ROWS, PARAMETERS)
        assert all(part.seconds > 0 for part in one.parts)


def test_the_parts_and_the_rest_are_the_iteration(measured):
    for one in measured[0]:
        shares = [part.seconds / one.seconds for part in one.parts]
        assert sum(shares) + one.rest / one.seconds == pytest.approx(1.0)
    lm = measured[0][0]
    # They are timed inside it: together they cannot take longer (but for medians of each).
    assert all(0 < part.seconds < lm.seconds for part in lm.parts)
    assert -0.2 < lm.rest / lm.seconds < 0.9


def test_the_work_is_what_one_counts_by_hand(measured):
    lm, broyden = measured[0]
    parts = by_name(lm)
    assert parts["normal matrix J'J"].work == ROWS * PARAMETERS**2
    solve = parts["Cholesky and solve"]
    assert solve.work == pytest.approx(solve.calls * (PARAMETERS**3 / 3 + 2 * PARAMETERS**2))
    assert by_name(broyden)["inverse update"].work == 8 * PARAMETERS**2
    # Two operations a weight, four Taylor coefficients, and the gradient at least doubles it.
    trials, gradients = parts["trial evaluations"], by_name(broyden)["gradient evaluations"]
    assert trials.work / trials.calls > POINTS * 2 * 4 * 5 * 64
    assert gradients.work / gradients.calls > 2 * trials.work / trials.calls
    assert parts["Jacobian"].work > trials.work / trials.calls
    assert parts["points"].work == 0


def test_calls_are_counted_as_they_happen(measured):
    lm, broyden = measured[0]
    parts = by_name(lm)
    # Two blocks of rows: one of points inside, one on the initial face.
    assert parts["Jacobian"].calls == parts["normal matrix J'J"].calls == 2
    # One evaluation is that of the point itself; every solve that succeeds is tried.
    assert 1 <= parts["Cholesky and solve"].calls <= 15
    assert parts["trial evaluations"].calls == parts["Cholesky and solve"].calls + 1
    assert 1 <= by_name(broyden)["gradient evaluations"].calls <= 27
    assert parts["points"].calls == 1 / 4


def test_the_ratio_is_time_over_work_at_the_limit(measured):
    for one in measured[0]:
        assert one.limit > 1e8
        work = sum(part.work for part in one.parts)
        assert one.ratio == pytest.approx(one.seconds * one.limit / work)
        # Nothing this small comes near the limit, and nothing beats it.
        assert one.ratio > 1


def test_the_table_says_all_of_it(measured):
    found, said = measured
    assert "medians of 3" in said
    for one in found:
        assert f"{one.problem}, {one.optimiser}: 48 residuals, 421 parameters" in said
        assert f"{one.ratio:.2f} times" in said
        for part in one.parts:
            assert part.name in said
            assert f"{part.seconds / one.seconds:.1%}" in said
    assert said.count("the rest") == 2


def test_evaluations_are_counted_one_by_one(config):
    made = bench.Bench(config, "ssbroyden")
    calls = []
    parameters = split(made.plan, made.state.network)[0]

    @eqx.filter_jit
    def gradients(system, parameters):
        objective = bench.Counted(system, lambda: calls.append(None))
        step = jax.grad(lambda p: objective(p)[0])
        return jax.lax.fori_loop(0, 5, lambda _, p: step(p), parameters)

    jax.block_until_ready(gradients(made.system, parameters))
    jax.effects_barrier()
    assert len(calls) == 5


def test_watching_changes_no_result_and_leaves_nothing_behind(config):
    module = importlib.import_module("piratenets.optimisers.levenberg_marquardt")
    names = ["_block", "_solved", "_value", "get_blas_funcs"]
    before = [getattr(module, name) for name in names]
    found = []
    for watched in (False, True):
        made = bench.Bench(config, "lm")
        if watched:
            with bench.watched() as seconds:
                made.iterate(2)
            assert len(seconds["normal matrix J'J"]) == 4
        else:
            made.iterate(2)
        found.append(jax.tree.leaves(made.parameters))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ZeroDivisionError), bench.watched():
        _ = 1 / 0
    assert [getattr(module, name) for name in names] == before
    assert module.get_blas_funcs is get_blas_funcs


def test_a_bench_without_repeats_is_refused(config):
    with pytest.raises(InputError, match="Give 1 or more"):
        bench.bench_optimiser(Console(file=io.StringIO()), [config], 0)
