"""The ellipsoid field as data (``EllipsoidView``), as one merged Plotly mesh, and as a table.

The page draws the same view with ``app.components.ellipsoid_field``, which keeps its camera and is ten times lighter.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.figures import theme
from fbt_core.geometry.ellipsoid import EllipsoidField

MANY = 200
"""Above so many tokens, hovering names a token by its index only: text at every vertex would be most of the bytes."""

LABELLED = 40
"""Up to so many tokens, their labels stand in the picture."""

IN_VIEW = "Leading eigenvector in view (share)"
"""How much of the leading eigenvector's length the drawn directions hold, squared."""


@dataclass(frozen=True)
class Curve:
    """A line through the scene; those of one name share one entry of the legend, and an empty name has none.

    Raises ``ValueError`` for a point that is not finite.
    """

    name: str
    points: np.ndarray  # (n, 3), in the coordinates of the axes
    category: int = 0  # of the colours of ``theme``
    dash: str = "solid"  # one of theme.DASHES
    width: float = 2.5  # pixels
    arrow: bool = False  # a head at the last point

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 3 or not np.isfinite(self.points).all():
            raise ValueError(f"got points {self.points.shape} of a curve, expected finite ones of shape (n, 3)")


@dataclass(frozen=True)
class EllipsoidView:
    """All that is drawn of one field. ``values`` colours the glyphs over ``value_range``; ``extras`` are told on hover.

    ``tokens`` are raw and untrusted.
    """

    field: EllipsoidField
    tokens: tuple[str, ...]
    values: np.ndarray  # (token,)
    value_title: str  # with its unit
    value_range: tuple[float, float]
    title: str
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # title with unit -> (token,)
    note: str | None = None  # such as a what-if: set apart by its colour
    remark: str | None = None  # how layers and heads of two sides were matched
    selected: int = -1
    labels: bool = True
    name: str = "ellipsoids"  # of exported files
    facts: dict[str, object] = dataclasses.field(default_factory=dict)  # constant columns of the exported table
    curves: tuple[Curve, ...] = ()
    marked: tuple[int, ...] = ()  # tokens with a ring

    @property
    def description(self) -> str:
        """What is drawn, in words: printed on the figure."""
        return f"{self.field.description} {self.remark}." if self.remark else self.field.description

    @property
    def box(self) -> np.ndarray:
        """(2, 3): the least and largest coordinates of everything that is drawn but the witness."""
        stage = self.field.stage
        box = np.array(stage.bounds) + stage.scale * stage.longest * np.array([[-1.0], [1.0]])
        points = np.concatenate([box, *(curve.points for curve in self.curves)])
        return np.array([points.min(0), points.max(0)])

    @property
    def witness(self) -> np.ndarray:
        """Centre of the unit sphere: on top of a corner of the box."""
        low, high = self.box
        radius = self.field.witness_radius
        return np.array([low[0] + radius, high[1] - radius, high[2] + radius])

    @property
    def not_a_number(self) -> int:
        """How many colour values are not finite: those glyphs are grey."""
        return int((~np.isfinite(self.values)).sum())

    @property
    def axis_titles(self) -> list[str]:
        """``PC 1 (41 %)``: the name and the share of the position variance."""
        shares = zip(self.field.axis_names, self.field.share, strict=True)
        return [f"{name} ({100 * share:.0f} %)" for name, share in shares]

    @property
    def eigenvalue_title(self) -> str:
        """Whose eigenvalues are told."""
        return "λ of g, largest three" if self.field.shape == "metric frame" else f"λ of the {self.field.shape}"


def figure(view: EllipsoidView, dark: bool = False, camera: tuple[float, float] = (0.72, 0.42)) -> go.Figure:
    """One Mesh3d for all glyphs, one for the unit sphere; equal axes. ``camera``: azimuth and elevation, radians."""
    drawn = ~np.isnan(view.field.eigenvalues).any(1)
    known = drawn & np.isfinite(view.values)
    traces: list[go.Mesh3d | go.Scatter3d] = [_mesh(view, known, intensity=True)]
    if (drawn & ~known).any():
        traces.append(_mesh(view, drawn & ~known, intensity=False))
    traces += [_witness(view), _labels(view, np.asarray(drawn))]
    made = go.Figure([*traces, *_lines(view, dark), *_rings(view)])
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


