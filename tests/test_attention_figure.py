"""The attention page, run by AppTest on small models: what reaches its components, and what its words say."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from streamlit.testing.v1 import AppTest

from app import attention, uploads
from app.figures import theme
from app.kept import BUDGET
from fbt_core.attention.views import one_map
from fbt_core.checkpoints import native
from fbt_core.config import FiberBundleConfig
from fbt_core.model import FiberBundleTransformer
from fbt_core.tokenizer import WordByteTokenizer
from fbt_core.training.grammar import BOS, WORDS, dependencies, sample_text, stream
from tests.traces import random_trace

MODELS: dict[str, dict[str, Any]] = {
    "riemannian": {"score": "riemannian", "rank": 2},
    "mixed": {"score": "riemannian", "rank": 2, "alpha": 0.3},
    "l2": {"score": "l2"},
    "deep": {"score": "euclidean", "layers": 5, "causal": False},
    "zero": {"score": "riemannian", "rank": 2},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tokenizer = WordByteTokenizer(WORDS)
    for name, options in MODELS.items():
        torch.manual_seed(0)
        given = {"vocab_size": tokenizer.vocab_size, "width": 16, "heads": 2, "layers": 3, "feed_forward": 16} | options
        config = FiberBundleConfig(**given)
        weights = FiberBundleTransformer(config).state_dict()
        if name == "zero":
            weights = {key: torch.zeros_like(weight) for key, weight in weights.items()}
        native.save(folder / f"{name}.safetensors", config, weights, tokenizer, {})
    return folder


@pytest.fixture
def page(models: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    monkeypatch.setattr(uploads, "ASSETS", models)
    BUDGET.clear()  # other tests may have read bundled checkpoints of these names
    app = AppTest.from_file(str(root / "streamlit_app.py"), default_timeout=240)
    app.query_params["layer"] = "1"
    app.query_params["head"] = "1"
    yield app
    BUDGET.clear()


def opened(app: AppTest, **query: str) -> AppTest:
    for name, value in query.items():
        app.query_params[name] = value
    app.switch_page("pages/attention.py").run()
    assert not app.exception, app.exception
    return app


def headers(app: AppTest, field: str) -> list[dict[str, Any]]:
    """The headers of all component messages that have ``field``, in the order of the page."""
    found = []
    for element in app.get("bidi_component"):
        message = element.proto.bytes
        if len(message) > 4:
            size = struct.unpack("<I", message[:4])[0]
            header = json.loads(message[4 : 4 + size])
            found += [header] if field in header else []
    return found


def test_maps_atlas_and_ranking_are_there(page: AppTest) -> None:
    opened(page, token="2")
    (maps,) = headers(page, "entropy_scale")
    assert maps["tokens"] == [BOS, *"the old sailor near the ships sings".split()]
    assert maps["titles"] == ["Euclidean", "Riemannian", "Riemannian − Euclidean"]
    assert maps["selected"] == maps["exact"] == 2 and maps["colour"] == "sqrt" and maps["causal"]
    assert "layer 1, head 1" in maps["heading"] and "what-if: Euclidean" in maps["note"]
    (atlas,) = headers(page, "chosen")
    assert atlas["chosen"] == [1, 1] and len(atlas["layers"]) == 3 and atlas["heads"] == 2 and atlas["diverging"]
    frame = page.dataframe[0].value
    assert len(frame) == 6 and frame["mean"].is_monotonic_decreasing
    first = frame.iloc[0]
    assert atlas["readings"][int(first["layer"])][int(first["head"])] == pytest.approx(first["mean"])


def test_a_model_without_a_metric_is_read_with_l2(page: AppTest) -> None:
    opened(page, a="demo:l2")
    (maps,) = headers(page, "entropy_scale")
    assert maps["titles"][:2] == ["Euclidean", "L2"] and "the model runs L2" in maps["note"]
    boxes = {box.label: box for box in page.selectbox}
    assert boxes["Right score"].options == ["Euclidean", "L2"]
    boxes["Left score"].select("l2").run()
    assert headers(page, "entropy_scale")[0]["note"] == ""  # the model's own score on both sides: nothing to warn of


@pytest.mark.parametrize("view", ["mean", "rollout"])
def test_other_views_and_scales(page: AppTest, view: str) -> None:
    opened(page)
    boxes = {box.label: box for box in page.selectbox}
    boxes["Map"].select(view)
    boxes["Colour scale"].select("log").run()
    assert not page.exception
    (maps,) = headers(page, "entropy_scale")
    assert maps["colour"] == "log" and view in maps["heading"]


def test_alpha_is_the_models_own_until_moved(page: AppTest) -> None:
    opened(page, a="demo:mixed")
    box = next(box for box in page.selectbox if box.label == "Right score")
    box.select("blended").run()
    slider = next(slider for slider in page.slider if slider.label.startswith("Alpha"))
    assert slider.value == pytest.approx(0.3)
    assert "alpha" not in headers(page, "entropy_scale")[0]["note"]
    slider.set_value(0.8).run()
    assert "alpha 0.8, trained at 0.3" in headers(page, "entropy_scale")[0]["note"]


def test_compare_shows_both_and_their_difference_on_one_scale(page: AppTest) -> None:
    opened(page, a="demo:riemannian", b="demo:l2")
    own, left, right = headers(page, "entropy_scale")
    assert own["titles"] == ["A · riemannian (Riemannian)", "B · l2 (L2)", "B − A"] and own["note"] == ""
    assert "by number" in own["heading"]
    assert (left["ceiling"], left["difference_ceiling"]) == (right["ceiling"], right["difference_ceiling"])
    first, second = headers(page, "chosen")
    assert first["ceiling"] == second["ceiling"]


def test_compare_says_why_there_is_no_difference(page: AppTest) -> None:
    opened(page, a="demo:riemannian", b="demo:deep", match="depth")
    assert len(headers(page, "entropy_scale")) == 2
    assert any("one of the models is causal" in info.value for info in page.info)
    assert [atlas["chosen"][0] for atlas in headers(page, "chosen")] == [1, 2]  # of 3 layers and of 5: half-way


def test_hostile_tokens_reach_the_component_as_text_only(page: AppTest) -> None:
    opened(page, text="<b>x</b> </script><script>alert(1)</script>")
    (maps,) = headers(page, "entropy_scale")
    assert "<" in "".join(maps["tokens"])  # JSON inside bytes; the browser gives it to textContent and fillText
    assert not any("<script" in element.value for element in [*page.markdown, *page.caption])


def test_expected_pairs_are_those_of_the_grammar() -> None:
    passage = next(iter(stream(0, 120)))
    words = passage.tokens[1:]
    found = dependencies(words)
    for place, needed in enumerate(passage.attends[1 : len(found) + 1]):
        assert found[place] == tuple(position - 1 for position in needed)
    assert len(found) > 40 and any(found)
    trace = random_trace(len(words) + 1)
    pairs = attention.expected(type(trace)(**{**vars(trace), "tokens": (BOS, *words)}))
    assert pairs == tuple((w, n + 1) for w, several in enumerate(found) for n in several)
    assert all(key <= query for query, key in pairs)
    assert dependencies(("zzz",)) == () and dependencies(tuple(sample_text(1).split()[:4])) is not None


def title_of(app: AppTest, start: str) -> str:
    """Title and what-if of the one Plotly chart whose title starts so."""
    layouts = [json.loads(chart.proto.spec)["layout"] for chart in app.get("plotly_chart")]
    (title,) = [layout["title"] for layout in layouts if layout["title"].get("text", "").startswith(start)]
    return title["text"] + " | " + title.get("subtitle", {}).get("text", "")


def test_shares_of_a_riemannian_model_carry_no_what_if(page: AppTest) -> None:
    opened(page)
    assert title_of(page, "Share of each term") == "Share of each term · A · riemannian · layer 1, head 1 | "


def test_shares_and_ranking_name_every_what_if(page: AppTest) -> None:
    opened(page, b="demo:l2", strength="0.5")
    title = title_of(page, "Share of each term")
    assert "A: what-if: metric strength 0.5" in title and "B: what-if: Riemannian score; the model runs L2" in title
    told = [element.value for element in page.markdown if "what" in element.value and "orange" in element.value]
    assert len(told) == 2 and all("score; the model runs" in text.replace("\\", "") for text in told)
    assert "strength 0.5" in told[0].replace("\\", "") and "strength" not in told[1]


def test_a_model_of_zeros_has_no_terms_to_draw(page: AppTest) -> None:
    opened(page, a="demo:zero")
    assert any("every term is constant along the rows" in element.value for element in page.caption)
    assert any("shares are nan" in element.value for element in page.text)


def test_maps_shown_are_the_models(page: AppTest, models: Path) -> None:
    """The entropies that the page sends are those of the model's own attention, traced here again."""
    opened(page)
    from fbt_core.checkpoints import load
    from fbt_core.model import build

    checkpoint = load(models / "riemannian.safetensors")
    ids = torch.tensor(checkpoint.tokenizer.encode("the old sailor near the ships sings").ids)
    shown = one_map(build(checkpoint).trace(ids), score="riemannian", layer=1, head=1)
    np.testing.assert_allclose(headers(page, "entropy_scale")[0]["entropy"][1], shown.entropy, atol=2e-5)


def test_dressing_twice_is_dressing_once() -> None:
    """A figure that dresses itself for a notebook is dressed again by the page: its colours must not change back."""
    once = theme.dress(go.Figure(go.Bar(y=[1], marker={"color": theme.CATEGORIES[0]})), True)
    colour = once.data[0].marker.color
    assert colour == theme.DARK[theme.CATEGORIES[0]]
    assert theme.dress(once, True).data[0].marker.color == colour
