"""Colours of tokens by a value: sequential from the least to the greatest, or diverging about 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from app.figures import theme

STEPS = 64

STEADY = 1e-5
"""Of the largest value: a smaller spread is float32's rounding, and takes no colour."""


@dataclass(frozen=True)
class Scale:
    """A colour scale over [low, high]; ``diverging`` ones are symmetric about 0."""

    low: float
    high: float
    diverging: bool = False

    @property
    def name(self) -> str:
        """Plotly's name of the colours."""
        return theme.DIVERGING if self.diverging else theme.SEQUENTIAL

    @property
    def stops(self) -> list[str]:
        """A few colours from low to high, for a colour bar in CSS."""
        return [_hex(str(colour)) for colour in sample_colorscale(self.name, list(np.linspace(0, 1, 9)))]

    def colours(self, values: np.ndarray) -> list[str]:
        """One ``#rrggbb`` a value; "" for a value that is not finite, to be drawn as missing and never as 0."""
        table = [_hex(str(colour)) for colour in sample_colorscale(self.name, list(np.linspace(0, 1, STEPS)))]
        width = self.high - self.low
        place = np.zeros(len(values)) if width <= 0 else (np.nan_to_num(values, posinf=0, neginf=0) - self.low) / width
        index = np.clip(np.rint(place * (STEPS - 1)), 0, STEPS - 1).astype(int)
        return [table[i] if np.isfinite(value) else "" for i, value in zip(index, values, strict=True)]


def scale_of(*arrays: np.ndarray, diverging: bool = False) -> Scale:
    """One scale for all arrays, so that sides can be compared. Non-finite entries do not count."""
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays])
    values = values[np.isfinite(values)]
    if not values.size:
        return Scale(0.0, 0.0, diverging)
    if diverging:
        bound = float(np.abs(values).max())
        return Scale(-bound, bound, True)
    if np.ptp(values) <= STEADY * np.abs(values).max():
        return Scale(float(values.mean()), float(values.mean()))
    return Scale(float(values.min()), float(values.max()))


def ink(colour: str) -> str:
    """Black or white, whichever reads better on a colour; "" stays with the page's."""
    if not colour:
        return ""
    red, green, blue = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    light = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in (red, green, blue)]
    return "#000000" if 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.179 else "#ffffff"


def _hex(colour: str) -> str:
    """``rgb(1, 2, 3)`` as ``#010203``."""
    numbers = [round(float(part)) for part in colour[4:-1].split(",")]
    return "#" + "".join(f"{number:02x}" for number in numbers)


def bars(tokens: tuple[str, ...], series: dict[str, np.ndarray], title: str, unit: str) -> go.Figure:
    """The strips' twin: one bar a token and checkpoint, of the same numbers; one that is not finite leaves a gap.

    Without ``tokens``, as where the checkpoints split the text in different ways, the axis only counts.
    """
    figure = go.Figure()
    for index, (name, values) in enumerate(series.items()):
        places = np.arange(len(values))
        figure.add_bar(x=places, y=values, name=theme.label(name), marker_color=theme.CATEGORIES[index])
    figure.update_layout(title=theme.label(title), barmode="group", showlegend=len(series) > 1, height=380)
    figure.update_xaxes(title="token", **(theme.ticks(tokens) if tokens else {}))
    figure.update_yaxes(title=unit)
    return figure