def table(view: EllipsoidView) -> pd.DataFrame:
    """One row a token: centre, semi-axis vectors as drawn divided by the scale, eigenvalues, measures and facts."""
    shown = view.field
    columns: dict[str, object] = {"token": np.arange(len(view.tokens)), "text": list(view.tokens)}
    columns |= {f"centre_{axis}": shown.centres[:, k] for k, axis in enumerate("xyz")}
    columns |= {f"axis{m + 1}_{axis}": shown.axes[:, k, m] for m in range(3) for k, axis in enumerate("xyz")}
    columns |= {f"eigenvalue{m + 1}": shown.eigenvalues[:, m] for m in range(3)}
    columns |= {view.value_title: view.values, IN_VIEW: shown.in_view, **view.extras}
    words = {"shape": shown.shape, "glyph": "dual glyph" if shown.dual else "unit ball", "base": shown.base,
             "glyph_scale": shown.stage.scale}  # fmt: skip
    return pd.DataFrame({**columns, **(view.facts or {"where": shown.where}), **words})


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


LIGHT = {"ambient": 0.72, "diffuse": 0.45, "specular": 0.12, "roughness": 0.6, "fresnel": 0.05}
"""Much ambient light: shadows would change the colours that carry the measure."""


LAMP = {"x": 2000, "y": -2000, "z": 8000}

LINES = {False: "#d9dade", True: "#3d3f47"}
"""Of the walls. Opaque: WebGL drops faint transparent lines."""


def _mesh(view: EllipsoidView, chosen: np.ndarray, intensity: bool) -> go.Mesh3d:
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


def _rings(view: EllipsoidView) -> list[go.Scatter3d]:
    """Around the marked tokens."""
    if not view.marked:
        return []
    x, y, z = view.field.centres[list(view.marked)].T
    ring = {"symbol": "circle-open", "size": 16, "color": theme.MARK, "line": {"width": 3, "color": theme.MARK}}
    return [go.Scatter3d(x=x, y=y, z=z, mode="markers", marker=ring, hoverinfo="skip", name="marked", showlegend=False)]


def _lines(view: EllipsoidView, dark: bool) -> list[go.Scatter3d | go.Cone]:
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


def _witness(view: EllipsoidView) -> go.Mesh3d:
    """The unit ball of g = I at the glyphs' scale."""
    ball, triangles = icosphere()
    points = (view.witness + view.field.witness_radius * ball).astype("f4")
    return go.Mesh3d(
        x=points[:, 0], y=points[:, 1], z=points[:, 2],
        i=triangles[:, 0].astype("u4"), j=triangles[:, 1].astype("u4"), k=triangles[:, 2].astype("u4"),
        color="#b0b0b0", lighting=LIGHT, lightposition=LAMP, name="unit sphere",
        text="unit sphere, g = I", hoverinfo="text",
    )  # fmt: skip


def _labels(view: EllipsoidView, drawn: np.ndarray) -> go.Scatter3d:
    """The unit sphere's name, those of the selected and the marked tokens, and all tokens' when they are few."""
    shown = view.labels and len(view.tokens) <= LABELLED
    index = [int(t) for t in np.flatnonzero(drawn) if shown or t == view.selected or t in view.marked]
    places = np.array([view.witness, *view.field.centres[index]])
    lift = np.array(
        [view.field.witness_radius, *np.linalg.norm(view.field.drawn_axes[index], axis=1).max(1, initial=0)]
    )
    return go.Scatter3d(
        x=places[:, 0], y=places[:, 1], z=places[:, 2] + 1.15 * lift, mode="text", hoverinfo="skip", name="labels",
        text=["unit sphere, g = I", *(_flat(view.tokens[token]) for token in index)],
        textposition="top center", textfont={"size": 11},
    )  # fmt: skip


def _flat(token: str) -> str:
    """A token as text in the scene, where Plotly reads tags and knows no entities."""
    return token.replace("<", "\u2039").replace(">", "\u203a")


def _wrapped(text: str, width: int = 110) -> str:
    """Escaped, and broken into lines that fit."""
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "<br>".join(theme.label(line) for line in lines)
