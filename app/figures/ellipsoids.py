"""The ellipsoid field as a Plotly figure with one merged mesh, and the difference of two.

The page draws the same view with ``app.components.ellipsoid_field``, which keeps its camera and is ten times lighter.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.ellipsoid_traces import labels, lines, mesh, rings, witness
from app.figures.ellipsoid_view import EllipsoidView

LINES = {False: "#d9dade", True: "#3d3f47"}
"""Of the walls. Opaque: WebGL drops faint transparent lines."""


def figure(view: EllipsoidView, dark: bool = False, camera: tuple[float, float] = (0.72, 0.42)) -> go.Figure:
    """One Mesh3d for all glyphs, one for the unit sphere; equal axes. ``camera``: azimuth and elevation, radians."""
    drawn = ~np.isnan(view.field.eigenvalues).any(1)
    known = drawn & np.isfinite(view.values)
    traces: list[go.Mesh3d | go.Scatter3d] = [mesh(view, known, intensity=True)]
    if (drawn & ~known).any():
        traces.append(mesh(view, drawn & ~known, intensity=False))
    traces += [witness(view), labels(view, np.asarray(drawn))]
    made = go.Figure([*traces, *lines(view, dark), *rings(view)])
    axes = {
        f"{axis}axis": {"title": {"text": title, "font": {"size": 12}}, "tickfont": {"size": 11}, "showspikes": False,
                        "zeroline": False, "showbackground": False, "showline": True, "gridcolor": LINES[dark],
                        "linecolor": LINES[dark]}
        for axis, title in zip("xyz", view.axis_titles, strict=True)
    }  # fmt: skip
    made.update_layout(
        title={"text": theme.label(view.title), "subtitle": {"text": _wrapped(view.description)}},
        scene={**axes, "aspectmode": "data", "domain": {"x": [0, 1], "y": [0, 1]},
               "camera": {"eye": _eye(view, *camera)}},
        margin={"l": 0, "r": 0, "t": 120, "b": 48 if view.curves else 24}, height=640, showlegend=bool(view.curves),
    )  # fmt: skip
    return theme.note(theme.dress(made, dark), view.note)


def _eye(view: EllipsoidView, azimuth: float, elevation: float) -> dict[str, float]:
    """Where Plotly's camera stands so that box and witness fit: its unit is the cube root of the scene's volume."""
    low, high = view.box
    high = np.maximum(high, view.witness + view.field.witness_radius)
    size = (high - low) / np.cbrt(np.prod(high - low))
    distance = 1.5 * np.linalg.norm(size)
    toward = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    return dict(zip("xyz", (distance * toward).tolist(), strict=True))


def difference(a: EllipsoidView, b: EllipsoidView, titles: list[str]) -> go.Figure:
    """Per token, the colour measure of ``b`` minus that of ``a``: bars on a diverging scale centred at 0."""
    gap = b.values - a.values
    largest = float(np.nanmax(np.abs(gap))) if np.isfinite(gap).any() else 0.0
    bars = go.Bar(
        x=np.arange(len(gap)), y=gap, customdata=np.arange(len(gap)),
        marker={"color": gap, "colorscale": theme.DIVERGING, "cmin": -(largest or 1), "cmax": largest or 1,
                "line": {"width": 0.5, "color": "#888"}},
        text=[theme.label(token) for token in b.tokens], textposition="none",
        hovertemplate="(%{x}) %{text}<br>%{y:.4g}<extra></extra>",
    )  # fmt: skip
    made = go.Figure(bars)
    made.update_xaxes(title="token", **theme.ticks(b.tokens))
    measure, _, unit = b.value_title.partition(" (")  # on two lines: the figure is low
    made.update_yaxes(title=f"B − A: {theme.label(measure)}" + (f"<br>({theme.label(unit)}" if unit else ""))
    notes = " · ".join(dict.fromkeys(note for note in (a.note, b.note) if note))  # bars leave no room for it elsewhere
    title = f"{titles[1]} minus {titles[0]}: {b.value_title}"
    return made.update_layout(title=theme.label(f"{title} — {notes}" if notes else title), height=280)


def _wrapped(text: str, width: int = 110) -> str:
    """Escaped, and broken into lines that fit."""
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "<br>".join(theme.label(line) for line in lines)
