"""The unit balls of a cloud's metric: outlines in 2-D, one mesh in 3-D."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.cloud_points import is_svg, xyz
from app.figures.cloud_view import CloudView
from app.figures.ellipsoid_traces import icosphere


def outlines(view: CloudView, here: np.ndarray, axes: np.ndarray) -> dict[str, Any]:
    """The glyphs of the first tokens: outlines with gaps in 2-D, corners of one mesh in 3-D."""
    scale, centres = view.glyph_scale, here[: len(axes)]
    if view.dims == 2:
        angle = np.linspace(0, 2 * np.pi, 29)
        circle = np.stack([np.cos(angle), np.sin(angle)])
        rings = centres[:, None] + scale * np.einsum("nij,jv->nvi", axes, circle)
        return xyz(np.concatenate([rings, np.full((len(rings), 1, 2), np.nan)], 1).reshape(-1, 2))
    ball, _ = icosphere()
    corners = centres[:, None] + scale * np.einsum("nij,vj->nvi", axes, ball)
    return xyz(corners.reshape(-1, 3))


def glyph(view: CloudView, moved: dict[str, Any], *, plain: bool, dark: bool) -> Any:
    """The outlines or the mesh of all glyphs."""
    name = "unit ball of g = I" if plain else "unit ball of g"
    colour = theme.MUTED[dark] if plain else theme.WARNING
    if view.dims == 2:
        kind = go.Scatter if is_svg(view) else go.Scattergl
        line = {"color": colour, "width": 1.0 if plain else 1.6, "dash": "dot" if plain else "solid"}
        return kind(**moved, mode="lines", line=line, name=name, hoverinfo="skip", showlegend=True)
    ball, triangles = icosphere()
    count = len(moved["x"]) // len(ball)
    corners = (triangles[None] + len(ball) * np.arange(count)[:, None, None]).reshape(-1, 3)
    i, j, k = (corners[:, side].astype("u4") for side in range(3))
    return go.Mesh3d(
        **moved, i=i, j=j, k=k, color=colour, opacity=0.12 if plain else 0.4, name=name, hoverinfo="skip",
        showlegend=True, flatshading=False,
    )  # fmt: skip
