"""The curvature page in a real browser: all of it is drawn, answers choices, and can be taken away."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Locator, expect

from tests.browser.screen import Screen, colours, pixels
from tests.browser.test_views import BLANK, TEXT, TOKENS

TWIN = "demo:dictionary"
LAYERS, HEADS = 6, 4
LIGHT = {"field": "volume", "grid": "coarse"}
"""The plane's quickest field, where another figure is looked at: one of curvature takes most of the page's time."""


def chart(screen: Screen, key: str) -> Locator:
    """A figure of the page, drawn."""
    found = screen.page.locator(f".st-key-{key} .js-plotly-plot").first
    found.scroll_into_view_if_needed()
    expect(found).to_be_visible()
    return found


def pick(screen: Screen, name: str, option: str | re.Pattern[str]) -> None:
    """Choose in a select box of the page."""
    screen.page.get_by_test_id("stMain").get_by_role("combobox", name=re.compile(name)).click()
    screen.page.get_by_role("option", name=option).first.click()
    screen.settle()


def words(figure: Locator) -> str:
    return " ".join(figure.locator("text").all_text_contents())


def test_every_point_and_every_cell_is_drawn(screen: Screen) -> None:
    screen.open("curvature", text=TEXT, a=TWIN, layer=1, token=2, **LIGHT)
    scatter = chart(screen, "scatter-A")
    assert scatter.locator(".scatterlayer .points path").count() == TOKENS * LAYERS * HEADS
    assert "(nats)" in words(scatter) and "(1 / length²)" in words(scatter)
    rho = chart(screen, "rho-A")
    assert rho.locator(".scatterlayer .points path").count() == 2 * 5
    maps = chart(screen, "maps-A")
    assert maps.locator(".heatmaplayer image").count() == 4
    assert colours(maps) > BLANK
    planes = chart(screen, "planes-A")
    assert planes.locator(".scatterlayer .points path").count() == 3 * TOKENS
    assert "On this checkpoint and this text" in screen.page.get_by_test_id("stMain").inner_text()


def test_the_slice_has_its_ellipses_and_follows_the_choices(screen: Screen) -> None:
    screen.open("curvature", text=TEXT, a=TWIN, layer=1, token=2, grid="coarse")
    field = chart(screen, "slice-A")
    assert colours(field) > BLANK
    names = [f"{place}: {word}" for place, word in ((1, "old"), (2, "sings"), (3, "near"))]
    for name in names:
        assert name in words(field)
    before = pixels(field)
    pick(screen, "Token 3", re.compile(r"^\(3\)"))
    field = chart(screen, "slice-A")
    assert "3: sailor" in words(field) and "3: near" not in words(field)
    pick(screen, "On the plane", "Log volume element")
    field = chart(screen, "slice-A")
    assert "Log volume element (nats)" in words(field)
    after = pixels(field)
    assert before.shape != after.shape or np.abs(before - after).mean() > 5


def test_a_model_without_a_field_says_so_and_a_click_gives_one(screen: Screen) -> None:
    screen.open("curvature", text=TEXT, a="demo:euclidean", layer=2, **LIGHT)
    main = screen.page.get_by_test_id("stMain")
    expect(main.get_by_text("its curvature is exactly 0")).to_be_visible()
    assert screen.page.locator(".js-plotly-plot").count() == 0
    main.get_by_role("button", name="Take the Fisher metric").click()
    screen.settle()
    for key in ("scatter-A", "maps-A", "planes-A", "slice-A"):
        assert "what-if: fisher metric" in words(chart(screen, key))
    assert "source=fisher" in screen.page.url


def test_two_twins_are_compared_and_a_link_opens_the_same(new_screen: Callable[..., Screen]) -> None:
    first = new_screen()
    first.open("curvature", text=TEXT, a="demo:riemannian", b=TWIN, layer=1, head=1, **LIGHT)
    pick(first, "Layers", "this layer")
    for key in ("scatter-A", "scatter-B", "rho-B", "maps-A", "maps-B", "maps-difference", "planes-B", "slice-B"):
        chart(first, key)
    assert "B − A" in words(chart(first, "maps-difference"))
    one, two = (chart(first, f"scatter-{side}") for side in "AB")
    ticks = [figure.locator(".ytick text").all_text_contents() for figure in (one, two)]
    assert ticks[0] == ticks[1]
    second = new_screen()
    second.page.goto(first.page.url)
    second.settle()
    again = chart(second, "scatter-A")
    assert again.locator(".scatterlayer .points path").count() == TOKENS * HEADS
    assert words(again) == words(chart(first, "scatter-A"))


def test_the_figure_can_be_taken_away(screen: Screen, tmp_path: Path) -> None:
    screen.open("curvature", text=TEXT, a=TWIN, layer=1, **LIGHT)
    popover = screen.page.locator(".st-key-figure-scatter-A").get_by_test_id("stPopover")
    for name in ("CSV, unpooled data", "SVG, as seen", "HTML, self-contained"):
        popover.get_by_role("button").click()
        button = screen.page.get_by_role("button", name=name).first
        saved = screen.download(button, tmp_path)
        screen.page.keyboard.press("Escape")
        button.wait_for(state="hidden")
        text = saved.read_text(encoding="utf-8")
        if name.startswith("CSV"):
            rows = list(csv.DictReader(text.splitlines()))
            assert len(rows) == TOKENS * LAYERS * HEADS
            assert all(np.isfinite(float(row[key])) for row in rows for key in ("omega", "scalar_curvature", "volume"))
        else:
            assert "Proxy against truth" in text and "Scalar curvature" in text


def test_on_dark_ground_nothing_is_lost(new_screen: Callable[..., Screen]) -> None:
    dark = new_screen(color_scheme="dark")
    dark.open("curvature", text=TEXT, a=TWIN, layer=1, **LIGHT)
    for key in ("scatter-A", "maps-A", "slice-A"):
        figure = chart(dark, key)
        assert colours(figure) > BLANK
        ink = figure.locator(".gtitle").first.evaluate("node => getComputedStyle(node).fill")
        assert min(map(int, re.findall(r"\d+", ink)[:3])) > 200
