"""The server's own routes: the upload (``app.intake_route``) and the parts of large maps (``app.tiles``).

A server that was started without these routes (``SERVED`` is False) falls back on Streamlit's uploader, and sends no
parts of maps.

Nothing here imports torch by itself: the server must stand within a moment. Once it stands, ``app.warming`` imports
what the first page will want, while the browser still opens it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import BaseRoute
from streamlit.config import get_option
from streamlit.runtime.pages_manager import PagesManager

from app import intake_route, tiles, warming

SERVED = False


def routes() -> list[BaseRoute]:
    """For ``streamlit.App``. From now on the choosers of this process send to them, and the maps read from them."""
    global SERVED
    SERVED = True
    return [intake_route.route(), tiles.route()]


def base() -> str:
    """What stands before the address of a route, as the server was started: empty, or such as ``/tools``."""
    path = str(get_option("server.baseUrlPath")).strip("/")
    return f"/{path}" if path else ""


@asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    """For ``streamlit.App``: a server that is told to end deletes what it holds. Its signal leaves ``atexit`` out.

    A page never runs alone here (see ``frame.open_page``): the entry script waits for the first imports, where a page's
    own imports would meet those of the other thread half way, which Python refuses as a deadlock.
    """
    PagesManager.uses_pages_directory = False
    warming.begin()
    yield
    if store := sys.modules.get("app.intake_store"):
        store.STORE.clear()
