"""Uploaded files on this server's disk: a folder a checkpoint, under names of our own, gone when their session ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.intake_names import digest_of, label_of, named
from app.intake_spool import Piece, Spool, TooLarge

MAXIMUM_BYTES = 8 << 30
"""Of one file."""

MAXIMUM_HELD = 16 << 30
"""Of all files held by this server; above it an upload is refused, not an older one dropped."""

SPARE = 1 << 30
"""Bytes of the disk that uploads leave free."""


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
            handle, path = tempfile.mkstemp(dir=self._home(), suffix=".part")
            self.spooled[Path(path)] = 0
        return Spool(self, Path(path), open(handle, "wb"))

    def place(self) -> Path:
        """A new folder on the disk of uploads, for whoever deletes it."""
        with self.lock:
            return Path(tempfile.mkdtemp(dir=self._home(), suffix=".part"))

    def _home(self) -> Path:
        """The folder of all uploads, made when the first one comes."""
        if self.folder is None or not self.folder.is_dir():
            self.folder = Path(tempfile.mkdtemp(prefix="fiberscope-"))
        return self.folder

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
            names = named(pieces)
            digest = pieces[0].sha256 if len(pieces) == 1 else digest_of(pieces)
            with self.lock:
                if digest not in self.files:
                    self.files[digest] = self._move(digest, names, label or label_of(pieces))
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


STORE = Store()
atexit.register(STORE.clear)
