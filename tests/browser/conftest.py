"""One server and one Chromium for all browser tests; an empty, watched tab for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tests.browser import chromium
from tests.browser.screen import SIZE, Screen
from tests.browser.server import Server, running


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


@pytest.fixture(scope="session")
def idle(browser: Browser) -> Iterator[list[Screen]]:
    """Tabs that wait for the next test, each in a context of its own."""
    tabs: list[Screen] = []
    yield tabs
    for tab in tabs:
        tab.page.context.close()


@pytest.fixture
def new_screen(browser: Browser, server: Server, idle: list[Screen]) -> Iterator[Callable[..., Screen]]:
    """Opens tabs in contexts of their own, which share nothing; checks them all, and the server's log, at the end.

    A tab that an earlier test left is emptied and used again: to compile the page's scripts anew costs more than most
    tests. Tabs ask for still pictures, for Streamlit's own ornaments are painted sixty times a second otherwise.
    """
    screens: list[Screen] = []
    said = len(server.said())

    def make(address: str = server.address, color_scheme: str = "light") -> Screen:
        tab = idle.pop() if idle else _tab(browser)
        tab.address = address
        tab.page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        screens.append(tab)
        return tab

    yield make
    emptied = [screen for screen in screens if _emptied(screen)]
    faults = [fault for screen in screens for fault in screen.faults]
    for screen in screens:
        if screen in emptied and not faults:
            idle.append(screen)
        else:
            screen.page.context.close()
    assert faults == []
    assert "Traceback" not in server.said()[said:], server.said()[said:]


def _emptied(screen: Screen) -> bool:
    try:
        screen.empty()
    except PlaywrightError:  # a test closed it, or it hangs
        return False
    return True


def _tab(browser: Browser) -> Screen:
    context = browser.new_context(viewport=SIZE, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    return Screen(context.new_page(), "")


@pytest.fixture
def screen(new_screen: Callable[..., Screen]) -> Screen:
    """One tab."""
    return new_screen()
