"""Who may send files to this server: a page draws a chooser with a ticket of its session, good for one checkpoint."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.intake_spool import Piece

LIFETIME = 6 * 3600.0
"""Seconds until an unused ticket is worth nothing."""


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
