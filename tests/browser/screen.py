"""A person at the browser: opens pages, reads what stands there, clicks, and notices when something is wrong."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlparse

import numpy as np
from PIL import Image
from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

PATIENCE = float(os.environ.get("FIBERSCOPE_PATIENCE", "1"))
"""Multiplies every wait, for a machine that is slow or busy. No test waits this long unless something is missing."""

WAIT = 60_000 * PATIENCE
"""Milliseconds until something that must appear counts as missing."""

LONG = 500
"""Milliseconds of the longest delay after which a widget tells the server of its change."""

MOMENT = 80
"""Milliseconds from an answer of the server until the page shows that its script runs."""

WATCH = """
(() => {
  const waiting = new Set(), watched = new WeakSet(), now = () => performance.now();
  const { setTimeout: begin, clearTimeout: end } = window, send = WebSocket.prototype.send;
  let sent = 0, answered = 0;
  window.setTimeout = (act, delay, ...rest) => {
    const id = begin((...given) => { waiting.delete(id); act(...given); }, delay, ...rest);
    if (delay >= 10 && delay <= LONG) waiting.add(id);
    return id;
  };
  window.clearTimeout = (id) => { waiting.delete(id); end(id); };
  WebSocket.prototype.send = function (data) {
    sent = now();
    if (!watched.has(this)) this.addEventListener("message", () => { answered = now(); });
    watched.add(this);
    return send.call(this, data);
  };
  window.told = () => waiting.size === 0 && (answered > sent || sent === 0) && now() - answered > MOMENT;
})()
""".replace("LONG", str(LONG)).replace("MOMENT", str(MOMENT))
"""In the page, before its own scripts: whether a widget still waits to tell the server, or the server to answer."""

LOOK = 50
"""Milliseconds between two looks at a page: to look at every frame would make it draw every frame."""

STILL = '[data-testid="stApp"][data-test-script-state="notRunning"]'
"""There once the script has run."""

FRESH = "() => !document.querySelector('[data-stale=\"true\"], [data-testid=stSpinner]')"

FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Until what an event changed has been painted, and with it every effect of the change has begun."""

PROBE = re.compile(r":\d+/\w+/_stcore/(health|host-config)$")
"""Streamlit's own script looks for its server below the page's path first, is told 404, and then looks at the root."""

FORGET = "() => { if (location.protocol === 'http:') { localStorage.clear(); sessionStorage.clear(); } }"

SIZE = {"width": 1400, "height": 1000}
"""CSS pixels of a tab."""

FIELD = "canvas[data-count]"
MAPS = ".maps[data-tokens]"


