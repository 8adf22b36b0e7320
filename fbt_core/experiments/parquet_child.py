"""Read the known columns of a Parquet file that nobody vouches for, as a script for a child process.

``python -I parquet_child.py PATH BOUNDS`` prints one line of JSON, then numbers as little-endian float64, column after
column. ``BOUNDS`` is a JSON object: columns, rows, words (different texts of a column), letters (of each). What is
wrong is ``{"fault": why}`` and no more. Nothing of ``fbt_core`` is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ABOUT = b"fiberscope"
MOST_ABOUT = 16 << 10


class FaultError(Exception):
    """What the file has, and what was expected."""


def convert(path: str, bounds: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """The header, and the bytes of each column; texts become numbers into a list of words."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    file = pq.ParquetFile(path, thrift_string_size_limit=1 << 20, thrift_container_size_limit=1 << 16)
    rows = file.metadata.num_rows
    if rows > bounds["rows"]:
        raise FaultError(f"{rows} rows, expected at most {bounds['rows']}")
    schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        raise FaultError("two columns of one name")
    names = [name for name in bounds["columns"] if name in schema.names]
    for name in names:
        _check(name, schema.field(name).type)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    seen = 0
    for batch in file.iter_batches(batch_size=4096, columns=names, use_threads=False):
        seen += batch.num_rows
        if seen > bounds["rows"]:
            raise FaultError(f"more than {bounds['rows']} rows, though it promises {rows}")
        for name in names:
            columns[name].append(batch.column(name).to_pylist())
    header: dict[str, Any] = {"rows": seen, "columns": names, "words": {}, "about": _about(schema)}
    return header, [_packed(name, parts, bounds, header["words"]) for name, parts in columns.items()]


def _check(name: str, kind: Any) -> None:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    text = types.is_string(inner) or types.is_large_string(inner)
    if not (text or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise FaultError(f"a column {name} of type {str(kind)[:40]}, expected numbers, texts or booleans")


def _packed(name: str, parts: list[list[Any]], bounds: dict[str, Any], words: dict[str, list[str]]) -> bytes:
    """A column as float64; NaN for what is missing."""
    import array

    values = [value for part in parts for value in part]
    if any(isinstance(value, str) for value in values):
        known: dict[str, int] = {}
        for value in values:
            if value is None:
                continue
            if len(value) > bounds["letters"]:
                raise FaultError(f"a text of column {name} that is longer than {bounds['letters']} letters")
            if known.setdefault(value, len(known)) >= bounds["words"]:
                raise FaultError(f"more than {bounds['words']} different texts in column {name}")
        words[name] = list(known)
        values = [None if value is None else known[value] for value in values]
    return array.array("d", [float("nan") if value is None else float(value) for value in values]).tobytes()


def _about(schema: Any) -> str:
    about = (schema.metadata or {}).get(ABOUT, b"{}")
    return about.decode("utf-8", "replace") if len(about) <= MOST_ABOUT else "{}"


if __name__ == "__main__":
    found: list[bytes] = []
    try:
        answer, found = convert(sys.argv[1], json.loads(sys.argv[2]))
    except FaultError as fault:
        answer = {"fault": str(fault)}
    except BaseException as error:
        answer = {"fault": f"what is no sound Parquet file ({type(error).__name__}: {str(error)[:120]!r})"}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + b"".join(found))
