"""Uploaded files on this server's disk: a folder a checkpoint, under names of our own, gone when their session ends."""

from __future__ import annotations

import atexit
import hashlib
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from fbt_core.checkpoints.faults import CheckpointError

MAXIMUM_BYTES = 8 << 30
"""Of one file."""

MAXIMUM_HELD = 16 << 30
"""Of all files held by this server; above it an upload is refused, not an older one dropped."""

MAXIMUM_FILES = 200
"""Of one checkpoint: the largest models come in fewer shards."""

SPARE = 1 << 30
"""Bytes of the disk that uploads leave free."""

CHUNK = 1 << 20

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
"""A name that can stand on any disk as it is. Readers of a folder look for ``config.json`` and the names of shards."""


class TooLarge(CheckpointError):
    """More bytes than this server takes."""


@dataclass(frozen=True)
class Piece:
    """One file of an upload, spooled. ``name`` is what its owner called it: a label, never a path."""

    path: Path
    sha256: str
    bytes: int
    name: str = ""


@dataclass(frozen=True)
class Upload:
    """A held checkpoint of one file or several. ``path`` is the file, or the folder of several."""

    sha256: str  # of the file; of several, of their sorted names and sums
    name: str
    bytes: int
    path: Path

    @property
    def reference(self) -> str:
        """How a run names it."""
        return f"sha256:{self.sha256}"


@dataclass
class Store:
    """Held checkpoints by SHA-256, each with the sessions that hold it. Thread-safe: sessions run in threads."""

    files: dict[str, Upload] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    spooled: dict[Path, int] = field(default_factory=dict)  # bytes so far of what is still coming in
    folder: Path | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def spool(self) -> Spool:
        """A file to write an upload to, piece by piece."""
        with self.lock:
            if self.folder is None or not self.folder.is_dir():
                self.folder = Path(tempfile.mkdtemp(prefix="fiberscope-"))
            handle, path = tempfile.mkstemp(dir=self.folder, suffix=".part")
            self.spooled[Path(path)] = 0
        return Spool(self, Path(path), open(handle, "wb"))

    def place(self) -> Path:
        """A new folder on the disk of uploads, for whoever deletes it."""
        with self.lock:
            if self.folder is None or not self.folder.is_dir():
                self.folder = Path(tempfile.mkdtemp(prefix="fiberscope-"))
            return Path(tempfile.mkdtemp(dir=self.folder, suffix=".part"))

    def grow(self, path: Path, size: int) -> None:
        """A spooled file is about to have ``size`` bytes. Raises ``TooLarge`` when that is too many."""
        with self.lock:
            if size > MAXIMUM_BYTES:
                raise TooLarge(
                    f"more than {MAXIMUM_BYTES:,} bytes", f"at most {MAXIMUM_BYTES:,} bytes",
                    "Export a smaller checkpoint, without optimizer state.",
                )  # fmt: skip
            held = self.held() - self.spooled.get(path, 0)
            room = min(MAXIMUM_HELD - held, shutil.disk_usage(path.parent).free - SPARE + self.spooled.get(path, 0))
            if size > room:
                raise TooLarge(
                    f"{size:,} bytes or more, with {held:,} held for open sessions",
                    f"at most {MAXIMUM_HELD:,} bytes in all, and as much free disk",
                    "Close other sessions of this server, or start your own.",
                )
            self.spooled[path] = size

    def held(self) -> int:
        """Bytes on disk, of files still coming in too."""
        return sum(upload.bytes for upload in self.files.values()) + sum(self.spooled.values())

    def hold(self, pieces: Sequence[Piece], session: str, label: str = "") -> Upload:
        """Keep spooled files as one checkpoint. Raises ``CheckpointError``; the pieces are gone then."""
        try:
            named = _named(pieces)
            digest = pieces[0].sha256 if len(pieces) == 1 else _digest(pieces)
            with self.lock:
                if digest not in self.files:
                    self.files[digest] = self._move(digest, named, label or _label(pieces))
                self.holders.setdefault(digest, set()).add(session)
                return self.files[digest]
        finally:
            self.discard(pieces)

    def _move(self, digest: str, named: dict[str, Piece], label: str) -> Upload:
        assert self.folder is not None
        folder = self.folder / digest
        folder.mkdir(exist_ok=True)
        for name, piece in named.items():
            piece.path.rename(folder / name)
            self.spooled.pop(piece.path, None)
        path = folder if len(named) > 1 else folder / next(iter(named))
        return Upload(digest, label, sum(piece.bytes for piece in named.values()), path)

    def discard(self, pieces: Sequence[Piece]) -> None:
        """Delete what was spooled and is not held."""
        with self.lock:
            for piece in pieces:
                piece.path.unlink(missing_ok=True)
                self.spooled.pop(piece.path, None)

    def join(self, digest: str, session: str) -> None:
        """Another session shows a held checkpoint: it stays until that one leaves, too."""
        with self.lock:
            if digest in self.files:
                self.holders.setdefault(digest, set()).add(session)

    def drop(self, digest: str, session: str) -> None:
        """This session no longer holds the checkpoint; the last holder's leaving deletes it and all beside it."""
        with self.lock:
            holders = self.holders.get(digest, set())
            holders.discard(session)
            if not holders and digest in self.files and self.folder is not None:
                del self.files[digest]
                self.holders.pop(digest, None)
                shutil.rmtree(self.folder / digest, ignore_errors=True)

    def leave(self, session: str) -> None:
        """A session ended."""
        for digest in list(self.files):
            if session in self.holders.get(digest, ()):
                self.drop(digest, session)

    def clear(self) -> None:
        """Delete everything."""
        with self.lock:
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            self.files.clear()
            self.holders.clear()
            self.spooled.clear()
            self.folder = None


