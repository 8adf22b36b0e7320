"""Texts of 4,096 tokens in a real Chromium, on a tiny model: pooled maps with exact parts, and the field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect

from fbt_core.checkpoints import load
from fbt_core.checkpoints.native import save
from fbt_core.config import FiberBundleConfig
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from tests.browser.screen import Screen, updates, wait_for_update
from tests.browser.server import running

TOKENS = 4096
TEXT = " ".join(["the old sailor near the ships sings ."] * (TOKENS // 8))
"""One token too many, with the first one: the last is cut."""


@pytest.fixture(scope="module")
def address(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose only checkpoint is a tiny one, of random weights and a long context."""
    scratch = tmp_path_factory.mktemp("large")
    bundled = load(root / "assets" / "riemannian.safetensors")
    torch.manual_seed(0)
    config = FiberBundleConfig(
        vocab_size=bundled.config.vocab_size, width=8, layers=2, heads=1, feed_forward=8, rank=1, context=TOKENS,
        position="none", metric_init=4.0,
    )  # fmt: skip
    tensors = FiberBundleTransformer(config).state_dict()
    save(scratch / "assets" / "riemannian.safetensors", config, tensors, bundled.tokenizer, {})
    with running(root, scratch, FIBERSCOPE_ASSETS=str(scratch / "assets")) as server:
        yield server.address


@pytest.fixture
def large(new_screen: Callable[..., Screen], address: str) -> Screen:
    """A tab on that server."""
    return new_screen(address)


def test_a_long_map_is_pooled_and_exact_where_one_looks(large: Screen) -> None:
    screen = large.open("attention", text=TEXT)
    maps = screen.maps()
    expect(maps).to_have_attribute("data-factor", "8")
    legend, readout = maps.locator(".legend"), maps.get_by_role("status")
    expect(legend).to_contain_text("zoom in for exact cells")
    canvas = maps.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    screen.page.mouse.move(box["x"] + box["width"] * 0.35, box["y"] + box["height"] * 0.62)
    expect(readout).to_contain_text("float32")  # the row under the cursor, fetched
    before = readout.inner_text()
    count = updates(maps)
    screen.page.mouse.wheel(0, -2000)
    wait_for_update(maps, count)
    expect(maps).to_have_attribute("data-factor", "1")
    expect(legend).to_contain_text("exact cells")
    assert readout.inner_text() == before, "the same cell lies under the cursor after the zoom"
    maps.get_by_role("button", name="Whole map").click()
    expect(maps).to_have_attribute("data-factor", "8")
    count = updates(maps)
    screen.slide("Layer", 1)
    wait_for_update(maps, count)


def test_a_newer_part_ends_an_older_one(large: Screen) -> None:
    """The first is held back for good: the view that follows does not wait for it, and nothing says that one does."""
    screen = large.open("attention", text=TEXT)
    maps, held = screen.maps(), []
    legend = maps.locator(".legend")
    screen.page.route(re.compile(r"/tiles/.*rows="), lambda route: route.continue_() if held else held.append(route))
    canvas = maps.locator("canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    screen.page.mouse.move(box["x"] + box["width"] * 0.35, box["y"] + box["height"] * 0.62)
    screen.page.mouse.wheel(0, -2000)
    expect(legend).to_contain_text("Fetching the exact cells")
    with screen.page.expect_event("requestfailed") as ended:
        screen.page.mouse.wheel(0, -200)
    assert ended.value == held[0].request
    expect(maps).to_have_attribute("data-factor", "1")
    expect(legend).not_to_contain_text("Fetching")


def test_every_token_of_a_long_text_is_an_ellipsoid(large: Screen) -> None:
    screen = large.open("ellipsoids", text=TEXT)
    canvas = screen.field()
    expect(canvas).to_have_attribute("data-count", str(TOKENS))
    canvas.focus()
    first = canvas.get_attribute("data-camera") or ""
    canvas.press("ArrowRight")
    expect(canvas).not_to_have_attribute("data-camera", first)
    camera, count = canvas.get_attribute("data-camera"), updates(canvas)
    screen.slide("Layer", 1)
    wait_for_update(canvas, count)
    assert canvas.get_attribute("data-camera") == camera, "the camera is kept"
