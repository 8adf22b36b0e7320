"""How the points of a cloud are drawn: by SVG or WebGL, how large, in how many digits."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from app.figures.cloud_view import CloudView

FEW = 1_500
"""Points up to which a flat figure is SVG."""


def scatter(view: CloudView) -> type[go.Scatter] | type[go.Scattergl] | type[go.Scatter3d]:
    """The kind of trace."""
    if view.dims == 3:
        return go.Scatter3d
    return go.Scatter if is_svg(view) else go.Scattergl


def is_svg(view: CloudView) -> bool:
    """Whether the figure is flat and has few points: Plotly then draws vectors."""
    return view.dims == 2 and view.positions[..., 0].size <= FEW


def size_of(view: CloudView, size: float) -> float:
    """Of a marker: smaller where there are many, and in 3-D, where Plotly draws them larger."""
    crowd = len(view.tokens)
    return size * (1.0 if crowd <= 64 else 0.75 if crowd <= 512 else 0.5) * (0.7 if view.dims == 3 else 1.0)


def xyz(points: np.ndarray) -> dict[str, list[float | None]]:
    """Coordinates as short lists: frames go as text."""
    return {name: [number(value) for value in points[:, place]] for place, name in enumerate("xyz"[: points.shape[1]])}


def number(value: float) -> float | None:
    """Five digits, which is beyond what a screen shows; nothing for what is not finite."""
    return float(f"{value:.5g}") if np.isfinite(value) else None
