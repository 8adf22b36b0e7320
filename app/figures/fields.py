"""A field on the plane through three tokens: contours, the metric's ellipses, and the tokens themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.figures import theme

ROUND = np.linspace(0, 2 * np.pi, 49)
GREY = "#7d7d7d"
FILL = 0.42
"""Of the spacing of the ellipses: the radius at which the unit ball of g = I is drawn."""


@dataclass(frozen=True)
class SliceField:
    """Values over the plane, its metric at fewer places, and the three tokens. Token texts are untrusted."""

    x: np.ndarray  # (column,)
    y: np.ndarray  # (row,)
    values: np.ndarray  # (row, column)
    error: np.ndarray  # the same: standard error, 0 where exact
    at: np.ndarray  # (place, 2): where the metric is drawn
    metrics: np.ndarray  # (place, 2, 2)
    spacing: float  # between those places
    tokens: np.ndarray  # (3, 2)
    names: tuple[str, str, str]
    signed: bool
    unit: str


def outlines(metrics: np.ndarray, at: np.ndarray, radius: float) -> np.ndarray:
    """(place, n, 2): the unit ball {v: v^T h v <= 1} of each metric, so scaled that that of h = I has ``radius``."""
    values, vectors = np.linalg.eigh(metrics)
    circle = np.stack([np.cos(ROUND), np.sin(ROUND)])
    half_axes = radius / np.sqrt(values)
    return at[:, None] + np.einsum("pij,pj,jn->pni", vectors, half_axes, circle)


def slice_figure(
    field: SliceField, title: str, value_title: str, bound: float, low: float = 0.0, width: int = 600
) -> go.Figure:
    """Colour and contours of the values; ellipses; tokens. ``bound`` and ``low`` are those of the colour scale, and
    ``width`` the px that it is likely to have."""
    figure = go.Figure(_contours(field, value_title, bound, low))
    radius = FILL * field.spacing
    rings = outlines(field.metrics, field.at, radius)
    circles = outlines(np.broadcast_to(np.eye(2), field.metrics.shape), field.at, radius)
    figure.add_traces([
        _line(circles, "unit ball of g = I", GREY, 1.2, "dot"),
        _line(rings, "", "#ffffff", 2.8), _line(rings, "unit ball of the metric", "#111111", 1.3),
        _tokens(field),
    ])  # fmt: skip
    _labels(figure, field)
    span = float(np.ptp(field.x)), float(np.ptp(field.y))
    figure.update_xaxes(title=f"along token 1 to token 2 ({field.unit})", showgrid=False, constrain="domain")
    figure.update_yaxes(title=f"across ({field.unit})", showgrid=False, scaleanchor="x", constrain="domain")
    figure.update_xaxes(range=[float(field.x.min()), float(field.x.max())])
    figure.update_yaxes(range=[float(field.y.min()), float(field.y.max())])
    height = int(np.clip((width - 180) * span[1] / max(span[0], 1e-300), 200, 700))
    return figure.update_layout(
        title=theme.label(title), height=height + 110, margin={"b": 110, "r": 110},
        legend={"bgcolor": "rgba(238,238,238,0.94)", "font": {"color": "#111111"}},
    )  # fmt: skip


def table(field: SliceField, name: str) -> pd.DataFrame:
    """One row a cell."""
    y, x = (grid.ravel() for grid in np.meshgrid(field.y, field.x, indexing="ij"))
    return pd.DataFrame({"x": x, "y": y, name: field.values.ravel(), "standard_error": field.error.ravel()})


def _contours(field: SliceField, value_title: str, bound: float, low: float) -> go.Contour:
    return go.Contour(
        x=field.x, y=field.y, z=field.values, zmin=-bound if field.signed else low, zmax=bound,
        colorscale=theme.DIVERGING if field.signed else theme.SEQUENTIAL, ncontours=16,
        contours={"coloring": "heatmap"}, line={"width": 0.6, "color": "rgba(60,60,60,0.55)"},
        colorbar={
            "title": {"text": theme.label(value_title), "side": "right", "font": {"size": 13}}, "thickness": 12,
            "outlinewidth": 0, "exponentformat": "power", "x": 1.01,
        },
        hovertemplate="x %{x:.3g}, y %{y:.3g}<br>%{z:.4g}<extra></extra>",
    )  # fmt: skip


def _line(rings: np.ndarray, name: str, colour: str, width: float, dash: str = "solid") -> go.Scatter:
    """All closed curves as one trace, a gap between two."""
    gaps = np.full((len(rings), 1, 2), np.nan)
    points = np.concatenate([rings, gaps], 1).reshape(-1, 2)
    return go.Scatter(
        x=points[:, 0], y=points[:, 1], mode="lines", name=name, showlegend=bool(name), hoverinfo="skip",
        line={"color": colour, "width": width, "dash": dash},
    )  # fmt: skip


def _tokens(field: SliceField) -> go.Scatter:
    return go.Scatter(
        x=field.tokens[:, 0], y=field.tokens[:, 1], mode="markers", name="the three tokens", hoverinfo="text",
        text=_names(field),
        marker={"symbol": "star", "size": 15, "color": theme.CATEGORIES[4], "line": {"color": "#000000", "width": 1.2}},
    )  # fmt: skip


def _names(field: SliceField) -> list[str]:
    return [theme.label(f"{place}: {name}") for place, name in enumerate(field.names, 1)]


def _labels(figure: go.Figure, field: SliceField) -> None:
    """The tokens' names on a ground of their own: they must be read on any colour."""
    for (x, y), text in zip(field.tokens, _names(field), strict=True):
        figure.add_annotation(
            x=x, y=y, text=text, showarrow=False, yshift=-20, font={"size": 13, "color": "#000000"},
            bgcolor="rgba(255,255,255,0.82)", borderpad=2,
        )  # fmt: skip
