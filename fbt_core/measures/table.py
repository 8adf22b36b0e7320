"""The types of a measured quantity. Torch ends here: what leaves a measure is numpy."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measured:
    """What a measure's function returns: float64 values over the measure's axes, and remarks for the reader."""

    values: np.ndarray
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure:
    """A quantity and its documentation in one row. ``function(trace, **options)`` returns values over ``axes``."""

    name: str
    symbol: str  # LaTeX, without dollar signs
    title: str
    axes: tuple[str, ...]  # of layer, head, token, term, in this order
    unit: str  # "" for a pure number
    range: str  # such as "[1, min(L, D)]"
    equation: str  # LaTeX
    source: str  # a paper, or an item of docs/mathematics.md
    function: Callable[..., Measured]
    options: tuple[str, ...] = ()  # names of the keyword options that the function takes


@dataclass(frozen=True)
class Reading:
    """A measure's values on one trace: all that a figure needs. Pickles; exports to CSV and JSON.

    ``options`` are all that the measure takes, defaults included. ``notes`` say what a reader of the numbers must know:
    non-finite entries and where they are, tokens left out, values that are undefined and why.
    """

    measure: Measure
    values: np.ndarray
    labels: dict[str, tuple[str, ...]]  # axis name -> one label an index
    options: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One tidy row a value: its label on every axis, then the value, 17 significant digits."""
        labels = product(*(self.labels[axis] for axis in self.measure.axes))
        for names, value in zip(labels, self.values.ravel(), strict=True):
            yield *names, format(float(value), ".17g")

    def to_csv(self) -> str:
        """A tidy table: a column an axis, then one named after the measure; a missing value is ``nan``."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((*self.measure.axes, self.measure.name))
        writer.writerows(self.rows())
        return text.getvalue()

    def to_json(self) -> str:
        """Name, unit, axes, labels, options, notes and nested values as strict JSON, non-finite values as strings."""
        row = self.measure
        return json.dumps(
            {
                "name": row.name, "title": row.title, "unit": row.unit, "equation": row.equation, "source": row.source,
                "axes": row.axes, "labels": self.labels, "options": self.options, "notes": self.notes,
                "values": _strict(self.values.tolist()),
            },
            allow_nan=False, ensure_ascii=False,
        )  # fmt: skip


def _strict(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become "nan", "inf" and "-inf"."""
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return value if math.isfinite(value) else str(value)
