"""Uploaded files: spooled to disk under a name of our own, known by their SHA-256, gone when the session ends."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fbt_core.checkpoints.faults import CheckpointError

MAXIMUM_BYTES = 1 << 30
"""Of one file: as server.maxUploadSize in .streamlit/config.toml, which a browser could get around."""

MAXIMUM_HELD = 1 << 32
"""Of all files held by this server; above it an upload is refused, not an older one dropped."""

ASSETS = Path(os.environ.get("FIBERSCOPE_ASSETS", Path(__file__).parent.parent / "assets"))
"""The folder of the bundled checkpoints; whoever starts the server may name another."""

CHUNK = 1 << 20


@dataclass(frozen=True)
class Upload:
    """A held file. ``name`` is what its owner called it: a label, never a path."""

    sha256: str
    name: str
    bytes: int
    path: Path

    @property
    def reference(self) -> str:
        """How a run names it."""
        return f"sha256:{self.sha256}"


@dataclass
class Store:
    """Held files by SHA-256, each with the sessions that hold it. Thread-safe: sessions run in threads."""

    files: dict[str, Upload] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    folder: Path | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def take(self, stream: IO[bytes], name: str, session: str) -> Upload:
        """Copy a stream to disk. Raises ``CheckpointError`` when it is empty or too large."""
        with self.lock:
            self.folder = self.folder or Path(tempfile.mkdtemp(prefix="fiberscope-"))
            handle, spooled = tempfile.mkstemp(dir=self.folder, suffix=".part")
        path = Path(spooled)
        try:
            with open(handle, "wb") as target:
                digest, size = _copy(stream, target, MAXIMUM_BYTES)
            return self._keep(path, digest, size, name, session)
        finally:
            path.unlink(missing_ok=True)

    def _keep(self, spooled: Path, digest: str, size: int, name: str, session: str) -> Upload:
        with self.lock:
            if digest not in self.files:
                held = sum(upload.bytes for upload in self.files.values())
                if held + size > MAXIMUM_HELD:
                    raise CheckpointError(
                        f"{size:,} bytes, with {held:,} held for open sessions",
                        f"at most {MAXIMUM_HELD:,} bytes in all",
                        "Close other sessions of this server, or start your own.",
                    )
                kept = spooled.rename(spooled.with_name(digest))
                self.files[digest] = Upload(digest, name, size, kept)
            self.holders.setdefault(digest, set()).add(session)
            return self.files[digest]

    def drop(self, digest: str, session: str) -> None:
        """This session no longer holds the file; the last holder's leaving deletes it."""
        with self.lock:
            holders = self.holders.get(digest, set())
            holders.discard(session)
            if not holders and digest in self.files:
                self.files.pop(digest).path.unlink(missing_ok=True)
                self.holders.pop(digest, None)

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
            self.folder = None


STORE = Store()
atexit.register(STORE.clear)


def demos() -> dict[str, Path]:
    """The bundled checkpoints: reference to file."""
    return {f"demo:{path.stem}": path for path in sorted(ASSETS.glob("*.safetensors"))}


def path_of(reference: str) -> Path:
    """The file of a reference. Raises ``CheckpointError`` when this server does not hold it."""
    kind, _, name = reference.partition(":")
    if kind == "demo" and reference in demos():
        return demos()[reference]
    if kind == "sha256" and name in STORE.files:
        return STORE.files[name].path
    if kind == "sha256":
        raise CheckpointError(
            f"a link to the uploaded file with SHA-256 {name}",
            "a file that this server holds",
            "Upload the file again: choose it below, and the link opens with everything else as it was.",
        )
    names = ", ".join(label_of(known) for known in demos()) or "none"
    raise CheckpointError(f"the name {name!r}", f"a bundled checkpoint: {names}", "Choose another checkpoint.")


def label_of(reference: str) -> str:
    """What people call it."""
    kind, _, name = reference.partition(":")
    if kind == "sha256":
        held = STORE.files.get(name)
        return f"{held.name} ({name[:8]})" if held else f"missing file {name[:8]}"
    return name


def _copy(stream: IO[bytes], target: IO[bytes], limit: int) -> tuple[str, int]:
    """Copy in pieces; the SHA-256 and the size."""
    digest, size = hashlib.sha256(), 0
    while piece := stream.read(CHUNK):
        size += len(piece)
        if size > limit:
            raise CheckpointError(
                f"more than {limit:,} bytes",
                f"at most {limit:,} bytes",
                "Export a smaller checkpoint, without optimizer state.",
            )
        digest.update(piece)
        target.write(piece)
    if not size:
        raise CheckpointError("an empty file", "a checkpoint", "Choose another file.")
    return digest.hexdigest(), size
