"""Checkpoints whose every word is an attack: names of tokens, tensors and files that would run, fetch or deceive.

They are uploaded, every page and every export is opened, and nothing runs, no request leaves the machine, and the
words stand there as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

from tests.browser.screen import Screen

PICTURE = "![x](http" + "://203.0.113.1/x.png)"
SCRIPT = "</script><script>alert(1)</script>"
IMAGE = '<img/src="x"onerror=alert(2)>'
WORDS = (
    SCRIPT, IMAGE, PICTURE, "[x](javascript:alert(3))", "<b>bold</b>", "&lt;i&gt;", "$x^2$", ":material/home:", "**x**",
    "\u202egnp.exe", "nul\x00nul", "\x1b[31m", "`code`", "{{7*7}}", "%{customdata}", "<a\u2028href=x>",
)  # fmt: skip
TYPED = [word for word in WORDS if "\x00" not in word and "\x1b" not in word and "\u2028" not in word]
"""A text field takes no control characters; those words stand among the predictions and the tensors' names."""

FILE = '<img src="x" onerror="alert(4)">**x**.safetensors'

PAGES = (
    "Overview", "Ellipsoid field", "Attention", "Depth", "Curvature", "Geodesics", "Torsion and transport", "Cloud",
    "Claims", "Collapse", "Weights", "Glossary",
)  # fmt: skip

WITH_A_METRIC = ("Overview", "Ellipsoid field", "Attention", "Depth", "Torsion and transport", "Cloud")
"""Those that draw more tokens, or say more of them, once there is a metric from each token's neighbours."""

RAN = """() => document.querySelectorAll('img[src="x"], img[onerror], a[href^="javascript"], a[href*="203.0.113"],'
  + ' [src*="203.0.113"], [href*="203.0.113"]').length"""
"""How many elements of the page an attack made."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """A tiny GPT-2 whose vocabulary is the words, as three files to choose in one go."""
    import transformers
    from safetensors.torch import save
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(WORDS) + 1, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    built = transformers.GPT2LMHeadModel(config)
    tensors = {name: value.clone() for name, value in built.state_dict().items() if name != "lm_head.weight"}
    vocabulary = {"<unk>": 0} | {word: index + 1 for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    table = config.to_dict() | {"architectures": ["GPT2LMHeadModel"], "_name_or_path": SCRIPT}
    contents = {
        "config.json": json.dumps(table).encode(), "tokenizer.json": tokenizer.to_str().encode(),
        f"{FILE}\u202e.safetensors": save(tensors),
    }  # fmt: skip
    return [{"name": name, "mimeType": "", "buffer": content} for name, content in contents.items()]


@pytest.fixture(scope="module")
def tensors() -> dict[str, object]:
    """Weights alone, every tensor's name an attack, in a file of such a name."""
    from safetensors.torch import save

    held = {f"{place}{word}": torch.randn(6, 4) for word in WORDS for place in ("", "layers.0.", "layers.1.")}
    return {"name": FILE, "mimeType": "", "buffer": save(held)}


@pytest.fixture
def exported(new_screen: Callable[..., Screen], tmp_path: Path) -> Callable[..., int]:
    """Downloads all that the first figure of the page in front offers, and opens each file as its reader would."""

    def every(screen: Screen) -> int:
        popovers = screen.page.get_by_test_id("stPopover").filter(has_text="Export")
        count = 0
        for name in ("CSV, unpooled data", "PNG, 3 × screen", "SVG, as seen", "HTML, self-contained"):
            if not popovers.count():
                continue
            button = screen.page.get_by_role("button", name=name).first
            popovers.first.get_by_role("button").click()
            screen.page.get_by_role("button", name="CSV, unpooled data").first.wait_for()
            screen.page.wait_for_timeout(300)  # the picture's buttons are a component, and come a moment later
            if button.is_visible():
                read(screen, screen.download(button, tmp_path))
                count += 1
            screen.page.keyboard.press("Escape")
            screen.page.get_by_role("button", name="CSV, unpooled data").first.wait_for(state="hidden")
        return count

    def read(screen: Screen, path: Path) -> None:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert min(picture.size) > 50 and len(np.unique(np.asarray(picture.convert("L")))) > 5
            return
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".svg":
            kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(content).iter()}
            assert not kinds & {"script", "foreignObject"}
        if path.suffix == ".html":
            page = screen.page.context.new_page()
            opened = Screen(page, screen.address)
            page.set_content(content)
            page.wait_for_selector(".js-plotly-plot .main-svg")
            assert page.evaluate(RAN) == 0 and opened.faults == []
            page.close()

    return every


def is_harmless(screen: Screen) -> None:
    assert screen.page.evaluate(RAN) == 0
    assert screen.page.get_by_test_id("stException").count() == 0


def test_tokens_of_a_model_are_text_on_every_page_and_export(
    screen: Screen, model: list[dict[str, object]], exported: Callable[..., int]
) -> None:
    screen.open(text=" ".join(TYPED), layer=1).upload(*model)
    screen.page.wait_for_url(re.compile("a=sha256"))
    screen.settle()
    strip = screen.page.locator(".strip").first
    for word in (SCRIPT, IMAGE, PICTURE, "&lt;i&gt;", "$x^2$", "**x**"):
        expect(strip.get_by_text(word, exact=True)).to_be_visible()
    count = 0
    for title in PAGES:
        screen.tab(title)
        is_harmless(screen)
        count += exported(screen)
    assert count >= 20
    screen.tab("Overview").choose("Metric, for a model without one", "Local covariance")
    for title in WITH_A_METRIC:
        screen.tab(title)
        is_harmless(screen)


def test_names_of_tensors_and_files_are_text(
    screen: Screen, tensors: dict[str, object], exported: Callable[..., int]
) -> None:
    screen.open("weights").upload(tensors)
    screen.page.wait_for_url(re.compile("a=sha256"))
    screen.settle()
    is_harmless(screen)
    main = screen.page.get_by_test_id("stMain")
    expect(main.get_by_text(FILE).first).to_be_visible()
    expect(main.locator("[role=gridcell]").filter(has_text=SCRIPT).first).to_be_attached()  # the table is a canvas
    for word in (IMAGE, "U+202Egnp.exe", "nul␀nul"):
        main.get_by_role("combobox", name="Tensor").first.click()
        screen.page.get_by_role("combobox", name="Tensor").first.fill(word)
        screen.page.get_by_role("option", name=word, exact=True).click()
        screen.settle()
        expect(main.locator(".legendtext").filter(has_text=word).first).to_be_visible()
        is_harmless(screen)
    assert exported(screen) >= 3
    for title in PAGES:
        screen.tab(title)
        is_harmless(screen)
