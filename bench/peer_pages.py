"""The same attention as web pages of BertViz and CircuitsVis, which are served from this machine with their scripts.

BertViz wants require.js, d3 and jQuery from a CDN; they come from npm into ``build/peers`` once. CircuitsVis brings its
script along.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import torch

SCRIPTS = {
    "require": ("requirejs@2.3.6", "requirejs/require.js"),
    "d3": ("d3@5.7.0", "d3/dist/d3.min.js"),
    "jquery": ("jquery@2.1.0", "jquery/dist/jquery.min.js"),  # BertViz names 2.0.0, which npm does not have
}
"""What BertViz's pages load: the package of npm, and the file in it."""

FROM_A_CDN = re.compile(r"https://[^\s'\"]*/(require|d3|jquery)\.min(\.js)?(?=['\"])")

HEAD = "<!doctype html><meta charset=utf-8><title>{title}</title><body>"

Maps = list[torch.Tensor]
"""One a layer: (head, row, column)."""


class Missing(RuntimeError):
    """A peer that cannot be had here, and how it could."""


def scripts(kept: Path, site: Path) -> None:
    """Put BertViz's three scripts into a site's folder, the first time from npm into ``kept``. Raises ``Missing``."""
    files = {name: kept / "node_modules" / file for name, (_, file) in SCRIPTS.items()}
    if not all(file.is_file() for file in files.values()):
        kept.mkdir(parents=True, exist_ok=True)
        wanted = [package for package, _ in SCRIPTS.values()]
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(kept), *wanted]
        try:
            subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
        except (OSError, subprocess.SubprocessError) as fault:
            raise Missing(f"its scripts come from npm, which failed: npm install {' '.join(wanted)}") from fault
    for name, file in files.items():
        shutil.copyfile(file, site / f"{name}.js")


def bertviz(view: str, maps: Maps, tokens: list[str]) -> str:
    """A page of BertViz's ``head_view`` or ``model_view``. Raises ``Missing``."""
    _without_a_notebook()
    try:
        import bertviz as library
    except ImportError as fault:
        raise Missing("pip install --no-deps -r requirements-bench.txt") from fault
    found = getattr(library, view)([layer[None] for layer in maps], tokens, html_action="return").data
    return HEAD.format(title=view) + FROM_A_CDN.sub(lambda match: f"/{match[1]}{match[2] or ''}", found)


def circuitsvis(maps: Maps, tokens: list[str]) -> str:
    """A page of CircuitsVis' ``attention_heads`` for the first layer, which is what it shows at once."""
    try:
        from circuitsvis.attention import attention_heads
    except ImportError as fault:
        raise Missing("pip install --no-deps -r requirements-bench.txt") from fault
    return HEAD.format(title="heads") + attention_heads(maps[0], tokens, mask_upper_tri=True).local_src


PEERS: dict[str, tuple[Callable[[Maps, list[str]], str], str]] = {
    "BertViz head view": (partial(bertviz, "head_view"), "#vis svg line"),
    "BertViz model view": (partial(bertviz, "model_view"), "#vis svg line"),
    "CircuitsVis, one layer": (circuitsvis, "canvas, img"),
}
"""What makes a peer's page, and what is there once it has drawn."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder's files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _without_a_notebook() -> None:
    """BertViz asks for IPython only to hold its strings of HTML; two names stand for that where it is not installed."""
    if "IPython" not in sys.modules and importlib.util.find_spec("IPython") is None:
        display = ModuleType("IPython.display")
        vars(display).update(HTML=_Held, Javascript=_Held, display=print)
        sys.modules |= {"IPython": ModuleType("IPython"), "IPython.display": display}


@dataclass(frozen=True)
class _Held:
    """Stands for IPython's ``HTML`` and ``Javascript``."""

    data: str
