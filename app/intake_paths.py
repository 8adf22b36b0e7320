"""Checkpoints on the server's own disk: below the roots that its owner names, and only when it serves loopback alone.

``FIBERSCOPE_MODELS`` holds the roots, separated as in PATH. A run names a file by a digest of where it lies, and a
digest is only ever compared with those of the files found: no path comes from a link or from a widget.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import streamlit as st

VARIABLE = "FIBERSCOPE_MODELS"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SUFFIXES = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".gguf"}

MAXIMUM_LISTED = 500
MAXIMUM_DEPTH = 6
FRESH = 5.0
"""Seconds for which a listing holds: a script run asks for it several times."""

_seen: tuple[float, str, dict[str, Path]] = (0.0, "", {})


def roots() -> list[Path]:
    """The folders that may be read. None when the server can be reached from another machine."""
    if st.get_option("server.address") not in LOOPBACK:
        return []
    return [Path(root).resolve() for root in os.environ.get(VARIABLE, "").split(os.pathsep) if root.strip()]


def listed() -> dict[str, Path]:
    """Reference to file or folder, for everything below the roots that looks like a checkpoint."""
    global _seen
    named = os.environ.get(VARIABLE, "") if roots() else ""
    if not named:
        return {}
    if _seen[1] != named or time.monotonic() - _seen[0] > FRESH:
        found = dict(_found())
        _seen = (time.monotonic(), named, found)
    return _seen[2]


def label(reference: str) -> str:
    """Where it lies below its root."""
    path = listed().get(reference)
    if path is None:
        return f"missing file {reference[-8:]}"
    return next((f"{root.name}/{path.relative_to(root)}" for root in roots() if path.is_relative_to(root)), path.name)


def stamp(path: Path) -> str:
    """A short digest of the times and sizes of a file, or of those in a folder: another one when they are written."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    rows = []
    for file in files:
        try:
            state = file.stat()
        except OSError:
            continue
        rows.append((file.name, state.st_mtime_ns, state.st_size))
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]


def _found() -> Iterator[tuple[str, Path]]:
    count = 0
    for root in roots():
        for path in _candidates(root, root, 0):
            if count == MAXIMUM_LISTED:
                return
            count += 1
            yield f"path:{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}", path


def _candidates(folder: Path, root: Path, depth: int) -> Iterator[Path]:
    """A folder with a config is one checkpoint; else its checkpoint files, and what lies deeper."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    entries = [entry for entry in entries if not entry.name.startswith(".")]
    inside = [entry for entry in entries if _stays(entry, root)]
    if {entry.name for entry in inside} & {"config.json", "adapter_config.json"}:
        if len(inside) == len(entries):  # a reader follows links: one that leads out spoils the folder
            yield folder
        return
    for entry in inside:
        if entry.is_dir() and depth < MAXIMUM_DEPTH:
            yield from _candidates(entry, root, depth + 1)
        elif entry.is_file() and entry.suffix in SUFFIXES:
            yield entry


def _stays(entry: Path, root: Path) -> bool:
    """Whether it lies below the root when every link is followed."""
    try:
        return entry.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False
