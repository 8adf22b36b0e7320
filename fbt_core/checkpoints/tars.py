"""The members of a tar file one after another, as it is read: plain ones, and nothing that could lead elsewhere.

A reader of our own, since the library's keeps headers of any length in memory and resolves links. Understood are ustar,
GNU long names and the ``path`` and ``size`` of pax; sparse files and everything that is no file are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.sniff import is_tar

BLOCK = 512
MOST_MEMBERS = 10_000
MOST_HEADER = 64 << 10
DAMAGED = "The file is damaged: pack, copy or download it again."
OTHERS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a pipe (fifo)",
    b"S": "a sparse file",
}  # fmt: skip


@dataclass(frozen=True)
class TarMember:
    """A regular file or a folder; its ``bytes`` come next in the stream, padded to whole blocks."""

    name: str
    bytes: int
    folder: bool

    @property
    def padded(self) -> int:
        return -(-self.bytes // BLOCK) * BLOCK


def members(take: Callable[[int], bytes]) -> Iterator[TarMember]:
    """Each member in turn; whoever iterates takes its ``padded`` bytes before the next.

    ``take(count)`` gives the next bytes of the unpacked file, fewer than asked for only at its end.
    Raises ``CheckpointError`` for links, devices and pipes, headers that are cut or damaged, and too many members.
    """
    told: dict[str, str] = {}
    for _ in range(MOST_MEMBERS):
        header = take(BLOCK)
        if not header.strip(b"\0"):
            return
        if not is_tar(header):
            got = "a tar file cut short" if len(header) < BLOCK else "a damaged tar header"
            raise CheckpointError(got, "the whole file", DAMAGED)
        size, kind = _size(header[124:136]), header[156:157]
        if kind in (b"L", b"K", b"x", b"g"):
            told |= _told(kind, _long(take, size))
            continue
        name = told.get("path") or _name(header)
        if kind in OTHERS or "sparse" in told:
            what = OTHERS.get(kind, "a sparse file")
            raise CheckpointError(f"{what} {name[:120]!r} in a tar file", "regular files", "Pack the files themselves.")
        if kind not in (b"0", b"\0", b"7", b"5"):
            raise CheckpointError(f"a special member {name[:120]!r} (type {kind!r})", "regular files", DAMAGED)
        yield TarMember(name, int(told.get("size", size)), kind == b"5" or name.endswith("/"))
        told = {}
    raise CheckpointError(f"a tar file of more than {MOST_MEMBERS} members", "a checkpoint's folder", "Pack it alone.")


def _size(field: bytes) -> int:
    """Octal digits, or behind a set bit a binary number."""
    if field[0] == 0x80:
        return int.from_bytes(field[4:], "big")
    digits = field.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise CheckpointError("a damaged tar header", "a size", DAMAGED)
    return int(digits or b"0", 8)


def _long(take: Callable[[int], bytes], size: int) -> bytes:
    if size > MOST_HEADER:
        raise CheckpointError(f"a tar header of {size} bytes", f"at most {MOST_HEADER}", DAMAGED)
    return take(-(-size // BLOCK) * BLOCK)[:size]


def _told(kind: bytes, raw: bytes) -> dict[str, str]:
    """What such a header says of the member that follows. Global ones (comments of git) say nothing that counts."""
    if kind == b"L":
        return {"path": raw.rstrip(b"\0").decode("utf-8", "replace")}
    told: dict[str, str] = {}
    while kind == b"x" and (row := re.match(rb"(\d{1,6}) ([^=\n]{1,200})=", raw)) and int(row[1]) > row.end():
        key, value = row[2].decode("utf-8", "replace"), raw[row.end() : int(row[1]) - 1].decode("utf-8", "replace")
        if key == "path" or (key == "size" and re.fullmatch(r"\d{1,18}", value)):
            told[key] = value
        elif key.startswith("GNU.sparse"):
            told["sparse"] = value
        raw = raw[int(row[1]) :]
    return told


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0")[0]
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" * bool(prefix) + name).decode("utf-8", "replace")
