"""What a sweep has done so far: an append-only file that survives ``kill -9`` at any moment.

The first line is the identity of the sweep, each further line one finished job with its rows. A line counts once its
newline is on the disk; a torn last line is dropped, and the job that it was of is done again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: two commands on one journal are not noticed
    fcntl = None

Rows = list[dict[str, Any]]

REMEDY = "add --restart to begin again, or name another file with --out"


class Journal:
    """The jobs that are done, by number, and the file that more of them go to. Use as a context manager.

    With ``restart`` what is in the file is forgotten, once it is ours. Raises ``ValueError`` when the file belongs to
    another identity, is damaged before its last line, or is in use.
    """

    def __init__(self, path: Path, identity: dict[str, Any], restart: bool = False) -> None:
        self.path, self.identity, self.restart = path, identity, restart
        self.done: dict[int, Rows] = {}
        self.seconds = 0.0  # of all finished jobs together, each counted on its own core
        self._file: BinaryIO | None = None

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "a+b")  # closed in __exit__
        try:
            self._lock()
            if self.restart:
                self._file.truncate(0)
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, job: int, rows: Rows, seconds: float) -> None:
        """Job number ``job`` is done: on the disk when this returns."""
        self._write({"job": job, "seconds": round(seconds, 3), "rows": rows})
        self._take(job, rows, seconds)

    def remove(self) -> None:
        """Delete the file: its rows are safe elsewhere."""
        self.path.unlink(missing_ok=True)

    def _take(self, job: int, rows: Rows, seconds: float) -> None:
        self.done[job] = json.loads(json.dumps(rows))  # what was just computed and what was read back are one kind
        self.seconds += seconds

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError as fault:
            raise self._used() from fault
        if not ours:  # the other command finished, and removed the file between our opening and our locking it
            raise self._used()

    def _used(self) -> ValueError:
        return ValueError(f"got {self.path.name}, which another command writes: wait, or end that one")

    def _read(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        whole = lines[:-1]  # what follows the last newline is torn, or nothing
        entries = [_entry(line) for line in whole]
        if entries and entries[-1] is None:  # a disk may lose a line's bytes and keep its newline
            entries.pop()
        if None in entries:
            raise ValueError(f"got {self.path.name}, damaged at line {entries.index(None) + 1}: {REMEDY}")
        self._file.truncate(sum(len(line) + 1 for line in whole[: len(entries)]))
        if not entries:
            self._write({"identity": self.identity})
            return
        self._check(entries[0])
        for entry in entries[1:]:
            self._take(entry["job"], entry["rows"], entry["seconds"])

    def _check(self, header: dict[str, Any]) -> None:
        other = header.get("identity", {})
        differing = sorted(key for key in other.keys() | self.identity if other.get(key) != self.identity.get(key))
        if differing:
            raise ValueError(
                f"got {self.path.name}, an unfinished sweep that differs in {', '.join(differing)}, expected one of "
                f"the plan that was asked for: {REMEDY}"
            )

    def _write(self, entry: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line's table; None where it is damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    known = isinstance(entry, dict) and ("identity" in entry or {"job", "seconds", "rows"} <= entry.keys())
    return entry if known else None
