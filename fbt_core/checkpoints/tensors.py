"""Tensors out of a safetensors file by plain reads into memory of their own.

No memory map: a file that a training run overwrites in place would end the process with SIGBUS. Here it is an error.
"""

from __future__ import annotations

import hashlib
import os
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import Header, TensorEntry, read_header

DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "U16": torch.uint16,
    "I32": torch.int32, "U32": torch.uint32, "I64": torch.int64, "U64": torch.uint64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}  # fmt: skip
"""The format's names in torch's; 4 and 6 bit floats have none."""

FLOATS = ("F64", "F32", "F16", "BF16")
"""What arithmetic can be done in here."""

CHUNK = 16 << 20


def bytes_of(entry: TensorEntry) -> int:
    """How many bytes the tensor's values take."""
    return entry.stop - entry.start


def open_header(path: Path) -> Header:
    """The checked header of a safetensors file. Raises ``CheckpointError``."""
    with path.open("rb") as file:
        return read_header(file, os.fstat(file.fileno()).st_size)


def read_tensors(path: Path, header: Header) -> tuple[dict[str, Tensor], str]:
    """All tensors of the file with that header, and the SHA-256 of the whole file.

    Needs the tensors' own size and nothing beside it. Raises ``CheckpointError`` when the file is no longer the one
    whose header was read, or ends early, or holds a dtype that torch has not.
    """
    if odd := [name for name, entry in header.tensors.items() if entry.dtype not in DTYPES]:
        got = f"{odd[0][:80]!r} of dtype {header.tensors[odd[0]].dtype}"
        raise CheckpointError(got, f"one of {', '.join(DTYPES)}", "Save the weights as bfloat16 or float32.")
    digest, found = hashlib.sha256(), {}
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        if read_header(file, before.st_size) != header:
            raise _changed()
        start = file.tell()
        file.seek(0)
        digest.update(file.read(start))
        for name, entry in sorted(header.tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
            found[name] = _read(file, entry, digest)
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise _changed()
    return {name: found[name] for name in header.tensors}, digest.hexdigest()


def _read(file: BufferedReader, entry: TensorEntry, digest: Any) -> Tensor:
    """The next tensor of the file, which is read in the order of the places."""
    raw = torch.empty(bytes_of(entry), dtype=torch.uint8)
    view = memoryview(raw.numpy().data)
    for at in range(0, len(view), CHUNK):
        piece = view[at : at + CHUNK]
        if file.readinto(piece) != len(piece):
            raise _changed()
        digest.update(piece)
    return raw.view(DTYPES[entry.dtype]).reshape(entry.shape)


def _changed() -> CheckpointError:
    return CheckpointError(
        "a file that was overwritten while it was read",
        "a file at rest",
        "Open it again when the training run has finished saving, or open a copy.",
    )
