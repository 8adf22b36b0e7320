"""The claims page in a real browser: a press checks every claim, each opens, and all can be taken away."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, expect

from fbt_core.claims import CLAIMS
from tests.browser.screen import WAIT, Screen, colours
from tests.browser.test_views import BLANK

TEXT = "the old sailor near the ships sings . the quiet girl writes a letter . " * 12
"""Long enough for all claims, and quick: 32 tokens of it are traced."""

TOKENS = 32


def checked(screen: Screen, **query: str) -> list[list[str]]:
    """The page once every claim was checked, and the rows of its table."""
    screen.open("claims", text=TEXT, **{"claims-text": "the sidebar's text", "claims-tokens": str(TOKENS)}, **query)
    main = screen.page.get_by_test_id("stMain")
    main.get_by_role("button", name="Check").click()
    expect(main.locator("table.claims").get_by_text("…")).to_have_count(0, timeout=2 * WAIT)
    screen.settle()
    rows = main.locator("table.claims tr").all()[1:]
    return [row.locator("td").all_text_contents() for row in rows]


def figures(screen: Screen) -> list[Locator]:
    found = screen.page.locator("[class*=st-key-figure-claim] .js-plotly-plot")
    expect(found.first).to_be_visible()
    return found.all()


def test_one_press_checks_all_and_each_can_be_opened_and_taken_away(screen: Screen, tmp_path: Path) -> None:
    rows = checked(screen, a="demo:l2")
    assert [row[0] for row in rows] == list(CLAIMS)
    verdicts = {row[0]: row[2].replace("\xa0", " ") for row in rows}
    assert verdicts["C12"] == "✓ holds" and verdicts["C9"] == "– not testable"
    main = screen.page.get_by_test_id("stMain")
    main.get_by_role("radio", name="C12", exact=True).or_(main.get_by_role("button", name="C12", exact=True)).click()
    screen.settle()
    expect(main.get_by_role("heading", name=f"C12 · {CLAIMS['C12'].title}")).to_be_visible()
    expect(main.locator(".katex").first).to_be_visible()
    assert all(colours(figure) > BLANK for figure in figures(screen))
    expect(screen.page).to_have_url(re.compile("claim=C12"))
    table = screen.download(main.get_by_role("button", name="Table as CSV"), tmp_path)
    saved = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in saved] == list(CLAIMS)
    said = json.loads(screen.download(main.get_by_role("button", name="findings as JSON"), tmp_path).read_text("utf-8"))
    found = {one["id"]: one for one in said["checkpoints"][0]["claims"]}
    assert found["C12"]["verdict"] == "holds" and abs(found["C12"]["statistic"]) < 1e-9
    assert found["C9"]["statistic"] is None


def test_a_narrow_dark_window_holds_two_checkpoints(new_screen: Callable[..., Screen]) -> None:
    narrow = new_screen(color_scheme="dark")
    narrow.page.set_viewport_size({"width": 1024, "height": 900})
    rows = checked(narrow, a="demo:l2", b="demo:euclidean", claim="C12")
    assert all(len(row) == 7 for row in rows)
    drawn = figures(narrow)
    assert len(drawn) == 4 and all(colours(figure) > BLANK for figure in drawn)
    main = narrow.page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollWidth <= node.clientWidth + 1")  # nothing to scroll sideways for
    expect(main.get_by_text("✓ holds").first).to_be_visible()
