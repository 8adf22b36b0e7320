"""Readings as tidy tables, one value a row: what every CSV holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from fbt_core.measures.table import Reading

Table = pd.DataFrame | Reading | Mapping[str, Reading] | Callable[[], "pd.DataFrame | Reading | Mapping[str, Reading]"]
"""What a CSV is made of: a frame, a reading, one reading a side (label to reading), or a function that makes it."""


def tidy(table: Table) -> pd.DataFrame:
    """One row a value. A reading's axes become columns: the index, and the label where it says more."""
    if callable(table):
        table = table()
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Reading):
        return _of_reading(table)
    frames = []
    for side, reading in table.items():
        frame = _of_reading(reading)
        frame.insert(0, "checkpoint", side)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _of_reading(reading: Reading) -> pd.DataFrame:
    columns: dict[str, object] = {"measure": reading.measure.name}
    grid = np.indices(reading.values.shape).reshape(reading.values.ndim, -1)
    for axis, index in zip(reading.measure.axes, grid, strict=True):
        columns[axis] = index
        names = reading.labels.get(axis)
        if names and any(str(position) != text for position, text in enumerate(names)):
            columns[f"{axis}_label"] = np.asarray(names, dtype=object)[index]
    for option, value in reading.options.items():
        columns[option] = str(value)
    return pd.DataFrame({**columns, "value": reading.values.ravel(), "unit": reading.measure.unit})
