"""``python -m tests.browser.speed``: how soon the app shows something, and how soon a layer change does.

Everything is seen from outside, in a real Chromium on the same machine: from the start of the server's process to the
first figure, and from the key that moves the layer slider to the component's next drawing. Needs the development
requirements.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import typer
from playwright.sync_api import Browser, Locator, sync_playwright

from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.server import running

ROOT = Path(__file__).resolve().parents[2]
TEXT = " ".join(["the old sailor near the ships sings ."] * 16)[:-2]
"""128 tokens with the first one."""

DRAWN = {"ellipsoids": "canvas.scene", "attention": ".maps"}
"""What counts its own drawings on a page, in ``data-updates``."""

CHANGES = 5
HANG = 60.0  # seconds after which a drawing that does not come is given up


def main() -> None:
    """Print seconds to the first figure, to each page's first drawing, and of a layer change at 128 tokens."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        chromium = obtain(playwright, Path(scratch) / "install.log")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        with running(ROOT, Path(scratch)) as server:
            page = browser.new_page()
            page.goto(server.address)
            page.locator(".strip").first.wait_for(timeout=HANG * 1000)
            typer.echo(f"server start to first figure: {time.monotonic() - server.started:.2f} s\n")
            typer.echo(f"{'128 tokens':>12} | first drawing s | layer change s (median, min to max) | ratio")
            for name, selector in DRAWN.items():
                first, changes = measured(browser, f"{server.address}/{name}?text={quote(TEXT)}", selector)
                middle = statistics.median(changes)
                spread = f"{middle:.2f}, {min(changes):.2f} to {max(changes):.2f}"
                typer.echo(f"{name:>12} | {first:15.2f} | {spread:>35} | {middle / first:.2f}")
    typer.echo(f"\n{platform.processor() or platform.machine()}, {platform.system()}, software WebGL")


def measured(browser: Browser, address: str, selector: str) -> tuple[float, list[float]]:
    """Seconds to a page's first drawing, and of each layer change after it."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    start = time.monotonic()
    page.goto(address)
    drawn = page.locator(selector).first
    drawn.wait_for(timeout=HANG * 1000)
    first = next_drawing(drawn, "0", start)
    slider = page.get_by_test_id("stSidebar").get_by_role("slider", name="Layer")
    changes = []
    for _ in range(CHANGES):
        page.wait_for_timeout(3000)  # what the page draws besides is not counted into the next change
        before = drawn.get_attribute("data-updates") or "0"
        start = time.monotonic()
        slider.press("ArrowRight")
        changes.append(next_drawing(drawn, before, start))
    page.close()
    return first, changes


def next_drawing(drawn: Locator, before: str, start: float) -> float:
    """Seconds from ``start`` until the component's count of drawings is no longer ``before``."""
    while (drawn.get_attribute("data-updates") or "0") == before:
        if time.monotonic() - start > HANG:
            raise TimeoutError(f"nothing was drawn within {HANG:g} s")
        time.sleep(0.01)
    return time.monotonic() - start


if __name__ == "__main__":
    typer.run(main)
