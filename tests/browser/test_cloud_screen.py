"""The cloud in a real browser: it plays, it is picked from, and what is picked is marked on every page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, expect

from tests.browser.screen import WAIT, Screen, colours, pixels

TEXT = "the old sailor near the ships sings"

LONG = " ".join([TEXT, "and the old ship near the sailors sings"] * 12)
"""Long enough for UMAP to be caught at work."""

COMPILING = 5 * WAIT
"""The first UMAP of a server compiles."""

STAGES = 7
"""Of the twins: six blocks."""


def chart(screen: Screen, index: int = 0) -> Locator:
    """A cloud, drawn."""
    found = screen.page.locator("[class*='st-key-figure-cloud'] .js-plotly-plot").nth(index)
    expect(found).to_be_visible()
    return found


def points(figure: Locator) -> list[tuple[float, float]]:
    """Where the tokens stand on the page, in CSS pixels."""
    marks = figure.locator(".scatterlayer .trace:has(.textpoint) .points path.point")  # rings have no labels
    boxes = [mark.bounding_box() for mark in marks.all()]
    return [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes if box and box["width"]]


@pytest.mark.parametrize(("scheme", "dims"), [("light", "3-D"), ("dark", "2-D")])
def test_a_cloud_is_drawn(new_screen: Callable[..., Screen], scheme: str, dims: str) -> None:
    screen = new_screen(color_scheme=scheme).open("cloud", text=TEXT, **{"cloud-dims": dims})
    figure = chart(screen)
    assert colours(figure) > 12
    corner = pixels(figure)[5, 5].mean()
    assert corner > 180 if scheme == "light" else corner < 80
    words = figure.inner_text()
    assert "PCA of the residual stream" in words and "8 tokens × 7 stages" in words


WATCH = """figure => { window.seen = []; setInterval(() => window.seen.push(
  figure.querySelector('.trace:has(.textpoint) .points path.point').getAttribute('transform')), 40); }"""


def test_play_moves_the_tokens_smoothly_and_keeps_the_frame(screen: Screen) -> None:
    figure = chart(screen.open("cloud", text=TEXT, layer=3))
    ticks = figure.locator(".xtick text, .ytick text")
    frame, before = ticks.all_inner_texts(), points(figure)
    figure.evaluate(WATCH)
    figure.get_by_text("▶ Play").click()
    expect(figure.locator(".slider-label", has_text="blocks passed")).to_have_text(f"blocks passed: {STAGES - 1}")
    screen.page.wait_for_timeout(1000)
    after = points(figure)
    assert len(before) == len(after) == TEXT.count(" ") + 2
    assert np.abs(np.subtract(after, before)).max() > 5
    assert ticks.all_inner_texts() == frame
    assert len(set(screen.page.evaluate("window.seen"))) > STAGES + 3, "it jumps from stage to stage"


def test_the_colour_bar_stays_where_nothing_has_a_colour(screen: Screen) -> None:
    """After the last block no metric is read, so that every token is grey."""
    figure = chart(screen.open("cloud", text=TEXT, layer=2, **{"cloud-tint-depth": "Metric trace (dimensionless)"}))
    plot = figure.locator(".nsewdrag").first
    before = plot.bounding_box()
    expect(figure.locator(".cbaxis").first).to_be_visible()
    figure.get_by_text("▶ Play").click()
    expect(figure.locator(".slider-label", has_text="blocks passed")).to_have_text(f"blocks passed: {STAGES - 1}")
    screen.page.wait_for_timeout(1000)
    expect(figure.locator(".cbaxis").first).to_be_visible()
    assert plot.bounding_box() == before


def test_the_sidebars_layer_is_the_stage(screen: Screen) -> None:
    figure = chart(screen.open("cloud", text=TEXT, layer=4))
    expect(figure.locator(".slider-label", has_text="blocks passed")).to_have_text("blocks passed: 4")


def test_a_lasso_marks_tokens_on_every_page(screen: Screen) -> None:
    figure = chart(screen.open("cloud", text=TEXT, layer=3, token=7))
    figure.hover()
    figure.locator(".modebar-btn[data-title='Lasso Select']").click()
    area = figure.locator(".nsewdrag").first.bounding_box()
    left, top, right, bottom = (
        area["x"] + 3,
        area["y"] + 3,
        area["x"] + area["width"] - 3,
        area["y"] + area["height"] - 3,
    )
    mouse = screen.page.mouse
    mouse.move(left, top)
    mouse.down()
    for x, y in ((right, top), (right, bottom), (left, bottom), (left, top + 5)):
        mouse.move(x, y, steps=4)
    mouse.up()
    sidebar = screen.page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("8 tokens marked:")).to_be_visible()
    screen.page.wait_for_url("**marked=0%2C1%2C2**")
    screen.settle().tab("Overview")
    expect(screen.page.locator(".strip button.marked")).to_have_count(8)
    screen.tab("Attention")
    expect(screen.page.locator(".maps .legend").first).to_contain_text("8 marked")
    screen.tab("Ellipsoid field").field()
    sidebar.get_by_role("button", name="clear", exact=True).click()
    expect(sidebar.get_by_text("tokens marked:")).to_have_count(0)
    screen.settle().tab("Cloud")
    expect(sidebar.get_by_text("tokens marked:")).to_have_count(0)


def test_a_click_marks_one_token_and_the_next_one_more(screen: Screen) -> None:
    figure = chart(screen.open("cloud", text=TEXT, layer=3))
    x, y = max(points(figure))  # the rightmost: nothing lies upon it
    screen.page.mouse.move(x, y)
    expect(figure.locator(".hoverlayer")).to_contain_text("enters block 3")
    screen.page.mouse.click(x, y)
    sidebar = screen.page.get_by_test_id("stSidebar")
    expect(sidebar.get_by_text("1 token marked:")).to_be_visible()
    screen.settle()
    figure.locator(".scatterlayer .trace:has(.textpoint) .points path.point").last.click(force=True)
    expect(sidebar.get_by_text("2 tokens marked:")).to_be_visible()


@pytest.mark.parametrize("page", ["ellipsoids", "attention"])
def test_marks_are_seen(new_screen: Callable[..., Screen], page: str) -> None:
    """The very pixels in the mark's colour, none of which is there without marks."""

    def orange(screen: Screen) -> int:
        part = screen.field() if page == "ellipsoids" else screen.maps()
        if page == "ellipsoids":
            part = part.locator("xpath=..")
        part.scroll_into_view_if_needed()
        screen.page.mouse.move(0, 0)
        screen.page.wait_for_timeout(500)
        return int((np.abs(pixels(part) - (230, 159, 0)).max(-1) < 12).sum())

    plain = orange(new_screen().open(page, text=TEXT, token=5))
    assert orange(new_screen().open(page, text=TEXT, token=5, marked="1,3")) > plain + 30


