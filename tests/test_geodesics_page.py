"""The pages on geodesics, torsion and transport: figures against the numbers that they are of, and the pages as run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from app import geodesics_lengths, geodesics_scene, torsion_numbers
from app.choices import READINGS
from app.components.ellipsoid_field import HERE, pack
from app.figures import theme
from app.figures.ellipsoid_view import Curve
from app.figures.ellipsoids import figure
from app.figures.geodesics import (
    LEAST_WIDE,
    Distances,
    distance_figure,
    distance_table,
    ratio_difference,
    true_against_chord,
)
from app.figures.torsion import (
    CIRCLE,
    Carried,
    Planes,
    carried_curves,
    head_maps,
    plane_curves,
    table_of_curves,
)
from app.figures.total_variation import Variation, variation_figure
from app.torsion import first_loop, label, loops_of, most_turned
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.transport import cayley
from fbt_core.model import FiberBundleTransformer
from fbt_core.trace import Trace
from tests.test_ellipsoid_figure import HOSTILE, make_view, unpack
from tests.test_pages import complaints, opened, stand_ins  # noqa: F401  (a fixture)

LOOP = (1, 3, 4)


@pytest.fixture(scope="module")
def small() -> Iterator[tuple[FiberBundleTransformer, Trace]]:
    """An untrained model with torsion of rank 2, and a trace of five tokens."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 11, "width": 12, "layers": 2, "heads": 2, "feed_forward": 16, "metric_init": 2.0}
    smooth = {"kappa_max": 1e3}  # at its ceiling a field has a kink, which costs an integrator many steps
    config = FiberBundleConfig(**sizes, **smooth, transport="frame", torsion_rank=2)
    model = FiberBundleTransformer(config).eval()
    with torch.no_grad():
        yield model, model.trace(torch.tensor([1, 5, 2, 7, 5]))


# ---- curves in the scene ----


def curves() -> tuple[Curve, ...]:
    random = np.random.default_rng(3)
    return (
        Curve("geodesic", random.normal(size=(9, 3)), 0),
        Curve("arrow", random.normal(size=(4, 3)), 1, "dash", 3.0, arrow=True),
        Curve("arrow", 5 + random.normal(size=(2, 3)), 1, "dash", 3.0, arrow=True),
    )


def test_component_and_twin_draw_the_same_curves() -> None:
    view = make_view(curves=curves())
    message = pack(view)
    header = json.loads(message[len(message) - int(np.frombuffer(message, "<u4", 4)[2]) :])
    count, extras, _, points = np.frombuffer(message, "<u4", 4)
    assert points == sum(curve["count"] for curve in header["curves"]) == 15
    offset = 16 + 4 * count * (3 + 9 + 1 + extras)
    sent = np.frombuffer(message, "<f4", 3 * points, offset).reshape(-1, 3)
    lines = [trace for trace in figure(view).data if isinstance(trace, go.Scatter3d) and trace.mode == "lines"]
    np.testing.assert_array_equal(sent, np.concatenate([np.stack([one.x, one.y, one.z], -1) for one in lines]))
    for drawn, said in zip(lines, header["curves"], strict=True):
        assert (drawn.name, drawn.line.dash, drawn.line.width) == (said["name"], said["dash"], 2 * said["width"])
        assert drawn.line.color == said["colours"][0]
        assert said["colours"][0] != said["colours"][1] or said["colours"][0] not in theme.DARK
    assert [bool(one.showlegend) for one in lines] == [True, True, False]  # one entry a name


def test_dark_twin_has_the_dark_colours() -> None:
    view = make_view(curves=curves())
    lines = [trace for trace in figure(view, dark=True).data if trace.type == "scatter3d" and trace.mode == "lines"]
    assert [line.line.color for line in lines] == [theme.category(curve.category, True) for curve in view.curves]


