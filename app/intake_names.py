"""What the files of an upload are called: on our disk, as one checkpoint, and to their owner."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from app.intake_spool import Piece
from fbt_core.checkpoints.faults import CheckpointError

MAXIMUM_FILES = 200
"""Of one checkpoint: the largest models come in fewer shards."""

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
"""A name that can stand on any disk as it is. Readers of a folder look for ``config.json`` and the names of shards."""


def named(pieces: Sequence[Piece]) -> dict[str, Piece]:
    """Name on our disk to piece: the owner's own name only where it is plain. One file alone is always ``file``."""
    if not 1 <= len(pieces) <= MAXIMUM_FILES:
        raise CheckpointError(
            f"{len(pieces)} files", f"1 to {MAXIMUM_FILES} that are one checkpoint", "Choose fewer files."
        )
    if len(pieces) == 1:
        return {"file": pieces[0]}
    found: dict[str, Piece] = {}
    for index, piece in enumerate(pieces):
        name = base_name(piece.name)
        name = name if PLAIN.fullmatch(name) else f"file-{index}"
        if name.lower() in {known.lower() for known in found}:
            raise CheckpointError(
                f"two files named {name!r}", "files of one checkpoint, each of another name", "Choose its files alone."
            )
        found[name] = piece
    return found


def base_name(name: str) -> str:
    """The last part of what may be a path of any system."""
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def digest_of(pieces: Sequence[Piece]) -> str:
    """SHA-256 of their sorted names and sums: the same files in any order are one checkpoint."""
    rows = sorted([base_name(piece.name), piece.sha256] for piece in pieces)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def label_of(pieces: Sequence[Piece]) -> str:
    """What the checkpoint is called: the largest file, and how many more."""
    largest = max(pieces, key=lambda piece: piece.bytes)
    others = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return base_name(largest.name) + others