def test_umap_can_be_stopped_and_goes_on(screen: Screen) -> None:
    main = screen.page.get_by_test_id("stMain")
    screen.page.goto(f"{screen.address}/cloud?text={LONG.replace(' ', '%20')}&cloud-by=UMAP&cloud-near=60")
    expect(chart(screen)).to_contain_text("PCA of the residual stream")  # until UMAP is there
    main.get_by_role("button", name="Stop").click()
    expect(main.get_by_text("UMAP was stopped: the picture is the PCA.")).to_be_visible()
    screen.settle()
    expect(chart(screen)).to_contain_text("PCA of the residual stream")
    main.get_by_role("button", name="Go on").click()
    expect(chart(screen)).to_contain_text("UMAP of the residual stream", timeout=COMPILING)
    screen.settle()
    expect(chart(screen)).to_contain_text("UMAP 1 (no unit)")
    expect(main.get_by_role("button", name="Stop")).to_have_count(0)


def test_compare_draws_two_and_an_aligned_one(screen: Screen) -> None:
    screen.open("cloud", text=TEXT, a="demo:riemannian", b="demo:dictionary")
    assert colours(chart(screen)) > 12 and colours(chart(screen, 1)) > 12
    screen.page.get_by_test_id("stMain").get_by_text("A and B in one cloud").click()
    screen.settle()
    expect(screen.page.locator("[class*='st-key-figure-cloud'] .js-plotly-plot")).to_have_count(1)
    expect(chart(screen)).to_contain_text(re.compile(r"of A's\s*scatter\s*is\s*not\s*matched"))


@pytest.mark.parametrize("dims", ["2-D", "3-D"])
def test_exports_hold_the_stage_that_is_seen(screen: Screen, tmp_path: Path, dims: str) -> None:
    query = {"cloud-dims": dims, "cloud-ball": "unit ball of g"}
    screen.open("cloud", text=TEXT, layer=2, marked="3", **query)
    chart(screen)

    def saved(name: str) -> Path:
        screen.page.get_by_role("button", name="Export").first.click()
        button = screen.page.get_by_role("button", name=name)
        button.wait_for()
        path = screen.download(button, tmp_path)
        screen.page.keyboard.press("Escape")
        button.wait_for(state="hidden")
        return path

    with Image.open(saved("PNG, 3 × screen")) as picture:
        assert len(np.unique(np.asarray(picture.convert("RGB")) // 16)) > 5
    svg = saved("SVG, as seen").read_text()
    assert "sailor" in svg or dims == "3-D"  # there the scene is a raster
    assert "Play" not in svg and "blocks passed: 2" in svg
    assert len(saved("CSV, unpooled data").read_text().splitlines()) == 1 + STAGES * 8
    assert "blocks passed" in saved("HTML, self-contained").read_text()
