"""The directory of a zip file, by rules stricter than any library's: where two readers could differ, it is refused.

A zip names its members twice (before each of them, and in a directory at the end), may repeat a name, may let members
share bytes, and may lie about sizes; readers differ in which they believe, and bombs live there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BufferedIOBase

from fbt_core.checkpoints.faults import CheckpointError

MOST_ENTRIES = 200_000
MOST_DIRECTORY_BYTES = 64 << 20
STORED, DEFLATED = 0, 8
MOST_SMALL = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)  # in place of a count, length or start that stands in a larger record
DAMAGED = "The file is damaged or was made to mislead: copy, download or save it again."


@dataclass(frozen=True)
class ZipEntry:
    """One member: ``start`` is where its ``packed`` bytes begin in the file; they unpack to ``bytes``."""

    name: str
    method: int
    packed: int
    bytes: int
    start: int
    crc: int
    regular: bool  # not a folder, link or device


def read_directory(file: BufferedIOBase, size: int, most_entries: int = MOST_ENTRIES) -> list[ZipEntry]:
    """The members of a zip file of ``size`` bytes, in the order of its directory; nothing is unpacked.

    Raises ``CheckpointError`` for a file that is cut short, holds bytes before or behind the zip, is encrypted, repeats
    a name (also in other case), contradicts itself, or whose members overlap or end beyond the file.
    """
    start, length, count = _find_directory(file, size)
    if count > most_entries or length > MOST_DIRECTORY_BYTES:
        raise CheckpointError(f"a zip file of {count} members", f"at most {most_entries}", DAMAGED)
    file.seek(start)
    raw = file.read(length)
    rows, at = [], 0
    for _ in range(count):
        row, at = _row(raw, at)
        rows.append(row)
    if at != length:
        raise _contradiction("its directory has another length than it says")
    _check_names([row[0] for row in rows])
    return _placed(file, rows, start)


def _find_directory(file: BufferedIOBase, size: int) -> tuple[int, int, int]:
    """Start, length and number of rows of the directory, from the record at the end of the file."""
    file.seek(max(0, size - 65_557))
    tail = file.read(65_557)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise CheckpointError(
            f"a zip file cut short: its directory, which comes last, is not in the {size} bytes that are there",
            "the whole file", "Copy or download it again.",
        )  # fmt: skip
    disk, first, here, *told, comment = struct.unpack("<4H2LH", tail[at + 4 : at + 22])
    end = size - len(tail) + at
    if at + 22 + comment != len(tail):
        raise _contradiction("bytes follow its end")
    if disk not in (0, 0xFFFF) or first not in (0, 0xFFFF) or here != told[0]:
        raise _contradiction("it is a part of a split file")
    if tail[max(0, at - 20) : at].startswith(b"PK\x06\x07"):
        end = _unpack(file, "<Q", end - 20 + 8)[0]
        record = _unpack(file, "<4sQ2H2L4Q", end)
        if record[0] != b"PK\x06\x06" or end + 12 + record[1] != size - len(tail) + at - 20:
            raise _contradiction("its large directory is not where it says")
        if any(small not in (large, most) for small, large, most in zip(told, record[7:], MOST_SMALL, strict=True)):
            raise _contradiction("it has two directories")
        told = record[7:]
    count, length, start = told
    if start + length != end:
        raise _contradiction("its directory is not where it says")
    return start, length, count


def _unpack(file: BufferedIOBase, layout: str, at: int) -> tuple:
    file.seek(at)
    raw = file.read(struct.calcsize(layout))
    if len(raw) != struct.calcsize(layout):
        raise _contradiction("a record lies beyond its end")
    return struct.unpack(layout, raw)


def _row(raw: bytes, at: int) -> tuple[tuple, int]:
    """(name, flags, method, crc, packed, bytes, header, mode) of the row at ``at``, and where the next begins."""
    if raw[at : at + 4] != b"PK\x01\x02" or len(raw) < at + 46:
        raise _contradiction("its directory is damaged")
    fields = struct.unpack("<6H3L5H2L", raw[at + 4 : at + 46])
    flags, method, crc, packed, size = fields[2], fields[3], fields[6], fields[7], fields[8]
    names, extras, comments, header, mode = fields[9], fields[10], fields[11], fields[15], fields[14] >> 16
    end = at + 46 + names
    packed, size, header = _large(raw[end : end + extras], packed, size, header)
    name = _name(raw[at + 46 : end], flags)
    return (name, flags, method, crc, packed, size, header, mode), end + extras + comments


def _large(extra: bytes, packed: int, size: int, header: int) -> tuple[int, int, int]:
    """The sizes that do not fit 32 bits stand in an extra field, in this order, and only those."""
    values, at = [size, packed, header], 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            body, used = extra[at + 4 : at + 4 + length], 0
            for index, value in enumerate(values):
                if value == 0xFFFFFFFF and used + 8 <= len(body):
                    values[index] = struct.unpack_from("<Q", body, used)[0]
                    used += 8
            break
        at += 4 + length
    return values[1], values[0], values[2]


def _name(raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & 0x800 else "ascii")
    except UnicodeDecodeError:
        name = raw.decode("cp437")
    if not name or "\0" in name:
        raise _contradiction("a member has no name")
    return name


def _check_names(names: list[str]) -> None:
    """Readers differ in which of two equal names they take, and file systems in whether ``A`` and ``a`` are two."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) is not name:
            both = f"two members {name[:120]!r}" if other == name else f"{other[:120]!r} and {name[:120]!r}"
            raise CheckpointError(f"a zip file that holds {both}", "each name once, whatever its case", DAMAGED)


def _placed(file: BufferedIOBase, rows: list[tuple], end: int) -> list[ZipEntry]:
    """The entries with the places of their bytes, which must lie one behind the other and before the directory."""
    if len({row[6] for row in rows}) < len(rows):
        raise _contradiction("members share their bytes")
    entries: dict[int, ZipEntry] = {}
    free = 0
    for index in sorted(range(len(rows)), key=lambda index: rows[index][6]):
        name, flags, method, crc, packed, size, header, mode = rows[index]
        if flags & 0x2041:
            raise CheckpointError(f"an encrypted zip file ({name[:120]!r})", "one without a password", "Zip it again.")
        signature, *_, names, extras = _unpack(file, "<4s5H3L2H", header)
        start = header + 30 + names + extras
        if signature != b"PK\x03\x04" or _name(file.read(names), flags) != name:
            raise _contradiction(f"{name[:120]!r} has another name in front of its bytes")
        if header < free:
            raise _contradiction(f"{name[:120]!r} shares bytes with another member")
        free = start + packed
        if free > end or (method == STORED and packed != size):
            raise _contradiction(f"{name[:120]!r} claims more bytes than there are")
        regular = not name.endswith("/") and (mode == 0 or mode & 0o170000 in (0, 0o100000))
        entries[index] = ZipEntry(name, method, packed, size, start, crc, regular)
    return [entries[index] for index in range(len(rows))]


def _contradiction(what: str) -> CheckpointError:
    return CheckpointError(f"a zip file that contradicts itself: {what}", "one that every reader reads alike", DAMAGED)
