"""``python -m bench.startup``: how soon after the server's start there is something to see.

Seen from outside, in a real Chromium on the same machine, and in turn with a bare Streamlit app of one line, which no
app can beat: the ratio is what ours costs on top of it. Below it, what the first screen's imports take, by package.
Needs the development requirements.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from playwright.sync_api import Browser, sync_playwright

from bench.laps import machine, spread
from bench.models import ROOT
from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.screen import STILL
from tests.browser.server import running

BARE = "import streamlit as st\n\nst.html('<p class=\"strip\">.</p>')\n"
FIRST = ".strip"
"""The first figure of ours, the token strip, and the only element of the bare app."""

STAGES = {
    "answers": "the server answers",
    "first figure": "first figure, browser sent as soon as it answers",
    "whole page": "the whole page stands still",
    "next visitor": "first figure of the next visitor, from the click",
    "after a pause": "first figure, browser sent 2 s later, from then",
}
PAUSE = 2.0  # seconds that somebody needs to turn to the browser
HANG = 60_000.0  # milliseconds after which a figure that does not come is given up
LARGEST = 10  # packages of the profile

Seconds = dict[str, float]


@contextmanager
def page_of(browser: Browser, address: str) -> Iterator[Callable[[], None]]:
    """A new visitor's page, sent to the address; what is yielded waits until the whole page stands still."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(address)
    page.locator(FIRST).first.wait_for(timeout=HANG)
    yield lambda: page.locator(STILL).wait_for(timeout=HANG)
    context.close()


def visited(browser: Browser, root: Path, scratch: Path) -> Seconds:
    """One start of the server, visited at once and then a second time."""
    found: Seconds = {}
    with running(root, scratch) as server:
        found["answers"] = time.monotonic() - server.started
        with page_of(browser, server.address) as still:
            found["first figure"] = time.monotonic() - server.started
            still()
            found["whole page"] = time.monotonic() - server.started
        start = time.monotonic()
        with page_of(browser, server.address):
            found["next visitor"] = time.monotonic() - start
    return found | {"after a pause": _after_a_pause(browser, root, scratch)}


def _after_a_pause(browser: Browser, root: Path, scratch: Path) -> float:
    """One more start, visited when a person would."""
    with running(root, scratch) as server:
        time.sleep(PAUSE)
        start = time.monotonic()
        with page_of(browser, server.address):
            return time.monotonic() - start


def profile() -> dict[str, float]:
    """Milliseconds that the imports of the first screen take in a process of their own, by top-level package."""
    command = [sys.executable, "-X", "importtime", "-c", "import app.frame"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    found: dict[str, float] = {}
    for own, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)", said):
        package = name.split(".")[0]
        found[package] = found.get(package, 0.0) + int(own) / 1000
    return dict(sorted(found.items(), key=lambda row: -row[1]))


def measured(rounds: int) -> dict[str, list[Seconds]]:
    """The stages of both apps, in turn, round after round, after one round that is not counted."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        scratch = Path(folder)
        bare = scratch / "bare"
        bare.mkdir()
        (bare / "streamlit_app.py").write_text(BARE, encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=obtain(playwright, scratch / "install.log"), args=ARGUMENTS
        )
        laps: dict[str, list[Seconds]] = {"ours": [], "bare": []}
        for lap in range(rounds + 1):
            for name, root in (("ours", ROOT), ("bare", bare)):
                seconds = visited(browser, root, scratch)
                if lap:
                    laps[name].append(seconds)
        browser.close()
    return laps


def main(
    rounds: int = 5,
    json_to: Annotated[Path | None, typer.Option("--json", help="also write the laps to this file")] = None,
) -> None:
    """Print one table, and the profile of the imports."""
    laps = measured(rounds)
    print(f"{rounds} rounds: median (least to most)\n")
    print(f"{'seconds until':54}{'Fiberscope':24}{'bare Streamlit app':24}ratio")
    for stage, title in STAGES.items():
        ours, bare = ([lap[stage] for lap in laps[name]] for name in ("ours", "bare"))
        ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
        print(f"{title:54}{spread(ours):24}{spread(bare):24}{spread(ratios)}")
    parts = profile()
    total = sum(parts.values())
    shares = ", ".join(f"{name} {value / total:.0%}" for name, value in list(parts.items())[:LARGEST])
    print(f"\nimports of the first screen, {total / 1000:.2f} s under the profiler: {shares}\n{machine()}")
    if json_to is not None:
        json_to.write_text(json.dumps({"seconds": laps, "imports ms": parts, "machine": machine()}), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
