"""A results file of anybody's: read in a child process, bounded, and checked before it is believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fbt_core.experiments.collapse import COLUMNS, DEFAULTS, TRAINED
from fbt_core.experiments.depths import cell_columns
from fbt_core.experiments.parquet_rows import Bounds, read_rows
from fbt_core.experiments.rules import NEEDED

MOST_BYTES, MOST_ROWS, MOST_RUNS = 16 << 20, 200_000, 20_000
"""Of a file, of its rows, and of its runs (cell, arm and seed): the real plan's are a tenth of it."""

TEXTS = ("arm", "stage", "unit", "transport", "held", "task", "device")
WHOLE = ("seed", "layer", "length", "width", "rank", "layers", "vocabulary", "steps", "batch")
KNOWN = tuple(dict.fromkeys(("arm", "layer", "below_floor", *DEFAULTS, *TRAINED, *COLUMNS)))
"""Columns that are read; what else a file holds is left alone."""

EXPECTED = "expected a results file of `python -m fbt_core collapse`"
BOUNDS = Bounds(KNOWN, TEXTS, EXPECTED, MOST_BYTES, MOST_ROWS)


def read_uploaded(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows, and what the file says of itself. Raises ``ValueError`` (got, expected) for anything but sound rows."""
    columns, about = read_rows(path, BOUNDS)
    frame = pd.DataFrame({name: _column(name, values) for name, values in columns.items()})
    _check(frame)
    return frame, about


def _column(name: str, values: np.ndarray) -> np.ndarray:
    """A column of the kind that its name asks for."""
    if name in ("tied", "below_floor"):
        return values == 1.0
    if name in WHOLE and np.isfinite(values).all():
        if not ((values == np.floor(values)) & (values >= 0) & (values < 2**31)).all():
            raise ValueError(f"got a column {name} with numbers that are not whole or out of range, {EXPECTED}")
        return values.astype(np.int64)
    return values


def _check(frame: pd.DataFrame) -> None:
    """Everything that the rules and figures take for granted."""
    if missing := [name for name in NEEDED if name not in frame]:
        raise ValueError(f"got a file without the columns {', '.join(missing)}, {EXPECTED}")
    if frame.empty:
        raise ValueError(f"got a file without rows, {EXPECTED}")
    for name in ("arm", "stage", "unit", "transport"):
        if frame[name].isna().any():
            raise ValueError(f"got a column {name} with missing texts, {EXPECTED}")
    for name in ("seed", "layer", "length", "width", "layers", "strength"):
        if not np.isfinite(frame[name].to_numpy(float)).all():
            raise ValueError(f"got a column {name} with missing numbers, {EXPECTED}")
    if (frame["log10_residual"] > 1).any() or frame["log10_residual"].isna().all():
        raise ValueError(f"got residuals beyond the range of a Dong residual, {EXPECTED}")
    if frame["layer"].max() > 1000:
        raise ValueError(f"got layer {frame['layer'].max()}, expected at most 1000 layers")
    keys = [*cell_columns(frame), "arm", "seed"]
    if frame.duplicated([*keys, "layer"]).any():
        raise ValueError(f"got the same arm, seed and layer twice, {EXPECTED}")
    if (runs := frame.groupby(keys, dropna=False).ngroups) > MOST_RUNS:
        raise ValueError(f"got {runs:,} runs, expected at most {MOST_RUNS:,}")
