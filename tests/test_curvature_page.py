"""The curvature page: figures against the numbers they show, the plain sentence, and the page on every kind of side."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from plotly.utils import PlotlyJSONEncoder
from streamlit.testing.v1 import AppTest

from app import answers
from app.curvature import PARTS, SHARED_LABEL, Curved
from app.curvature_maps import layers_by_tokens
from app.curvature_panels import table
from app.curvature_planes import families
from app.curvature_slice import CELLS
from app.curvature_truth import TRUTHS, extreme, points, rho, within
from app.curvature_words import degenerate, verdict
from app.figures import curvature as figures
from app.figures.curvature_maps import Panel, maps
from app.figures.curvature_planes import planes
from app.figures.fields import SliceField, outlines, slice_figure
from app.figures.fields import table as slice_table
from app.figures.signed_log import Scale, scale_of
from app.request import Request
from fbt_core.measures.correlation import spearman
from tests.test_pages import complaints, opened, stand_ins  # noqa: F401  (a fixture)

TEXT = "the ships near sings"
HOSTILE = "<b>x</b><script>"
TOKENS = (HOSTILE, *(f"t{index}" for index in range(1, 9)))
LAYERS, HEADS, LENGTH = 3, 2, len(TOKENS)


@pytest.fixture(autouse=True)
def _few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curvature on the plane takes most of the page's time, and for these tests a few cells are as good as hundreds."""
    for grid, cells in (("coarse", 5), ("fine", 7)):
        monkeypatch.setitem(CELLS, grid, cells)


@dataclass(frozen=True)
class StandIn:
    """What the figures ask of a side."""

    tokens: tuple[str, ...] = TOKENS
    title: str = "A · made by hand"
    what_if: str | None = None
    layer: int = 1
    head: int = 1


def made(seed: int = 0, **parts: np.ndarray) -> Curved:
    """A side's numbers, made by hand: nothing computed. Omega is positive, curvature of both signs."""
    rng = np.random.default_rng(seed)
    shape = (LAYERS, HEADS, LENGTH)
    found = {name: rng.normal(size=shape) for name in PARTS}
    found["scalar_error"] = 1e-12 * np.ones(shape)
    found["sampling_error"] = rng.uniform(0.1, 0.2, shape)
    found["sectional_max"], found["sectional_min"] = rng.uniform(0.5, 1, shape), -rng.uniform(0.5, 1, shape)
    found["omega"] = rng.uniform(0.01, 1, shape)
    side: Any = StandIn()
    return Curved(side, found | parts, ("0", "1", "2"), ("0", "1"), ())


def drawn_text(figure: Any) -> str:
    return json.dumps(figure.to_plotly_json(), cls=PlotlyJSONEncoder)


@pytest.mark.parametrize("log", [False, True])
def test_the_scatter_shows_every_point_once_with_its_numbers(log: bool) -> None:
    one = made()
    one.parts["scalar_curvature"][1, 0, 3] = np.nan
    shown = points(one, TRUTHS["scalar"], marked=(2, 5))
    shared = figures.axes([shown], scale_of([shown.truth], log))
    figure = figures.scatter(shown, "title", "x", "y (unit)", shared)
    assert [trace.name for trace in figure.data] == ["0", "1", "2"]
    assert len({trace.marker.symbol for trace in figure.data}) == LAYERS
    for layer, trace in enumerate(figure.data):
        good = np.isfinite(shown.truth[layer])
        np.testing.assert_array_equal(trace.x, shown.proxy[layer][good])
        np.testing.assert_array_equal(trace.customdata, shown.truth[layer][good])
        np.testing.assert_allclose(trace.y, shared.scale.places(shown.truth[layer][good]))
        assert (np.array(trace.marker.line.width) > 1).sum() == good[:, [2, 5]].sum()
    low, high = figure.layout.yaxis.range
    assert all(low < min(trace.y) and max(trace.y) < high for trace in figure.data)
    assert "<b>x" not in drawn_text(figure) and "&lt;b&gt;x" in drawn_text(figure)
    assert (figure.layout.xaxis.type == "log") is log


