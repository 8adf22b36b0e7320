"""The traces of an ellipsoid field: glyphs as one mesh, the unit sphere, curves, rings and labels."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.ellipsoid_view import LABELLED, EllipsoidView

MANY = 200
"""Above so many tokens, hovering names a token by its index only: text at every vertex would be most of the bytes."""

LIGHT = {"ambient": 0.72, "diffuse": 0.45, "specular": 0.12, "roughness": 0.6, "fresnel": 0.05}
"""Much ambient light: shadows would change the colours that carry the measure."""

LAMP = {"x": 2000, "y": -2000, "z": 8000}


def vertices(view: EllipsoidView, chosen: np.ndarray) -> np.ndarray:
    """(token, 42, 3): points of the chosen glyphs' surfaces, in the coordinates of the axes."""
    ball, _ = icosphere()
    shown = view.field
    return shown.centres[chosen, None] + np.einsum("nij,vj->nvi", shown.drawn_axes[chosen], ball)


@cache
def icosphere() -> tuple[np.ndarray, np.ndarray]:
    """42 unit vectors and 80 triangles: an icosahedron, each of its faces cut into four."""
    golden = (1 + np.sqrt(5)) / 2
    corners = np.array([np.roll([0, s, t * golden], k) for k in range(3) for s in (1, -1) for t in (1, -1)])
    distance = np.linalg.norm(corners[:, None] - corners, axis=-1)
    faces = [face for face in combinations(range(12), 3) if all(distance[p] < 2.1 for p in combinations(face, 2))]
    edges = sorted({pair for face in faces for pair in combinations(face, 2)})
    middle = {pair: 12 + index for index, pair in enumerate(edges)}
    points = np.concatenate([corners, [corners[i] + corners[j] for i, j in edges]])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    small = []
    for i, j, k in faces:
        ij, jk, ik = middle[i, j], middle[j, k], middle[i, k]
        small += [(i, ij, ik), (j, ij, jk), (k, ik, jk), (ij, jk, ik)]
    triangles = np.array([_outward(points, triangle) for triangle in small])
    return points, triangles


def _outward(points: np.ndarray, triangle: tuple[int, int, int]) -> tuple[int, int, int]:
    """The triangle with its corners counter-clockwise, seen from outside."""
    a, b, c = points[list(triangle)]
    return triangle if np.dot(np.cross(b - a, c - a), a) > 0 else (triangle[0], triangle[2], triangle[1])


def mesh(view: EllipsoidView, chosen: np.ndarray, intensity: bool) -> go.Mesh3d:
    """The chosen glyphs as one mesh, coloured by the measure or grey."""
    ball, triangles = icosphere()
    index = np.flatnonzero(chosen)
    points = vertices(view, chosen).reshape(-1, 3).astype("f4")
    corners = (triangles[None] + len(ball) * np.arange(len(index))[:, None, None]).reshape(-1, 3).astype("u4")
    low, high = view.value_range
    coloured = {
        "intensity": np.repeat(view.values[chosen], len(ball)).astype("f4"), "colorscale": theme.SEQUENTIAL,
        "cmin": low, "cmax": high if high > low else low + 1,
        "colorbar": {"title": {"text": theme.label(view.value_title), "side": "right"}, "len": 0.6, "thickness": 12},
    }  # fmt: skip
    hover = {
        "customdata": np.repeat(index, len(ball)).astype("u4"),
        "hovertemplate": "token %{customdata}<extra></extra>",
    }
    if len(index) <= MANY:
        told = [_told(view, token) for token in index.tolist() for _ in ball]
        hover = {"text": told, "hoverinfo": "text"}
    return go.Mesh3d(
        x=points[:, 0], y=points[:, 1], z=points[:, 2], i=corners[:, 0], j=corners[:, 1], k=corners[:, 2],
        name="tokens", lighting=LIGHT, lightposition=LAMP, flatshading=False, **hover,
        **(coloured if intensity else {"color": "#999999"}),
    )  # fmt: skip