def test_heads_point_along_the_last_step() -> None:
    view = make_view(curves=curves())
    cones = [trace for trace in figure(view).data if isinstance(trace, go.Cone)]
    assert len(cones) == 2
    last = view.curves[2].points
    step = np.array([cones[1].u[0], cones[1].v[0], cones[1].w[0]])
    np.testing.assert_allclose(step, (last[1] - last[0]) / np.linalg.norm(last[1] - last[0]), atol=1e-6)
    np.testing.assert_allclose([cones[1].x[0], cones[1].y[0], cones[1].z[0]], last[1], atol=1e-6)


def test_the_box_holds_the_curves_and_a_view_without_any_is_as_before() -> None:
    view = make_view(curves=curves())
    low, high = view.box
    for curve in view.curves:
        assert (curve.points >= low).all() and (curve.points <= high).all()
    plain = make_view()
    unpack(pack(plain))  # asserts the length of the message
    assert not figure(plain).layout.showlegend
    np.testing.assert_array_equal(figure(plain).data[0].x, figure(view).data[0].x)


@pytest.mark.parametrize("points", [np.zeros((3, 2)), np.full((2, 3), np.nan)])
def test_a_curve_refuses_what_cannot_be_drawn(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected finite ones"):
        Curve("x", points)


def test_scripts_of_the_curves_write_no_markup() -> None:
    source = (HERE / "curves.js").read_text(encoding="utf-8")
    assert not [word for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(") if word in source]


# ---- ways ----


@pytest.mark.parametrize("reading", ["whole", "block", "key"])
def test_a_way_ends_at_its_tokens_and_its_lengths_are_in_order(small: tuple, reading: str) -> None:
    model, trace = small
    found = geodesics_lengths.way(model, trace, layer=1, head=1, reading=reading, first=1, second=3)
    seen = geodesics_scene.scene(model, trace, layer=1, head=1, reading=reading, token=1)
    assert found.why == ""
    assert found.lengths["euclid"] <= found.lengths["true"] + 1e-9 <= found.lengths["graph"] + 2e-9
    for line in (found.geodesic, found.straight, found.graph):
        assert line is not None
        places = seen.project(line)
        np.testing.assert_allclose(places[0], seen.field.centres[1], atol=1e-6)  # the trace is of float32
        np.testing.assert_allclose(places[-1], seen.field.centres[3], atol=1e-6)


def test_length_of_the_drawn_curve_is_the_true_length(small: tuple) -> None:
    """The points that are drawn, summed up under the metric at the middle of each step: an oracle of second order."""
    model, trace = small
    found = geodesics_lengths.way(model, trace, layer=0, head=0, reading="whole", first=0, second=4)
    g = geodesics_scene.field_of(model, trace, 0, 0, "whole", 0)
    points = torch.from_numpy(found.geodesic)
    total = sum(float(g.inner((a + b) / 2, b - a, b - a).sqrt()) for a, b in pairwise(points))
    assert total == pytest.approx(found.lengths["true"], rel=1e-4)


def test_a_picture_of_a_slice_keeps_vectors_that_lie_in_it(small: tuple) -> None:
    model, trace = small
    g = geodesics_scene.field_of(model, trace, 0, 1, "block", 2)
    seen = geodesics_scene.scene(model, trace, layer=0, head=1, reading="block", token=2)
    x = trace.layers[0].residual_in[:, 6:].double().numpy()
    _, _, rows = np.linalg.svd(x - x.mean(0), full_matrices=False)
    drawn = seen.turn(np.stack([g.embed(torch.from_numpy(row)).numpy() for row in rows]))
    np.testing.assert_allclose(np.abs(drawn[:3]), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(drawn[3:], 0, atol=1e-9)
    outside = np.zeros((1, 12))
    outside[0, 0] = 1
    np.testing.assert_allclose(seen.turn(outside), 0, atol=1e-12)


def test_without_a_metric_every_length_is_the_euclidean_one(small: tuple) -> None:
    _, trace = small
    sizes = {"vocab_size": 11, "width": 12, "layers": 2, "heads": 2, "feed_forward": 16, "score": "euclidean"}
    bare = FiberBundleTransformer(FiberBundleConfig(**sizes)).eval()
    with torch.no_grad():
        trace = bare.trace(trace.ids)
    assert "no metric" in geodesics_scene.lacking(bare, trace, layer=0, head=0, reading="block", token=0)
    found = geodesics_lengths.way(bare, trace, layer=1, head=0, reading="block", first=0, second=2)
    x = trace.layers[1].residual_in.double()
    expected = float((x[2] - x[0]).norm())
    for name in ("euclid", "chord", "true"):
        assert found.lengths[name] == pytest.approx(expected, rel=1e-12)
    loop = torsion_numbers.carried(bare, trace, layer=1, head=0, reading="block", tokens=LOOP, vector="next")
    assert loop.turned == loop.largest == 0 and np.isnan(loop.gauge)


def test_a_row_has_the_lengths_of_the_ways(small: tuple) -> None:
    model, trace = small
    numbers = geodesics_lengths.row(model, trace, layer=1, head=0, reading="block", token=2, others=(0, 4))
    for place, other in enumerate((0, 4)):
        found = geodesics_lengths.way(model, trace, layer=1, head=0, reading="block", first=2, second=other)
        assert numbers["true"][place] == pytest.approx(found.lengths["true"], rel=1e-5)
        assert numbers["chord"][place] == pytest.approx(found.lengths["chord"], rel=1e-12)
        assert numbers["euclid"][place] == pytest.approx(found.lengths["euclid"], rel=1e-12)
    empty = geodesics_lengths.row(model, trace, layer=1, head=0, reading="block", token=2, others=())
    assert all(len(values) == 0 for values in empty.values())


def test_a_token_that_is_not_finite_has_no_ways(small: tuple) -> None:
    model, trace = small
    stream = trace.layers[0].residual_in.clone()
    stream[2] = torch.nan
    lost = replace(trace, layers=(replace(trace.layers[0], residual_in=stream), *trace.layers[1:]))
    for reading in READINGS:
        found = geodesics_lengths.way(model, lost, layer=0, head=0, reading=reading, first=0, second=2)
        assert "not finite" in found.why and np.isnan(list(found.lengths.values())).all()
        assert geodesics_lengths.way(model, lost, layer=0, head=0, reading=reading, first=0, second=3).why == ""


# ---- attention by the true distance ----


def test_ratio_one_changes_nothing_and_is_the_models_own_attention(small: tuple) -> None:
    _, trace = small
    found = geodesics_lengths.replaced(trace, 1, 1, np.ones((5, 5)), 0)
    own = trace.layers[1].attention(1, "riemannian").numpy()
    np.testing.assert_allclose(found.chord, own, atol=1e-6)
    np.testing.assert_array_equal(found.true, found.chord)
    assert found.variation.max() == 0


def test_replaced_attention_is_that_of_a_double_loop(small: tuple) -> None:
    _, trace = small
    ratio = 1 + 0.2 * np.random.default_rng(0).normal(size=(3, 3))
    np.fill_diagonal(ratio, np.nan)  # true / chord of a token and itself is 0 / 0, and counts as 1
    found = geodesics_lengths.replaced(trace, 0, 1, ratio, 1)
    f = trace.layers[0].given.select(1)
    q, k, U = (part[0].double().numpy() for part in (f.q, f.k, f.U))
    tau, omega = float(f.tau[0]), f.omega[0].double().numpy()
    for i in range(3):
        scores = []
        for j in range(i + 1):
            delta = q[1 + i] - k[1 + j]
            g = np.eye(len(delta)) + (U[1 + i] @ U[1 + i].T + U[1 + j] @ U[1 + j].T) / 2
            square = 1.0 if i == j else ratio[i, j] ** 2
            scores.append(-square * delta @ g @ delta / tau - omega[1 + j])
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(found.true[i, : i + 1], weights, atol=1e-5)
        np.testing.assert_array_equal(found.true[i, i + 1 :], 0)
    np.testing.assert_array_equal(found.hidden, ~np.tri(3, dtype=bool))
    np.testing.assert_allclose(found.variation, np.abs(found.true - found.chord).sum(1) / 2)


# ---- matrices ----


def make_distances(seed: int = 0, **changes: object) -> Distances:
    random = np.random.default_rng(seed)
    euclid = random.uniform(1, 2, (4, 4))
    euclid = euclid + euclid.T
    np.fill_diagonal(euclid, 0)
    found = Distances(
        true=1.1 * euclid, chord=1.2 * euclid, euclid=euclid, error=np.full((4, 4), 1e-6),
        tokens=("a", HOSTILE, "a", "d"), numbers=(2, 3, 4, 5), title="A · one <b>", selected=(0, 2),
    )  # fmt: skip
    return replace(found, **changes)


def test_matrices_hold_the_lengths_on_one_scale_and_the_ratio_about_one() -> None:
    found = make_distances()
    made = distance_figure(found, longest=9.0)
    heat = [trace for trace in made.data if isinstance(trace, go.Heatmap)]
    for drawn, name in zip(heat, ("true", "chord", "euclid", "ratio"), strict=True):
        np.testing.assert_array_equal(drawn.z, getattr(found, name))
    assert [one.coloraxis for one in heat] == ["coloraxis"] * 3 + ["coloraxis2"]
    assert (made.layout.coloraxis.cmin, made.layout.coloraxis.cmax) == (0, 9.0)
    assert made.layout.coloraxis2.cmax - 1 == pytest.approx(1 - made.layout.coloraxis2.cmin)
    assert made.layout.coloraxis2.cmax == pytest.approx(1 + 0.1 / 1.2)
    assert np.isnan(found.ratio.diagonal()).all()
    assert "units of the residual stream" in made.layout.coloraxis.colorbar.title.text
    assert made.layout.xaxis.tickvals == (0, 1, 2, 3)  # repeated tokens keep their own places


def test_rounding_is_no_difference_on_the_ratios_scale() -> None:
    same = make_distances().euclid
    found = make_distances(true=same, chord=same * (1 + 1e-15))
    assert found.widest == LEAST_WIDE


def test_token_text_is_escaped_in_every_figure() -> None:
    found = make_distances()
    several = [Variation("A <i>", np.array([0.1, 0.2]), (HOSTILE, "b"), (0, 1))]
    for made in (distance_figure(found), ratio_difference(found, found, ["<b>", "B"]), true_against_chord([found]),
                 variation_figure(several, "<b>")):  # fmt: skip
        text = made.to_json().replace("\\u003c", "<")
        assert "<script" not in text and "<b>" not in text and "<i>" not in text


def test_difference_of_ratios_is_b_minus_a_about_zero() -> None:
    a, b = make_distances(), make_distances(true=1.3 * make_distances().euclid)
    made = ratio_difference(a, b, ["A", "B"])
    heat = made.data[0]
    np.testing.assert_array_equal(heat.z, b.ratio - a.ratio)
    assert heat.zmin == -heat.zmax == pytest.approx(-0.2 / 1.2)


def test_scatter_has_each_pair_once_where_the_matrix_is_symmetric() -> None:
    made = true_against_chord([make_distances(), make_distances(true=np.arange(16.0).reshape(4, 4))])
    assert [len(trace.x) for trace in made.data] == [2, 6, 12]
    rows = distance_table(make_distances())
    np.testing.assert_array_equal(made.data[1].y, rows["true"])


# ---- torsion ----


def test_arrows_run_from_the_value_to_the_turned_value(small: tuple) -> None:
    """C(T) v of the model's own Cayley map has the part in the plane that the arrow's end shows."""
    _, trace = small
    planes = torsion_numbers.value_planes(trace, 1, 0)
    left, right = (part[0].double() for part in trace.layers[1].torsion)
    v = trace.layers[1].given.v[0].double()
    turned = cayley(left, right, v)
    found = torsion_numbers.torsion_planes(left, right).planes
    before, after = (torch.einsum("tpkd,td->tpk", found, part).numpy() for part in (v, turned))
    for parts, phase in ((before, planes.phase), (after, planes.phase + planes.angles)):
        size = np.linalg.norm(parts, axis=-1)
        np.testing.assert_allclose(parts[..., 0], size * np.cos(phase), atol=1e-9)
        np.testing.assert_allclose(parts[..., 1], size * np.sin(phase), atol=1e-9)
    outside = [part - torch.einsum("tpkd,tpk->td", found, torch.from_numpy(inside))
               for part, inside in ((v, before), (turned, after))]  # fmt: skip
    torch.testing.assert_close(outside[0], outside[1])


def test_planes_have_circles_without_a_head_and_arcs_with_one() -> None:
    pair = np.array([[[[1.0, 0, 0], [0, 0.5, 0]]], [[[0, 1.0, 0], [0, 0, 1.0]]]])
    planes = Planes(pair, np.array([[np.pi / 2], [0.0]]), np.array([[0.0], [0.0]]))
    centres = np.array([[1.0, 2, 3], [0, 0, 0]])
    circle, arc = plane_curves(planes, centres, 2.0, np.arange(2))  # the second token is not turned: nothing is drawn
    assert not circle.arrow and arc.arrow
    assert len(circle.points) == CIRCLE
    np.testing.assert_allclose(circle.points[0], circle.points[-1])
    np.testing.assert_allclose(arc.points[[0, -1]], [[3, 2, 3], [1, 3, 3]], atol=1e-12)
    np.testing.assert_allclose(planes.in_view, [[0.625], [1.0]])
    upright = planes.into_view()
    np.testing.assert_allclose(upright.pairs[0, 0], [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    assert table_of_curves((circle, arc))["point"].max() == CIRCLE - 1


def test_what_is_not_finite_has_no_plane() -> None:
    pair = np.array([[[[1.0, 0, 0], [0, 0.5, 0]]], [[[np.nan, 0, 0], [0, 0, 1.0]]]])
    upright = Planes(pair, np.ones((2, 1)), np.zeros((2, 1))).into_view()
    np.testing.assert_allclose(upright.pairs[0, 0], [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    assert np.isnan(upright.pairs[1]).all()
    assert {curve.points.tobytes() for curve in plane_curves(upright, np.zeros((2, 3)), 1.0, np.arange(2))} == {
        curve.points.tobytes() for curve in plane_curves(upright, np.zeros((2, 3)), 1.0, np.arange(1))
    }


def test_no_phase_no_arrow() -> None:
    planes = Planes(np.eye(3)[None, None, :2], np.ones((1, 1)), np.full((1, 1), np.nan))
    assert [curve.arrow for curve in plane_curves(planes, np.zeros((1, 3)), 1.0, np.arange(1))] == [False]


def test_few_of_many_tokens_have_planes_and_the_selected_is_one() -> None:
    angles = np.linspace(0, 1, 100)[:, None]
    kept = most_turned(angles, 0)
    assert len(kept) == 12 and kept[0] == 0 and 99 in kept and 50 not in kept
    np.testing.assert_array_equal(most_turned(angles[:7], 3), np.arange(7))


def test_turns_are_the_angles_of_the_dense_cayley_map(small: tuple) -> None:
    model, trace = small
    found = torsion_numbers.turns(model, trace)
    eye = torch.eye(6, dtype=torch.float64)
    for layer, head, token in ((0, 1, 2), (1, 0, 4)):
        left, right = (part[head, token].double() for part in trace.layers[layer].torsion)
        dense = torch.stack([cayley(left, right, column) for column in eye], -1)
        expected = torch.linalg.eigvals(dense).angle().abs().sort(descending=True).values[[0, 2]]
        np.testing.assert_allclose(found.angles[layer, head, token], expected.numpy(), atol=1e-9)
    assert (found.share >= 0).all() and (found.share <= 1).all() and found.share.max() > 0


def test_heat_maps_keep_their_numbers_and_mark_the_head() -> None:
    values = np.arange(6.0).reshape(3, 2)
    made = head_maps({"angle": (values, "degrees", 180.0), "share": (values / 6, "0 to 1", 1.0)}, "t", (2, 1))
    heat = [trace for trace in made.data if isinstance(trace, go.Heatmap)]
    np.testing.assert_array_equal(heat[0].z, values)
    assert (heat[0].zmin, heat[0].zmax, heat[0].colorbar.title.text) == (0, 180.0, "degrees")
    frames = [(shape.x0, shape.x1, shape.y0, shape.y1, shape.xref) for shape in made.layout.shapes]
    assert frames == [(0.5, 1.5, 1.5, 2.5, "x"), (0.5, 1.5, 1.5, 2.5, "x2")]


# ---- loops ----


@pytest.mark.parametrize("reading", ["block", "whole"])
def test_a_carried_vector_comes_back_as_the_holonomy_says(small: tuple, reading: str) -> None:
    model, trace = small
    found = torsion_numbers.carried(model, trace, layer=1, head=0, reading=reading, tokens=LOOP, vector="next")
    assert found.why == "" and found.kept < 1e-4  # a step's tolerance is 1e-6
    assert 0 < found.turned <= found.largest + 1e-4  # no vector turns farther than the plane that turns most
    np.testing.assert_allclose(found.stations[0], found.stations[-1])
    seen = geodesics_scene.scene(model, trace, layer=1, head=0, reading=reading, token=LOOP[0])
    np.testing.assert_allclose(seen.project(found.stations), seen.field.centres[[*LOOP, LOOP[0]]], atol=1e-6)
    assert found.gauge < 1e-13
    turned = torsion_numbers.carried(model, trace, layer=1, head=0, reading=reading, tokens=LOOP, vector="turned")
    assert turned.turned == pytest.approx(found.largest, abs=1e-4)


def test_the_reverse_of_a_loop_turns_as_much(small: tuple) -> None:
    model, trace = small
    there, back = (
        torsion_numbers.loop_of(model, trace, layer=0, head=1, reading="block", tokens=tokens)
        for tokens in (LOOP, (1, 4, 3))
    )
    np.testing.assert_allclose(there.angles, back.angles, atol=1e-4)
    assert there.largest > 1e-3
    line = torsion_numbers.loop_of(model, trace, layer=0, head=1, reading="block", tokens=(1, 3))
    assert line.largest < 1e-4  # out and back along one geodesic encloses nothing


def test_small_angles_are_not_lost() -> None:
    g = geodesics_scene.MetricFunction.low_rank(lambda x: x.new_zeros(2, 1), 2)
    a = torch.tensor([1.0, 0.0], dtype=torch.float64)
    b = torch.tensor([np.cos(1e-9), np.sin(1e-9)], dtype=torch.float64)
    assert torsion_numbers.angle_between(g, a, a, 3 * b) == pytest.approx(1e-9, rel=1e-6)


def test_what_has_no_sign_has_no_head_and_start_and_end_look_apart() -> None:
    places = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 0]])
    vectors = np.array([[0.0, 2, 0], [0, 1, 0], [0, 0, 1]])
    for sign in (True, False):
        _, start, middle, end = carried_curves(Carried(places, vectors, (places[:2],), sign), 4.0)
        assert [one.arrow for one in (start, middle, end)] == [sign] * 3
        np.testing.assert_allclose(start.points[-1], [0, 4, 0])  # the longest arrow has the length asked for
        np.testing.assert_allclose(middle.points[-1], [1, 2, 0])
        np.testing.assert_allclose(start.points[0], [0, 0, 0] if sign else [0, -4, 0])
        assert start.dash != end.dash and start.category != end.category


def test_loops_of_the_table() -> None:
    assert loops_of((2, 5, 7), 8, False) == [(2, 5, 7), (2, 7, 5)]
    assert (2, 7, 4) in loops_of((2, 5, 7, 4), 8, False)
    assert (0, 1, 2) in loops_of((2, 5, 7), 8, True) and len(loops_of((2, 5, 7), 5000, True)) < 40
    assert label((2, 5, 7)) == "2 → 5 → 7 → 2"
    for count in (1, 2, 3, 9):
        loop = first_loop(count - 1, count)
        assert len(set(loop)) == len(loop) == min(3, count) and max(loop) < count


# ---- the pages ----


@pytest.mark.parametrize("kind", ["riemannian", "euclidean", "dictionary", "bidirectional"])
@pytest.mark.parametrize("page", ["geodesics", "torsion"])
def test_pages_draw(page: str, kind: str) -> None:
    test = opened(page, a=f"demo:{kind}", token="2", text="the old sailor near")
    assert complaints(test) == []
    said = " ".join(element.value for element in (*test.info, *test.caption))
    if kind == "euclidean":
        assert "no metric" in said
    if page == "torsion" and kind != "riemannian":
        assert "no TorsionNet" in said
    assert len(test.metric) > 2
    assert len(test.get("bidi_component")) > 1  # the scene, besides the sidebar's own


@pytest.mark.parametrize("page", ["geodesics", "torsion"])
def test_pages_compare_and_label_what_is_not_as_trained(page: str) -> None:
    test = opened(page, a="demo:riemannian", b="demo:dictionary", strength="2.0", text="the old sailor near")
    assert complaints(test) == []
    figures = "".join(str(component.proto) for component in test.get("bidi_component"))
    charts = "".join(str(chart.proto) for chart in test.get("plotly_chart"))
    assert "what-if: metric strength 2" in figures and "what-if: metric strength 2" in charts


@pytest.mark.parametrize("text", ["x", "the ships"])
@pytest.mark.parametrize("page", ["geodesics", "torsion"])
def test_pages_bear_one_and_two_tokens(page: str, text: str) -> None:
    assert complaints(opened(page, text=text)) == []


def test_another_loop_is_chosen_and_carried() -> None:
    test = opened("torsion", a="demo:riemannian", text="the old sailor near")
    test.multiselect(key="loop").set_value([1, 3, 4, 2]).run()
    assert complaints(test) == []
    assert "1 → 3 → 4 → 1" in test.dataframe[0].value["loop"].tolist()


def test_the_page_says_what_the_model_says(stand_ins: Path) -> None:  # noqa: F811
    """Cards against the core, by another route than the page's: the library's functions on a model of its own."""
    from app import loading
    from fbt_core.geometry.boundary import connect
    from fbt_core.geometry.model_field import field_points, model_field

    test = opened("geodesics", a="demo:riemannian", token="1", layer="1", text="the old sailor near")
    loaded = loading.checkpoint("demo:riemannian")
    model = loading.model("demo:riemannian", "cpu")
    ids = loaded.tokenizer.encode("the old sailor near").ids
    with torch.no_grad():
        trace = model.trace(torch.tensor(ids))
        points = field_points(trace, 1)
        expected = connect(model_field(model, trace, 1, 0, "whole"), points[1], points[-1], shot=False)
    cards = {card.label: card.value for card in test.metric}
    assert cards["True"] == f"{expected.length:.5g}"
    assert cards["Euclidean"] == f"{float((points[-1] - points[1]).norm()):.5g}"
    assert float(cards["Graph path, 3 nearest"]) >= float(cards["True"]) * (1 - 1e-4)
