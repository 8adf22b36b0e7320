"""From a file to a ``Checkpoint``: sniff, check the header, find its reader. A new format is one row of ``READERS``."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fbt_core.checkpoints import native
from fbt_core.checkpoints.checkpoint import Checkpoint, Origin
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import Header, read_header
from fbt_core.checkpoints.sniff import sniff

__all__ = ["READERS", "Checkpoint", "CheckpointError", "Origin", "Reader", "load"]

MOST_BYTES = 4 << 30
"""A larger file is refused before it is read: its tensors would not leave room for their activations."""


@dataclass(frozen=True)
class Reader:
    """One format: ``accepts`` looks at the checked header only, ``read`` turns the bytes into a checkpoint."""

    name: str
    suffix: str  # what such files are usually called, for a file chooser; never trusted
    accepts: Callable[[Header], bool]
    read: Callable[[bytes, Header, Origin], Checkpoint]


READERS: dict[str, Reader] = {
    "fiberscope": Reader("Fiberscope checkpoint", ".safetensors", native.is_native, native.read),
}


def load(path: str | Path, name: str | None = None) -> Checkpoint:
    """The checkpoint in a file; ``name`` is what to call it (default: the file's own name).

    Raises ``CheckpointError`` (got, expected, remedy) for every file that cannot be used, and ``OSError`` for one that
    cannot be read. Nothing in the file is executed or imported. The file is read once into memory, so one that is
    overwritten meanwhile can give an error but not a crash.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"no file at {str(path)!r}", "a checkpoint file", "Check the path.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise CheckpointError(f"a file of {size} bytes", f"at most {MOST_BYTES}", "Use a smaller checkpoint.")
    content = path.read_bytes()
    kind = sniff(content[:4096], len(content))
    if kind != "safetensors":
        raise CheckpointError(kind, _formats(), "Choose a checkpoint that Fiberscope or its training command wrote.")
    header = read_header(io.BytesIO(content), len(content))
    origin = Origin(name or path.name, "safetensors", hashlib.sha256(content).hexdigest(), len(content))
    for reader in READERS.values():
        if reader.accepts(header):
            return reader.read(content, header, origin)
    raise CheckpointError(
        f"a safetensors file of {len(header.tensors)} tensors without Fiberscope's metadata", _formats(),
        "Train or convert a model with `python -m fbt_core train`; other formats are not read yet.",
    )  # fmt: skip


def _formats() -> str:
    return "a " + " or a ".join(f"{reader.name} ({reader.suffix})" for reader in READERS.values())
