"""The server's own routes: the upload, which stands here, and the parts of large maps, which stand in ``app.tiles``.

``PUT /upload/<token>/<number>`` streams a file of any size to disk, at a flat cost in memory. Streamlit's own uploader
keeps every file in memory, twice at each rerun. Here a page draws a chooser with a fresh ticket of its session; the
chooser sends file after file under that ticket; the script then claims them, once. The address holds a secret and a
number: no name and no path of the client's. A server that was started without these routes (``SERVED`` is False) falls
back on Streamlit's uploader, and sends no parts of maps.

Nothing here imports torch by itself: the server must stand within a moment. Once it stands, a thread imports what the
first page will want, while the browser still opens it.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from streamlit.config import get_option

from app import tiles

if TYPE_CHECKING:
    from app.intake_store import Piece

LIFETIME = 6 * 3600.0
"""Seconds until an unused ticket is worth nothing."""

PART = 1 << 20
"""Bytes that are gathered before they are written, off the event loop."""

STALL = 120.0
"""Seconds without a byte after which an upload has ended."""

SERVED = False


@dataclass
class Ticket:
    """The right of one session to send the files of one checkpoint."""

    session: str
    expires: float
    pieces: dict[int, Any] = field(default_factory=dict)  # number to Piece
    busy: bool = False  # one file at a time


@dataclass
class Desk:
    """Open tickets by token. Thread-safe."""

    tickets: dict[str, Ticket] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def issue(self, session: str) -> str:
        """A new token, and an end to expired ones."""
        with self.lock:
            for token in [token for token, ticket in self.tickets.items() if ticket.expires < time.monotonic()]:
                self.close(token)
            token = secrets.token_urlsafe(32)
            self.tickets[token] = Ticket(session, time.monotonic() + LIFETIME)
            return token

    def valid(self, token: str) -> bool:
        """Whether files can still be sent under it."""
        ticket = self.tickets.get(token)
        return ticket is not None and ticket.expires >= time.monotonic()

    def enter(self, token: str, number: int) -> str | None:
        """Begin a file; or the reason why not."""
        with self.lock:
            if not self.valid(token):
                return "This page has been idle for too long. Reload it."
            if self.tickets[token].busy or number in self.tickets[token].pieces:
                return "One file at a time, each once."
            self.tickets[token].busy = True
            return None

    def put(self, token: str, number: int, piece: Piece | None) -> bool:
        """End a file, with what came of it. False when the ticket is gone meanwhile: the piece is not wanted."""
        with self.lock:
            ticket = self.tickets.get(token)
            if ticket is None:
                return False
            ticket.busy = False
            if piece is not None:
                ticket.pieces[number] = piece
            return True

    def claim(self, token: str, session: str) -> list[Piece]:
        """The files sent, in order; the ticket ends. Nothing for another session's token."""
        with self.lock:
            if token not in self.tickets or self.tickets[token].session != session:
                return []
            return [piece for _, piece in sorted(self.tickets.pop(token).pieces.items())]

    def leave(self, session: str) -> None:
        """A session ended: its tickets too, and what was sent and never claimed."""
        with self.lock:
            for token in [token for token, ticket in self.tickets.items() if ticket.session == session]:
                self.close(token)

    def close(self, token: str) -> None:
        """End a ticket, and delete what was sent under it."""
        with self.lock:
            ticket = self.tickets.pop(token, None)
        if ticket is not None and ticket.pieces:
            from app.intake_store import STORE

            STORE.discard(list(ticket.pieces.values()))


DESK = Desk()


def routes() -> list[BaseRoute]:
    """For ``streamlit.App``. From now on the choosers of this process send to them, and the maps read from them."""
    global SERVED
    SERVED = True
    return [Route("/upload/{token}/{number}", _put, methods=["PUT"]), tiles.route()]


def base() -> str:
    """What stands before the address of a route, as the server was started: empty, or such as ``/tools``."""
    path = str(get_option("server.baseUrlPath")).strip("/")
    return f"/{path}" if path else ""


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """For ``streamlit.App``: a server that is told to end deletes what it holds. Its signal leaves ``atexit`` out."""
    threading.Thread(target=import_module, args=("app.frame",), name="first imports", daemon=True).start()
    yield
    if store := sys.modules.get("app.intake_store"):
        store.STORE.clear()


async def _put(request: Request) -> JSONResponse:
    """Take one file. 403 for a wrong origin or token, 413 when it is too large, 422 when it is empty."""
    if not _from_here(request):
        return _answer(403, "Files are taken from this server's own page only.")
    token, place = str(request.path_params["token"]), str(request.path_params["number"])
    if not (place.isascii() and place.isdecimal() and len(place) < 10):
        return _answer(404, "Files are numbered.")
    number = int(place)
    if reason := DESK.enter(token, number):
        return _answer(403, reason)
    piece = None
    try:
        piece, answer = await _spooled(request, token, number)
    finally:
        wanted = DESK.put(token, number, piece)
    if piece is not None and not wanted:
        from app.intake_store import STORE

        STORE.discard([piece])
        return _answer(403, "The session has ended.")
    return answer


async def _spooled(request: Request, token: str, number: int) -> tuple[Piece | None, JSONResponse]:
    from app import intake_store
    from fbt_core.checkpoints.faults import CheckpointError

    if number >= intake_store.MAXIMUM_FILES:
        return None, _answer(413, f"File number {number}; at most {intake_store.MAXIMUM_FILES} are one checkpoint.")
    claimed = request.headers.get("content-length", "")
    if not claimed.isdecimal() or len(claimed) > 18:
        return None, _answer(411, "The length of the file is missing.")
    if int(claimed) > intake_store.MAXIMUM_BYTES:
        return None, _answer(413, f"The file has {int(claimed):,} bytes; at most {intake_store.MAXIMUM_BYTES:,}.")
    spool = intake_store.STORE.spool()
    try:
        async for part in _parts(request):
            if not DESK.valid(token):
                raise ClientDisconnect  # nobody waits for it any more
            await run_in_threadpool(spool.write, part)
        piece = spool.finish()
    except CheckpointError as fault:
        spool.abandon()
        return None, _answer(413 if isinstance(fault, intake_store.TooLarge) else 422, str(fault))
    except (ClientDisconnect, TimeoutError):
        spool.abandon()
        return None, _answer(499, "Stopped.")
    except BaseException:
        spool.abandon()
        raise
    return piece, JSONResponse({"bytes": piece.bytes, "sha256": piece.sha256})


async def _parts(request: Request) -> AsyncIterator[bytes]:
    """The body in parts of ``PART`` bytes. Raises ``ClientDisconnect``, and ``TimeoutError`` when nothing comes."""
    stream, gathered = aiter(request.stream()), bytearray()
    while chunk := await asyncio.wait_for(anext(stream, b""), STALL):
        gathered += chunk
        if len(gathered) >= PART:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _from_here(request: Request) -> bool:
    """Whether the request comes from a page of this server: browsers say so, and a page cannot forge it."""
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as http://[
        return False


def _answer(status: int, message: str) -> JSONResponse:
    return JSONResponse({"message": message}, status_code=status)