@dataclass
class Spool:
    """A file being written. End it with ``finish`` or ``abandon``."""

    store: Store
    path: Path
    target: IO[bytes]
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def write(self, piece: bytes) -> None:
        """Append. Raises ``TooLarge``."""
        self.store.grow(self.path, self.size + len(piece))
        self.size += len(piece)
        self.digest.update(piece)
        self.target.write(piece)

    def finish(self, name: str = "") -> Piece:
        """The whole file. Raises ``CheckpointError`` when it is empty, and deletes it."""
        self.target.close()
        if not self.size:
            self.abandon()
            raise CheckpointError("an empty file", "a checkpoint", "Choose another file.")
        return Piece(self.path, self.digest.hexdigest(), self.size, name)

    def abandon(self) -> None:
        """Delete what came so far."""
        self.target.close()
        with self.store.lock:
            self.path.unlink(missing_ok=True)
            self.store.spooled.pop(self.path, None)


def take(store: Store, stream: IO[bytes], name: str) -> Piece:
    """Copy a stream to disk. Raises ``CheckpointError`` when it is empty or too large, and keeps nothing then."""
    spool = store.spool()
    try:
        while piece := stream.read(CHUNK):
            spool.write(piece)
    except BaseException:
        spool.abandon()
        raise
    return spool.finish(name)


def _named(pieces: Sequence[Piece]) -> dict[str, Piece]:
    """Name on our disk to piece: the owner's own name only where it is plain. One file alone is always ``file``."""
    if not 1 <= len(pieces) <= MAXIMUM_FILES:
        raise CheckpointError(
            f"{len(pieces)} files", f"1 to {MAXIMUM_FILES} that are one checkpoint", "Choose fewer files."
        )
    if len(pieces) == 1:
        return {"file": pieces[0]}
    named: dict[str, Piece] = {}
    for index, piece in enumerate(pieces):
        name = base_name(piece.name)
        name = name if PLAIN.fullmatch(name) else f"file-{index}"
        if name.lower() in {known.lower() for known in named}:
            raise CheckpointError(
                f"two files named {name!r}", "files of one checkpoint, each of another name", "Choose its files alone."
            )
        named[name] = piece
    return named


def base_name(name: str) -> str:
    """The last part of what may be a path of any system."""
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _digest(pieces: Sequence[Piece]) -> str:
    rows = sorted([base_name(piece.name), piece.sha256] for piece in pieces)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _label(pieces: Sequence[Piece]) -> str:
    largest = max(pieces, key=lambda piece: piece.bytes)
    others = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return base_name(largest.name) + others


STORE = Store()
atexit.register(STORE.clear)
