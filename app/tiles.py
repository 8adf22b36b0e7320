"""Exact parts of large attention maps, asked for by the canvas: ``GET /tiles/<token>?rows=a:b&columns=c:d&factor=f``.

A page issues a token for the two maps that it draws. The token is a secret and names what it may read; the rest of an
address is numbers. ``?row=i`` gives one row of both maps in float32. What is computed is thrown away: the cache holds
the trace and whole rollouts, and a part costs its rows.

Nothing here imports torch before the first request: the server must stand within a moment.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from app.attention_tiles import Pair

HELD = 32
"""Tokens of a session that are good; the one that was used longest ago is dropped first."""

MOST = 1024
"""Cells a side of a part."""

SPAN = re.compile(r"(\d{1,6}):(\d{1,6})", re.ASCII)

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of every answer."""

SERVED = False


@dataclass
class Desk:
    """Tokens and what they may read, the least recently used first. Thread-safe."""

    tokens: OrderedDict[tuple[str, Pair], str] = field(default_factory=OrderedDict)
    issued: dict[str, tuple[str, Pair]] = field(default_factory=dict)  # the same, by token
    lock: threading.Lock = field(default_factory=threading.Lock)

    def issue(self, session: str, pair: Pair) -> str:
        """The token of a session for a pair: the same one as long as it is held, so that a message stays the same."""
        with self.lock:
            token = self.tokens.setdefault((session, pair), secrets.token_urlsafe(24))
            self.tokens.move_to_end((session, pair))
            self.issued[token] = session, pair
            for held in self._of(session)[:-HELD]:
                del self.issued[self.tokens.pop(held)]
            return token

    def leave(self, session: str) -> None:
        """A session ended: its tokens are worth nothing."""
        with self.lock:
            for held in self._of(session):
                del self.issued[self.tokens.pop(held)]

    def find(self, token: str) -> Pair | None:
        """What a token may read, which is to use it; None for one that is not, or no longer, known."""
        with self.lock:
            if token not in self.issued:
                return None
            self.tokens.move_to_end(self.issued[token])
            return self.issued[token][1]

    def _of(self, session: str) -> list[tuple[str, Pair]]:
        return [held for held in self.tokens if held[0] == session]


DESK = Desk()


def route() -> Route:
    """For ``streamlit.App``. From now on the maps of this process may ask for parts."""
    global SERVED
    SERVED = True
    return Route("/tiles/{token}", _get, methods=["GET"])


async def _get(request: Request) -> Response:
    """The part's message; 404 for an unknown token, 400 for numbers out of range, 500 for what failed."""
    pair = DESK.find(str(request.path_params["token"]))
    if pair is None:
        return _refusal(404, "These maps are no longer held. Reload the page.")
    query = request.query_params
    spans = [_span(query.get(name, "")) for name in ("rows", "columns")]
    row, factor = query.get("row", ""), query.get("factor", "1")
    if not (factor.isdecimal() and 0 < len(factor) < 4 and int(factor)) or (row and not _number(row)):
        return _refusal(400, "Numbers are expected.")
    try:
        content = await run_in_threadpool(_answer, pair, int(row) if row else None, spans, int(factor))
    except ValueError as fault:
        return _refusal(400, str(fault)[:200])
    except Exception:  # a checkpoint that was taken away, a model's own code: the page says that it could not be had
        logging.getLogger(__name__).exception("a part failed")
        return _refusal(500, "This part could not be computed.")
    return Response(content, media_type="application/octet-stream", headers=HEADERS)


def _refusal(status: int, words: str) -> Response:
    return PlainTextResponse(words, status, HEADERS)


def _answer(pair: Pair, row: int | None, spans: list[slice | None], factor: int) -> bytes:
    """One part at a time, whatever the number of sessions."""
    from app.line import ZOOMING
    from app.turns import taken

    key = pair, row, str(spans), factor
    return taken(ZOOMING, key, lambda: _computed(pair, row, spans, factor))


def _computed(pair: Pair, row: int | None, spans: list[slice | None], factor: int) -> bytes:
    from app import attention_tiles

    if row is not None:
        return attention_tiles.row(pair, row)
    rows, columns = spans
    if rows is None or columns is None or max(_cells(span, factor) for span in (rows, columns)) > MOST:
        raise ValueError(f"got no part of at most {MOST} cells a side, expected rows=a:b and columns=c:d with a < b")
    return attention_tiles.part(pair, rows, columns, factor)


def _cells(span: slice, factor: int) -> int:
    return -(-(span.stop - span.start) // factor)


def _span(text: str) -> slice | None:
    found = SPAN.fullmatch(text)
    first, last = (int(number) for number in found.groups()) if found else (0, 0)
    return slice(first, last) if first < last else None


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7