def test_only_a_sampled_truth_has_error_bars() -> None:
    exact, sampled = made(), made()
    sampled.parts["scalar_error"] = sampled.parts["sampling_error"]
    assert exact.exact and not sampled.exact
    assert not points(exact, TRUTHS["scalar"]).error.any()
    shown = points(sampled, TRUTHS["scalar"])
    figure = figures.scatter(shown, "", "", "", figures.axes([shown], Scale(0.1)))
    bars, y = figure.data[0].error_y, shown.truth[0].ravel()
    places, error = Scale(0.1).places, shown.error[0].ravel()
    np.testing.assert_allclose(bars.array, places(y + error) - places(y))
    np.testing.assert_allclose(bars.arrayminus, places(y) - places(y - error))
    assert not points(sampled, TRUTHS["largest"]).error.any()


def test_many_layers_share_ten_symbols() -> None:
    rng = np.random.default_rng(1)
    shape = (31, 1, 4)
    shown = figures.Points(
        rng.uniform(size=shape), rng.normal(size=shape), np.zeros(shape), tuple(map(str, range(31))), ("0",), TOKENS[:4]
    )
    figure = figures.scatter(shown, "", "", "", figures.axes([shown], Scale()))
    assert len(figure.data) <= 10
    assert figure.data[0].name == "0–3" and figure.data[-1].name.endswith("30")
    assert sum(len(trace.x) for trace in figure.data) == 31 * 4


def test_correlations_stand_where_they_are() -> None:
    one = made()
    rows = [rho(one, truth) for truth in TRUTHS.values()]
    figure = figures.correlations(rows, "title")
    pooled = figure.data[0]
    for index, (row, truth) in enumerate(zip(rows, TRUTHS.values(), strict=True)):
        flat = spearman(one.parts["omega"].ravel(), truth.values(one.parts).ravel())
        assert pooled.x[index] == row.pooled.rho == pytest.approx(flat.rho)
        assert row.pooled.groups == LENGTH
        np.testing.assert_allclose(pooled.x[index] + pooled.error_x.array[index], row.pooled.high)
        np.testing.assert_allclose(pooled.x[index] - pooled.error_x.arrayminus[index], row.pooled.low)
    assert figure.layout.xaxis.range == (-1.05, 1.05)
    assert list(figure.layout.yaxis.ticktext) == [truth.title for truth in TRUTHS.values()]


def test_within_forgets_what_layers_differ_by() -> None:
    """Each layer has its own level in both quantities, and inside a layer the order is reversed."""
    level = np.array([0.0, 100.0, 200.0])[:, None, None]
    x = level + np.arange(LENGTH) + np.zeros((3, 2, LENGTH))
    tokens = np.broadcast_to(np.arange(LENGTH), x.shape)
    y = level - np.arange(LENGTH) + np.zeros((3, 2, LENGTH))
    assert spearman(x, y, tokens).rho > 0.7
    assert within(x, y, tokens).rho == pytest.approx(-1)


@pytest.mark.parametrize("log", [False, True])
def test_maps_hold_the_numbers_and_frame_the_chosen_cell(log: bool) -> None:
    cells = layers_by_tokens(made())
    panels = [
        Panel(name, "unit", values, figures.bound([values]), name != "omega", scale_of([values], log))
        for name, values in cells.items()
    ]
    figure = maps(panels, "title", TOKENS, ("0", "1", "2"), (2, 4))
    for panel, heat in zip(panels, figure.data, strict=True):
        np.testing.assert_array_equal(heat.customdata, panel.values)
        np.testing.assert_allclose(heat.z, panel.scale.places(panel.values))
    for index, panel in enumerate(panels, 1):
        colours = figure.layout[f"coloraxis{index if index > 1 else ''}"]
        assert colours.cmax == pytest.approx(float(panel.scale.places(np.array(panel.bound))))
        assert colours.cmin == (-colours.cmax if panel.signed else 0)
    assert {(box.x0, box.x1, box.y0, box.y1) for box in figure.layout.shapes} == {(3.5, 4.5, 1.5, 2.5)}
    assert "<b>x" not in drawn_text(figure)


def test_a_map_is_the_mean_over_the_heads_that_have_a_value() -> None:
    one = made()
    one.parts["scalar_curvature"][0, 0, 0] = np.nan
    one.parts["scalar_curvature"][2, :, 1] = np.nan
    cells = layers_by_tokens(one)["scalar_curvature"]
    assert cells[0, 0] == one.parts["scalar_curvature"][0, 1, 0]
    assert np.isnan(cells[2, 1]) and np.isfinite(cells).sum() == cells.size - 1
    np.testing.assert_allclose(cells[1], one.parts["scalar_curvature"][1].mean(0))


def test_the_extreme_keeps_its_sign() -> None:
    parts = {"sectional_max": np.array([1.0, 0.5, -0.1]), "sectional_min": np.array([-0.5, -2.0, -0.3])}
    np.testing.assert_array_equal(extreme(parts), [1.0, -2.0, -0.3])


