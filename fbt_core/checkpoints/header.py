"""The header of a safetensors file, read by our own strict rules before any tensor is touched.

The library accepts duplicate keys (the last one wins) and large headers (memory before refusal); a file that we did
not make may use either. Nothing here allocates more than the capped header.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BufferedIOBase
from math import prod
from typing import Any

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.strict_json import strict_json

MOST_HEADER_BYTES = 16 << 20
MOST_TENSORS = 100_000
MOST_NAME = 512
MOST_RANK = 8
BITS_OF: dict[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "I64": 64, "U64": 64, "F64": 64,
}  # fmt: skip
"""Every dtype that the format defines, with the bits of one value."""

DAMAGED = "The file is damaged or was not written by a safetensors library: fetch or save it again."


@dataclass(frozen=True)
class TensorEntry:
    """One tensor's place in the file: dtype as safetensors names it, shape, and its bytes' range in the data part."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Header:
    """Tensors by name, and the string metadata."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]


def read_header(file: BufferedIOBase, size: int) -> Header:
    """The checked header of a safetensors file of ``size`` bytes.

    Raises ``CheckpointError`` for a header that is cut, too large, not JSON, repeats a key, or whose tensors do not
    tile the data part exactly (no overlap, no hole, nothing behind).
    """
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise CheckpointError(
            f"a safetensors file cut short: {size} bytes, and its header alone claims {length}",
            "the whole file",
            "Copy or download it again.",
        )
    if length > MOST_HEADER_BYTES:
        raise CheckpointError(f"a header of {length} bytes", f"at most {MOST_HEADER_BYTES}", DAMAGED)
    raw = file.read(length)
    if (count := raw.count(b'"data_offsets"')) > MOST_TENSORS:  # before the table is made
        raise CheckpointError(f"{count} tensors", f"at most {MOST_TENSORS}", DAMAGED)
    entries = _parse(raw)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError("metadata that is not a table of strings", "strings", DAMAGED)
    tensors = {name: _entry(name, entry) for name, entry in entries.items()}
    _check_tiling(tensors, size - 8 - length)
    return Header(tensors, metadata)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        value = strict_json(raw.decode("utf-8"))
    except ValueError as error:
        why = str(error)[:80]
        raise CheckpointError(f"a safetensors header that is not valid JSON ({why!r})", "JSON", DAMAGED) from error
    if not isinstance(value, dict):
        raise CheckpointError("a safetensors header that is no table", "a table of tensors", DAMAGED)
    return value


def _entry(name: str, entry: Any) -> TensorEntry:
    """One tensor's row, every field of the type and size that it should have."""
    if len(name) > MOST_NAME:
        raise CheckpointError(f"a tensor name of {len(name)} characters", f"at most {MOST_NAME}", DAMAGED)
    shown = repr(name[:80])
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {shown} without dtype, shape and data_offsets", "these three", DAMAGED)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS_OF:
        raise CheckpointError(f"tensor {shown} of dtype {str(dtype)[:40]!r}", f"one of {', '.join(BITS_OF)}", DAMAGED)
    if not isinstance(shape, list) or len(shape) > MOST_RANK or not all(_is_size(n) for n in shape):
        raise CheckpointError(f"tensor {shown} of a malformed shape", f"at most {MOST_RANK} sizes", DAMAGED)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise CheckpointError(f"tensor {shown} with malformed data_offsets", "two positions", DAMAGED)
    claimed, held = -(-prod(shape) * BITS_OF[dtype] // 8), offsets[1] - offsets[0]
    if claimed != held:
        raise CheckpointError(
            f"tensor {shown} of {claimed} bytes by its shape and {held} by its place", "equal", DAMAGED
        )
    return TensorEntry(dtype, tuple(shape), offsets[0], offsets[1])


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check_tiling(tensors: dict[str, TensorEntry], data_bytes: int) -> None:
    end = 0
    for entry in sorted(tensors.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != end:
            raise CheckpointError("tensors that overlap or leave holes in the file", "one after another", DAMAGED)
        end = entry.stop
    if end > data_bytes:
        raise CheckpointError(
            f"a safetensors file cut short: {data_bytes} of {end} bytes of tensors", "all of them",
            "Copy or download it again.",
        )  # fmt: skip
    if end < data_bytes:
        raise CheckpointError(f"{data_bytes - end} bytes behind the last tensor", "none", DAMAGED)
