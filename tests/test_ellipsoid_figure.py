"""The ellipsoid field as drawn: the component's message, the Plotly twin and the table say the same numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from app.components.ellipsoid_field import HERE as COMPONENT
from app.components.ellipsoid_field import SCRIPTS, pack
from app.ellipsoids import Choice
from app.ellipsoids_words import both, caption
from app.figures.ellipsoid_traces import MANY, icosphere, vertices
from app.figures.ellipsoid_view import IN_VIEW, EllipsoidView, table
from app.figures.ellipsoids import difference, figure
from fbt_core.geometry.drawn_space import Stage
from fbt_core.geometry.ellipsoid import EllipsoidField

HOSTILE = "</script><script>alert(1)</script><b>&amp;"


def make_view(tokens: int = 7, seed: int = 0, **changes: object) -> EllipsoidView:
    """Random ellipsoids: orthogonal axes of lengths lambda^-1/2, scale 0.3."""
    random = np.random.default_rng(seed)
    eigenvalues = np.sort(1 + random.uniform(0, 4, (tokens, 3)))[:, ::-1].copy()
    frames = np.linalg.qr(random.normal(size=(tokens, 3, 3)))[0]
    centres = random.normal(size=(tokens, 3))
    bounds = tuple(centres.min(0).tolist()), tuple(centres.max(0).tolist())
    field = EllipsoidField(
        centres=centres, axes=frames * eigenvalues[:, None, :] ** -0.5, eigenvalues=eigenvalues,
        in_view=random.uniform(size=tokens), axis_names=("PC 1", "PC 2", "PC 3"), share=np.array([0.4, 0.3, 0.1]),
        shape="metric frame", dual=False, base="PCA", stage=Stage(0.3, bounds), where="layer 1, head 0, keys",
        has_metric=True,
    )  # fmt: skip
    values = random.uniform(size=tokens)
    names = tuple(HOSTILE if index == 1 else f"t{index}" for index in range(tokens))
    view = EllipsoidView(field, names, values, "Anisotropy (dimensionless)", (0.0, 1.0), "A <title>",
                         {"tr K (dimensionless)": values * 2}, selected=3)  # fmt: skip
    return replace(view, **changes)


def unpack(message: bytes) -> tuple[dict, dict[str, np.ndarray]]:
    """What the browser reads, read again from the description of the format."""
    count, extras, length, _ = np.frombuffer(message, "<u4", 4)
    sizes = {"centres": 3, "axes": 9, "values": 1, "extras": extras}
    arrays, offset = {}, 16
    for name, size in sizes.items():
        arrays[name] = np.frombuffer(message, "<f4", count * size, offset)
        offset += 4 * count * size
    arrays["table"] = np.frombuffer(message, "u1", 768, offset)
    assert len(message) == offset + 768 + length
    header = json.loads(message[offset + 768 :])
    lengths = np.linalg.norm(arrays["axes"].reshape(-1, 3, 3).astype(float), axis=2) / header["scale"]
    arrays["eigenvalues"] = lengths ** (2 if header["dual"] else -2)
    return header, arrays


def glyphs(made: go.Figure) -> list[go.Mesh3d]:
    return [trace for trace in made.data if isinstance(trace, go.Mesh3d)]


def test_icosphere_is_a_closed_sphere() -> None:
    points, triangles = icosphere()
    assert points.shape == (42, 3)
    assert triangles.shape == (80, 3)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    edges = {tuple(sorted((t[i], t[(i + 1) % 3]))) for t in triangles for i in range(3)}
    assert 42 - len(edges) + 80 == 2  # Euler
    corners = points[triangles]
    assert (np.einsum("tk,tk->t", np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]),
                      corners.mean(1)) > 0).all()  # fmt: skip


def test_component_and_twin_draw_the_same_ellipsoids() -> None:
    view = make_view()
    _, arrays = unpack(pack(view))
    centres, vectors = arrays["centres"].reshape(-1, 3), arrays["axes"].reshape(-1, 3, 3)
    mesh = glyphs(figure(view))[0]
    points = np.stack([mesh.x, mesh.y, mesh.z], -1).reshape(len(view.tokens), 42, 3)
    for token in range(len(view.tokens)):
        # Coordinates of the mesh in the frame of the semi-axes that the component got: all on the unit sphere.
        unit = np.linalg.solve(vectors[token].T.astype(float), (points[token] - centres[token]).T.astype(float))
        np.testing.assert_allclose(np.linalg.norm(unit, axis=0), 1, atol=2e-5)
        np.testing.assert_allclose(arrays["values"][token], mesh.intensity[42 * token], rtol=1e-6)


def test_vertices_lie_on_the_ellipsoids_of_the_eigenvalues() -> None:
    view = make_view()
    points = vertices(view, np.ones(7, bool))
    for token in range(7):
        axes = view.field.axes[token]
        form = np.linalg.inv(axes @ axes.T) / 0.3**2
        offset = points[token] - view.field.centres[token]
        np.testing.assert_allclose(np.einsum("vi,ij,vj->v", offset, form, offset), 1, atol=1e-12)
        reach = np.linalg.norm(offset, axis=1)
        assert reach.max() <= 0.3 * view.field.eigenvalues[token, 2] ** -0.5 + 1e-12
        assert reach.min() >= 0.3 * view.field.eigenvalues[token, 0] ** -0.5 - 1e-12


def test_message_holds_the_view() -> None:
    view = make_view(note="what-if: strength 2")
    header, arrays = unpack(pack(view, height=500))
    assert header["tokens"] == list(view.tokens)
    assert header["selected"] == 3
    assert header["note"] == "what-if: strength 2"
    assert header["axes"] == ["PC 1 (40 %)", "PC 2 (30 %)", "PC 3 (10 %)"]
    assert "unit ball" in header["description"].lower()
    assert header["extras"] == ["tr K (dimensionless)"]
    assert header["height"] == 500
    np.testing.assert_allclose(arrays["eigenvalues"].reshape(-1, 3), view.field.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(arrays["extras"], view.values * 2, rtol=1e-6)
    assert arrays["table"][:3].tolist() == [68, 1, 84]  # Viridis begins in purple and ends in yellow
    assert arrays["table"][-3:].tolist() == [253, 231, 37]


def test_box_and_witness_hold_everything() -> None:
    view = make_view()
    low, high = view.box
    support = np.linalg.norm(view.field.drawn_axes, axis=2)
    assert (view.field.centres - support >= low).all()
    assert (view.field.centres + support <= high).all()
    mesh = glyphs(figure(view))[-1]
    radius = np.linalg.norm(np.stack([mesh.x, mesh.y, mesh.z], -1) - view.witness, axis=1)
    np.testing.assert_allclose(radius, 0.3, rtol=1e-5)
    assert view.witness[2] >= high[2]  # outside the box


def test_axes_are_equal_and_named() -> None:
    scene = figure(make_view()).layout.scene
    assert scene.aspectmode == "data"
    assert scene.xaxis.title.text == "PC 1 (40 %)"
    assert not scene.zaxis.showspikes
    eye = figure(make_view(), camera=(0.0, 0.0)).layout.scene.camera.eye
    assert (eye.y, eye.z) == pytest.approx((0, 0))
    assert eye.x > 1.5 * 3**0.5  # a cube's diagonal; anything else is longer in Plotly's unit


def test_tokens_are_never_markup() -> None:
    made = figure(make_view())
    strings = [made.layout.title.text, *glyphs(made)[0].text, *made.data[-1].text]
    assert any("alert(1)" in string for string in strings)
    assert not any("<script" in string or "<b>" in string or "<title>" in string for string in strings)
    bars = difference(make_view(), make_view(seed=1), ["A", "B"])
    assert not any("<script" in string for string in bars.data[0].text)


def test_missing_numbers_are_grey_or_left_out_and_counted() -> None:
    view = make_view()
    view.values[2] = np.nan
    for array in (view.field.centres, view.field.axes, view.field.eigenvalues):
        array[5] = np.nan
    header, arrays = unpack(pack(view))
    assert header["colour"]["missing"] == 1
    assert "1 of 7 tokens" in header["description"]
    assert np.isnan(arrays["axes"][45:54]).all()
    coloured, grey, _ = glyphs(figure(view))
    assert len(coloured.x) == 5 * 42
    assert len(grey.x) == 42
    assert grey.color == "#999999"


def test_bytes_stay_small() -> None:
    view = make_view(tokens=1024)
    assert len(pack(view)) < 120_000
    mesh = glyphs(figure(view))[0]
    assert mesh.text is None  # no text a vertex
    assert len(view.tokens) > MANY
    assert len(figure(view).to_json()) < 4_000_000
    assert len(pack(make_view(tokens=4096))) < 300_000  # with one extra measure


def test_message_is_strict_json_whatever_the_values() -> None:
    view = make_view()
    view.values[:] = np.nan
    header, _ = unpack(pack(view))
    assert header["colour"]["missing"] == 7


def test_table_gives_every_number_of_every_token() -> None:
    view = make_view()
    rows = table(view)
    assert len(rows) == 7
    np.testing.assert_array_equal(rows[["centre_x", "centre_y", "centre_z"]].to_numpy(), view.field.centres)
    np.testing.assert_array_equal(rows[["axis2_x", "axis2_y", "axis2_z"]].to_numpy(), view.field.axes[:, :, 1])
    np.testing.assert_array_equal(rows["eigenvalue3"], view.field.eigenvalues[:, 2])
    np.testing.assert_array_equal(rows["tr K (dimensionless)"], view.values * 2)
    assert rows["text"][1] == HOSTILE  # a CSV is data, not a page


def test_table_says_where_its_numbers_come_from_and_nothing_twice() -> None:
    view = make_view(facts={"checkpoint": "one", "layer": 2, "head": 1, "what_if": "strength 2"})
    view.extras[IN_VIEW] = view.field.in_view
    rows = table(view)
    assert rows["checkpoint"].eq("one").all() and rows["layer"].eq(2).all() and rows["what_if"].eq("strength 2").all()
    same = [name for name in rows if rows[name].dtype == float and np.array_equal(rows[name], view.field.in_view)]
    assert same == [IN_VIEW]


def test_table_of_the_bars_holds_both_and_their_difference() -> None:
    facts = {"layer": 2, "head": 1, "space": "keys", "strength": 1.0, "what_if": ""}
    shown = [make_view(seed=k, facts=facts | {"side": "AB"[k]}) for k in (0, 1)]
    rows = both(shown, ["A · one", "B · two"])
    np.testing.assert_array_equal(rows["A"], shown[0].values)
    np.testing.assert_array_equal(rows["B − A"], shown[1].values - shown[0].values)
    assert rows["text"].tolist() == list(shown[1].tokens) and rows["measure"].eq("Anisotropy (dimensionless)").all()


CHOICE = Choice("keys", "metric frame", False, "shared PCA", "anisotropy", False, 1.0, True, False)


@pytest.mark.parametrize(
    ("shape", "said", "unsaid"), [("metric frame", r"\hat u_m$ are", "$P$"), ("slice", "rows of $P$", r"\hat u")]
)
def test_caption_explains_the_symbols_of_its_equation(shape: str, said: str, unsaid: str) -> None:
    text = caption(replace(CHOICE, shape=shape), replace(make_view().field, shape=shape))
    assert said in text and unsaid not in text and "U U" in text


def test_caption_of_a_model_without_a_metric_has_no_formula_of_one() -> None:
    text = caption(CHOICE, replace(make_view().field, has_metric=False))
    assert "No metric here, $g = I$" in text and "U U" not in text


def test_difference_is_b_minus_a_on_a_scale_about_zero() -> None:
    a, b = make_view(note="what-if: strength 2"), make_view(seed=1)
    made = difference(a, b, ["A · one", "B · two"])
    bars = made.data[0]
    assert made.layout.title.text == "B · two minus A · one: Anisotropy (dimensionless) — what-if: strength 2"
    np.testing.assert_allclose(bars.y, b.values - a.values)
    assert made.layout.yaxis.title.text == "B − A: Anisotropy<br>(dimensionless)"
    assert bars.marker.cmin == -bars.marker.cmax == -np.abs(b.values - a.values).max()


def test_scripts_write_token_text_only_as_text() -> None:
    source = "".join((COMPONENT / script).read_text(encoding="utf-8") for script in SCRIPTS)
    assert "textContent" in source
    assert not [word for word in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(") if word in source]