def test_planes_stand_beside_the_range_that_was_found() -> None:
    one = made()
    one.parts["sectional_qk"][:] = np.nan
    kinds = families(one, 1, 5)
    assert list(kinds) == [0, 1]  # no q and k in this space: no mark for them
    np.testing.assert_allclose(kinds[0].values, one.parts["scalar_curvature"][1, 1] / 20)
    figure = planes(kinds, "title", TOKENS, "K", Scale(), 2.0)
    mean = figure.data[0]
    np.testing.assert_allclose(mean.y + mean.error_y.array, one.parts["sectional_max"][1, 1])
    np.testing.assert_allclose(mean.y - mean.error_y.arrayminus, one.parts["sectional_min"][1, 1])
    np.testing.assert_allclose(figure.data[1].y, one.parts["sectional_top"][1, 1])
    assert "<b>x" not in drawn_text(figure)


def test_a_signed_log_scale_is_odd_and_says_where_it_is_linear() -> None:
    values = np.array([-1e3, -1.0, -1e-3, 0.0, 1e-3, 1.0, 1e3])
    scale = scale_of([values], log=True)
    places = scale.places(values)
    np.testing.assert_allclose(places, -places[::-1])
    assert (np.diff(places) > 0).all()
    assert places[-1] - scale.places(np.array(100.0)) == pytest.approx(1, abs=1e-3)  # a decade is a unit
    ticks = scale.ticks(-1e3, 1e3)
    back = [0.0 if text == "0" else float(text.replace("−", "-")) for text in ticks["ticktext"]]
    np.testing.assert_allclose(scale.places(np.array(back)), ticks["tickvals"])
    assert 0.0 in back and len(back) <= 7 and "linear below" in scale.words
    linear = scale_of([values], log=False)
    np.testing.assert_array_equal(linear.places(values), values)
    assert linear.words == ""
    assert scale_of([np.zeros(3)], log=True) == Scale()


def slice_field(**changes: Any) -> SliceField:
    x, y = np.linspace(-1, 4, 11), np.linspace(-1, 3, 9)
    at = np.array([[0.0, 0.0], [2.0, 1.0]])
    h = np.array([np.diag([4.0, 1.0]), [[2.0, 1.0], [1.0, 3.0]]])
    field = SliceField(
        x, y, np.add.outer(y, x), np.zeros((9, 11)), at, h, 0.5, np.array([[0, 0], [3, 0], [1, 2.0]]),
        (HOSTILE, "b", "c"), True, "units of the stream",
    )  # fmt: skip
    return replace(field, **changes)


def test_ellipses_are_the_unit_balls_of_the_metric() -> None:
    field = slice_field()
    rings = outlines(field.metrics, field.at, 0.2)
    for ring, centre, h in zip(rings, field.at, field.metrics, strict=True):
        v = (ring - centre) / 0.2
        np.testing.assert_allclose(np.einsum("ni,ij,nj->n", v, h, v), 1, atol=1e-12)
    np.testing.assert_allclose(np.abs(rings[0] - field.at[0]).max(0), [0.1, 0.2], atol=1e-12)


def test_the_slice_shows_its_values_on_one_scale_with_equal_axes() -> None:
    field = slice_field()
    figure = slice_figure(field, "title", "S (1 / length²)", 9.0)
    contour = figure.data[0]
    np.testing.assert_array_equal(contour.z, field.values)
    assert (contour.zmin, contour.zmax) == (-9, 9)
    assert figure.layout.yaxis.scaleanchor == "x"
    stars = next(trace for trace in figure.data if trace.name == "the three tokens")
    np.testing.assert_array_equal(np.stack([stars.x, stars.y], -1), field.tokens)
    assert "<b>x" not in drawn_text(figure) and "&lt;b&gt;x" in drawn_text(figure)
    rows = slice_table(field, "scalar")
    np.testing.assert_allclose(rows["scalar"], rows["x"] + rows["y"])
    unsigned = slice_figure(replace(field, signed=False), "", "", 7.0, low=-2.0).data[0]
    assert (unsigned.zmin, unsigned.zmax) == (-2, 7)


def following(one: Curved, curvature: np.ndarray) -> tuple[str, str]:
    return verdict(Curved(one.side, one.parts | {"scalar_curvature": curvature}, one.layers, one.heads, ()))


