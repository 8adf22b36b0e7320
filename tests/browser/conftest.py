"""One server and one Chromium for all browser tests; a fresh, watched tab for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import chromium
from tests.browser.screen import Screen
from tests.browser.server import Server, running

SIZE = {"width": 1400, "height": 1000}


@pytest.fixture(scope="session")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app, started once."""
    with running(root, tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real Chromium, headless. Fails, and never skips, when none can be had."""
    with sync_playwright() as playwright:
        log = tmp_path_factory.mktemp("chromium") / "install.log"
        try:
            executable = chromium.obtain(playwright, log)
        except FileNotFoundError as fault:
            pytest.fail(str(fault), pytrace=False)
        started = playwright.chromium.launch(executable_path=executable, args=chromium.ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def new_screen(browser: Browser, server: Server) -> Iterator[Callable[..., Screen]]:
    """Opens tabs in contexts of their own, which share nothing; checks them all, and the server's log, at the end."""
    screens: list[Screen] = []
    said = len(server.said())

    def make(**options: object) -> Screen:
        context = browser.new_context(viewport=SIZE, accept_downloads=True, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        screens.append(Screen(context.new_page(), server.address))
        return screens[-1]

    yield make
    for screen in screens:
        screen.page.context.close()
    assert [fault for screen in screens for fault in screen.faults] == []
    assert "Traceback" not in server.said()[said:], server.said()[said:]


@pytest.fixture
def screen(new_screen: Callable[..., Screen]) -> Screen:
    """One tab."""
    return new_screen()
