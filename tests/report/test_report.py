"""The report says what the run came to, in one file, whatever the run lacks."""

import base64
import io
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from piratenets import Exact, Problem, boundary, initial, interior, periodic
from piratenets.cli.main import parse
from piratenets.config import changed
from piratenets.presets import preset
from piratenets.references.reference import Reference
from piratenets.report import header, page, reproduce
from piratenets.report.fields import (
    Axis,
    Fields,
    error_by_time,
    largest_by_time,
    scored_fields,
)
from piratenets.report.history import History, constant
from piratenets.report.maps import limits, visible
from piratenets.report.published import PUBLISHED, Published
from piratenets.report.report import write_report
from piratenets.report.svg import decimal, legend_columns, power_of_ten, with_palette
from piratenets.runs.evaluation import Evaluation
from piratenets.runs.run import Run

TINY = {
    "network.width": 8, "network.embedding.size": 8, "network.layers": 6, "sampling.batch": 32,
    "sampling.grid": 16, "weighting.chunks": 4, "initialisation.grid": 16, "training.steps": 40,
    "record.every": 10,
}
K = 0.1


def heat_residual(u, c):
    """Heat on a circle.

        u_t = k u_xx
    """
    return u.t - c.k * u.xx


def heat(name="heat", exact=True, residual=heat_residual):
    return Problem(
        name, {"t": (0.0, 1.0), "x": periodic(-1.0, 1.0)}, ["u"],
        [interior(residual), initial(lambda x: jnp.sin(jnp.pi * x))], {"k": K},
        reference=Exact(lambda t, x: np.exp(-K * np.pi**2 * t) * np.sin(np.pi * x), 21)
        if exact else None)


def heat_in_the_plane():
    return Problem(
        "plane", {"t": (0.0, 1.0), "x": periodic(-1.0, 1.0), "y": periodic(-1.0, 1.0)}, ["u"],
        [interior(lambda u, c: u.t - K * (u.xx + u.yy)), initial(lambda x, y: jnp.sin(jnp.pi * x))],
        reference=Exact(lambda t, x, y: np.exp(-K * np.pi**2 * t) * np.sin(np.pi * x), 9))


def shear_flow():
    return Problem(
        "shear", {"x": (0.0, 1.0), "y": (0.0, 1.0)}, ["u", "v"],
        [interior(lambda s, c: {"u": s.u.xx + s.u.yy, "v": s.u.x + s.v.y}),
         boundary(lambda s, c, p: s.u - p.y, {"y": 0.0}, {"y": 1.0})], {"Re": 100.0},
        reference=Exact(lambda x, y: (y, 0.1 * x), 15))


def line_of_metrics(step, blocks=2, **more):
    return {"step": step, "stage": 0, "losses": {"pde": 1.0 / step, "initial": 2.0 / step**2},
            "weights": {"pde": 1.0, "initial": 1.0 + step}, "causal": [1.0, 0.5, 0.2, 0.1],
            "alpha": [0.01 * step] * blocks, "gradient_norm": 3.0 / step,
            "error": {"u": 0.1 / step}, "seconds": 0.1 * step, **more}


def at_step(run, step, lines=4):
    """The run as if it had been trained to a step (nothing is compiled)."""
    run.state = eqx.tree_at(lambda s: s.step, run.trainer.start(), jnp.asarray(step, jnp.int32))
    fit = {"residual": 1.25e-3, "rank": 7, "features": 8, "points": 32}
    run.facts = {"seconds": 754.2, "stages": [], "fits": [fit], "trust": []}
    for k in range(1, lines + 1):
        run.directory.append_metrics(line_of_metrics(10 * k, 2))
    return run


def make(folder, problem, step=40, lines=4, **changes):
    config = changed(preset("smoke", problem), {**TINY, **changes})
    return at_step(Run.create(folder / "run", config, problem), step, lines)


