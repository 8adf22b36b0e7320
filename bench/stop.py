"""``python -m bench.stop``: how soon Stop stops, seen in a real Chromium. The aim is a second.

A row is a page that computes for long, stopped 0.3 s after its Stop appeared: milliseconds from the click until the
page says that its script has ended, which it does when it has drawn what it had been sent; and, from when the click is
done, until the server's process has come to rest, which tells whether the work itself ended. Every round has a text of
its own, so that nothing is found that an earlier one left.

Linux only: the server's CPU time is what the kernel says of it in /proc. Needs the development requirements.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from playwright.sync_api import Browser, Locator, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from bench.browser_cost import TICK, cpu
from bench.laps import machine, spread
from bench.models import text_of
from bench.pages import app
from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.screen import STILL
from tests.browser.server import Server

LENGTHS = {"torsion": 128, "geodesics": 128, "curvature": 128, "depth": 4096, "attention": 4096, "claims": 256}
"""Page to the tokens with which it computes for seconds."""

BEFORE = 300.0  # milliseconds of work before it is stopped
HANG = 60_000.0  # milliseconds after which a page that does not stop is given up
CLICK = 5_000.0  # milliseconds after which a Stop that cannot be clicked is given up
LOOK, REST = 0.02, 0.3  # seconds between looks at the server's CPU time, and in which it uses next to none at rest
IDLE = 3 * 1.0 / TICK  # CPU seconds of a server that rests, in REST: its event loop wakes now and then

TELL = """() => {
  const app = document.querySelector('[data-testid="stApp"]');
  document.addEventListener("click", () => { window.clicked = performance.now(); }, { capture: true, once: true });
  new MutationObserver(() => {
    if (window.clicked && app.dataset.testScriptState === "notRunning") window.ended ??= performance.now();
  }).observe(app, { attributes: true });
}"""
"""In the page, before the click: when it was, and when the script's end was seen. Playwright's own time is left out."""


@dataclass
class Stopped:
    """A page, and milliseconds of each round."""

    page: str
    tokens: int
    script: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    missed: int = 0  # rounds in which it had computed all before it could be stopped


def text(tokens: int, number: int) -> str:
    """The number-th text of so many tokens."""
    return " ".join(text_of(tokens + number).split()[number:])


def working(page: Page, address: str, row: Stopped, number: int) -> Locator:
    """Have the page compute; its Stop."""
    asked = {"a": "demo:long", "text": text(row.tokens, number), "layer": 1}
    page.goto(f"{address}/{row.page}?{urlencode(asked)}")
    if row.page != "claims":
        return page.get_by_role("button", name="Stop").first
    page.locator(STILL).wait_for(timeout=HANG)
    page.get_by_role("button", name="Check").first.click()
    return page.get_by_test_id("stMain").get_by_role("button", name="Stop").first


def rested(server: Server) -> float:
    """Seconds from now until the server uses next to no CPU time; REST itself is not counted."""
    start = time.monotonic()
    seen = [(start, cpu(server.pid))]
    while seen[-1][0] - start < HANG / 1000:
        time.sleep(LOOK)
        seen.append((time.monotonic(), cpu(server.pid)))
        since = [(at, used) for at, used in seen if at >= seen[-1][0] - REST]
        if seen[-1][0] - start > REST and since[-1][1] - since[0][1] <= IDLE:
            return max(since[0][0] - start, 0.0)
    return HANG / 1000


def measure(browser: Browser, server: Server, row: Stopped, number: int) -> None:
    """One round of one page."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    stop = working(page, server.address, row, number)
    stop.wait_for(timeout=HANG)
    page.wait_for_timeout(BEFORE)
    page.evaluate(TELL)
    with suppress(PlaywrightTimeoutError):  # its script has ended, and with it the button
        stop.click(timeout=CLICK)
    rest = 1000 * rested(server)
    page.locator(STILL).wait_for(timeout=HANG)
    took = page.evaluate("() => window.ended ? window.ended - window.clicked : null")
    if took is None:
        row.missed += 1
    else:
        row.script.append(took)
        row.server.append(rest)
    page.close()


def main(
    only: Annotated[str, typer.Option(help="one page")] = "",
    rounds: int = 3,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print one table."""
    rows = [Stopped(page, tokens) for page, tokens in LENGTHS.items() if only in ("", page)]
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=obtain(playwright, Path(scratch) / "install.log"), args=ARGUMENTS
        )
        with app(Path(scratch), browser) as server:
            for number in range(rounds):
                for row in rows:
                    measure(browser, server, row, number)
        browser.close()
    if as_json:
        typer.echo(json.dumps({"machine": machine(), "rows": [vars(row) for row in rows]}))
        return
    typer.echo(f"{'page':11} {'tokens':>6}  {'script ended, ms':24} server at rest, ms")
    for row in rows:
        found = f"{spread(row.script):24} {spread(row.server)}" if row.script else ""
        typer.echo(f"{row.page:11} {row.tokens:6}  {found}{f'; {row.missed} done before' if row.missed else ''}")
    typer.echo(f"\n{machine()}")


if __name__ == "__main__":
    typer.run(main)
