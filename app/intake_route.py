"""The upload: ``PUT /upload/<token>/<number>`` streams a file of any size to disk, at a flat cost in memory.

Streamlit's own uploader keeps every file in memory, twice at each rerun. Here a page draws a chooser with a fresh
ticket of its session (``app.intake_desk``); the chooser sends file after file under that ticket; the script then claims
them, once. The address holds a secret and a number: no name and no path of the client's.

Nothing here imports torch before the first file: the server must stand within a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from app import intake_desk

if TYPE_CHECKING:
    from app.intake_spool import Piece

PART = 1 << 20
"""Bytes that are gathered before they are written, off the event loop."""

STALL = 120.0
"""Seconds without a byte after which an upload has ended."""


def route() -> Route:
    """For ``streamlit.App``."""
    return Route("/upload/{token}/{number}", _put, methods=["PUT"])


async def _put(request: Request) -> JSONResponse:
    """Take one file. 403 for a wrong origin or token, 413 when it is too large, 422 when it is empty."""
    if not _from_here(request):
        return _answer(403, "Files are taken from this server's own page only.")
    token, place = str(request.path_params["token"]), str(request.path_params["number"])
    if not (place.isascii() and place.isdecimal() and len(place) < 10):
        return _answer(404, "Files are numbered.")
    number = int(place)
    if reason := intake_desk.DESK.enter(token, number):
        return _answer(403, reason)
    piece = None
    try:
        piece, answer = await _spooled(request, token, number)
    finally:
        wanted = intake_desk.DESK.put(token, number, piece)
    if piece is not None and not wanted:
        from app.intake_store import STORE

        STORE.discard([piece])
        return _answer(403, "The session has ended.")
    return answer


async def _spooled(request: Request, token: str, number: int) -> tuple[Piece | None, JSONResponse]:
    from app import intake_names, intake_spool, intake_store
    from fbt_core.checkpoints.faults import CheckpointError

    if number >= intake_names.MAXIMUM_FILES:
        return None, _answer(413, f"File number {number}; at most {intake_names.MAXIMUM_FILES} are one checkpoint.")
    claimed = request.headers.get("content-length", "")
    if not claimed.isdecimal() or len(claimed) > 18:
        return None, _answer(411, "The length of the file is missing.")
    if int(claimed) > intake_store.MAXIMUM_BYTES:
        return None, _answer(413, f"The file has {int(claimed):,} bytes; at most {intake_store.MAXIMUM_BYTES:,}.")
    spool = intake_store.STORE.spool()
    try:
        async for part in _parts(request):
            if not intake_desk.DESK.valid(token):
                raise ClientDisconnect  # nobody waits for it any more
            await run_in_threadpool(spool.write, part)
        piece = spool.finish()
    except CheckpointError as fault:
        spool.abandon()
        return None, _answer(413 if isinstance(fault, intake_spool.TooLarge) else 422, str(fault))
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
