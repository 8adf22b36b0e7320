"""The claims' pictures: charts of plain numbers, one function a style of curve, and maps over layers and heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from fbt_core.claims.chart import Chart, Curve

HEIGHT = 370
"""Px of a chart with one line of legend."""

LETTER, LINE, WIDE = 7, 20, 360
"""Px that a letter, a line of the legend, and the narrowest chart take."""

CELLS = 200
"""Cells of a map up to which each has its number written in it."""


def line(curve: Curve, index: int) -> list[Any]:
    """A line, its band behind it; markers where there are few points."""
    style = theme.style(index)
    few = len(curve.x) <= 24
    drawn = go.Scatter(
        x=curve.x, y=curve.y, mode="lines+markers" if few else "lines", line=style["line"], marker=style["marker"],
        **_shared(curve, index),
    )  # fmt: skip
    return [*_band(curve, index), drawn]


def points(curve: Curve, index: int) -> list[Any]:
    """Markers, with error bars where there are bounds."""
    style = theme.style(index)
    many = {"size": 5, "opacity": 0.7} if len(curve.x) > 60 else {"size": 9}
    return [
        go.Scatter(
            x=curve.x, y=curve.y, mode="markers", marker=style["marker"] | many, error_y=_errors(curve),
            **_shared(curve, index),
        )
    ]  # fmt: skip


def bars(curve: Curve, index: int) -> list[Any]:
    """Bars, with error bars where there are bounds. A pattern tells them apart without colour."""
    marker = {"color": theme.CATEGORIES[index % len(theme.CATEGORIES)], "pattern": {"shape": PATTERNS[index % 4]}}
    return [go.Bar(x=curve.x, y=curve.y, marker=marker, error_y=_errors(curve), **_shared(curve, index))]


FEW = 8
"""Different values of x up to which each has its tick on a log axis."""

WHAT_IF = "what-if"
"""How a note begins that says of a chart that it shows what the model was not trained to do."""

PATTERNS = ("", "/", "x", ".")

STYLES: dict[str, Callable[[Curve, int], list[Any]]] = {"line": line, "points": points, "bars": bars}
"""How a curve is drawn, by its style."""


def chart(given: Chart, label: str = "") -> go.Figure:
    """One picture. ``label`` is the checkpoint's, under the title; the chart's own note stands there too.

    A log axis leaves out what is not positive. Marks are dotted lines with an entry in the legend, over no data.
    """
    figure = go.Figure(
        [trace for index, curve in enumerate(given.curves) for trace in STYLES[curve.style](curve, index)]
    )
    for index, mark in enumerate(given.marks, len(given.curves)):
        _mark(figure, mark.axis, mark.value, mark.text, index)
    entries = [curve.name for curve in given.curves] + [mark.text for mark in given.marks]
    rows = _legend_rows(entries) if len(entries) > 1 else 0
    figure.update_layout(title=theme.label(given.title), height=HEIGHT + LINE * max(0, rows - 1), barmode="group",
                         showlegend=len(entries) > 1, margin={"b": 52 + LINE * rows})  # fmt: skip
    figure.update_xaxes(title=theme.label(given.x_title), tickangle=0)
    figure.update_yaxes(title=theme.label(given.y_title))
    if given.log_x:
        figure.update_xaxes(type="log", exponentformat="power", **_log_ticks([curve.x for curve in given.curves]))
    if given.log_y:
        figure.update_yaxes(
            type="log", exponentformat="power", **_log_ticks([curve.y for curve in given.curves], False)
        )
    what_if = given.note.startswith(WHAT_IF)
    if said := "; ".join(filter(None, [label, "" if what_if else given.note])):
        theme.subtitle(figure, said)
    return theme.note(figure, given.note if what_if else None)


def grid(
    values: np.ndarray, title: str, layers: tuple[str, ...], label: str = "", limits: tuple[float, float] | None = None
) -> go.Figure:
    """(layer, head) of a number: Viridis, or RdBu symmetric about 0 where both signs occur. Grey: none."""
    low, high = limits or bounds(values)
    signed = low < 0 < high
    colours = {"colorscale": theme.DIVERGING if signed else theme.SEQUENTIAL, "zmin": low, "zmax": high}
    text = np.vectorize(lambda value: f"{value:.3g}" if np.isfinite(value) else "")(values)
    heat = go.Heatmap(
        z=values, text=text, texttemplate="%{text}" if values.size <= CELLS else None, xgap=2, ygap=2,
        hovertemplate="layer %{y}, head %{x}: %{z:.5g}<extra></extra>",
        colorbar={"thickness": 12, "exponentformat": "power"},
        **colours,
    )  # fmt: skip
    figure = go.Figure(heat)
    figure.update_layout(title=theme.label(title[:1].upper() + title[1:]), height=min(140 + 34 * len(values), 640))
    step = max(1, len(layers) // 16)
    ticks = list(range(0, len(layers), step))
    figure.update_xaxes(title="head", dtick=max(1, values.shape[1] // 16), showgrid=False)
    figure.update_yaxes(title="layer", tickvals=ticks, ticktext=[theme.label(layers[i]) for i in ticks],
                        autorange="reversed", showgrid=False)  # fmt: skip
    return theme.subtitle(figure, label) if label else figure


def bounds(*grids: np.ndarray) -> tuple[float, float]:
    """One colour scale for several maps, symmetric about 0 where both signs occur, and of some width."""
    finite = np.concatenate([one[np.isfinite(one)] for one in grids] or [np.zeros(0)])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    return (low, high) if high > low else (low - abs(low) / 2 - 1e-300, high + abs(high) / 2 + 1e-300)


def _shared(curve: Curve, index: int) -> dict[str, Any]:
    name = theme.label(curve.name)
    return {"name": name, "legendgroup": str(index), "hovertemplate": "%{x:.5g}: %{y:.5g}<extra>" + name + "</extra>"}


def _band(curve: Curve, index: int) -> list[Any]:
    if curve.low is None or curve.high is None:
        return []
    return [theme.band(curve.x, curve.low, curve.high, theme.faint(index), str(index))]


def _errors(curve: Curve) -> dict[str, Any] | None:
    if curve.low is None or curve.high is None:
        return None
    return {"type": "data", "symmetric": False, "array": curve.high - curve.y, "arrayminus": curve.y - curve.low}


def _mark(figure: go.Figure, axis: str, value: float, text: str, index: int) -> None:
    """A dotted line across the picture, and a point at it that nobody sees, so that the axis reaches so far."""
    if not np.isfinite(value):
        return
    ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper"}
    if axis == "y":
        ends = {"y0": value, "y1": value, "x0": 0, "x1": 1, "xref": "paper"}
    colour = theme.CATEGORIES[index % len(theme.CATEGORIES)]
    figure.add_shape(type="line", line={"color": colour, "width": 1.5, "dash": "dot"}, showlegend=True,
                     name=theme.label(text), **ends)  # fmt: skip
    x, y = next(((trace.x[0], trace.y[0]) for trace in figure.data if len(trace.x)), (None, None))
    if x is not None:
        figure.add_scatter(x=[value if axis == "x" else x], y=[value if axis == "y" else y], mode="markers",
                           marker={"opacity": 0}, showlegend=False, hoverinfo="skip")  # fmt: skip


def _legend_rows(entries: list[str]) -> int:
    """Lines that the legend takes below the narrowest chart."""
    rows, used = 1, 0
    for entry in entries:
        width = 50 + LETTER * len(entry)
        rows, used = (rows + 1, width) if used + width > WIDE and used else (rows, used + width)
    return rows


def _log_ticks(values: list[np.ndarray], may_list: bool = True) -> dict[str, Any]:
    """Ticks at the values themselves where they are few, else at whole powers of ten where there are two or more."""
    every = np.unique(np.concatenate(values))
    every = every[np.isfinite(every) & (every > 0)]
    if may_list and 0 < len(every) <= FEW:
        return {"tickvals": every.tolist(), "ticktext": [f"{value:g}" for value in every]}
    decades = np.log10(every[-1] / every[0]) if len(every) else 0.0
    return {"dtick": float(np.ceil(decades / 8))} if decades >= 2 else {}
