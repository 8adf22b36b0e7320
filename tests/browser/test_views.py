"""The views in a real browser: drawn at all, alive under the mouse, and the same again from a copied link."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Locator, expect

from app import intake_paths
from tests.browser.screen import WAIT, Screen, colours, pixels, updates, wait_for_update
from tests.browser.server import running
from tests.test_foreign_pages import build

TEXT = "the old sailor near the ships sings"
TOKENS = len(TEXT.split()) + 1  # the beginning-of-text token stands in front
BLANK = 8
"""A canvas that holds a picture shows more colours than this."""


def drag(screen: Screen, canvas: Locator, dx: float, dy: float) -> None:
    """Press on the middle of a canvas, move, let go."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    screen.page.mouse.move(x, y)
    screen.page.mouse.down()
    screen.page.mouse.move(x + dx / 2, y + dy / 2)
    screen.page.mouse.move(x + dx, y + dy)
    screen.page.mouse.up()


def test_first_page_shows_a_figure(browser: Browser, root: Path, tmp_path: Path) -> None:
    """On a server of its own, with nothing cached. How soon: ``python -m bench.startup``."""
    with running(root, tmp_path) as fresh:
        page = browser.new_page()
        page.goto(fresh.address)
        expect(page.locator(".strip").get_by_text("sailor").first).to_be_visible(timeout=WAIT)
        page.close()


@pytest.mark.parametrize("title", ["Overview", "Ellipsoid field", "Attention", "Depth", "Glossary"])
def test_every_page_opens_from_the_navigation(screen: Screen, title: str) -> None:
    screen.open().tab(title)
    assert screen.page.get_by_test_id("stException").count() == 0
    assert screen.page.get_by_test_id("stAlertContentError").count() == 0


def test_ellipsoids_are_drawn_one_a_token(screen: Screen) -> None:
    canvas = screen.open("ellipsoids", text=TEXT).field()
    expect(canvas).to_have_attribute("data-count", str(TOKENS))
    assert colours(canvas) > BLANK


def test_orbit_moves_the_camera_and_a_layer_keeps_it(screen: Screen) -> None:
    canvas = screen.open("ellipsoids", text=TEXT).field()
    before, seen = canvas.get_attribute("data-camera"), pixels(canvas)
    drag(screen, canvas, 160, 60)
    expect(canvas).not_to_have_attribute("data-camera", before)
    screen.page.wait_for_timeout(500)  # a turning field may glide on for a moment
    turned = canvas.get_attribute("data-camera")
    after = pixels(canvas)
    assert np.abs(after - seen).mean() > 0.5, "the camera's numbers changed but not the picture"
    count = updates(canvas)
    screen.slide("Layer", 3)
    wait_for_update(canvas, count)
    screen.settle()
    assert canvas.get_attribute("data-camera") == turned
    assert np.abs(pixels(canvas) - after).mean() > 0.05, "another layer looks the same"


def test_a_click_selects_the_token_on_every_page(screen: Screen) -> None:
    canvas = screen.open("ellipsoids", text=TEXT).field()
    tip = screen.page.get_by_role("status").filter(has_text=re.compile(r"^\(\d+\)"))
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    token = -1
    steps = [0.5 + sign * step / 40 for step in range(16) for sign in (1, -1)]  # from the middle outwards
    for right, down in product(steps, steps):  # feel for a glyph of a token that is not selected
        screen.page.mouse.move(box["x"] + right * box["width"], box["y"] + down * box["height"])
        if tip.count() and tip.first.is_visible():
            token = int(re.match(r"\((\d+)\)", tip.first.inner_text())[1])
            if token:
                break
    assert token > 0, "no glyph answered the mouse"
    screen.page.mouse.down()
    screen.page.mouse.up()
    expect(screen.slider("Token")).to_have_value(str(token))
    screen.settle().tab("Attention")
    expect(screen.slider("Token")).to_have_value(str(token))


def test_heat_maps_are_drawn(screen: Screen) -> None:
    maps = screen.open("attention", text=TEXT, layer=1, head=1).maps()
    expect(maps).to_have_attribute("data-tokens", str(TOKENS))
    canvases = maps.locator("canvas")
    assert canvases.count() == 3
    for index in range(3):
        assert colours(canvases.nth(index)) > BLANK


