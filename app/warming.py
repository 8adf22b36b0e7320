"""What a server does before anybody waits for it. Nothing here imports torch by itself: see ``app.server``.

While an import runs, Python lets nobody else go on for long: a page that had to wait for PyTorch's derivatives could
not even be stopped. So they are imported in the pause that follows the first page.

Streamlit looks for garbage after every run of a script. In the 400,000 objects that imports leave, that took as long
as many a page: once all is imported, what there is is set apart, and it looks only at what came since. What is let go
of later is looked for in all of it: ``memory.give_back``.
"""

from __future__ import annotations

import gc
import threading
import time
from importlib import import_module

FIRST = "app.frame"
"""Of which the first page is made."""

LATER = ("torch._decomp.decompositions_for_jvp", "torch._dynamo.compiled_autograd")
"""What PyTorch imports at the first derivative of a function: Curvature, Geodesics, Torsion and Claims take some."""

PAUSE = 2.0
"""Seconds after the first page's script, in which a browser draws what it was sent."""

DRAWN = threading.Event()
"""Set once a page has been drawn."""


def begin() -> None:
    """Import in a thread of its own."""
    threading.Thread(target=_imports, name="first imports", daemon=True).start()


def _imports() -> None:
    import_module(FIRST)
    DRAWN.wait()
    time.sleep(PAUSE)
    from app.line import COMPUTING
    from app.turns import taken

    taken(COMPUTING, LATER, _later)  # in line: no two threads import the same at once


def _later() -> None:
    for name in LATER:
        import_module(name)
    gc.collect()
    gc.freeze()
