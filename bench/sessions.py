"""``python -m bench.sessions``: ten sessions at once, each with a checkpoint and a text of its own, then nobody.

Each goes through the same pages as it did when it was alone on another server, one session after the other. What
comes must then be, byte by byte and number by number, what came there. By default a session is a client of the server
and nothing else, so that the times are the server's; with ``--tabs`` it is a tab of one Chromium on the same machine,
whose work is then in the times too. Linux only: the server's memory and CPU are what the kernel says of them.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import session_client, session_tabs
from bench.browser_cost import cpu
from bench.laps import machine, spread
from bench.models import ROOT
from tests.browser.server import Server, running

KINDS = ("riemannian", "euclidean", "l2", "dictionary", "euclidean-wide")
WORDS = ("old", "sailor", "near", "the", "ships", "sings", "harbour", "king", "river", "stone")
PAGES = ("", "attention", "depth", "curvature")
GRACE = 3  # seconds instead of two minutes, after which our server and Streamlit forget who left
WARM = 8.0  # seconds in which a new server ends what it imports after its first page
SETTINGS = {"FIBERSCOPE_GRACE": str(GRACE), "STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL": str(GRACE)}

Key = tuple[int, str]
"""A session's number, a page."""


@dataclass
class Measured:
    """Of all sessions on one server: seconds and content of each page, CPU seconds of a session, memory in MiB."""

    seconds: dict[Key, float] = field(default_factory=dict)
    content: dict[Key, Any] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)  # sessions that were told of their place in the line
    cpu: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)


def main(
    sessions: Annotated[int, typer.Option(min=1, max=10)] = 10,
    tabs: Annotated[bool, typer.Option(help="Tabs of one Chromium instead of clients.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Print answer times of many sessions as ratios to one alone, CPU and memory. Ends 1 when two mix."""
    way = session_tabs.tabs if tabs else session_client.clients
    alone, together = (asyncio.run(measured(at_once, sessions, way)) for at_once in (1, sessions))
    mixed = [key for key, content in alone.content.items() if together.content[key] != content]
    ratios = {page: [together.seconds[key] / alone.seconds[key] for key in alone.seconds if key[1] == page]
              for page in PAGES}  # fmt: skip
    found = {
        "machine": machine(), "sessions": sessions, "mixed": [list(key) for key in mixed], "told": len(together.told),
        "cpu_s": {name: [alone.cpu[name], together.cpu[name]] for name in alone.cpu}, "memory_MiB": together.memory,
        "pages": {page or "overview": {"alone_s": statistics.median(alone.seconds[key] for key in alone.seconds
                                                                    if key[1] == page),
                                       "ratios": values} for page, values in ratios.items()},
    }  # fmt: skip
    typer.echo(json.dumps(found, indent=1) if json_ else table(found))
    raise typer.Exit(1 if mixed else 0)


def table(found: dict[str, Any]) -> str:
    """Everything as one table."""
    count = found["sessions"]
    lines = [f"{'page':>10} | one session alone s | each of {count} at once, ratio: median (least to most)"]
    for page, row in found["pages"].items():
        lines.append(f"{page:>10} | {row['alone_s']:19.2f} | {spread(row['ratios'])}")
    for name, (one, many) in found["cpu_s"].items():
        lines.append(f"{name}: {one:.2f} CPU s a session alone, {many:.2f} at once = {many / one:.2f} x")
    kept = ", ".join(f"{name} {value:.0f}" for name, value in found["memory_MiB"].items())
    lines += [
        f"waited so long that they were told of their place in the line: {found['told']} of {count}",
        f"server MiB: {kept}", f"pages that differ from those alone: {len(found['mixed'])}", found["machine"],
    ]  # fmt: skip
    return "\n".join(lines)


Way = Callable[[Server], AbstractAsyncContextManager[Any]]
"""Connects to a server: to what has ``visit(query, pages)``, which yields what each shows, and ``cpu()`` by name."""


async def measured(at_once: int, sessions: int, way: Way) -> Measured:
    """All sessions, ``at_once`` at a time, on a fresh server; then as many again, for what stays of each."""
    found, again = Measured(), Measured()
    with tempfile.TemporaryDirectory() as scratch, running(ROOT, Path(scratch), **SETTINGS) as server:
        async with way(server) as visits:
            await one(visits, -1, Measured())  # the first visitor of a server waits for its imports
            await asyncio.sleep(WARM)
            found.memory["before"] = resident(server)
            before = {"server": cpu(server.pid)} | visits.cpu()
            await all_of(visits, at_once, sessions, found)
            after = {"server": cpu(server.pid)} | visits.cpu()
            found.cpu = {name: (after[name] - before[name]) / sessions for name in after}
            found.memory |= {"with all": resident(server), "peak": resident(server, "VmHWM")}
            await left(visits)
            found.memory["after all left"] = resident(server)
            if at_once > 1:
                await all_of(visits, at_once, sessions, again)
                await left(visits)
                found.memory["after as many again"] = resident(server)
        assert "Traceback" not in server.said(), server.said()
    return found


async def all_of(visits: Any, at_once: int, sessions: int, found: Measured) -> None:
    """Every session once, ``at_once`` at a time."""
    for first in range(0, sessions, at_once):
        group = range(first, min(first + at_once, sessions))
        await asyncio.gather(*(one(visits, number, found) for number in group))


async def one(visits: Any, number: int, found: Measured) -> None:
    """One session: page after page, as by its navigation."""
    query = {"a": f"demo:{KINDS[number % len(KINDS)]}", "text": text_of(number), "token": 1}
    names = iter(PAGES)
    async for shown in visits.visit(query, PAGES):
        key = number, next(names)
        found.seconds[key], found.content[key] = shown.seconds, shown.content()
        if shown.told:
            found.told.add(number)


async def left(visits: Any) -> None:
    """Until what nobody shows is let go of: Streamlit forgets sessions when the next one leaves."""
    await asyncio.sleep(GRACE + 1)
    await one(visits, -1, Measured())
    await asyncio.sleep(GRACE + 2)


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
