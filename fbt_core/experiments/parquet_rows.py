"""Known columns of a Parquet file of anybody's: read in a child process, bounded, and not believed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fbt_core.checkpoints import CheckpointError
from fbt_core.checkpoints.child import Limits, run_python
from fbt_core.experiments import parquet_child
from fbt_core.strict_json import strict_json

LIMITS = Limits(memory=2 << 30, seconds=30.0, output=64 << 20)


@dataclass(frozen=True)
class Bounds:
    """What of a file is read, and how much of it there may be."""

    columns: tuple[str, ...]  # what else the file holds is left alone
    texts: tuple[str, ...]  # those of the columns that hold texts; the others hold numbers
    expected: str  # "expected a results file of ...": the end of an error
    bytes: int = 16 << 20
    rows: int = 200_000
    words: int = 32  # different texts of a column
    letters: int = 64  # of a text


def read_rows(path: Path, bounds: Bounds) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The columns that are there, (row,) each, and what the file says of itself (a JSON object; empty without one).

    Texts are str objects, None where one is missing; numbers float64, then NaN. Raises ``ValueError`` (got, expected)
    for a file that is no Parquet, goes beyond a bound, or has a column of the wrong kind.
    """
    if (size := path.stat().st_size) > bounds.bytes:
        raise ValueError(f"got a file of {size:,} bytes, expected at most {bounds.bytes:,}")
    asked = {name: getattr(bounds, name) for name in ("columns", "rows", "words", "letters")}
    arguments = ["-I", str(Path(parquet_child.__file__)), str(path), json.dumps(asked)]
    try:
        printed = run_python(arguments, "read", LIMITS, {"ARROW_DEFAULT_MEMORY_POOL": "system"})
    except CheckpointError as fault:
        raise ValueError(f"got {fault.got}, {bounds.expected}") from fault
    return _columns(printed, bounds)


def _columns(printed: bytes, bounds: Bounds) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What the child printed, which is believed no more than the file itself."""
    line, _, body = printed.partition(b"\n")
    try:
        header = strict_json(line.decode())
    except ValueError as fault:
        raise ValueError(f"got a file that could not be read, {bounds.expected}") from fault
    if "fault" in header:
        raise ValueError(f"got {str(header['fault'])[:300]}: {bounds.expected}")
    names, rows = header["columns"], header["rows"]
    if len(body) != 8 * rows * len(names) or not set(names) <= set(bounds.columns):
        raise ValueError(f"got a file that could not be read, {bounds.expected}")
    values = np.frombuffer(body, "<f8").reshape(len(names), rows)
    found = {name: _column(name, one, header["words"], bounds) for name, one in zip(names, values, strict=True)}
    try:
        about = strict_json(header["about"])
    except ValueError:
        about = {}
    return found, about if isinstance(about, dict) else {}


def _column(name: str, values: np.ndarray, words: dict[str, Sequence[str]], bounds: Bounds) -> np.ndarray:
    text = name in bounds.texts
    if text != (name in words) and len(values):
        raise ValueError(f"got a column {name} of the wrong kind, expected {'texts' if text else 'numbers'}")
    if not text:
        return values.copy()
    held = np.array([*words.get(name, ()), None], dtype=object)
    return held[np.where(np.isnan(values), len(held) - 1, values).astype(int)]
