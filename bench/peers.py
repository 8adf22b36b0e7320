"""``python -m bench.peers``: the same attention in BertViz, in CircuitsVis and in ours, in the same Chromium.

The attention is that of an untrained causal model of 12 layers x 12 heads, its logits spread so that rows are peaked,
and with ``--real`` that of SmolLM2 (30 x 9). Everything is served from this machine. A page is opened in a new browser,
and is done when it has drawn and all processes rest; ours is opened twice, and the second time counts: the peers' files
hold the attention already. BertViz's views hold all layers and heads; CircuitsVis gets one layer; ours is the
Attention page: the atlas of all layers and heads, and one head's maps under two scores with their difference. A peer
that passes a limit is not tried at greater lengths. Needs the development requirements, and for the peers
``pip install --no-deps -r requirements-bench.txt`` and npm.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from playwright.sync_api import sync_playwright

from bench import peer_pages
from bench.browser_cost import Cost, Limits, cost_of
from bench.laps import machine, spread
from bench.models import ROOT, attention_of, text_of, untrained
from bench.trace import sample
from fbt_core import checkpoints
from fbt_core.checkpoints import Checkpoint
from tests.browser.chromium import obtain
from tests.browser.screen import STILL
from tests.browser.server import running

SCRIPTS = ROOT / "build" / "peers"
OURS = "Fiberscope"
DRAWN = f"{STILL} .maps[data-updates]"
UNTRAINED, REAL = "untrained", "sample:smollm2-135m"
MOST_MEGABYTES = 300.0
"""Of a page, above which it is neither opened nor, as far as the last one tells, made."""


@dataclass(frozen=True)
class Row:
    """The costs of one page, a round each; or why there are none."""

    tokens: int
    way: str
    costs: tuple[Cost, ...]
    why: str = ""


@dataclass
class Bench:
    """Where pages come from, what limits them, and which peers have dropped out, with the reason."""

    open: Callable[[str, str], Cost]  # an address, and what is there once it has drawn
    assets: Path  # what our server offers
    folder: Path  # of the peers' pages
    site: str  # the address of that folder
    ours: str  # the address of our server
    dropped: dict[str, str] = field(default_factory=dict)
    made: dict[str, tuple[int, float]] = field(default_factory=dict)  # tokens and megabytes of a peer's last page

    def rows(self, checkpoint: Checkpoint, reference: str, tokens: int, rounds: int) -> list[Row]:
        """Every way at one length, in turn, round after round."""
        text = text_of(tokens)
        costs: dict[str, list[Cost]] = {
            OURS: [],
            **{peer: [] for peer in peer_pages.PEERS if self._make(peer, checkpoint, text)},
        }
        self._open(OURS, reference, text)  # our server computes the attention, as was done above for the peers' files
        for _ in range(rounds):
            for way, found in costs.items():
                if not (found and found[-1].stopped):
                    found.append(self._open(way, reference, text))
        for way, found in costs.items():
            if found[-1].stopped and way != OURS:
                self.dropped[way] = f"stopped at {tokens} tokens: {found[-1].stopped}"
        return [
            Row(tokens, way, tuple(costs.get(way, ())), self.dropped.get(way, "")) for way in (OURS, *peer_pages.PEERS)
        ]

    def _open(self, way: str, reference: str, text: str) -> Cost:
        if way == OURS:
            return self.open(f"{self.ours}/attention?{urlencode({'a': reference, 'text': text})}", DRAWN)
        return self.open(f"{self.site}/{_file(way)}", peer_pages.PEERS[way][1])

    def _make(self, peer: str, checkpoint: Checkpoint, text: str) -> bool:
        """Write a peer's page, unless it has dropped out, cannot be had, or would be too large."""
        if peer in self.dropped:
            return False
        maps, labels = attention_of(checkpoint, text)
        before, size = self.made.get(peer, (1, 0.0))
        if (expected := size * (len(labels) / before) ** 2) > MOST_MEGABYTES:
            self.dropped[peer] = f"not made at {len(labels):,} tokens: it would have about {expected:,.0f} MB"
            return False
        try:
            page = peer_pages.PEERS[peer][0](maps, labels)
        except peer_pages.Missing as fault:
            self.dropped[peer] = f"not here: {fault}"
            return False
        (self.folder / _file(peer)).write_text(page, encoding="utf-8")
        self.made[peer] = (len(labels), len(page) / 1e6)
        return True


