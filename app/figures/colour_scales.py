"""Colour scales bent to a square root or a logarithm, so that small attention is seen; the data stay as they are."""

from __future__ import annotations

import numpy as np
import plotly.colors

COLOURS = {"sqrt": "square root", "linear": "linear", "log": "log"}
"""Colour scales, the first is the default: attention in linear colour is nearly black."""

FLOOR = 1e-4
"""Of the ceiling: where the log colour scale ends."""


def stops(name: str, count: int = 11) -> list[tuple[float, str]]:
    """A named Plotly colour scale as ``count`` evenly spaced (position, "#rrggbb")."""
    at = np.linspace(0, 1, count)
    colours = plotly.colors.sample_colorscale(name, list(at), colortype="tuple")
    return [
        (round(float(t), 6), "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in rgb))
        for t, rgb in zip(at, colours, strict=True)
    ]


def bent(name: str, colour: str, diverging: bool = False, count: int = 65) -> list[tuple[float, str]]:
    """The colour scale ``name`` with its stops moved so that colour is linear, square root or log in the value."""
    table = stops(name, count)
    return [(_value_of(t, colour, diverging), shade) for t, shade in table]


def shade(values: np.ndarray, ceiling: float, colour: str, diverging: bool = False) -> np.ndarray:
    """The place of each value on the bent colour scale, from 0 to 1; what is beyond the ceiling is cut to it."""
    size = np.minimum(np.abs(values) / ceiling, 1)
    if colour == "log":
        size = np.maximum(0, 1 - np.log(np.maximum(size, FLOOR)) / np.log(FLOOR))
    elif colour == "sqrt":
        size = np.sqrt(size)
    return 0.5 + 0.5 * np.sign(values) * size if diverging else size


def _value_of(t: float, colour: str, diverging: bool) -> float:
    """Where on a linear scale from 0 to 1 the colour at t of the bent scale stands."""
    if diverging:
        side = 2 * t - 1
        return 0.5 + 0.5 * float(np.sign(side)) * _value_of(abs(side), colour, diverging=False)
    if colour == "log":
        return 0.0 if t <= 0 else float(FLOOR ** (1 - t))
    return t * t if colour == "sqrt" else t
