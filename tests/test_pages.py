"""Every page on every kind of checkpoint and of text: it draws, and shows no exception."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from streamlit.testing.v1 import AppTest

from app import uploads
from app.kept import BUDGET
from fbt_core.checkpoints import native
from fbt_core.config import FiberBundleConfig
from fbt_core.model import FiberBundleTransformer
from fbt_core.tokenizer import WordByteTokenizer

ENTRY = Path(__file__).parent.parent / "streamlit_app.py"
QUICK = ["overview", "ellipsoids", "attention", "depth", "claims", "glossary"]
SLOW = ["curvature", "geodesics", "torsion", "cloud"]
"""They compute for seconds; their own files go through their choices and texts."""
PAGES = [*SLOW, *QUICK]
WORDS = WordByteTokenizer("the old sailor near ships sings".split())

KINDS = {
    "riemannian": {"transport": "key", "torsion_rank": 1},
    "euclidean": {"score": "euclidean"},
    "l2": {"score": "l2"},
    "dictionary": {"metric_family": "dictionary", "atoms": 3, "layers": 3, "heads": 1},
    "blended": {"alpha": 0.5, "position": "alibi"},
    "bidirectional": {"causal": False, "position": "none", "layers": 1},
}
"""One checkpoint a kind: every score, metric family and mask; unequal layers and heads."""

TEXTS = {
    "one letter": "x",
    "two words": "the ships",
    "emoji": "👩‍👩‍👧 sings 🇫🇷",
    "hostile": "<script>alert(1)</script> ![x](http://x/y.png) $\\frac{a}{b}$ :material/home: \u202e<b>",
    "blank start": "  the\n\tships",
}


@pytest.fixture(scope="module", autouse=True)
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Untrained checkpoints in the place of the bundled ones."""
    folder = tmp_path_factory.mktemp("assets")
    for name, changes in KINDS.items():
        write(folder / f"{name}.safetensors", **changes)
    patch = pytest.MonkeyPatch()
    patch.setattr(uploads, "ASSETS", folder)
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    forget()
    yield folder
    forget()
    uploads.STORE.clear()
    patch.undo()


def forget() -> None:
    """All that is kept of a reference: under the same one stands another checkpoint now."""
    BUDGET.clear()


def write(path: Path, vocabulary: WordByteTokenizer = WORDS, **changes: object) -> Path:
    torch.manual_seed(0)
    sizes = {"vocab_size": vocabulary.vocab_size, "width": 16, "layers": 2, "heads": 2, "feed_forward": 32}
    config = FiberBundleConfig(**{**sizes, **changes})
    native.save(path, config, FiberBundleTransformer(config).state_dict(), vocabulary, {"preset": "test"})
    return path


def opened(page: str = "overview", **query: str) -> AppTest:
    """The app on a page, opened as by a link."""
    test = AppTest.from_file(ENTRY, default_timeout=120)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    if page != "overview":
        test.switch_page(f"pages/{page}.py").run()
    return test


def complaints(test: AppTest) -> list[str]:
    return [str(element.value) for element in (*test.exception, *test.error)]


@pytest.mark.parametrize(
    ("page", "kind"), [*product(QUICK, KINDS), *product(SLOW, ("riemannian", "euclidean", "bidirectional"))]
)
def test_every_page_draws_every_checkpoint(page: str, kind: str) -> None:
    test = opened(page, a=f"demo:{kind}", token="2")
    assert complaints(test) == []
    assert len(test.header) == 1
    assert len(test.main) > 1


@pytest.mark.parametrize(("page", "match"), [*product(QUICK, ("number", "depth")), *product(SLOW, ("depth",))])
def test_every_page_compares_unequal_models(page: str, match: str) -> None:
    test = opened(page, a="demo:riemannian", b="demo:dictionary", layer="1", head="1", match=match)
    assert complaints(test) == []
    if page != "glossary":
        drawn = "".join(str(component.proto) for component in test.get("bidi_component"))
        assert any("B layer" in caption.value for caption in test.caption) or "B layer" in drawn