def _file(peer: str) -> str:
    """The name of a peer's page."""
    return f"{list(peer_pages.PEERS).index(peer)}.html"


COLUMNS = {"megabytes": "MB sent", "cpu": "browser CPU s", "renderer": "renderer MB", "nodes": "DOM elements"}


def table(rows: list[Row]) -> str:
    """A line a page: medians with least and most, and how many times ours."""
    lines = [f"{'tokens':>6}  {'':23}" + "".join(f"{title:30}" for title in COLUMNS.values())]
    ours = {row.tokens: row.costs for row in rows if row.way == OURS}
    for row in rows:
        start = f"{row.tokens:6}  {row.way:23}"
        if not row.costs or row.costs[-1].stopped:
            until = "".join(f"; until then {one.cpu:.0f} CPU s, {one.renderer:,.0f} MB" for one in row.costs[-1:])
            lines.append(f"{start}{row.why or row.costs[-1].stopped}{until}")
            continue
        cells = []
        for name in COLUMNS:
            values, mine = ([getattr(one, name) for one in costs] for costs in (row.costs, ours[row.tokens]))
            times = statistics.median(values) / max(statistics.median(mine), 1e-9)
            said = (
                spread(values) if len(values) > 1 else f"{values[0]:,.3g}" if values[0] < 1000 else f"{values[0]:,.0f}"
            )
            cells.append(said + ("" if row.way == OURS else f" = {times:.3g} x"))
        lines.append(start + "".join(f"{cell:30}" for cell in cells))
    return "\n".join(lines)


@contextmanager
def bench(limits: Limits) -> Iterator[Bench]:
    """A bench with its two servers, its folder and a Chromium, all of which end with it."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(scratch)
        site, assets = folder / "site", folder / "assets"
        site.mkdir()
        untrained(assets / f"{UNTRAINED}.safetensors")
        dropped = {}
        try:
            peer_pages.scripts(SCRIPTS, site)
        except peer_pages.Missing as fault:
            dropped = {peer: f"not here: {fault}" for peer in peer_pages.PEERS if peer.startswith("BertViz")}
        executable = obtain(playwright, folder / "install.log")

        def opened(address: str, drawn: str) -> Cost:
            return cost_of(playwright.chromium, executable, address, drawn, limits)

        offered = running(ROOT, folder, FIBERSCOPE_ASSETS=str(assets))
        with peer_pages.served(site) as address, offered as ours:
            yield Bench(opened, assets, site, address, ours.address, dropped)


def main(
    lengths: Annotated[str, typer.Option(help="tokens, with commas between")] = "32,128,256,512,1024",
    rounds: Annotated[int, typer.Option(help="times that each page is opened, in turn")] = 1,
    real: Annotated[bool, typer.Option(help="SmolLM2's attention, where its package is installed")] = False,
    cpu: Annotated[float, typer.Option(help="CPU seconds of the browser, after which a page is stopped")] = 60.0,
    json_to: Annotated[Path | None, typer.Option("--json", help="also write the rows to this file")] = None,
) -> None:
    """Print one table."""
    limits = Limits(cpu=cpu)
    rows: list[Row] = []
    with bench(limits) as found:
        path = sample() if real else found.assets / f"{UNTRAINED}.safetensors"
        checkpoint, reference = checkpoints.load(path), REAL if real else f"demo:{UNTRAINED}"
        for tokens in map(int, lengths.split(",")):
            rows += found.rows(checkpoint, reference, tokens, rounds)
            typer.echo(f"{tokens} tokens done", err=True)
    config = checkpoint.config
    print(f"{path.name}, {config.layers} layers x {config.heads} heads; {rounds} rounds, medians (least to most)")
    print(f"a page is stopped after {limits.cpu:.0f} CPU s or {limits.renderer:,.0f} MB of a renderer, ", end="")
    print(f"and not opened above {MOST_MEGABYTES:.0f} MB\n\n{table(rows)}\n\n{machine()}, software WebGL")
    if json_to is not None:
        json_to.write_text(json.dumps({"rows": [asdict(row) for row in rows], "machine": machine()}), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
