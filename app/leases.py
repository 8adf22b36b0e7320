"""Which session has which checkpoints open: what nobody shows any more is let go of, in memory and on disk."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable

from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import loading, tiles
from app.intake_desk import DESK
from app.intake_store import STORE
from app.kept import BUDGET
from app.uploads import parsed
from fbt_core.checkpoints.memory import give_back

_grace = os.environ.get("FIBERSCOPE_GRACE", "")
GRACE = float(_grace) if re.fullmatch(r"\d+(\.\d+)?", _grace) else 120.0
"""Seconds that a model outlives the last session that showed it, and all else that is kept the last session."""

OPEN: dict[str, frozenset[str]] = {}
WAITING: dict[str, float] = {}
"""Models that nobody shows, but that someone may come back to, and until when (``time.monotonic()``)."""
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
    _release(_idle(session, needed))
    expire()  # whoever opens something else needs the room


def leave(session: str) -> None:
    """A session ended: its files and tickets go, and the models of its files, if it alone showed them.

    Other models stay a while: who reloads a page, or follows a link, comes as a new session.
    """
    idle = _idle(session, frozenset())
    uploaded = {reference for reference in idle if parsed(reference).kind == "sha256"}
    _release(uploaded)
    with LOCK:
        WAITING.update(dict.fromkeys(idle - uploaded, time.monotonic() + GRACE))
    timer = threading.Timer(GRACE, lambda: expire(time.monotonic()))  # demos too, once nobody is left
    timer.daemon = True
    timer.start()
    DESK.leave(session)
    tiles.DESK.leave(session)
    STORE.leave(session)


def expire(now: float = float("inf")) -> None:
    """The models that waited long enough for someone to come back go; with nobody here or waited for, everything."""
    with LOCK:
        over = {reference for reference, until in WAITING.items() if until <= now}
        gone = over.difference(*OPEN.values())
        for reference in over:
            del WAITING[reference]
        deserted = not (OPEN or WAITING)
    _release(gone)
    if deserted:
        BUDGET.clear()
        give_back()


def _idle(session: str, needed: frozenset[str]) -> frozenset[str]:
    """What this session showed and nobody shows any more, now that it shows ``needed``."""
    with LOCK:
        before = OPEN.pop(session, frozenset())
        if needed:
            OPEN[session] = needed
        return before.difference(*OPEN.values())


def _release(references: Iterable[str]) -> None:
    large = [reference for reference in references if parsed(reference).kind != "demo"]  # those are small, and compared
    for reference in large:
        loading.release(reference)
    if large:
        give_back()
