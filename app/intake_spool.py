"""One file of an upload on its way to this server's disk: summed as it comes, and gone if it does not arrive whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fbt_core.checkpoints.faults import CheckpointError

if TYPE_CHECKING:
    from app.intake_store import Store

CHUNK = 1 << 20
"""Bytes that are copied at once."""


class TooLarge(CheckpointError):
    """More bytes than this server takes."""


@dataclass(frozen=True)
class Piece:
    """One file of an upload, spooled. ``name`` is what its owner called it: a label, never a path."""

    path: Path
    sha256: str
    bytes: int
    name: str = ""


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
