"""``python -m bench.pages``: what a page costs at 128, 1,024 and 4,096 tokens, seen from inside a real Chromium.

A row is one page at one length: its first drawing, then changes of layer, head and colour. Of each: the bytes that
came from the server; the time until they had all come (the server's, with the way); the time from then until the
component had painted; and their sum as a ratio to the page's own first drawing in the same run. A page without a
counting component is done when its script has ended and nothing on it is out of date.

The checkpoint is a bundled one whose learned positions are stretched to 4,096: a real model's maps at any length.
Needs the development requirements.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from playwright.sync_api import Browser, Page, sync_playwright

from bench.laps import machine
from bench.models import ROOT, stretched, text_of
from tests.browser.chromium import ARGUMENTS, obtain
from tests.browser.server import Server, running

WATCH = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")
HANG = 90_000.0  # milliseconds after which a drawing that does not come is given up
FIRST = 8_000.0  # milliseconds in which a server draws its first page and imports what later ones want
STILL = 700.0  # milliseconds without a byte or a drawing: the page has come to rest

DRAWN = {"ellipsoids": "scene", "attention": "maps", "overview": "", "depth": ""}
"""Page to the class of what counts its own drawings there."""

PATHS = {"overview": ""}
"""Of pages whose address is not their name."""


@dataclass(frozen=True)
class Cost:
    """Of one change, or of a page's first drawing: milliseconds and bytes."""

    page: str
    tokens: int
    change: str
    bytes: int
    server: float
    paint: float

    @property
    def total(self) -> float:
        """Until it was seen, milliseconds."""
        return self.server + self.paint


@contextmanager
def app(scratch: Path, browser: Browser) -> Iterator[Server]:
    """A server that also offers the stretched checkpoint, has had its first visitor, and imported what comes then."""
    assets = scratch / "assets"
    shutil.copytree(ROOT / "assets", assets)
    stretched(assets / "long.safetensors")
    with running(ROOT, scratch, FIBERSCOPE_ASSETS=str(assets)) as server:
        visitor = browser.new_page()
        visitor.goto(server.address)
        visitor.wait_for_timeout(FIRST)
        visitor.close()
        yield server


def moved(label: str) -> Callable[[Page], None]:
    """A step of a slider of the sidebar."""
    return lambda page: page.locator(f'[data-testid="stSidebar"] input[aria-label="{label}"]').press("ArrowRight")


def chosen(name: str) -> Callable[[Page], None]:
    """Another option of a select box: the first that is not chosen now."""

    def change(page: Page) -> None:
        box = page.get_by_role("combobox", name=name).first
        now = box.input_value()
        box.click()
        page.get_by_role("option").filter(has_not_text=now).first.click()

    return change


def zoomed(page: Page) -> None:
    """The wheel over the first map, as far as single cells."""
    page.locator(".maps canvas").first.hover()
    page.mouse.wheel(0, -1400)


CHANGES: dict[str, dict[str, Callable[[Page], None]]] = {
    "attention": {"layer": moved("Layer"), "head": moved("Head"), "colour": chosen("Colour scale")},
    "ellipsoids": {"layer": moved("Layer"), "head": moved("Head"), "colour": chosen("Colour")},
    "overview": {"layer": moved("Layer"), "colour": chosen("Colour tokens by")},
    "depth": {"layer": moved("Layer"), "measure": chosen("Measure of the residual stream")},
}

LENGTHS = {"attention": (128, 1024, 4096), "ellipsoids": (128, 1024, 4096), "overview": (128, 1024),
           "depth": (128, 1024)}  # fmt: skip


