"""The cloud page without a browser: what it draws of every choice, what is marked, and the figures behind it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import cloud_fit
from app.figures import cloud_view, clouds
from app.figures.cloud_player import frames_between
from app.figures.cloud_traces import TOLD, moving
from app.figures.cloud_view import CloudView
from app.token_kinds import kinds
from fbt_core.cloud import CLOUDS
from fbt_core.tokenizer import Encoding, WordByteTokenizer
from tests.test_pages import KINDS, complaints, opened, stand_ins, write  # noqa: F401  (a fixture)

QUICK = [name for name, row in CLOUDS.items() if not row.slow]


def charts(test: AppTest) -> list[dict]:
    """The specifications of the figures."""
    return [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]


def view(dims: int = 2, stages: int = 4, count: int = 5, **more: object) -> CloudView:
    rng = np.random.default_rng(0)
    given = {
        "positions": rng.normal(size=(stages, count, dims)),
        "stages": tuple(f"enters block {k}" for k in range(stages)),
        "axes": tuple(f"PC {k + 1}" for k in range(dims)), "tokens": tuple(f"t{k}" for k in range(count)),
        "values": rng.normal(size=(stages, count)), "value_title": "Loss (nats)", "title": "A", "description": "d",
        "limits": (-3.0, 3.0),
    }  # fmt: skip
    return CloudView(**{**given, **more})


# ---- the page ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", ["2-D", "3-D"])
def test_every_checkpoint_is_drawn(kind: str, dims: str) -> None:
    test = opened("cloud", a=f"demo:{kind}", **{"cloud-dims": dims})
    assert complaints(test) == []
    (chart,) = charts(test)
    assert len(chart["frames"]) >= 2
    assert "PCA of the residual stream" in chart["layout"]["title"]["text"]


def test_every_choice_of_the_toolbar_draws() -> None:
    test = opened("cloud", a="demo:riemannian", b="demo:euclidean", marked="1,3")
    for name in (
        "cloud-dims",
        "cloud-scale",
        "cloud-show",
        "cloud-tint-depth",
        "cloud-tint-all",
        "cloud-ball",
        "cloud-ways",
    ):
        for option in list(test.selectbox(key=name).options) if name in {box.key for box in test.selectbox} else []:
            test.selectbox(key=name).set_value(option).run()
            assert complaints(test) == [], f"{name} = {option}"
            assert len(charts(test)) == 2


@pytest.mark.parametrize("text", ["x", "the ships", "the the the the", "<b>&amp; </script>"])
def test_short_and_hostile_texts(text: str) -> None:
    test = opened("cloud", a="demo:bidirectional", text=text)
    assert complaints(test) == []
    shown = json.dumps(charts(test)[0]["data"])
    assert "</script>" not in shown and "<b>" not in shown


def test_a_short_text_falls_back_to_pca_by_name() -> None:
    test = opened("cloud", a="demo:bidirectional", text="x", **{"cloud-by": "UMAP + Procrustes"})
    assert complaints(test) == []
    assert "PCA" in charts(test)[0]["layout"]["title"]["text"]
    assert any("PCA is drawn instead of UMAP + Procrustes" in text.value for text in test.main.text)


def test_two_checkpoints_of_one_text_share_an_aligned_cloud() -> None:
    test = opened("cloud", a="demo:riemannian", b="demo:dictionary", match="depth", **{"cloud-together": "true"})
    assert complaints(test) == []
    (chart,) = charts(test)
    said = chart["layout"]["title"]["subtitle"]["text"].replace("<br>", " ")
    assert cloud_fit.ALIGNED in said and "% of A's scatter is not matched" in said


def test_two_slow_clouds_each_have_their_buttons() -> None:
    """Neither is there yet, so both show progress and Stop in one run of the page."""
    test = opened("cloud", a="demo:riemannian", b="demo:euclidean", text="ships sings near the old sailor")
    test.main.selectbox(key="cloud-by").set_value("umap").run()
    assert complaints(test) == []
    assert len(charts(test)) == 2


def test_where_tokens_do_not_match_the_reason_is_told(tmp_path: Path) -> None:
    other = write(tmp_path / "other.safetensors", vocabulary=WordByteTokenizer(["the"])).read_bytes()
    test = opened("cloud", a="demo:riemannian", b="demo:euclidean")
    assert any(toggle.key == "cloud-together" for toggle in test.toggle)
    test.sidebar.file_uploader[0].set_value(("other.safetensors", other, "")).run()  # becomes A
    assert complaints(test) == []
    assert not any(toggle.key == "cloud-together" for toggle in test.toggle)
    assert any("cannot share a cloud" in caption.value and "tokenizers differ" in caption.value.replace("\\", "")
               for caption in test.main.caption)  # fmt: skip
    assert len(charts(test)) == 2


def test_other_texts_join_the_cloud() -> None:
    test = opened("cloud", a="demo:l2", text="the ships", **{"cloud-texts": "the old ships sing\nships"})
    assert complaints(test) == []
    alone = opened("cloud", a="demo:l2", text="the ships")
    counts = [int(charts(one)[0]["layout"]["title"]["subtitle"]["text"].split()[0]) for one in (test, alone)]
    assert counts[0] > counts[1] + 4


def test_marks_come_from_the_link_and_can_be_cleared() -> None:
    test = opened("cloud", a="demo:riemannian", marked="2,4,77")
    assert any("2 tokens marked" in text.value for text in test.sidebar.text)
    rings = [trace for trace in charts(test)[0]["data"] if trace["name"] == "rings"]
    assert len(rings[0]["x"]) == 2
    test.button(key="unmark").click().run()
    assert complaints(test) == [] and "marked" not in test.query_params
    assert not any("marked" in text.value for text in test.sidebar.text)


@pytest.mark.parametrize("page", ["overview", "ellipsoids", "attention"])
def test_marks_reach_the_other_pages(page: str) -> None:
    plain, marked = (opened(page, a="demo:riemannian", **more) for more in ({}, {"marked": "1,2"}))
    assert complaints(marked) == []

    def sent(test: AppTest) -> set[str]:
        return {str(part.proto) for part in test.get("bidi_component")}

    assert len(sent(marked) - sent(plain)) >= 1


# ---- figures ----


def positions_of(chart: object, name: str) -> np.ndarray:
    return np.array([getattr(chart, axis) for axis in name], float).T


@pytest.mark.parametrize("dims", [2, 3])
def test_a_frame_a_stage_holds_the_positions_of_the_stage(dims: int) -> None:
    shown = view(dims)
    figure = clouds.by_stage(shown)
    stops = {frame.name: frame for frame in figure.frames}
    for at in range(4):
        drawn = positions_of(stops[f"stage {at}"].data[0], "xyz"[:dims])
        assert np.allclose(drawn, shown.positions[at], rtol=1e-4)
    assert [step.args[0][0] for step in figure.layout.sliders[0].steps] == [f"stage {at}" for at in range(4)]


def test_frames_between_stages_lie_on_the_way() -> None:
    figure = clouds.by_stage(view(3))
    between = [frame for frame in figure.frames if frame.name.startswith("1+")]
    assert between
    ends = [next(frame for frame in figure.frames if frame.name == f"stage {at}").data[0] for at in (1, 2)]
    first, last = (positions_of(end, "xyz") for end in ends)
    for step, frame in enumerate(between, start=1):
        share = step / (len(between) + 1)
        assert np.allclose(positions_of(frame.data[0], "xyz"), (1 - share) * first + share * last, atol=1e-3)


def test_the_message_of_many_tokens_stays_small() -> None:
    large = view(2, 30, 2000)
    assert frames_between([moving(large, at) for at in range(2)] * 15) == 0
    assert frames_between([moving(view(3), at) for at in range(4)]) > 2


def test_hovering_tells_of_the_stage_unless_that_would_be_most_of_the_message() -> None:
    small, large = (clouds.by_stage(view(2, 31, count)) for count in (8, TOLD // 31 + 1))
    assert "enters block 5" in small.frames[5].data[0].hovertext[0]
    assert large.frames[5].data[0].hovertext is None
    assert list(large.data[-4].hovertext[:2]) == ["(0) t0", "(1) t1"]  # before the rings and what keeps the colour bar


@pytest.mark.parametrize("dims", [2, 3])
def test_the_frame_holds_every_stage(dims: int) -> None:
    shown = view(dims)
    figure = clouds.by_stage(shown)
    axes = [figure.layout.xaxis, figure.layout.yaxis]
    if dims == 3:
        axes = [figure.layout.scene.xaxis, figure.layout.scene.yaxis, figure.layout.scene.zaxis]
    for place, axis in enumerate(axes):
        flat = shown.positions[..., place]
        assert axis.range[0] < flat.min() and flat.max() < axis.range[1]
        assert axis.title.text == f"PC {place + 1}"


@pytest.mark.parametrize("make", [clouds.by_stage, clouds.all_stages])
@pytest.mark.parametrize("dims", [2, 3])
def test_nothing_and_missing_tokens_are_drawn(make: object, dims: int) -> None:
    for shown in (
        view(dims, positions=np.full((4, 5, dims), np.nan)), view(dims, values=np.full((4, 5), np.nan)),
        view(dims, positions=np.zeros((4, 5, dims)), marked=(1,), selected=0), view(dims, 2, 1),
        view(dims, names=("word", "number"), values=np.ones((4, 5)), marked=(0, 4), ways="marked"),
    ):  # fmt: skip
        assert len(make(shown).data) > 0
        assert json.loads(make(shown, True).to_json())


def test_glyphs_are_the_ellipses_of_their_axes() -> None:
    axes = np.zeros((4, 5, 2, 2))
    axes[..., 0, 0], axes[..., 1, 1] = 2.0, 1.0
    shown = view(glyphs=axes, plain=np.broadcast_to(np.eye(2), axes.shape))
    outline = clouds.by_stage(shown).frames[1].data[1]  # the metric's, after those of g = I
    points = np.array([outline.x, outline.y], float).T
    first = points[: np.flatnonzero(np.isnan(points[:, 0]))[0]]
    away = (first - shown.positions[1, 0]) / shown.glyph_scale
    assert np.allclose((away[:, 0] / 2) ** 2 + away[:, 1] ** 2, 1, atol=2e-3)


def test_the_table_is_what_is_drawn() -> None:
    shown = view(index=(3, 4, 5, 6, 7), marked=(1,), facts={"method": "pca"})
    table = cloud_view.table(shown)
    assert len(table) == 20 and list(table["token"][:5]) == [3, 4, 5, 6, 7]
    assert np.array_equal(table[["x", "y"]].to_numpy().reshape(4, 5, 2), shown.positions)
    assert table["marked"].sum() == 4 and set(table["method"]) == {"pca"}


def test_hover_text_is_escaped() -> None:
    told = json.dumps(clouds.by_stage(view(tokens=("<b>", "&", "a", "b", "c"))).to_dict()["data"], default=str)
    assert "<b>" not in told.replace("<br>", "") and "&lt;b&gt;" in told


# ---- kinds of token ----


def encoding(tokens: list[str], raw: list[str] | None = None, offsets: list[tuple[int, int]] | None = None) -> Encoding:
    spots, at = [], 0
    for token in tokens:
        spots.append((at, at + len(token)))
        at += len(token) + 1
    return Encoding(list(range(len(tokens))), tokens, offsets or spots, [False] * len(tokens), raw or [])


def test_kinds_of_tokens() -> None:
    found = kinds(encoding(["<s>", "Paris", ",", "2", "1.5", "[SEP]", "<|im_end|>", "id 7", "é", "␣", "--"]))
    assert found == (
        "special", "word", "punctuation", "number", "number", "special", "special", "special", "word", "punctuation",
        "punctuation",
    )  # fmt: skip


def test_pieces_of_words_are_told_from_words() -> None:
    gpt = encoding(
        ["unbelie", "vable", "!", "the"], ["Ġunbelie", "vable", "!", "Ġthe"], [(0, 8), (8, 13), (13, 14), (14, 18)]
    )
    assert kinds(gpt) == ("word", "subword", "punctuation", "word")
    assert kinds(encoding(["play", "##ing"], ["play", "##ing"])) == ("word", "subword")
    assert kinds(encoding(["c", "a", "t"], None, [(0, 1), (1, 2), (2, 3)])) == ("word", "subword", "subword")
    assert kinds(encoding(["the", "cat"])) == ("word", "word")
    assert kinds(encoding(["·"], None, [(0, 1)])) == ("subword",)
