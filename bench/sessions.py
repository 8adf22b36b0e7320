"""``python -m bench.sessions``: ten sessions at once, each with a checkpoint and a text of its own, then nobody.

Every session is a tab of one Chromium on the same machine and goes through the same pages as it did when it was alone
on another server, one session after the other. What stands on a page must then be, word by word and number by number,
what stood there. Two cores serve ten sessions and their browser: ten times the time of one is to be expected. Linux
only: the server's memory is what the kernel says of it.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from playwright.async_api import Browser, Page, async_playwright
from playwright.sync_api import sync_playwright

from bench.laps import machine, spread
from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.server import Server, running

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("riemannian", "euclidean", "l2", "dictionary", "euclidean-wide")
WORDS = ("old", "sailor", "near", "the", "ships", "sings", "harbour", "king", "river", "stone")
PAGES = ("", "attention", "depth")
GRACE = 3.0  # seconds instead of two minutes, for the server of the bench
STILL = 1.2
HANG = 120_000.0  # milliseconds after which an answer that does not come is given up
KEPT = re.compile(r"This server keeps [^.]*\.?[^.]*of models and results\.?")
DRAWN = """() => document.querySelector('[data-testid="stMain"] h2')
  && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
  && !document.querySelector('[data-stale="true"], [data-testid=stSpinner], [data-testid=stSkeleton]')
  && [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every((one) => one.querySelector('.main-svg'))"""


def main(
    sessions: Annotated[int, typer.Option(min=1, max=10)] = 10,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Print answer times of many sessions as ratios to one alone, and the server's memory. Ends 1 when two mix."""
    alone, shown, _ = measured(1, sessions)
    together, seen, memory = measured(sessions, sessions)
    mixed = [key for key, text in shown.items() if seen[key] != text]
    ratios = {page: [together[key] / alone[key] for key in alone if key[1] == page] for page in PAGES}
    found = {
        "machine": machine(), "sessions": sessions, "mixed": [list(key) for key in mixed], "memory_MiB": memory,
        "pages": {page or "overview": {"alone_s": statistics.median(alone[key] for key in alone if key[1] == page),
                                       "ratios": values} for page, values in ratios.items()},
    }  # fmt: skip
    typer.echo(json.dumps(found, indent=1) if json_ else table(found))
    raise typer.Exit(1 if mixed else 0)


def table(found: dict[str, Any]) -> str:
    """Everything as one table."""
    lines = [f"{'page':>10} | one session alone s | each of {found['sessions']} at once, ratio: median (least to most)"]
    for page, row in found["pages"].items():
        lines.append(f"{page:>10} | {row['alone_s']:19.2f} | {spread(row['ratios'])}")
    kept = ", ".join(f"{name} {value:.0f}" for name, value in found["memory_MiB"].items())
    return "\n".join([*lines, f"server MiB: {kept}", f"pages that differ from those alone: {len(found['mixed'])}",
                      found["machine"]])  # fmt: skip


Key = tuple[int, str]
"""A session's number, a page."""


def measured(at_once: int, sessions: int) -> tuple[dict[Key, float], dict[Key, str], dict[str, float]]:
    """Seconds and words of every session's pages, ``at_once`` at a time on a fresh server; its memory in MiB."""
    with tempfile.TemporaryDirectory() as scratch:
        with sync_playwright() as playwright:
            executable = obtain(playwright, Path(scratch) / "install.log")
        with running(ROOT, Path(scratch), FIBERSCOPE_GRACE=str(GRACE)) as server:
            return asyncio.run(_measured(server, executable, at_once, sessions))


async def _measured(server: Server, executable: str, at_once: int, sessions: int) -> tuple[Any, Any, Any]:
    seconds: dict[Key, float] = {}
    words: dict[Key, str] = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        await visit(browser, server, -1, {}, {})  # the first visitor of a server waits for its imports
        await left(server)
        memory = {"before": resident(server)}
        for first in range(0, sessions, at_once):
            group = range(first, min(first + at_once, sessions))
            await asyncio.gather(*(visit(browser, server, number, seconds, words) for number in group))
        memory |= {"with all": resident(server), "peak": resident(server, "VmHWM")}
        await left(server)
        memory["after all left"] = resident(server)
        await browser.close()
    assert "Traceback" not in server.said(), server.said()
    return seconds, words, memory


async def left(server: Server) -> None:
    """Until what nobody shows is let go of."""
    await asyncio.sleep(GRACE + 2)


async def visit(
    browser: Browser, server: Server, number: int, seconds: dict[Key, float], words: dict[Key, str]
) -> None:
    """One session: page after page, as by its navigation."""
    context = await browser.new_context(viewport={"width": 1400, "height": 1000})
    page = await context.new_page()
    query = {"a": f"demo:{KINDS[number % len(KINDS)]}", "text": text_of(number), "token": 1}
    for name in PAGES:
        start = time.monotonic()
        if not name:
            await page.goto(f"{server.address}/?{urlencode(query)}", wait_until="commit")
        else:
            await page.get_by_test_id("stTopNavLink").filter(has_text=name.capitalize()).first.click()
            await page.get_by_role("heading", name=name.capitalize(), exact=True).first.wait_for(timeout=HANG)
        await page.wait_for_function(DRAWN, timeout=HANG, polling=100)  # not at every frame
        seconds[number, name] = time.monotonic() - start
        words[number, name] = await said(page)
    await context.close()


async def said(page: Page) -> str:
    """All that stands on the page and in its sidebar, once it is the same for ``STILL`` seconds; not how much the
    server keeps."""
    before, now, since = "", " ", time.monotonic()
    while time.monotonic() - since < STILL:
        parts = [await page.get_by_test_id(name).inner_text() for name in ("stSidebar", "stMain")]
        before, now = now, KEPT.sub("", "\n".join(parts))
        since = since if now == before else time.monotonic()
        await asyncio.sleep(0.2)
    return now


def text_of(number: int) -> str:
    """A text of its own, of some 60 words."""
    turned = WORDS[number % 10 :] + WORDS[: number % 10]
    return " ".join(turned[: 5 + number % 5] * 8)


def resident(server: Server, row: str = "VmRSS") -> float:
    """MiB of the server's memory, now or at its peak."""
    text = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    return int(re.search(rf"{row}:\s+(\d+) kB", text)[1]) / 1024  # type: ignore[index]


if __name__ == "__main__":
    typer.run(main)
