"""A claim's picture as plain numbers, drawn by whoever draws. Nothing of torch or Plotly here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STYLES = ("line", "points", "bars")
AXES = ("x", "y")


@dataclass(frozen=True)
class Curve:
    """One row of values over x. ``low`` and ``high`` bound a band or an error bar around y; both or neither."""

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    style: str = "line"  # of STYLES

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"got the style {self.style!r}, expected one of {', '.join(STYLES)}")
        lengths = {len(part) for part in (self.x, self.y, self.low, self.high) if part is not None}
        if len(lengths) != 1 or (self.low is None) != (self.high is None):
            raise ValueError(f"got {self.name} with parts of lengths {sorted(lengths)}, expected one length for all")


@dataclass(frozen=True)
class Mark:
    """A labelled straight line: a predicted rank, a threshold, what the paper says."""

    axis: str  # of AXES: the axis on which ``value`` stands
    value: float
    text: str

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise ValueError(f"got the axis {self.axis!r}, expected x or y")


@dataclass(frozen=True)
class Chart:
    """Some curves on the same axes. Axis titles have their units in them; ``note`` is drawn on the figure."""

    title: str
    x_title: str
    y_title: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    log_x: bool = False
    log_y: bool = False
    note: str = ""