def waited(page: Page, drawn: str, since: float) -> dict[str, Any]:
    """The log from ``since`` on, once the component has painted (or the page stands) and nothing moves any more."""
    page.wait_for_function(
        """([drawn, since, still]) => {
          const { got, painted, sent } = window.benchLog;
          const asked = since ? Math.min(...sent.filter((at) => at > since)) : 0;
          const mine = painted.filter(([at, ...names]) => at > asked && names.some((name) => name.startsWith(drawn)));
          const idle = document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
            && !document.querySelector('[data-stale="true"], [data-testid=stSpinner]');
          const last = Math.max(since, ...[...got, ...painted, ...sent.map((at) => [at])].map(([at]) => at));
          return idle && got.some(([at]) => at > since) && (!drawn || mine.length) && performance.now() - last > still;
        }""",
        arg=[drawn, since, STILL],
        timeout=HANG,
        polling=100,  # not at every frame, which would make the page draw every frame
    )
    return page.evaluate("window.benchLog")


def cost(log: dict[str, Any], where: tuple[str, int, str], drawn: str, since: float) -> Cost:
    """What happened from ``since`` until the first drawing after it; without a component, until the last byte."""
    start = since if since == 0 else min((at for at in log["sent"] if at > since), default=since)
    painted = [at for at, *names in log["painted"] if at > start and any(name.startswith(drawn) for name in names)]
    end = painted[0] if drawn else max(at for at, _ in log["got"])
    got = [(at, size) for at, size in log["got"] if start < at <= end]
    come = got[-1][0] if got else start
    return Cost(*where, sum(size for _, size in got), come - start, end - come)


def measured(browser: Browser, address: str, name: str, tokens: int, rounds: int) -> Iterator[Cost]:
    """A page's first drawing and each change, some times; of each the median by total."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(WATCH)
    query = {"a": "demo:long", "text": text_of(tokens)}
    page.goto(f"{address}/{PATHS.get(name, name)}?{urlencode(query)}")
    drawn = DRAWN[name]
    yield cost(waited(page, drawn, 0.0), (name, tokens, "first"), drawn, 0.0)
    changes = CHANGES[name] | ({"zoom to exact": zoomed} if name == "attention" and tokens > 1024 else {})
    for change, act in changes.items():
        several = []
        for _ in range(1 if change.startswith("zoom") else rounds):
            since = page.evaluate("performance.now()")
            act(page)
            several.append(cost(waited(page, drawn, since), (name, tokens, change), drawn, since))
        several.sort(key=lambda one: one.total)
        yield several[len(several) // 2]
    page.close()


HEAD = f"{'page':11} {'tokens':>6}  {'change':15} {'MB':>7} {'server ms':>9} {'paint ms':>8} {'total':>7}  of first"


def line(row: Cost, first: float) -> str:
    """A row of the table."""
    return (
        f"{row.page:11} {row.tokens:6}  {row.change:15} {row.bytes / 1e6:7.3f} {row.server:9.0f} {row.paint:8.0f} "
        f"{row.total:7.0f}  {row.total / first:.2f}"
    )


def main(
    only: Annotated[str, typer.Option(help="one page: attention, ellipsoids, overview or depth")] = "",
    tokens: Annotated[int, typer.Option(help="one length; 0 is all of a page's")] = 0,
    rounds: int = 3,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print one table."""
    rows: list[Cost] = []
    wanted = [(name, length) for name, lengths in LENGTHS.items() for length in lengths]
    first = 1.0
    if not as_json:
        typer.echo(HEAD)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=obtain(playwright, Path(scratch) / "install.log"), args=ARGUMENTS
        )
        with app(Path(scratch), browser) as server:
            for name, length in wanted:
                if name not in (only or name) or tokens not in (0, length):
                    continue
                for row in measured(browser, server.address, name, length, rounds):
                    first = row.total if row.change == "first" else first
                    rows.append(row)
                    if not as_json:
                        typer.echo(line(row, first))
        browser.close()
    if as_json:
        typer.echo(json.dumps({"machine": machine(), "rows": [vars(row) for row in rows]}))
    else:
        typer.echo(f"\n{machine()}; software WebGL")


if __name__ == "__main__":
    typer.run(main)
