"""A session of the app without a browser: Streamlit's own messages over its web socket.

A browser sends the server what is asked and draws what comes back. This client asks the same and keeps what comes, so
that the time is the server's alone: ten browsers on one machine cost it ten times what the server does.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

from tests.browser.server import Server

HANG = 300.0
"""Seconds without a message after which a page that does not come is given up."""

SECRET = re.compile(rb'("token": ?"|/tiles/)[\w-]+')
"""The tickets and tokens of a session, of each its own."""

KEPT = re.compile(r"This server keeps [^\n]*")
"""How much the server keeps, which depends on who else is there."""

TURN = "before yours"
"""What a page says whose computation waits for others."""

Path = tuple[int, ...]
"""Where on the page an element stands."""


@dataclass
class Shown:
    """What one page showed, and after how many seconds all of it was there. ``told``: its place in the line."""

    elements: dict[Path, Delta] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0
    told: bool = False

    def add(self, message: ForwardMsg) -> None:
        """Take one change of the page: what is put in a block's place takes away what was in it."""
        delta, path = message.delta, tuple(message.metadata.delta_path)
        if delta.WhichOneof("type") == "new_transient":
            self.told |= any(TURN in one.spinner.text for one in delta.new_transient.elements)
            return
        for inner in [other for other in self.elements if other[: len(path)] == path]:
            del self.elements[inner]
        self.elements[path] = delta

    def content(self) -> list[tuple[Path, bytes]]:
        """Everything on the page, figures and their numbers too, in order; without what is each session's own."""
        found = []
        for path, one in sorted(self.elements.items()):
            element = one.new_element
            if element.HasField("download_button"):
                element.download_button.ClearField("deferred_file_id")  # a new one each time
            elif element.HasField("markdown"):
                element.markdown.body = KEPT.sub("", element.markdown.body)
            found.append((path, SECRET.sub(rb"\1", one.SerializeToString(deterministic=True))))
        return found


@dataclass
class Visitor:
    """One connected session."""

    socket: ClientConnection
    query: str
    hashes: dict[str, str] = field(default_factory=dict)  # of the pages by the last part of their address

    async def open(self, page: str = "") -> Shown:
        """Go to a page, the overview first, and take all that it shows. Raises ``RuntimeError`` when it fails."""
        asked, shown, start = BackMsg(), Shown(), time.monotonic()
        asked.rerun_script.query_string = self.query
        asked.rerun_script.page_script_hash = self.hashes.get(page, "")
        await self.socket.send(asked.SerializeToString())
        while True:
            raw = await asyncio.wait_for(self.socket.recv(decode=False), HANG)
            message, shown.bytes = ForwardMsg.FromString(raw), shown.bytes + len(raw)
            kind = message.WhichOneof("type")
            if kind == "delta":
                shown.add(message)
            elif kind == "new_session":
                shown.elements.clear()  # the script began anew
            elif kind == "navigation":
                self.hashes = {one.url_pathname: one.page_script_hash for one in message.navigation.app_pages}
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                shown.seconds = time.monotonic() - start
                return shown
            elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                raise RuntimeError(f"got a script that does not compile, expected the page {page!r}: see its log")


@dataclass
class Clients:
    """Sessions without a browser."""

    server: Server

    def cpu(self) -> dict[str, float]:
        """CPU seconds of others than the server: none worth telling."""
        return {}

    async def visit(self, query: dict[str, str | int], pages: tuple[str, ...]) -> AsyncIterator[Shown]:
        """One session's pages, one after the other."""
        async with visitor(self.server.address, **query) as one:
            for page in pages:
                yield await one.open(page)


@asynccontextmanager
async def clients(server: Server) -> AsyncIterator[Clients]:
    """For ``bench.sessions``."""
    yield Clients(server)


@asynccontextmanager
async def visitor(address: str, **query: str | int) -> AsyncIterator[Visitor]:
    """A session on the server at ``address``, as a link with this query opens it; it leaves at the end."""
    place = address.replace("http", "ws", 1) + "/_stcore/stream"
    async with connect(place, subprotocols=["streamlit"], max_size=None, compression=None) as socket:  # type: ignore
        yield Visitor(socket, urlencode(query))