def written(run):
    path = write_report(run)
    assert path == run.directory.report
    return path.read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of the heat equation, and its page."""
    run = make(tmp_path_factory.mktemp("report"), heat())
    run.write_summary()
    return run, written(run)


class Wellformed(HTMLParser):
    """Checks that elements close in order, and gathers addresses, ids and text."""

    VOID = ("meta", "img", "br")

    def __init__(self, content):
        super().__init__()
        self.open, self.addresses, self.ids, self.seen, self.text = [], [], [], set(), ""
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        self.addresses += [v for k, v in attributes if k in ("src", "href", "xlink:href", "srcset")]
        self.ids += [v for k, v in attributes if k == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def test_the_numbers_of_the_summary_are_on_the_page(finished):
    run, content = finished
    summary = json.loads(run.directory.summary.read_text())
    assert f'<data value="{summary["relative_l2"]["u"]!r}">' in content
    assert f">{summary['parameters']:,}<" in content
    text = Wellformed(content).text
    assert f"{summary['steps']} of {run.trainer.total_steps}" in text
    assert summary["compared"] in text
    assert summary["machine"] in text
    assert summary["commit"][:12] in text
    assert "12 min 34 s" in text
    assert "reference’s own error: none (exact)" in text
    assert "smoke, 0" in text


def test_the_page_needs_nothing_but_itself(finished):
    content = finished[1]
    parsed = Wellformed(content)
    assert "http" not in content
    assert "url(#" in content
    assert "@import" not in content
    assert not {"script", "link", "iframe", "object"} & parsed.seen
    assert parsed.addresses
    assert all(a.startswith(("#", "data:image/")) for a in parsed.addresses)
    assert len(content) < 400_000


def test_pictures_on_one_page_do_not_share_ids(finished):
    parsed = Wellformed(finished[1])
    assert len(parsed.ids) == len(set(parsed.ids)) > 20
    assert {a[1:] for a in parsed.addresses if a.startswith("#")} <= set(parsed.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", finished[1])) <= set(parsed.ids)


def test_colours_come_from_the_page(finished):
    content = finished[1]
    assert "prefers-color-scheme:dark" in content
    for name in ("ink", "line", "s0", "t4"):
        assert f"var(--{name})" in content.partition("</style>")[2]
    assert "#0102" not in content


@pytest.mark.parametrize("label", [
    "Map of u: prediction", "Map of u: reference", "Map of u: |prediction − reference|",
    "Slices of u along x", "Absolute errors of u along x", "Relative L2 error at each t",
    "Losses by term over steps", "Weights of the terms over steps", "Gradient norm over steps",
    "Causal weights by time chunk over steps", "Nonlinearity α of each block over steps",
    "Relative L2 error (on a sample of points) over steps"])
def test_every_picture_is_there(finished, label):
    assert f'aria-label="{label}"' in finished[1]


def test_the_equation_is_the_authors(finished):
    content = finished[1]
    assert "<p>Heat on a circle.</p>" in content
    assert "u_t = k u_xx</pre>" in content
    assert "t ∈ [0, 1], x ∈ [-1, 1] periodic. k = 0.1." in content


def test_the_same_run_gives_the_same_page(finished):
    run, content = finished
    assert written(run) == content


def test_a_smoke_run_says_that_it_is_one(finished, tmp_path):
    assert header.SMOKE.replace("'", "&#x27;") in finished[1]
    assert header.notices(make(tmp_path, heat(), preset="laptop")) == []


def test_an_unfinished_run_says_how_far_it_is(tmp_path):
    notices = header.notices(make(tmp_path, heat(), step=20))
    assert notices[0] == "This run is not finished: 20 of 40 steps are done."


def test_a_run_without_a_checkpoint_has_a_page(tmp_path):
    run = Run.create(tmp_path / "run", changed(preset("smoke", heat()), TINY), heat())
    content = written(run)
    Wellformed(content)
    assert "This run has no checkpoint yet" in content
    assert "<svg" not in content
    assert "How to reproduce" in content


def test_a_run_without_metrics_has_a_page(tmp_path):
    content = written(make(tmp_path, heat(exact=False), step=0, lines=0))
    assert "There are no lines of metrics yet." in content
    assert "Map of u: prediction" in content


def test_a_single_line_of_metrics_is_drawn(tmp_path):
    content = written(make(tmp_path, heat(exact=False), step=10, lines=1))
    assert "Losses by term over steps" in content
    assert "Causal weights by time chunk over steps" in content
    assert "The weights of the terms never changed: pde 1, initial 11." in content
    assert "Weights of the terms over steps" not in content


def test_without_a_reference_the_prediction_is_shown_alone(tmp_path):
    content = written(make(tmp_path, heat(exact=False)))
    assert "The problem has no reference solution" in content
    assert 'aria-label="Map of u: prediction"' in content
    assert "Map of u: reference" not in content
    assert 'class="score"' not in content


def test_a_network_without_alpha_has_no_such_picture(tmp_path):
    run = make(tmp_path, heat(exact=False), lines=0, **{"network.kind": "mlp"})
    run.directory.append_metrics(line_of_metrics(10, blocks=0))
    content = written(run)
    assert "Nonlinearity" not in content
    assert "Losses by term over steps" in content


def test_metrics_that_are_not_finite_are_drawn(tmp_path):
    run = make(tmp_path, heat(exact=False), lines=1)
    run.directory.append_metrics(line_of_metrics(20, losses={"pde": float("nan"), "initial": 0.0},
                                                 gradient_norm=float("inf"), error={}))
    assert "Losses by term over steps" in written(run)


def test_windows_not_trained_yet_are_left_blank(tmp_path):
    run = make(tmp_path, heat(), step=20, **{"training.windows": 2})
    content = written(run)
    assert "in stage 1 of 2 (t in [0, 0.5])" in content
    assert "<td>t in [0.5, 1]</td><td>not trained yet</td><td>not trained yet</td>" in content
    error = run.evaluate().measured["u"]
    assert content.count(f'<data value="{error!r}">') == 3  # The whole, the window, up to its end.
    assert "Dotted lines: where the stages begin (t in [0, 0.5]; t in [0.5, 1])." in content


def test_the_stages_of_a_curriculum_keep_their_errors(tmp_path):
    run = make(tmp_path, heat(), lines=0, **{
        "curriculum.coefficient": "k", "curriculum.values": (0.2, 0.1),
        "curriculum.steps": (10, 30)})
    run.facts["stages"] = [{"stage": "k = 0.2", "relative_l2": {"u": 0.25}}]
    content = written(run)
    assert "in stage 1 of 2 (k = 0.2); any reference is for k = 0.1." in content
    assert '<td>k = 0.2</td><td><data value="0.25">0.25</data></td>' in content


def test_the_error_the_literature_would_state_is_told(finished):
    run, _ = finished
    before = run.directory.summary.read_text()
    summary = {**json.loads(before), "literature_relative_l2": {"speed": 0.0421}}
    run.directory.summary.write_text(json.dumps(summary))
    told = header.headline(run, run.evaluate())
    run.directory.summary.write_text(before)
    assert 'speed <data value="0.0421">0.0421</data>.' in told
    assert "literature" not in header.headline(run, run.evaluate())


def test_what_is_known_up_to_a_constant_is_drawn_at_the_references_level():
    problem = replace(shear_flow(), up_to_constant=["v"])
    x = np.linspace(0.0, 1.0, 3)
    values = np.arange(9.0).reshape(3, 3)
    corner = values.copy()
    corner[0, 2] = np.nan
    reference = Reference({"x": x, "y": x}, {"u": values, "v": corner}, {"u": 0.0, "v": 0.0}, "")
    scored = Evaluation({}, {}, {}, "", {"u": values + 1, "v": values + 7})
    fields = scored_fields(problem, reference, scored, None)
    np.testing.assert_array_equal(fields.error("u"), np.ones((3, 3)))
    np.testing.assert_allclose(fields.error("v"), corner - corner, atol=1e-14)


def test_all_text_is_escaped(tmp_path):
    problem = heat('<b>&"heat"</b>')
    run = make(tmp_path, problem, lines=0)
    run.directory.append_metrics(line_of_metrics(10, losses={"<i>$x^2$": 1.0, "$\\bad{": 2.0}))
    content = written(run)
    Wellformed(content)
    assert "<h1>&lt;b&gt;&amp;&quot;heat&quot;&lt;/b&gt;</h1>" in content
    assert "&lt;i&gt;$x^2$" in content
    assert "<b>&" not in content
    assert "<i>" not in content


def test_a_plane_and_time_get_maps_at_three_times_and_an_animation(tmp_path):
    content = written(make(tmp_path, heat_in_the_plane()))
    parsed = Wellformed(content)
    for kind in ("prediction", "reference", "|prediction − reference|"):
        assert content.count(f'aria-label="Map of u: {kind}"') == 3
    assert "u at t = 0.375" in parsed.text
    gifs = [a for a in parsed.addresses if a.startswith("data:image/gif;base64,")]
    assert len(gifs) == 1
    movie = Image.open(io.BytesIO(base64.b64decode(gifs[0].partition(",")[2])))
    assert movie.n_frames == 9
    assert len(content) < 2_000_000


def test_a_flow_gets_streamlines_and_published_points(tmp_path, monkeypatch):
    points = Published("Somebody 1982", "u", "y", np.array([0.2, 0.8]), np.array([0.2, 0.8]))
    run = make(tmp_path, shear_flow(), **{"weighting.causal": False, "weighting.kind": "fixed"})
    asked = []
    monkeypatch.setitem(PUBLISHED, "shear", lambda c: asked.append(dict(c)) or [points])
    content = written(run)
    assert asked == [{"Re": 100.0}]
    for label in ("Streamlines over the speed: prediction", "Streamlines over the speed: reference",
                  "Profile u(0.5, y)", "Profile v(x, 0.5)", "Map of v: reference"):
        assert f'aria-label="{label}"' in content
    assert content.count("Somebody 1982") == 1


def test_the_command_line_trains_the_same_configuration(tmp_path):
    wanted = changed(preset("smoke", "allen-cahn"), {
        "seed": 3, "network.width": 16, "network.gates": False, "network.embedding.trainable": True,
        "coefficients.rate": 4.5, "weighting.start": {"initial": 100.0, "pde": 0.1},
        "curriculum.coefficient": "epsilon", "curriculum.values": (1e-2, 1e-4),
        "curriculum.steps": (10, 20), "training.precision": "float64",
        "optimiser.learning_rate": 2.5e-4})
    run = Run.create(tmp_path / "a run", wanted)
    words = shlex.split(reproduce.solve_command(run))
    assert words[:7] == ["piratenets", "solve", "allen-cahn", "--preset", "smoke", "--seed", "3"]
    assert parse(words[1:]).config() == wanted
    content = written(run)
    folder = shlex.quote(str(tmp_path / "a run"))
    for command in ("resume", "evaluate", "predict"):
        assert page.text(f"piratenets {command} {folder}") in content
    assert "<td>4.5" in content.replace("epsilon = 0.0001, rate = ", "")


def test_a_problem_made_in_python_is_reproduced_in_python(finished):
    run, content = finished
    call = reproduce.python_call(run)
    assert page.text(call) in content
    given = {}
    exec(call.replace("piratenets.solve", "solve"),
         {"problem": run.problem, "solve": lambda problem, **k: given.update(k)})
    again = preset(given["preset"], run.problem)
    assert changed(again, {"seed": given["seed"], **given["changes"]}) == run.config
    assert "piratenets solve" not in content


def test_values_changed_from_the_preset_stand_out(finished):
    content = finished[1]
    assert ("<tr class=changed><td>width</td><td>8<small>preset: 32</small></td></tr>") in content
    assert "<tr><td>momentum</td><td>0.9</td></tr>" in content


def test_docstrings_keep_their_formulas():
    assert header.formatted("One.\n\n        a = b\n        c = d\n    ") == \
        "<p>One.</p>" + page.code("a = b\nc = d")
    assert header.formatted("One <\n\n    a\n\nTwo\nlines.") == \
        "<p>One &lt;</p>" + page.code("a") + "<p>Two\nlines.</p>"


def test_without_a_docstring_the_residuals_code_is_shown(tmp_path):
    def wave(u, c):
        return u.tt - c.k * u.xx

    assert "return u.tt - c.k * u.xx</pre>" in header.equations(heat(residual=wave))


def test_errors_below_the_references_own_are_not_claimed(finished):
    run, _ = finished
    evaluation = replace(run.evaluate(), relative_l2={"u": 1e-5}, measured={"u": 8e-6},
                         reference_error={"u": 1e-5})
    markup = header.headline(run, evaluation)
    assert "≤ " in markup
    assert '<data value="8e-06">8.00 × 10<sup>−6</sup></data>, below what' in markup


@pytest.mark.parametrize(("value", "shown"), [
    (2.236e-5, "2.24 × 10<sup>−5</sup>"), (0.0123456, "0.0123"), (12345.0, "1.23 × 10<sup>4</sup>"),
    (0.0, "0")])
def test_numbers_are_rounded_and_kept_whole(value, shown):
    assert page.number(value) == f'<data value="{value!r}">{shown}</data>'


def test_numbers_that_are_none_are_said_to_be():
    assert page.number(None) == page.number(float("nan")) == "not available"
    assert page.number(float("inf")) == "infinite"


def test_ticks():
    assert [power_of_ten(v) for v in (1e-12, 1.0, 1e3)] == ["10⁻¹²", "10⁰", "10³"]
    assert [decimal(v) for v in (0.02, 5.0, 2e-5, 1e-5)] == ["0.02", "5", "2·10⁻⁵", "10⁻⁵"]


def small_fields():
    times = Axis("t", np.array([0.0, 0.5, 1.0]), 0.0, 1.0, periodic=False)
    places = Axis("x", np.array([0.0, 1.0]), 0.0, 2.0, periodic=True)
    reference = np.array([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    prediction = np.array([[3.0, 4.5], [0.0, 0.1], [np.nan, np.nan]])
    return Fields((times, places), {"u": prediction}, {"u": reference}, end=0.5)


def test_errors_by_time():
    fields = small_fields()
    np.testing.assert_allclose(error_by_time(fields)["u"], [0.1, np.nan, np.nan], rtol=1e-12)
    np.testing.assert_allclose(largest_by_time(fields)["u"], [0.5, 0.1, np.nan], rtol=1e-12)


def test_fields_are_cut_where_they_are_trained():
    fields = small_fields()
    assert fields.times((0.0, 0.5, 1.0)) == [0, 1]
    cut = fields.cut("t", 1)
    assert cut.fixed == {"t": 0.5}
    np.testing.assert_array_equal(cut.prediction["u"], [0.0, 0.1])
    np.testing.assert_array_equal(fields.space[0].closed().values, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(fields.space[0].closed().edges(), [0.0, 0.5, 1.5, 2.0])


def test_long_histories_are_thinned_and_keep_their_end():
    lines = [line_of_metrics(k, stage=int(k > 1234)) for k in range(1, 5001)]
    history = History.read(lines)
    assert len(history.steps) == 1001
    assert history.steps[-1] == 5000
    assert history.by_name("losses")["pde"][-1] == 1 / 5000
    assert not constant(history.by_name("losses"))
    assert constant({})
    # The first stage's last line, although it is not among the lines that are drawn.
    assert history.boundaries == (1234,)


def test_a_legend_leaves_room_for_the_name_of_the_axis():
    assert legend_columns(["t = 0", "t = 0.25", "t = 0.5", "t = 0.75", "t = 1"]) == 5
    # Side by side they take 69 characters; with the first two above one another 54.
    terms = ["boundary.u", "boundary.v", "pde.continuity", "pde.x", "pde.y"]
    assert legend_columns(terms) == 4
    assert [legend_columns(labels) for labels in ([], ["u"], ["u" * 70, "v"])] == [1, 1, 1]


def test_colours_show_the_field_and_not_its_singular_corner():
    field = np.linspace(0, 1, 1000)
    assert visible(field) == limits(field) == (0, 1)
    field[:4] = [50, -50, np.nan, 100]
    assert limits(field) == (-50, 100)
    assert visible(field) == pytest.approx((0, 1), abs=0.02)
    # As many again are no exception any more.
    field[:12] = 100
    assert visible(field).high == 100


def test_a_palette_changes_no_pixel():
    pixels = np.rint(255 * colormaps["viridis"](np.random.default_rng(0).random((40, 30))))
    pixels[0, 0] = 0
    buffer = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
    smaller = Image.open(io.BytesIO(with_palette(buffer.getvalue())))
    assert smaller.mode == "P"
    np.testing.assert_array_equal(np.asarray(smaller.convert("RGBA")), pixels)
