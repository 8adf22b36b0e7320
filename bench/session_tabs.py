"""Sessions as tabs of one Chromium, each in a context of its own, on the machine of the server."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from playwright.async_api import Browser, Page, async_playwright
from playwright.sync_api import sync_playwright

from bench.browser_cost import command_of, cpu, processes
from bench.session_client import KEPT
from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.server import Server

STILL = 1.2
HANG = 120_000.0  # milliseconds after which an answer that does not come is given up
DRAWN = """() => document.querySelector('[data-testid="stMain"] h2')
  && document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
  && !document.querySelector('[data-stale="true"], [data-testid=stSpinner], [data-testid=stSkeleton]')
  && [...document.querySelectorAll('[data-testid=stPlotlyChart]')].every((one) => one.querySelector('.main-svg'))"""


@dataclass
class Drawn:
    """What stood on a page, and after how many seconds all of it was drawn."""

    words: str
    seconds: float
    told: bool = False  # of its place in the line: not looked for

    def content(self) -> str:
        """All words and numbers that can be read."""
        return self.words


@dataclass
class Tabs:
    """Sessions in one Chromium, whose first process is ``root``."""

    server: Server
    chromium: Browser
    root: int

    def cpu(self) -> dict[str, float]:
        """CPU seconds of all of Chromium's processes."""
        return {"browser": cpu(self.root)}

    async def visit(self, query: dict[str, Any], pages: tuple[str, ...]) -> AsyncIterator[Drawn]:
        """One session's pages, one after the other, as by its navigation."""
        context = await self.chromium.new_context(viewport={"width": 1400, "height": 1000})
        page = await context.new_page()
        for name in pages:
            start = time.monotonic()
            if not name:
                await page.goto(f"{self.server.address}/?{urlencode(query)}", wait_until="commit")
            else:
                await page.get_by_test_id("stTopNavLink").filter(has_text=name.capitalize()).first.click()
                await page.get_by_role("heading", name=name.capitalize(), exact=True).first.wait_for(timeout=HANG)
            await page.wait_for_function(DRAWN, timeout=HANG, polling=100)  # not at every frame
            seconds = time.monotonic() - start
            yield Drawn(await _said(page), seconds)
        await context.close()


async def _said(page: Page) -> str:
    """All that stands on the page and in its sidebar, once it is the same for ``STILL`` seconds; not how much the
    server keeps."""
    before, now, since = "", " ", time.monotonic()
    while time.monotonic() - since < STILL:
        parts = [await page.get_by_test_id(name).inner_text() for name in ("stSidebar", "stMain")]
        before, now = now, KEPT.sub("", "\n".join(parts))
        since = since if now == before else time.monotonic()
        await asyncio.sleep(0.2)
    return now


@asynccontextmanager
async def tabs(server: Server) -> AsyncIterator[Tabs]:
    """For ``bench.sessions``."""
    executable, mark = await asyncio.to_thread(_executable), f"--bench-{uuid4().hex}"
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=executable, args=[*ARGUMENTS, mark])
        try:
            yield Tabs(server, chromium, min(one for one in processes() if mark in command_of(one)))
        finally:
            await chromium.close()


def _executable() -> str:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        return obtain(playwright, Path(scratch) / "install.log")