def test_the_sentence_says_what_the_numbers_do() -> None:
    one = made(2)
    omega = one.parts["omega"]
    noise = np.random.default_rng(3).normal(size=omega.shape)
    assert "closely follows the scalar curvature, and closely follows how strongly" in following(one, omega)[0]
    assert "points the wrong way about the scalar curvature" in following(one, -omega)[0]
    assert "closely follows how strongly the field is curved" in following(one, -omega)[0]
    assert "says nothing about the scalar curvature" in following(one, noise)[0]
    answer, numbers = following(one, omega - 0.9)
    assert "closely follows the scalar curvature, but points the wrong way about how strongly" in answer
    share = (omega < 0.9).mean()
    assert f"negative; the scalar curvature is, at {100 * share:.0f} % of {omega.size} points" in numbers
    assert "Spearman's ρ of Ω with S is 1.00" in numbers


def test_the_sentence_sees_through_differences_between_heads() -> None:
    one = made(4)
    level = 10.0 * np.arange(LAYERS * HEADS).reshape(LAYERS, HEADS, 1)
    rng = np.random.default_rng(5)
    one.parts["omega"] = level + rng.uniform(size=(LAYERS, HEADS, LENGTH))
    assert "only in that layers and heads differ" in following(one, level + rng.uniform(size=(*level.shape[:2], 9)))[0]


def test_a_constant_metric_is_said_to_be_flat() -> None:
    one = made()
    one.parts["scalar_curvature"] = 1e-13 * one.parts["scalar_curvature"]  # rounding: below its own error
    assert "exactly zero, while the proxy says up to" in degenerate(one)
    one.parts["omega"] = np.zeros_like(one.parts["omega"])
    assert "exactly zero, and so is Ω" in verdict(one)[0]


def test_too_few_tokens_are_not_judged() -> None:
    one = made()
    parts = {name: values[..., :2] for name, values in one.parts.items()}
    answer, remedy = verdict(Curved(one.side, parts, one.layers, one.heads, ()))
    assert "cannot be judged: an interval needs at least 3 independent groups" in answer and "longer text" in remedy


def test_a_noisy_sample_is_said_to_be_noisy() -> None:
    one = made()
    one.parts["scalar_error"] = one.parts["sampling_error"] = np.ones((LAYERS, HEADS, LENGTH))
    assert "take more planes" in verdict(one)[1]


def test_the_table_has_every_number_once() -> None:
    one = made()
    frame = table(one)
    assert len(frame) == LAYERS * HEADS * LENGTH
    row = frame[(frame.layer == "2") & (frame["head"] == "1") & (frame.token == 4)].iloc[0]
    for name in ("omega", *PARTS):
        assert row[name] == one.parts[name][2, 1, 4]


def shown(test: AppTest) -> list[str]:
    """Titles of the figures on the page."""
    return [json.loads(chart.proto.spec)["layout"]["title"]["text"] for chart in test.get("plotly_chart")]


def test_the_page_shows_what_the_measures_say() -> None:
    test = opened("curvature", a="demo:riemannian", text=TEXT, layer="1")
    assert complaints(test) == []
    request = Request("demo:riemannian", TEXT)
    expected = [answers.geometry(request, "scalar_curvature", layer=layer, reading="block", planes=64, seed=0).values
                for layer in range(2)]  # fmt: skip
    titles = shown(test)
    chart = test.get("plotly_chart")[titles.index("Proxy against truth · A · riemannian")]
    drawn = json.loads(chart.proto.spec)["data"]
    found = [float(text) for trace in drawn for text in _decoded(trace["customdata"])]
    np.testing.assert_allclose(found, np.concatenate([values.ravel() for values in expected]))
    for title in ("Rank correlation of Ω", "Curvature by layer and token", "Sectional curvature by plane",
                  "Scalar curvature", "Volume by depth"):  # fmt: skip
        assert any(text.startswith(title) for text in titles), title
    assert any("On this checkpoint and this text" in text.value for text in test.markdown)


def _decoded(values: Any) -> np.ndarray:
    """Plotly sends arrays as base64."""
    import base64

    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]) if isinstance(values, dict) else values


@pytest.mark.parametrize("kind", ["euclidean", "l2"])
def test_without_a_metric_the_page_says_so_and_offers_one(kind: str) -> None:
    test = opened("curvature", a=f"demo:{kind}", text=TEXT)
    assert complaints(test) == []
    assert ["curvature is exactly 0" in info.value for info in test.info] == [True]
    assert shown(test) == []
    test.button(key="fisher-A").click().run()
    assert complaints(test) == []
    assert "Proxy against truth" in " ".join(shown(test))
    assert all("fisher metric" in json.dumps(json.loads(c.proto.spec)["layout"]) for c in test.get("plotly_chart"))


