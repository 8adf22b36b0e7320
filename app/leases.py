"""Which session has which checkpoints open: what nobody shows any more is let go of, in memory and on disk."""

from __future__ import annotations

import threading

from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import cache
from app.intake_store import STORE
from app.server import DESK
from app.uploads import parsed
from fbt_core.checkpoints.memory import give_back

OPEN: dict[str, frozenset[str]] = {}
LOCK = threading.Lock()


def session() -> str:
    """This session's name on the server."""
    context = get_script_run_ctx()
    return context.session_id if context else "none"


def show(session: str, references: tuple[str, ...]) -> None:
    """This session now shows these, and nothing else. Large models that nobody shows leave the memory."""
    needed = frozenset(references) | {base for reference in references if (base := parsed(reference).base)}
    for reference in needed:
        if parsed(reference).kind == "sha256":
            STORE.join(parsed(reference).name, session)
    _change(session, needed)


def leave(session: str) -> None:
    """A session ended: its files, its tickets and the models that it alone showed go."""
    _change(session, frozenset())
    DESK.leave(session)
    STORE.leave(session)


def _change(session: str, needed: frozenset[str]) -> None:
    with LOCK:
        before = OPEN.pop(session, frozenset())
        if needed:
            OPEN[session] = needed
        idle = before.difference(*OPEN.values())
    large = [reference for reference in idle if parsed(reference).kind != "demo"]  # those are small, and soon compared
    for reference in large:
        cache.release(reference)
    if large:
        give_back()
