"""The Plotly twin of the canvas of attention maps, for export and notebooks, and the entropy of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme
from app.figures.colour_scales import COLOURS, bent
from app.figures.maps import MapPanels
from fbt_core.attention.pooling import max_pool

TWIN_CELLS = 512
"""Cells a side of the Plotly twin; a longer map is max-pooled."""


def attention_figure(panels: MapPanels, dark: bool = False) -> go.Figure:
    """Left, right and difference as heat maps with one zoom, max-pooled to at most ``TWIN_CELLS`` cells a side.

    The numbers in the figure are the attention weights themselves: a colour scale other than linear bends the
    colours, not the data. Masked cells are NaN and so take the page's colour.
    """
    figure = subplots(panels, 0.075, shared_yaxes=True)
    seen = max_pool(panels.allowed.astype(np.float32), TWIN_CELLS).values > 0
    for column, cells in enumerate(panels.shown, start=1):
        pool = max_pool(cells, TWIN_CELLS, panels.causal, magnitude=column == 3)
        heat = go.Heatmap(
            z=np.where(pool.masked | ~seen, np.float32(np.nan), pool.values),
            x=np.minimum(panels.factor * pool.column_edges, len(panels.columns)) - 0.5,
            y=np.minimum(panels.factor * pool.edges, len(panels.tokens)) - 0.5,
            coloraxis="coloraxis2" if column == 3 else "coloraxis", hoverongaps=False,
            hovertemplate="query %{y:.0f}, key %{x:.0f}<br>%{z:.6f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
        if panels.expected:
            figure.add_trace(_expected(panels, column), row=1, col=column)
        if panels.marked:
            figure.add_traces(_marks(panels), rows=1, cols=column)
    _axes(figure, panels)
    bars(figure, panels)
    figure.update_layout(
        title_text=titled(panels.heading, panels), height=520, margin={"t": 90, "b": 150},
        legend={"y": 1.12, "x": 1.0, "xanchor": "right"},
    )  # fmt: skip
    return theme.dress(figure, dark)


def subplots(panels: MapPanels, spacing: float, **more: Any) -> go.Figure:
    """An empty figure with a place for each map that is shown, titled."""
    titles = [theme.label(title) for title, _ in zip(panels.all_titles, panels.shown, strict=False)]
    return make_subplots(1, len(titles), subplot_titles=titles, horizontal_spacing=spacing, **more)


def titled(text: str, panels: MapPanels) -> str:
    """The heading with its what-if: in the title no panel can hide it, and every export keeps it."""
    return theme.label(f"{text} — {panels.note}" if panels.note else text)


def _expected(panels: MapPanels, column: int) -> go.Scatter:
    rows, columns = zip(*panels.expected, strict=True)
    return go.Scatter(
        x=columns, y=rows, mode="markers", name=theme.label(panels.expected_name), showlegend=column == 1,
        hoverinfo="skip", marker={"symbol": "circle", "size": 8, "color": "rgba(0,0,0,0)", "line": {"width": 1.6,
                                  "color": "#000000" if column == 3 else theme.CATEGORIES[1]}},
    )  # fmt: skip


def _marks(panels: MapPanels) -> list[go.Scatter]:
    """Triangles at the rows of marked tokens, and at their columns where those are the same tokens."""
    rows = list(panels.marked)
    edge, floor = ([place] * len(rows) for place in (-0.5, len(panels.tokens) - 0.5))
    ends = [(edge, rows, "triangle-right")] + ([] if panels.key_tokens else [(rows, floor, "triangle-up")])
    return [
        go.Scatter(
            x=x, y=y, mode="markers", hoverinfo="skip", showlegend=False, name="marked",
            marker={"symbol": symbol, "size": 10, "color": theme.MARK, "line": {"width": 1, "color": "#000000"}},
        )
        for x, y, symbol in ends
    ]  # fmt: skip


def _axes(figure: go.Figure, panels: MapPanels) -> None:
    rows, columns = theme.ticks(panels.tokens, 40), theme.ticks(panels.columns, 40)
    low, high = columns.pop("range")
    figure.update_xaxes(
        **columns, range=[low, high], tickangle=-90, title_text="key j (token)", matches="x", constrain="domain",
        showgrid=False,
    )  # fmt: skip
    low, high = rows.pop("range")
    figure.update_yaxes(**rows, range=[high, low], matches="y", constrain="domain", showgrid=False)
    figure.update_yaxes(title_text="query i (token)", col=1)
    several = (1,) if panels.single else (1, 2, 3)
    for column in several if not panels.key_tokens else ():  # cells of cross-attention need not be square
        figure.update_yaxes(scaleanchor=f"x{column if column > 1 else ''}", col=column)


def bars(figure: go.Figure, panels: MapPanels) -> None:
    """One bar for the two maps, one for the difference, below the panels they belong to."""
    shape = {"orientation": "h", "thickness": 9, "y": -0.3, "yanchor": "top", "xanchor": "left", "outlinewidth": 0}
    colour = COLOURS[panels.colour]
    signed = "linear" if panels.colour == "linear" else f"signed {colour}"
    bar = shape | {"len": 0.62, "x": 0.0, "title": {"text": f"{panels.unit} ({colour} colour)", "side": "bottom"}}
    other = shape | {"len": 0.28, "x": 0.72, "title": {"text": f"difference ({signed} colour)", "side": "bottom"}}
    top, wide = panels.top(), panels.difference_top()
    figure.update_layout(
        coloraxis={"colorscale": bent(theme.SEQUENTIAL, panels.colour), "cmin": 0, "cmax": top, "colorbar": bar},
        coloraxis2={
            "colorscale": bent(theme.DIVERGING, panels.colour, diverging=True), "cmin": -wide, "cmax": wide,
            "colorbar": other,
        },
    )  # fmt: skip


def entropy_figure(panels: MapPanels, dark: bool = False) -> go.Figure:
    """Entropy of every row under the two scores, with its bound: log of how many keys the row may see."""
    length, keys = len(panels.tokens), len(panels.columns)
    count = np.arange(1, length + 1) if panels.causal else np.full(length, keys)
    figure = go.Figure()
    numbers = list(panels.numbers)
    lines = list(zip(panels.titles, panels.entropy, strict=True))[: 1 if panels.single else 2]
    for index, (title, values) in enumerate(lines):
        figure.add_scatter(x=numbers, y=values, name=theme.label(title), mode="lines+markers", **theme.style(index))
    if not panels.positions and panels.hidden is None:
        figure.add_scatter(
            x=numbers, y=np.log(count), name="log of the keys in sight", mode="lines",
            line={"color": theme.MUTED[dark], "dash": "dot", "width": 1},
        )  # fmt: skip
    ticks = theme.ticks(panels.tokens, 48)
    if panels.positions:
        ticks |= {"tickvals": [panels.positions[t] for t in ticks["tickvals"]], "range": [numbers[0], numbers[-1]]}
    figure.update_xaxes(**ticks, autotickangles=theme.SLANT, title_text="query i (token)")
    figure.update_yaxes(title_text="entropy (nats)", rangemode="tozero")
    figure.update_layout(title_text=titled(f"Entropy by row, {panels.heading}", panels), height=340)
    return theme.dress(figure, dark)