def test_maps_zoom_together(screen: Screen) -> None:
    maps = screen.open("attention", text=TEXT).settle().maps()  # what comes above them may still move them
    canvases = maps.locator("canvas")
    before = [pixels(canvases.nth(index)) for index in range(3)]
    zoom = maps.get_attribute("data-zoom")
    canvases.first.hover()
    screen.page.mouse.wheel(0, -600)
    expect(maps).not_to_have_attribute("data-zoom", zoom)
    screen.page.wait_for_timeout(200)
    for index in range(3):
        assert np.abs(pixels(canvases.nth(index)) - before[index]).mean() > 0.2, f"map {index} did not zoom"


def test_a_layer_change_repaints_at_128_tokens(screen: Screen) -> None:
    """How soon: ``python -m bench.pages``."""
    text = " ".join(["the old sailor near the ships sings ."] * 16)[: 128 * 20]
    maps = screen.open("attention", text=text).maps()
    for layer in (1, 2, 3, 2):
        count = updates(maps)
        screen.slide("Layer", layer)
        wait_for_update(maps, count)


def test_a_copied_link_opens_the_same_view(new_screen: Callable[..., Screen]) -> None:
    first = new_screen().open("attention", text=TEXT)
    first.slide("Layer", 2).settle().slide("Head", 1).settle()
    first.choose("Compare with checkpoint B", "euclidean")
    first.page.wait_for_url("**layer=2**")
    link = first.page.url
    second = new_screen()
    second.page.goto(link)
    second.settle()
    for label, value in (("Layer", "2"), ("Head", "1")):
        expect(second.slider(label)).to_have_value(value)
    expect(second.page.get_by_label("Compare with checkpoint B").first).to_have_value("euclidean")
    assert second.page.url == link
    canvases = [one.maps().locator("canvas").first for one in (first, second)]
    for canvas in canvases:
        canvas.scroll_into_view_if_needed()
    first.page.mouse.move(0, 0)
    ours, theirs = (pixels(canvas) for canvas in canvases)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).mean() < 1.0, "the same link drew another picture"


@pytest.mark.parametrize("page", ["ellipsoids", "attention", "depth", ""])
def test_compare_shows_both(screen: Screen, page: str) -> None:
    screen.open(page, text=TEXT, a="demo:riemannian", b="demo:euclidean")
    main = screen.page.get_by_test_id("stMain")
    expect(main.get_by_text("riemannian", exact=False).first).to_be_attached()
    expect(main.get_by_text("euclidean", exact=False).first).to_be_attached()
    if page == "ellipsoids":
        expect(screen.page.locator("canvas[data-count]")).to_have_count(2)
    if page == "attention":
        expect(screen.page.locator(".maps[data-tokens]").nth(1)).to_be_visible()
    assert screen.page.get_by_test_id("stException").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(new_screen: Callable[..., Screen], scheme: str) -> None:
    screen = new_screen(color_scheme=scheme).open("ellipsoids", text=TEXT)
    canvas = screen.field()
    corner = pixels(canvas)[3, 3].mean()
    assert corner > 180 if scheme == "light" else corner < 80
    assert colours(canvas) > BLANK


def test_cross_attention_is_drawn_and_read_off(
    new_screen: Callable[..., Screen], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of three decoder tokens, columns of six encoder tokens: the readout names both sides of the last cell."""
    models = tmp_path / "models"
    torch.manual_seed(0)
    build("t5").save_pretrained(models / "t5")
    monkeypatch.setenv(intake_paths.VARIABLE, str(models))
    reference = "path:" + hashlib.sha256(str((models / "t5").resolve()).encode()).hexdigest()[:16]
    with running(root, tmp_path) as server:
        screen = new_screen(server.address)
        screen.open("attention", a=reference, text="3 4 5 6 7 8", target="9 10", stack="cross")
        maps = screen.maps()
        canvas = maps.locator("canvas").first
        assert colours(canvas) > BLANK
        canvas.focus()
        for key in ["ArrowDown"] * 2 + ["ArrowRight"] * 5:
            canvas.press(key)
        expect(maps.get_by_role("status")).to_contain_text("query (2) id 10   key (5) id 8")
        screen.empty()  # before its server goes