@pytest.mark.parametrize("page", QUICK)
def test_every_choice_of_a_page_draws(page: str) -> None:
    """Each option of each chooser on the page, scores among them, one after the other."""
    test = opened(page, a="demo:riemannian", b="demo:euclidean", layer="1")
    for kind in ("selectbox", "button_group"):
        for chooser in list(getattr(test.main, kind)):
            if chooser.key is None:
                continue
            for option in chooser.options:
                getattr(test, kind)(key=chooser.key).set_value(option).run()
                assert complaints(test) == [], f"{chooser.key} = {option}"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("page", QUICK)
def test_every_page_draws_every_text(page: str, text: str) -> None:
    assert complaints(opened(page, a="demo:riemannian", b="demo:l2", text=text)) == []


@pytest.mark.parametrize("page", PAGES[:-1])
def test_an_empty_text_is_asked_for(page: str) -> None:
    test = opened(page, text="")
    assert complaints(test) == []
    assert ["Write a text" in info.value for info in test.info] == [True]


def test_a_long_text_is_cut_with_a_notice() -> None:
    test = opened(text="the " * 5000)
    assert complaints(test) == []
    assert ["tokens are used" in warning.value for warning in test.warning] == [True]


def test_unknown_words_are_flagged() -> None:
    test = opened(text="the walrus sings")
    assert any("walrus" in text.value for text in test.sidebar.text)
    assert not any("sings" in text.value for text in opened(text="the sailor sings").sidebar.text)


def test_a_link_opens_the_same_view() -> None:
    test = opened("depth", a="demo:l2", b="demo:euclidean", layer="1", head="1", token="3", text="the old ships")
    assert [slider.value for slider in test.slider if slider.key in ("run-layer", "run-head", "run-token")] == [1, 1, 3]
    assert test.selectbox(key="run-a").value == "demo:l2"
    test.slider(key="run-layer").set_value(0).run()
    assert "layer" not in test.query_params
    assert test.query_params["head"] in ("1", ["1"])


def test_what_is_beyond_a_model_is_brought_inside() -> None:
    test = opened(layer="99", head="99", token="99")
    assert complaints(test) == []
    assert [slider.value for slider in test.slider][:2] == [1, 1]


def test_strength_is_a_what_if_on_every_page() -> None:
    for page in ("overview", "depth"):
        test = opened(page, strength="0.5")
        said = [*test.main.caption, *test.main.markdown]
        assert any("what-if: metric strength 0.5" in text.value for text in said)
    assert not any(slider.key == "run-strength" for slider in opened(a="demo:euclidean").slider)


def test_a_link_to_a_file_nobody_holds_asks_for_it_and_loses_nothing(tmp_path: Path) -> None:
    content = write(tmp_path / "mine.safetensors", layers=4).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    test = opened(a=f"sha256:{digest}", layer="3", head="1", text="the ships", strength="0.5")
    assert any(digest in text.value for text in test.main.text)
    assert test.query_params["layer"] in ("3", ["3"])
    test.main.file_uploader[0].set_value(("mine.safetensors", content, "")).run()
    assert complaints(test) == []
    assert test.selectbox(key="run-a").value == f"sha256:{digest}"
    assert test.slider(key="run-layer").value == 3
    assert test.slider(key="run-strength").value == 0.5


def test_a_faulty_b_does_not_take_a_away() -> None:
    test = opened(b=f"sha256:{'1' * 64}")
    assert complaints(test) == ["Checkpoint B cannot be opened."]
    assert len(test.header) == 1 and len(test.main.dataframe) > 0


def test_an_upload_opens_and_garbage_changes_nothing(tmp_path: Path) -> None:
    content = write(tmp_path / "mine.safetensors", layers=3).read_bytes()
    test = opened(layer="1")
    test.sidebar.file_uploader[0].set_value(("mine.safetensors", content, "")).run()
    assert complaints(test) == []
    reference = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert test.selectbox(key="run-a").value == reference
    test.sidebar.file_uploader[0].set_value(("<b>bad</b>.safetensors", b"not a checkpoint", "")).run()
    assert len(complaints(test)) == 1
    message = next(text.value for text in test.main.text if "Remedy" in text.value)
    assert "Got" in message and "Expected" in message
    assert test.selectbox(key="run-a").value == reference
    assert len(test.main.dataframe) > 0
    test.button(key="dismiss").click().run()
    assert complaints(test) == []