@pytest.mark.parametrize(("source", "words"), [("causal", "same everywhere"), ("local", "no function of a point")])
def test_a_source_that_is_no_field_says_why_and_shows_what_there_is(source: str, words: str) -> None:
    test = opened("curvature", a="demo:euclidean", source=source, text=TEXT)
    assert complaints(test) == []
    assert any(words in info.value for info in test.info)
    titles = " ".join(shown(test))
    assert "Volume by depth" in titles
    assert ("Proxy against truth" in titles) is (source == "causal")


def test_two_sides_are_compared_on_the_same_scales() -> None:
    test = opened("curvature", a="demo:riemannian", b="demo:blended", layer="1", head="1", text=TEXT)
    assert complaints(test) == []
    titles, charts = shown(test), test.get("plotly_chart")
    specs = {title: json.loads(chart.proto.spec) for title, chart in zip(titles, charts, strict=True)}
    assert "B − A by layer and token" in specs
    for start in ("Proxy against truth", "Sectional curvature by plane"):
        both = [spec["layout"] for title, spec in specs.items() if title.startswith(start)]
        assert len(both) == 2
        assert both[0]["yaxis"]["range"] == both[1]["yaxis"]["range"]
    fields = [spec["data"][0] for title, spec in specs.items() if title.startswith("Scalar curvature")]
    assert len(fields) == 2 and fields[0]["zmax"] == fields[1]["zmax"]


def test_unequal_sides_say_why_there_is_no_difference() -> None:
    test = opened("curvature", a="demo:riemannian", b="demo:dictionary", text=TEXT)
    assert complaints(test) == []
    assert any("No difference between A and B: A has 2 layers, B 3" in caption.value for caption in test.caption)


@pytest.mark.parametrize("reading", ["key space of the head", "whole stream"])
def test_every_reading_draws(reading: str) -> None:
    test = opened("curvature", a="demo:riemannian", text=TEXT)
    test.selectbox(key="reading").set_value({"whole stream": "whole"}.get(reading, "key")).run()
    assert complaints(test) == []
    titles = shown(test)
    spec = json.loads(test.get("plotly_chart")[titles.index("Scalar curvature · A · riemannian")].proto.spec)
    told = spec["layout"]["title"]["subtitle"]["text"]
    assert ("whole stream" in told) is (reading == "whole stream")
    assert ("token 1's slice" in told) is (reading != "whole stream")


def test_what_was_chosen_otherwise_than_trained_stands_on_every_figure() -> None:
    test = opened("curvature", a="demo:riemannian", strength="0.5", text=TEXT)
    assert complaints(test) == []
    specs = [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]
    assert len(specs) >= 6
    assert all("what-if: metric strength 0.5" in spec["layout"]["title"]["subtitle"]["text"] for spec in specs)


def test_strength_0_is_flat() -> None:
    test = opened("curvature", a="demo:riemannian", strength="0.0", text=TEXT)
    assert complaints(test) == []
    assert any("exactly zero, and so is Ω" in text.value for text in test.markdown)


@pytest.mark.parametrize("text", ["x", "the ships"])
def test_short_texts_have_their_curvature_and_no_plane(text: str) -> None:
    test = opened("curvature", a="demo:riemannian", text=text)
    assert complaints(test) == []
    assert "Curvature by layer and token · A · riemannian" in shown(test)


def test_a_long_text_is_computed_when_asked_for() -> None:
    test = opened("curvature", a="demo:riemannian", text="the ships near " * 200)
    assert complaints(test) == []
    assert "Proxy against truth" not in " ".join(shown(test))
    assert "points (tokens × heads × layers)" in test.toggle(key="compute").label


def test_the_shared_label_is_the_core_s() -> None:
    one = made()
    whole = Curved(one.side, one.parts, one.layers, (SHARED_LABEL,), ())
    assert one.where == "2 heads" and "head" not in SHARED_LABEL
    assert replace(whole, side=_traced("")).where == "whole stream"
    assert "each token's own slice" in replace(whole, side=_traced("fisher")).where


def _traced(source: str) -> Any:
    @dataclass(frozen=True)
    class Traced:
        source: str

    @dataclass(frozen=True)
    class WithTrace:
        trace: Traced

    return WithTrace(Traced(source))
