"""Maps over layers and tokens, one below the other on one axis of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme
from app.figures.curvature import TICKS
from app.figures.signed_log import Scale

BETWEEN = 46
"""Px between two maps, for the title of the second."""


@dataclass(frozen=True)
class Panel:
    """One map over layers (rows) and tokens (columns)."""

    title: str
    unit: str
    values: np.ndarray  # (layer, token)
    bound: float  # of the colour scale: from 0, or from minus itself where signed
    signed: bool
    scale: Scale


def maps(
    panels: list[Panel], title: str, tokens: tuple[str, ...], layers: tuple[str, ...], chosen: tuple[int, int],
    marked: tuple[int, ...] = (),
) -> go.Figure:  # fmt: skip
    """Maps one below the other on one token axis; ``chosen`` is the (layer, token) that is framed in each, and of the
    ``marked`` tokens the names are coloured."""
    each = max(96, min(21 * len(layers), 300))
    total = len(panels) * each + (len(panels) - 1) * BETWEEN
    titles = [theme.label(f"{panel.title} ({panel.unit})") for panel in panels]
    figure = make_subplots(
        len(panels), 1, shared_xaxes=True, vertical_spacing=BETWEEN / total, subplot_titles=titles,
    )  # fmt: skip
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    for row, panel in enumerate(panels, 1):
        axis = f"coloraxis{row if row > 1 else ''}"
        figure.add_trace(_map(panel, axis, tokens), row=row, col=1)
        low, high = figure.layout[f"yaxis{row if row > 1 else ''}"].domain
        figure.update_layout({axis: _colours(panel, (low + high) / 2, high - low)})
        layer, token = chosen
        figure.add_shape(
            type="rect", x0=token - 0.5, x1=token + 0.5, y0=layer - 0.5, y1=layer + 0.5, row=row, col=1,
            line={"color": theme.CATEGORIES[1], "width": 2},
        )  # fmt: skip
    step = max(1, -(-len(layers) // (each // 18)))
    ticks = list(range(0, len(layers), step))
    figure.update_yaxes(
        tickmode="array", tickvals=ticks, ticktext=[layers[tick] for tick in ticks], title="layer", showgrid=False,
        range=[-0.5, len(layers) - 0.5],
    )  # fmt: skip
    figure.update_xaxes(**theme.ticks(tokens, TICKS, marked), autotickangles=theme.SLANT, showgrid=False)
    figure.update_xaxes(title="token", row=len(panels), col=1)
    longest = max(len(token) for token in tokens)
    below = 46 + min(7 * longest, 110)  # px that the slanted tokens need
    return figure.update_layout(title=theme.label(title), height=total + below, margin={"t": 0, "b": below, "r": 96})


def _map(panel: Panel, axis: str, tokens: tuple[str, ...]) -> go.Heatmap:
    rows = len(panel.values)
    return go.Heatmap(
        z=panel.scale.places(panel.values), coloraxis=axis, hoverongaps=False, xgap=0.5, ygap=0.5,
        customdata=panel.values, text=np.tile([theme.label(token) for token in tokens], (rows, 1)),
        hovertemplate="%{text}, layer %{y}<br>%{customdata:.4g}<extra></extra>",
    )  # fmt: skip


def _colours(panel: Panel, middle: float, length: float) -> dict:
    top = float(panel.scale.places(np.array(panel.bound)))
    low = -panel.bound if panel.signed else 0.0
    return {
        "colorscale": theme.DIVERGING if panel.signed else theme.SEQUENTIAL,
        "cmin": -top if panel.signed else 0.0, "cmax": top,
        "colorbar": panel.scale.ticks(low, panel.bound, most=1 if panel.signed else 2) | {
            "y": middle, "yanchor": "middle", "len": length, "lenmode": "fraction", "thickness": 11, "x": 1.01,
            "outlinewidth": 0, "nticks": 4,
        },
    }  # fmt: skip
