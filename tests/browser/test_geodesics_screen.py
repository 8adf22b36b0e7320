"""Geodesics, torsion and transport in a real browser: lines among the glyphs, exports, choices and links."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.screen import Screen, colours, pixels, updates, wait_for_update
from tests.browser.test_views import BLANK, TEXT, TOKENS, drag

SVG = "{http://www.w3.org/2000/svg}"
FAST = "demo:dictionary"
"""Its metric has no kink on the way, so geodesics take a tenth of the time."""


def scenes(screen: Screen, count: int) -> list[Locator]:
    """The fields that hold curves, drawn."""
    found = screen.page.locator("canvas[data-curves]")
    expect(found).to_have_count(count)
    return [found.nth(place) for place in range(count)]


def cards(screen: Screen, count: int) -> Locator:
    """The numbers on the cards of the page, all there."""
    found = screen.page.get_by_test_id("stMetricValue")
    expect(found).to_have_count(count)
    return found


def pick(screen: Screen, name: str, option: re.Pattern[str]) -> None:
    """Choose in a select box of the page."""
    screen.page.get_by_test_id("stMain").get_by_role("combobox", name=re.compile(name)).click()
    screen.page.get_by_role("option", name=option).click()
    screen.settle()


def test_three_ways_are_drawn_and_turn_with_the_glyphs_and_matrices_stand_below(screen: Screen) -> None:
    (canvas,) = scenes(screen.open("geodesics", text=TEXT, a=FAST, layer=3, token=2), 1)
    expect(canvas).to_have_attribute("data-curves", "3")
    expect(canvas).to_have_attribute("data-count", str(TOKENS))
    field = canvas.locator("xpath=..")
    assert colours(field) > BLANK
    before, camera = pixels(field), canvas.get_attribute("data-camera")
    drag(screen, canvas, 140, 40)
    expect(canvas).not_to_have_attribute("data-camera", camera)
    assert np.abs(pixels(field) - before).mean() > 0.5
    expect(screen.page.locator(".js-plotly-plot").first).to_be_visible()
    maps = screen.maps()
    expect(maps).to_have_attribute("data-tokens", str(TOKENS))
    assert all(colours(maps.locator("canvas").nth(place)) > BLANK for place in range(2))
    main = screen.page.get_by_test_id("stMain")
    expect(main.get_by_text("what-if: true distance in place of the chord").first).to_be_attached()


def test_the_lines_are_vectors_in_the_svg_and_named(screen: Screen, tmp_path: Path) -> None:
    (canvas,) = scenes(screen.open("geodesics", text=TEXT, a=FAST, layer=3, token=2), 1)
    button = canvas.locator("xpath=..").get_by_role("button", name="SVG", exact=True)
    saved = screen.download(button, tmp_path)
    root = ET.parse(saved).getroot()
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert {"geodesic", "straight chord", "graph path"} <= set(words)
    lines = [element for element in root.iter(f"{SVG}polyline") if "NaN" not in element.get("points", "NaN")]
    strokes = {element.get("stroke") for element in lines}
    assert {"#0072B2", "#D55E00", "#009E73"} <= strokes
    longest = max(lines, key=lambda element: len(element.get("points", "").split()))
    assert longest.get("stroke") == "#0072B2" and len(longest.get("points", "").split()) > 8


def test_another_end_draws_another_way_and_a_link_opens_it(new_screen: Callable[..., Screen]) -> None:
    first = new_screen()
    (canvas,) = scenes(first.open("geodesics", text=TEXT, a=FAST, layer=3, token=2), 1)
    numbers = cards(first, 4)
    count, before = updates(canvas), numbers.all_inner_texts()
    pick(first, "To token", re.compile(r"^\(4\)"))
    wait_for_update(canvas, count)
    expect(numbers.first).not_to_have_text(before[0])
    first.settle()
    after = cards(first, 4).all_inner_texts()
    euclid, chord, true, graph = map(float, after)
    assert 0 < euclid <= true <= graph * (1 + 1e-4) and chord > 0
    second = new_screen()
    second.page.goto(first.page.url)
    second.settle()
    scenes(second, 1)
    expect(second.page.get_by_test_id("stMetricValue")).to_have_text(after)


@pytest.mark.parametrize(("page", "scheme"), [("geodesics", "light"), ("torsion", "dark")])
def test_two_sides_in_light_and_dark(new_screen: Callable[..., Screen], page: str, scheme: str) -> None:
    screen = new_screen(color_scheme=scheme)
    screen.open(page, text="the old sailor near", a=FAST, b="demo:euclidean", layer=1)
    for canvas in scenes(screen, 2):
        field = canvas.locator("xpath=..")
        corner = pixels(field)[3, 3].mean()
        assert corner > 180 if scheme == "light" else corner < 80
        assert colours(field) > BLANK
    expect(screen.page.get_by_test_id("stMain").get_by_text("this model has no metric").first).to_be_visible()


def test_planes_have_arrows_and_a_loop_has_stations(screen: Screen) -> None:
    planes, loop = scenes(screen.open("torsion", text="the old sailor near", a="demo:riemannian", layer=2), 2)
    expect(planes).to_have_attribute("data-curves", "10")  # a circle and an arrow for each of five tokens
    expect(loop).to_have_attribute("data-curves", "7")  # three geodesics, the start, two stations, the end
    values = cards(screen, 3).all_inner_texts()
    assert values[0].endswith("°") and values[1].endswith("°")
    assert float(values[2]) < 1e-13  # FiberTransport's holonomy is rounding
