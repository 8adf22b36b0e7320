"""Readings as tidy tables, one value a row: what every CSV holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fbt_core.measures.table import Reading

FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How a text begins that a spreadsheet takes for a formula; it knows the full-width signs, too."""

NUMBER = re.compile(r"[-+]?[0-9.]*(?:[eE][-+]?[0-9]+)?")

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


def csv(table: Table) -> bytes:
    """The table as UTF-8 CSV. Text that a spreadsheet would run as a formula has an apostrophe before it.

    Token text and names of tensors are a file's choice, and ``=HYPERLINK(...)`` may be among them. A spreadsheet shows
    the apostrophe of an imported cell; other readers take it off: it stands before every text that begins so.
    """
    frame = tidy(table)
    texts = {
        place: frame.iloc[:, place].map(_inert) for place, kind in enumerate(frame.dtypes) if not is_numeric_dtype(kind)
    }
    columns = [texts.get(place, frame.iloc[:, place]) for place in range(frame.shape[1])]
    return pd.concat(columns, axis=1).rename(columns=_inert).to_csv(index=False, lineterminator="\r\n").encode()


def _inert(cell: object) -> object:
    """A cell that no spreadsheet computes with; what is no text, or no more than a number, as it is."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell) else cell


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
