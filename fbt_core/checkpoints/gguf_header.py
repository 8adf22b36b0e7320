"""The header of a GGUF file, read by our own bounded rules before any library sees the file.

Layout (GGUF 2 and 3, little-endian): magic, version, number of tensors and of metadata entries; each entry a key, a
type and a value; each tensor a name, its sizes (fastest first), a type and an offset; then, aligned, the numbers.
Each count is compared with the bytes that are left before anything is made of it: the library follows an array that
claims 2^33 elements until it is stopped.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any

from fbt_core.checkpoints.faults import CheckpointError

MOST_HEADER_BYTES = 128 << 20
MOST_TENSORS = 100_000
MOST_ENTRIES = 10_000
MOST_ELEMENTS = 4_000_000  # of all arrays together: token, score and merge lists of the largest vocabularies
MOST_NAME = 512
MOST_RANK = 8
DAMAGED = "The file is damaged or was not written by a GGUF tool: copy or download it again."

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
"""By number: the type's name, how many values make one block of it, and that block's bytes."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor's place: ``type`` as ggml names it, shape in torch's order (slowest first), bytes within the file."""

    type: str
    shape: tuple[int, ...]
    start: int
    bytes: int


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key (numbers, text, and lists of them) and tensors by name, both in the order of the file."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """What llama.cpp calls the model, such as "llama"; empty when the file does not say."""
        return str(self.metadata.get("general.architecture", ""))[:80]


def read_gguf_header(path: Path) -> GgufHeader:
    """The checked header of a GGUF file; the numbers are not read.

    Raises ``CheckpointError`` for one that is cut short, big-endian, of another version, repeats a name, claims more
    than there is, or whose tensors overlap or end beyond the file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Reader(file, size)
        version, tensors, entries = _opening(reader)
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = reader.name("key")
            if key in metadata:
                raise CheckpointError(f"metadata key {key[:80]!r} twice", "each key once", DAMAGED)
            metadata[key] = reader.value(reader.number("I"))
        claims = _claims(reader, tensors)
        placed = _placed(claims, _data_start(reader, metadata), size)
    return GgufHeader(version, metadata, placed)


class _Reader:
    """The front of the file, never more of it than is there or than a header may have."""

    def __init__(self, file: BufferedIOBase, size: int) -> None:
        self.file, self.size, self.at, self.elements = file, size, 0, 0

    def take(self, count: int) -> bytes:
        if self.at + count > self.size:
            raise CheckpointError(
                f"a GGUF file cut short: {self.size} bytes, and its header needs {self.at + count}", "the whole file",
                "Copy or download it again.",
            )  # fmt: skip
        if self.at + count > MOST_HEADER_BYTES:
            raise CheckpointError("a GGUF header without end", f"at most {MOST_HEADER_BYTES} bytes", DAMAGED)
        raw = self.file.read(count)
        if len(raw) != count:
            raise CheckpointError("a GGUF file that shrank while it was read", "one that stays", "Try again.")
        self.at += count
        return raw

    def number(self, layout: str) -> Any:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))[0]

    def text(self) -> str:
        raw = self.take(self.number("Q"))
        return raw.decode("utf-8", "replace")  # tokens can be parts of characters

    def name(self, what: str) -> str:
        length = self.number("Q")
        if not 0 < length <= MOST_NAME:
            raise CheckpointError(f"a {what} of {length} bytes", f"1 to {MOST_NAME}", DAMAGED)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"a {what} that is no UTF-8", "text", DAMAGED) from error

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.array(self.number("I"), self.number("Q"))
        raise CheckpointError(f"metadata of type {kind}", "a type of GGUF 3", DAMAGED)

    def array(self, kind: int, count: int) -> list[Any]:
        least = 8 if kind == STRING else struct.calcsize("<" + SCALARS[kind]) if kind in SCALARS else 0
        if not least:
            raise CheckpointError(f"an array of type {kind}", "one of numbers or text", DAMAGED)
        self.elements += count
        if count * least > self.size - self.at or self.elements > MOST_ELEMENTS:
            raise CheckpointError(
                f"an array of {count} elements in the {self.size - self.at} bytes that are left",
                f"one that fits, and at most {MOST_ELEMENTS} elements in all", DAMAGED,
            )  # fmt: skip
        if kind == STRING:
            return [self.text() for _ in range(count)]
        return list(struct.unpack(f"<{count}{SCALARS[kind]}", self.take(count * least)))


def _opening(reader: _Reader) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata entries."""
    magic, version = reader.take(4), reader.number("I")
    if magic != b"GGUF":
        raise CheckpointError(f"a file that starts with {magic!r}", "b'GGUF'", DAMAGED)
    if version not in (2, 3):
        big = version & 0xFFFF == 0
        got = "a big-endian GGUF file" if big else f"GGUF version {version}"
        raise CheckpointError(got, "a little-endian one of version 2 or 3", "Convert the model again.")
    tensors, entries = reader.number("Q"), reader.number("Q")
    if tensors > MOST_TENSORS or entries > MOST_ENTRIES:
        raise CheckpointError(
            f"{tensors} tensors and {entries} metadata entries", f"at most {MOST_TENSORS} and {MOST_ENTRIES}", DAMAGED
        )
    return version, tensors, entries


def _claims(reader: _Reader, count: int) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Type, shape, bytes and offset of each tensor, by name."""
    claims: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = reader.name("tensor name")
        if name in claims:
            raise CheckpointError(f"two tensors named {name[:80]!r}", "each name once", DAMAGED)
        rank = reader.number("I")
        if rank > MOST_RANK:
            raise CheckpointError(f"tensor {name[:80]!r} of rank {rank}", f"at most {MOST_RANK}", DAMAGED)
        sizes = [reader.number("Q") for _ in range(rank)]
        kind, offset = reader.number("I"), reader.number("Q")
        if kind not in BLOCKS:
            raise CheckpointError(
                f"tensor {name[:80]!r} of ggml type {kind}", "a known type", "Convert the model to Q8_0 or F16."
            )
        label, block, size = BLOCKS[kind]
        if max(sizes, default=0) >= 1 << 40 or (sizes and sizes[0] % block):
            raise CheckpointError(f"tensor {name[:80]!r} of sizes {sizes}", f"rows of whole {label} blocks", DAMAGED)
        claims[name] = label, tuple(reversed(sizes)), prod(sizes) // block * size, offset
    return claims


def _data_start(reader: _Reader, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise CheckpointError(f"alignment {str(alignment)[:40]!r}", "a power of two", DAMAGED)
    return -(-reader.at // alignment) * alignment


def _placed(claims: dict[str, tuple[str, tuple[int, ...], int, int]], start: int, size: int) -> dict[str, GgufTensor]:
    """The tensors at their places in the file: none beyond its end, no two on the same bytes."""
    end = max((start + offset + count for _, _, count, offset in claims.values()), default=start)
    if claims and end > size:
        raise CheckpointError(f"a GGUF file cut short: {size} of {end} bytes", "all of them", "Download it again.")
    free = 0
    for name, (_, _, count, offset) in sorted(claims.items(), key=lambda item: (item[1][3], item[1][2])):
        if offset < free:
            raise CheckpointError(f"tensor {name[:80]!r} on the bytes of another", "tensors side by side", DAMAGED)
        free = offset + count
    return {
        name: GgufTensor(label, shape, start + offset, count) for name, (label, shape, count, offset) in claims.items()
    }