def _told(view: EllipsoidView, token: int) -> str:
    """What hovering says: escaped, because Plotly reads tags in it."""
    eigenvalues = ", ".join(f"{value:.4g}" for value in view.field.eigenvalues[token])
    rows = [f"({token}) {theme.label(view.tokens[token])}", f"{theme.label(view.eigenvalue_title)}: {eigenvalues}"]
    measures = {view.value_title: view.values, **view.extras}
    rows += [f"{theme.label(title)}: {values[token]:.4g}" for title, values in measures.items()]
    return "<br>".join(rows)


def rings(view: EllipsoidView) -> list[go.Scatter3d]:
    """Around the marked tokens."""
    if not view.marked:
        return []
    x, y, z = view.field.centres[list(view.marked)].T
    ring = {"symbol": "circle-open", "size": 16, "color": theme.MARK, "line": {"width": 3, "color": theme.MARK}}
    return [go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=ring, hoverinfo="skip", name="marked", showlegend=False)]


def lines(view: EllipsoidView, dark: bool) -> list[go.Scatter3d | go.Cone]:
    """The curves, whose colours ``theme.dress`` makes those of the ground, and cones for their heads."""
    traces: list[go.Scatter3d | go.Cone] = []
    for place, curve in enumerate(view.curves):
        points = curve.points.astype("f4")
        named = curve.name and curve.name not in {other.name for other in view.curves[:place]}
        traces.append(
            go.Scatter3d(
                x=points[:, 0], y=points[:, 1], z=points[:, 2], mode="lines", name=theme.label(curve.name),
                legendgroup=theme.label(curve.name), showlegend=bool(named), hoverinfo="name" if curve.name else "skip",
                line={"color": theme.category(curve.category, False), "width": 2 * curve.width, "dash": curve.dash},
            )
        )  # fmt: skip
        step = points[-1] - points[max(0, len(points) - 3)]
        if curve.arrow and step.any():
            x, y, z = points[-1, :, None]
            u, v, w = (step / np.linalg.norm(step))[:, None]
            size, colour = 0.3 * view.field.stage.scale, theme.category(curve.category, dark)
            traces.append(
                go.Cone(
                    x=x, y=y, z=z, u=u, v=v, w=w, anchor="tip", sizemode="absolute", sizeref=size,
                    colorscale=[[0, colour], [1, colour]], showscale=False, hoverinfo="skip",
                )
            )  # fmt: skip
    return traces


def witness(view: EllipsoidView) -> go.Mesh3d:
    """The unit ball of g = I at the glyphs' scale."""
    ball, triangles = icosphere()
    points = (view.witness + view.field.witness_radius * ball).astype("f4")
    return go.Mesh3d(
        x=points[:, 0], y=points[:, 1], z=points[:, 2],
        i=triangles[:, 0].astype("u4"), j=triangles[:, 1].astype("u4"), k=triangles[:, 2].astype("u4"),
        color="#b0b0b0", lighting=LIGHT, lightposition=LAMP, name="unit sphere",
        text="unit sphere, g = I", hoverinfo="text",
    )  # fmt: skip


def labels(view: EllipsoidView, drawn: np.ndarray) -> go.Scatter3d:
    """The unit sphere's name, those of the selected and the marked tokens, and all tokens' when they are few."""
    shown = view.labels and len(view.tokens) <= LABELLED
    index = [int(t) for t in np.flatnonzero(drawn) if shown or t == view.selected or t in view.marked]
    places = np.array([view.witness, *view.field.centres[index]])
    lift = np.array(
        [view.field.witness_radius, *np.linalg.norm(view.field.drawn_axes[index], axis=1).max(1, initial=0)]
    )
    return go.Scatter3d(
        x=places[:, 0], y=places[:, 1], z=places[:, 2] + 1.15 * lift, mode="text", hoverinfo="skip", name="labels",
        text=["unit sphere, g = I", *(theme.flat(view.tokens[token]) for token in index)],
        textposition="top center", textfont={"size": 11},
    )  # fmt: skip