@dataclass
class Screen:
    """One browser tab on the app, and everything untoward that happened in it."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT)
        self.page.add_init_script(WATCH)
        expect.set_options(timeout=WAIT)
        self.page.on("console", self._check_message)
        self.page.on("pageerror", lambda error: self._fault(f"page error: {error}"))
        self.page.on("request", self._check_request)
        self.page.on("dialog", lambda dialog: (self._fault(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def _check_message(self, message: ConsoleMessage) -> None:
        place = message.location.get("url", "")
        if message.type == "error" and not PROBE.search(place):
            self._fault(f"console: {message.text} {place}")

    def _check_request(self, request: Request) -> None:
        url = urlparse(request.url)
        if url.scheme not in ("data", "blob") and url.hostname not in ("127.0.0.1", "localhost"):
            self._fault(f"a request left loopback: {request.url}")

    def open(self, page: str = "", **query: str | int | float) -> Screen:
        """Go to a page of the app, as by typing its address, and wait until it stands still."""
        self.page.goto(f"{self.address}/{page}" + (f"?{urlencode(query)}" if query else ""))
        return self.drawn()

    def empty(self) -> Screen:
        """Leave the app and forget all that it kept in the browser: cookies, stored settings, other tabs beside it."""
        for other in self.page.context.pages:
            if other is not self.page:
                other.close()
        self.page.unroute_all()
        self.page.evaluate(FORGET)
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        self.page.set_viewport_size(SIZE)
        return self

    def settle(self) -> Screen:
        """``drawn``, after something was changed on the page."""
        self.page.evaluate(FRAMES)
        try:
            self.page.wait_for_function("() => told()", timeout=1000 * PATIENCE, polling=LOOK)
        except PlaywrightTimeoutError:
            pass  # something on the page keeps a timer going: the pause was long enough
        return self.drawn()

    def drawn(self) -> Screen:
        """Wait until the script has run, nothing it drew is out of date, and no spinner turns."""
        self.page.wait_for_selector('[data-testid="stMain"] h2')
        self.page.wait_for_selector(STILL)
        self.page.wait_for_function(FRESH, polling=LOOK)
        return self

    def tab(self, title: str) -> Screen:
        """Go to a page by the navigation on top."""
        self.page.get_by_test_id("stTopNavLink").filter(has_text=title).first.click()
        expect(self.page.get_by_role("heading", name=title, exact=True).first).to_be_visible()
        return self.drawn()

    def slider(self, label: str) -> Locator:
        """A slider of the sidebar."""
        return self.page.get_by_test_id("stSidebar").locator(f'input[type="range"][aria-label="{label}"]')

    def slide(self, label: str, value: int) -> Screen:
        """Move a slider of the sidebar to an integer by the keyboard."""
        thumb = self.slider(label)
        for _ in range(1000):  # a key may be lost where the slider is drawn anew in that moment
            if (now := int(thumb.input_value())) == value:
                break
            thumb.press("ArrowRight" if value > now else "ArrowLeft")
            self.page.wait_for_timeout(10)
        expect(thumb).to_have_value(str(value))
        return self

    def choose(self, label: str, option: str) -> Screen:
        """Pick an option of a select box in the sidebar."""
        self.page.get_by_test_id("stSidebar").get_by_role("combobox", name=re.compile(re.escape(label))).click()
        self.page.get_by_role("option", name=option, exact=True).click()
        return self.settle()

    def write(self, text: str) -> Screen:
        """Replace the text."""
        box = self.page.get_by_test_id("stSidebar").get_by_role("textbox", name="Text")
        box.fill(text)
        box.press("Control+Enter")
        return self.settle()

    def upload(self, *files: Path | dict[str, Any]) -> Screen:
        """Give files, which are one checkpoint, by the file chooser: paths, or names with contents."""
        expander = self.page.get_by_test_id("stSidebar").get_by_test_id("stExpander").filter(has_text="Upload a check")
        button = expander.get_by_role("button", name="Choose files")
        if not button.is_visible():
            expander.locator("summary").click()
        with self.page.expect_file_chooser() as chooser:
            button.click()
        chooser.value.set_files(list(files))
        return self

    def field(self) -> Locator:
        """The first ellipsoid field, drawn."""
        canvas = self.page.locator(FIELD).first
        expect(canvas).to_be_visible()
        return canvas

    def maps(self) -> Locator:
        """The first group of attention maps, drawn."""
        root = self.page.locator(MAPS).first
        expect(root).to_be_visible()
        return root

    def download(self, button: Locator, to: Path) -> Path:
        """Click and keep the file that comes of it."""
        with self.page.expect_download() as coming:
            button.click()
        path = to / coming.value.suggested_filename
        coming.value.save_as(path)
        return path


def updates(drawn: Locator) -> int:
    """How often a component has drawn new data."""
    return int(drawn.get_attribute("data-updates") or "0")


def wait_for_update(drawn: Locator, after: int) -> None:
    """Wait until a component has drawn data newer than its ``after``-th."""
    expect(drawn).not_to_have_attribute("data-updates", str(after), timeout=WAIT)


def pixels(drawn: Locator) -> np.ndarray:
    """What is seen of an element: (height, width, 3), 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(drawn.screenshot())).convert("RGB")).astype(float)


def colours(drawn: Locator) -> int:
    """How many different colours an element shows, to 4 bits a channel: 1 for a blank one."""
    seen = (pixels(drawn) // 16).astype(int).reshape(-1, 3)
    return len(np.unique(seen, axis=0))
