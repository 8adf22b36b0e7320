"""What one page costs a browser: bytes, CPU seconds, memory, DOM nodes, each in a Chromium of its own, within limits.

Linux only: the CPU and the memory of the browser's processes are what the kernel says of them in /proc.
"""

from __future__ import annotations

import base64
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from playwright.sync_api import BrowserType, CDPSession, Error, Page

from tests.browser.chromium import ARGUMENTS

TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
REST = 1.5  # seconds in which a page that is done uses next to nothing, and between looks at the limits
IDLE = 0.06  # CPU seconds of all processes in that time: a caret blinks, a socket is kept open
LATE = 10_000.0  # milliseconds that a page of a million elements may take to answer a question
HEAP = "--js-flags=--max-old-space-size=8192"  # V8's own limit must not stop a page before ours does

COUNT = """() => {
  const all = (root) => [...root.querySelectorAll('*')];
  const within = (root) => all(root).reduce((sum, one) => sum + 1 + (one.shadowRoot ? within(one.shadowRoot) : 0), 0);
  return within(document);
}"""
"""Elements of a page, those in shadow roots too."""


@dataclass(frozen=True)
class Limits:
    """Where a page is stopped."""

    cpu: float = 60.0  # seconds, of all of Chromium's processes
    clock: float = 150.0  # seconds
    renderer: float = 6000.0  # megabytes (10^6 bytes) of one renderer, at its peak


@dataclass(frozen=True)
class Cost:
    """Of one page, from an empty tab until it rests. ``stopped`` says which limit ended it, empty where none did."""

    megabytes: float  # sent to the browser
    cpu: float  # seconds, of all of Chromium's processes
    renderer: float  # megabytes at the peak, of the largest renderer
    nodes: int
    seconds: float  # by the clock, until the page came to rest
    stopped: str = ""


@dataclass
class Traffic:
    """Bytes that came over the network and by web sockets."""

    bytes: int = 0

    def watch(self, session: CDPSession) -> None:
        """Count from now on."""
        session.on("Network.loadingFinished", lambda event: self._add(event["encodedDataLength"]))
        session.on("Network.webSocketFrameReceived", lambda event: self._add(_size(event["response"])))
        session.send("Network.enable")

    def _add(self, more: float) -> None:
        self.bytes += int(more)


def _size(frame: dict[str, Any]) -> int:
    """Bytes of a frame, of which a binary one comes in base64."""
    data = frame["payloadData"]
    return len(data) if frame["opcode"] == 1 else len(base64.b64decode(data))


def cost_of(chromium: BrowserType, executable: str, address: str, drawn: str, limits: Limits) -> Cost:
    """Open the address in a new Chromium, wait until ``drawn`` is there and the page rests, or a limit ends it."""
    mark = f"--bench-{uuid4().hex}"  # Chromium ignores it, and it tells its first process from others
    browser = chromium.launch(executable_path=executable, args=[*ARGUMENTS, HEAP, mark])
    try:
        root = min(process for process in processes() if mark in command_of(process))
        page, traffic = browser.new_page(viewport={"width": 1440, "height": 1000}), Traffic()
        page.goto("about:blank")
        while not _rests(root, page):
            pass
        traffic.watch(page.context.new_cdp_session(page))
        before, start = cpu(root), time.monotonic()
        page.goto(address, wait_until="commit", timeout=limits.clock * 1000)
        stopped = _finished(root, page, drawn, limits)
        spent, clock = cpu(root) - before, time.monotonic() - start
        nodes = 0 if stopped else page.evaluate(COUNT)
        return Cost(traffic.bytes / 1e6, spent, renderer_peak(root), nodes, clock, stopped)
    finally:
        browser.close()


def _finished(root: int, page: Page, drawn: str, limits: Limits) -> str:
    """Wait until a page has drawn and rests; or the reason why it was stopped before that."""
    before, start = cpu(root), time.monotonic()
    crashed: list[Page] = []
    page.on("crash", lambda lost: crashed.append(lost))
    while not (_rests(root, page) and _shows(page, drawn)):
        if crashed:
            return "it crashed"
        if renderer_peak(root) > limits.renderer:
            return f"more than {limits.renderer:,.0f} MB in one renderer"
        if cpu(root) - before > limits.cpu:
            return f"more than {limits.cpu:.0f} CPU s"
        if time.monotonic() - start > limits.clock:
            return f"more than {limits.clock:.0f} s"
    return ""


def _rests(root: int, page: Page) -> bool:
    """Whether the processes use next to nothing for a while."""
    before = cpu(root)
    page.wait_for_timeout(REST * 1000)
    return cpu(root) - before < IDLE


def _shows(page: Page, drawn: str) -> bool:
    try:
        page.locator(drawn).first.wait_for(state="attached", timeout=LATE)
    except Error:
        return False
    return True


def processes() -> list[int]:
    """All process ids of this machine."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def command_of(process: int) -> str:
    """Its command line; empty where it has ended."""
    return _read(process, "cmdline").replace("\0", " ")


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {process: int(_stat(process)[1]) for process in processes() if _stat(process)}
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def cpu(root: int) -> float:
    """CPU seconds that a tree of processes has used, of ended and waited-for children too."""
    return sum(sum(map(int, _stat(process)[11:15])) for process in tree(root) if _stat(process)) / TICK


def renderer_peak(root: int) -> float:
    """Megabytes at the peak of the largest renderer among them."""
    found = [0.0]
    for process in tree(root):
        lines = _read(process, "status").splitlines() if "--type=renderer" in command_of(process) else []
        found += [int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM")]
    return max(found)


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, ...; empty where it has ended."""
    return _read(process, "stat").rpartition(")")[2].split()


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
