"""The file of a finished sweep: one Parquet table of tidy rows that says what made it."""

from __future__ import annotations

import io
import json
import platform
from pathlib import Path
from typing import Any

import pandas as pd

from fbt_core.checkpoints.native import write_atomically

KEY = b"fiberscope"
"""Of the metadata: a JSON object with identity, versions, seconds of all jobs together."""


def write(path: Path, frame: pd.DataFrame, about: dict[str, Any]) -> None:
    """All rows and what made them, or what was there before: never half a file.

    Single-precision columns have their bytes sorted by place, which halves what zstd makes of them.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({KEY: json.dumps(about).encode()})
    buffer = io.BytesIO()
    split = {name: "BYTE_STREAM_SPLIT" for name in frame.columns[frame.dtypes == "float32"]}
    rest = [name for name in frame.columns if name not in split]
    pq.write_table(
        table, buffer, compression="zstd", compression_level=19, use_dictionary=rest, column_encoding=split or None
    )
    write_atomically(path, buffer.getvalue())


def read(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows and what made them, of a file that is our own; ``uploaded`` reads one of anybody's.

    Raises ``ValueError`` for a file that no sweep wrote.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(path.read_bytes()))
        about = dict(json.loads((table.schema.metadata or {})[KEY]))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as fault:
        raise ValueError(f"got {path.name}, which no sweep wrote, expected a results file (Parquet)") from fault
    return table.to_pandas(ignore_metadata=True), about


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    import numpy
    import pyarrow
    import torch

    return {
        "python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__,
        "pandas": pd.__version__, "pyarrow": pyarrow.__version__,
    }  # fmt: skip


EXPONENTS = "exponents.parquet"
"""Residuals in high precision, for all results of a folder that have none of their own."""


def own_exponents(file: Path) -> Path:
    """Where the residuals in high precision of one results file lie, if its plan asks for them."""
    return file.with_name(f"{file.stem}-{EXPONENTS}")


def exponents_beside(file: Path) -> Path | None:
    """The residuals in high precision that lie beside a results file: its own, or else those of its folder."""
    return next((place for place in (own_exponents(file), file.with_name(EXPONENTS)) if place.is_file()), None)
