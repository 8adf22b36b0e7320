"""The Collapse page in a real browser: the kept results, arms and cells chosen, a file of one's own, light and dark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Locator, expect

from fbt_core.experiments import results
from tests.browser.screen import Screen, colours, pixels
from tests.browser.test_views import BLANK
from tests.collapse_frames import frame


def charts(screen: Screen) -> Locator:
    """The figures, drawn."""
    found = screen.page.get_by_test_id("stMain").locator(".js-plotly-plot .main-svg:first-child")
    expect(found.first).to_be_visible()
    return found


def titles(screen: Screen) -> list[str]:
    return screen.page.get_by_test_id("stMain").locator(".gtitle").all_text_contents()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rules_and_figures_in_light_and_dark(new_screen: Callable[..., Screen], scheme: str) -> None:
    screen = new_screen(color_scheme=scheme).open("collapse")
    main = screen.page.get_by_test_id("stMain")
    for rule in ("T1", "T2", "T3", "T4"):
        expect(main.get_by_text(rule, exact=True).first).to_be_visible()
    first = charts(screen).first
    assert "Residual by depth" in titles(screen) and colours(first) > BLANK
    corner = pixels(first)[3, 3].mean()
    assert corner > 180 if scheme == "light" else corner < 80


def test_arms_are_taken_out_and_a_link_opens_the_same_cell(new_screen: Callable[..., Screen]) -> None:
    screen = new_screen().open("collapse")
    main = screen.page.get_by_test_id("stMain")
    names = main.locator(".js-plotly-plot").first.locator(".legendtext")
    count = names.count()
    main.get_by_test_id("stButtonGroup").locator("button").filter(has_text="Homogeneous").first.click()
    expect(names).to_have_count(count - 1)
    screen.settle()
    chooser = main.get_by_role("combobox", name="By depth")
    chooser.scroll_into_view_if_needed()
    screen.settle()  # scrolling closes an open list
    chooser.click()
    screen.page.get_by_role("option", name="Dobrushin").click()
    screen.settle()
    assert "Homogeneous" not in parse_qs(urlparse(screen.page.url).query)["arms"]
    again = new_screen()
    again.page.goto(screen.page.url)
    again.settle()
    charts(again)
    expect(again.page.get_by_test_id("stMain").locator(".gtitle").filter(has_text="Dobrushin")).to_have_count(1)


def test_a_file_of_ones_own_stands_beside_and_a_bad_one_is_refused(screen: Screen, tmp_path: Path) -> None:
    own = frame(lambda arm, seed, cell: 6, [{"strength": 1.0}], ("heterogeneous", "<b onclick=alert(1)>mine"), seeds=2)
    results.write(tmp_path / "mine.parquet", own, {"identity": {"plan": "[x](y) <img src=x>"}})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + os.urandom(500) + b"PAR1")
    screen.open("collapse")
    main = screen.page.get_by_test_id("stMain")
    main.get_by_text("Show a results file of your own").click()
    chooser = main.get_by_test_id("stFileUploader").locator("input[type=file]")
    chooser.set_input_files(tmp_path / "mine.parquet")
    screen.settle()
    main.get_by_role("combobox", name="Show").click()
    screen.page.get_by_role("option", name="Yours", exact=True).click()
    expect(main.locator(".gtitle").filter(has_text="your file").first).to_be_visible()
    screen.settle()
    assert main.locator("b[onclick], img[src=x]").count() == 0
    main.get_by_role("button", name="Remove mine.parquet").click()
    screen.settle()
    chooser.set_input_files(tmp_path / "bad.parquet")
    expect(main.get_by_text("no sound Parquet").first).to_be_visible()
    assert "Residual by depth" in titles(screen.settle())
