"""Packed bytes unpacked in order and under bounds: a member of a zip file, and a whole compressed tar file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.zips import DEFLATED, STORED, ZipEntry

MOST_RATIO = 20
SMALL = 1 << 20  # up to here something may shrink as well as it can
CHUNK = 1 << 20
MOST_MEMORY = 256 << 20  # of the xz unpacker; its best preset takes 65 MB
PACKED = ("gzip", "bzip2", "xz")
DAMAGED = "The archive is damaged: copy, download or pack it again."


def unzipped(file: BufferedIOBase, entry: ZipEntry) -> Iterator[bytes]:
    """The unpacked bytes of a zip's member: as many as its directory says and with that sum, or an error."""
    if entry.method not in (STORED, DEFLATED):
        raise CheckpointError(
            f"{entry.name[:120]!r} packed by method {entry.method}", "deflate or none", "Zip it again."
        )
    file.seek(entry.start)
    left, got, crc = entry.packed, 0, 0
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    while left and got <= entry.bytes and not machine.eof:
        raw = file.read(min(CHUNK, left))
        left -= len(raw) or left
        for chunk in [raw] if entry.method == STORED else _inflated(machine, raw, entry):
            got, crc = got + len(chunk), zlib.crc32(chunk, crc)
            if got <= entry.bytes:
                yield chunk
    if got != entry.bytes or crc != entry.crc:
        raise CheckpointError(f"{entry.name[:120]!r} in a zip file of other size or sum than it says", "both", DAMAGED)


def _inflated(machine: Any, raw: bytes, entry: ZipEntry) -> Iterator[bytes]:
    """What a piece of deflated data unpacks to, in pieces; ``machine`` is a ``zlib.decompressobj``."""
    piece = b""
    try:
        while raw or len(piece) == CHUNK:  # a full piece can leave more behind than the input shows
            yield (piece := machine.decompress(raw, CHUNK))
            raw = machine.unconsumed_tail
    except zlib.error as error:
        raise CheckpointError(f"{entry.name[:120]!r} damaged in a zip file", "sound data", DAMAGED) from error


class Unpacking:
    """The unpacked bytes of a tar file in order, no more than ``MOST_RATIO`` times the file."""

    def __init__(self, file: BufferedIOBase, size: int, kind: str) -> None:
        self.size, self.at, self.packed = size, 0, kind in PACKED
        self.source: Any = file
        if kind == "gzip":
            self.source = gzip.GzipFile(fileobj=file, mode="rb")
        elif kind == "bzip2":
            self.source = bz2.BZ2File(file)
        elif kind == "xz":
            self.source = _Xz(file)

    def take(self, count: int) -> bytes:
        pieces = []
        while count:
            try:
                piece = self.source.read(min(count, CHUNK))
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                raise CheckpointError(f"a damaged archive ({str(error)[:80]!r})", "sound data", DAMAGED) from error
            if not piece:
                break
            pieces.append(piece)
            count -= len(piece)
            self.at += len(piece)
            self.check(self.at)
        return b"".join(pieces)

    def check(self, bytes_in_all: int) -> None:
        if self.packed:
            check_ratio("its content", bytes_in_all, self.size)


class _Xz:
    """An xz file read with a bound on memory, which the library's file object does not offer."""

    def __init__(self, file: BufferedIOBase) -> None:
        self.file, self.machine = file, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)

    def read(self, count: int) -> bytes:
        while not self.machine.eof:
            raw = self.file.read(CHUNK) if self.machine.needs_input else b""
            if not raw and self.machine.needs_input:
                raise EOFError("the file ends too early")
            if piece := self.machine.decompress(raw, count):
                return piece
        return b""


def check_ratio(name: str, unpacked: int, packed: int) -> None:
    """Raise ``CheckpointError`` for what grows more than weights can: a bomb."""
    if unpacked > SMALL and unpacked > MOST_RATIO * packed:
        raise CheckpointError(
            f"an archive in which {name[:120]!r} is {unpacked // max(packed, 1)} times the size it is packed in",
            f"at most {MOST_RATIO} times", "Weights do not shrink so: pack the folder again, without compression.",
        )  # fmt: skip
