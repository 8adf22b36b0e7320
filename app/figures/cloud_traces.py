"""The traces of a cloud: points, rings, ways through depth, labels, ellipsoids. Some move with depth, some stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.cloud_view import LABELLED, CloudView
from app.figures.ellipsoid_traces import icosphere

FEW = 1_500
"""Points up to which a flat figure is SVG."""

TOLD = 12_000
"""Points up to which hovering tells of the stage: each frame repeats its texts. Of more, it names the token only."""

HEIGHT = {2: 600, 3: 620}
"""CSS pixels, by dimensions."""

Traces = list[dict[str, Any]]
"""What moves of each trace at one stage: x, y, and colours or text; the same traces in the same order at each."""


def scatter(view: CloudView) -> type[go.Scatter] | type[go.Scattergl] | type[go.Scatter3d]:
    if view.dims == 3:
        return go.Scatter3d
    return go.Scatter if is_svg(view) else go.Scattergl


def is_svg(view: CloudView) -> bool:
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


def groups(view: CloudView) -> list[tuple[str, list[int], dict[str, Any]]]:
    """Name, tokens and marker of each trace of points: one for numbers, one a category."""
    edge = {"width": 0.6, "color": "rgba(127,127,127,0.9)"}
    if not view.names:
        return [("tokens", list(range(len(view.tokens))), {"coloraxis": "coloraxis", "line": edge})]
    found = []
    for place, name in enumerate(view.names):
        style = theme.style(place)["marker"]
        symbol = SYMBOLS_3D[place % len(SYMBOLS_3D)] if view.dims == 3 else style["symbol"]
        chosen = np.flatnonzero(view.values[0] == place).tolist()
        found.append((name, chosen, {"color": style["color"], "symbol": symbol, "line": edge}))
    return [one for one in found if one[1]]


SYMBOLS_3D = ("circle", "square", "diamond", "cross", "square-open", "diamond-open", "circle-open")
"""Those that WebGL has, without its x: that is an emoji, an empty box where no font has it."""


def moving(view: CloudView, at: int) -> Traces:
    """Everything that moves, at one stage, in the order of the traces."""
    found: Traces = []
    here = view.positions[at]
    for which in (view.plain, view.glyphs):
        if which is not None:
            found.append(_outlines(view, here, which[at]))
    labelled = view.labels and len(view.tokens) <= LABELLED
    sides = _sides(here) if labelled else []
    for _, chosen, _ in groups(view):
        moved: dict[str, Any] = xyz(here[chosen])
        if not view.names:
            moved["marker"] = {"color": view.values[at, chosen].astype("f4")}  # an array: lists hold no NaN here
        if view.positions[..., 0].size <= TOLD:
            moved["hovertext"] = [told(view, at, token) for token in chosen]
        if labelled:
            moved["textposition"] = [sides[token] for token in chosen]
        found.append(moved)
    found.append(xyz(_some(here[list(view.marked)])))
    found.append(xyz(_some(here[[view.selected] if view.selected >= 0 else []])))
    return found


def traces(view: CloudView, moving: Traces, dark: bool) -> list[Any]:
    """The traces that move, as they stand at the first picture."""
    rest = iter(moving)
    found: list[Any] = [_glyph(view, next(rest), plain=True, dark=dark)] if view.plain is not None else []
    found += [_glyph(view, next(rest), plain=False, dark=dark)] if view.glyphs is not None else []
    labelled = view.labels and len(view.tokens) <= LABELLED
    for name, chosen, marker in groups(view):
        now = next(rest)
        now = {"hovertext": [named(view, token) for token in chosen], **now}
        words = {"text": [_label(view, token) for token in chosen], "textfont": {"size": 12}}
        found.append(scatter(view)(
            **{key: value for key, value in now.items() if key != "marker"}, **(words if labelled else {}),
            mode="markers+text" if labelled else "markers", name=theme.label(name), customdata=chosen,
            marker={**marker, **now.get("marker", {}), "size": size_of(view, 10 if view.glyphs is None else 5)},
            showlegend=bool(view.names),
            hovertemplate="%{hovertext}<extra></extra>",
        ))  # fmt: skip
    found.append(ring(view, _points(next(rest), view.dims), theme.MARK, 2.5))
    found.append(ring(view, _points(next(rest), view.dims), theme.INK[dark], 2.0))
    return found


def wrapped(view: CloudView, moving: Traces) -> list[Any]:
    """What moves, as traces of a frame."""
    kinds: list[Any] = []
    for which in (view.plain, view.glyphs):
        if which is not None:
            kinds.append(go.Mesh3d if view.dims == 3 else go.Scatter if is_svg(view) else go.Scattergl)
    kinds += [scatter(view)] * (len(moving) - len(kinds))
    return [kind(**moved) for kind, moved in zip(kinds, moving, strict=True)]


def _points(moved: dict[str, Any], dims: int) -> np.ndarray:
    return np.array([[np.nan if value is None else value for value in moved[name]] for name in "xyz"[:dims]]).T


def ways(view: CloudView, dark: bool) -> list[Any]:
    """The ways of tokens through depth: all faint, the marked ones and the selected one strong."""
    if view.ways == "none":
        return []
    faint = [token for token in range(len(view.tokens)) if view.ways == "all"]
    own = [view.selected] if view.selected >= 0 else []
    strong = [token for token in view.marked if token != view.selected]
    return [
        scatter(view)(
            **xyz(_lines(view, tokens)),
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            name="ways",
            line={"color": colour, "width": width * (1.6 if view.dims == 3 else 1)},
            connectgaps=False,
        )
        for tokens, colour, width in (
            (faint, (OPAQUE if view.dims == 3 else WAY)[dark], 1.0),
            (strong, theme.MARK, 1.8),
            (own, theme.INK[dark], 1.4),
        )
        if tokens
    ]


def starts(view: CloudView, dark: bool) -> list[Any]:
    """A small square where each way begins: a line alone does not say which of its ends is the input."""
    if view.ways == "none":
        return []
    every = range(len(view.tokens))
    tokens = [token for token in every if view.ways == "all" or token in view.marked or token == view.selected]
    return [scatter(view)(
        **xyz(_some(view.positions[0, tokens])), mode="markers", hoverinfo="skip", showlegend=False, name="starts",
        marker={"symbol": "square", "size": size_of(view, 4), "color": theme.MUTED[dark]},
    )]  # fmt: skip


WAY = {False: "rgba(90,94,110,0.35)", True: "rgba(190,194,210,0.35)"}

OPAQUE = {False: "#b4b8c4", True: "#5c606c"}
"""The same in 3-D, where WebGL drops faint transparent lines."""


def _lines(view: CloudView, tokens: list[int]) -> np.ndarray:
    """Each token's positions by stage, a gap behind each."""
    gap = np.full((1, view.dims), np.nan)
    return np.concatenate([part for token in tokens for part in (view.positions[:, token], gap)])


def end_labels(view: CloudView) -> Any:
    """Labels where the ways end, when they are few."""
    chosen = list(range(len(view.tokens))) if view.labels and len(view.tokens) <= LABELLED else []
    sides = _sides(view.positions[-1])
    return scatter(view)(
        **xyz(view.positions[-1][chosen]), mode="markers+text", marker={"size": 9, "opacity": 0},
        text=[_flat(view, view.tokens[token]) for token in chosen], textfont={"size": 12}, hoverinfo="skip",
        textposition=[sides[token] for token in chosen] or None, showlegend=False, name="labels",
    )  # fmt: skip


def ring(view: CloudView, where: np.ndarray, colour: str, width: float, size: float = 17) -> Any:
    """A ring around each point."""
    return scatter(view)(
        **xyz(_some(where)), mode="markers", hoverinfo="skip", showlegend=False, name="rings",
        marker={"symbol": "circle-open", "size": size_of(view, size), "color": colour,
                "line": {"width": width, "color": colour}},
    )  # fmt: skip


def scale_keeper(view: CloudView) -> Any:
    """A point that is nowhere, with a colour: without any the colour bar would go, and the frame would jump."""
    return scatter(view)(
        **xyz(np.full((1, view.dims), np.nan)), mode="markers", hoverinfo="skip", showlegend=False, name="scale",
        marker={"color": [view.limits[0]], "coloraxis": "coloraxis"},
    )  # fmt: skip


def _some(points: np.ndarray) -> np.ndarray:
    """The points, or one that is nowhere: a trace without any would be drawn in a corner once it moves."""
    return points if points.size else np.full((1, points.shape[-1]), np.nan)


def _sides(here: np.ndarray) -> list[str]:
    """Where each label stands: away from the nearest other token, above where that says nothing."""
    flat = np.where(np.isfinite(here[:, :2]), here[:, :2], np.inf)
    found = []
    for token, point in enumerate(flat):
        gaps = ((flat - point) ** 2).sum(1) if np.isfinite(point).all() else np.full(len(flat), np.inf)
        gaps[token] = np.inf
        gaps[gaps == 0] = np.inf
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        if not np.isfinite(gaps).any():
            found.append("top center")
            continue
        dx, dy = point - flat[int(gaps.argmin())]
        upright = "top" if dy >= 0 else "bottom"
        found.append(f"{upright} center" if abs(dy) >= abs(dx) else f"middle {'right' if dx > 0 else 'left'}")
    return found


def _outlines(view: CloudView, here: np.ndarray, axes: np.ndarray) -> dict[str, Any]:
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


def _glyph(view: CloudView, moved: dict[str, Any], *, plain: bool, dark: bool) -> Any:
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


def told(view: CloudView, at: int, token: int) -> str:
    """What hovering says of a token at a stage: escaped, because Plotly reads tags in it."""
    value = view.values[at, token]
    shown = view.names[int(value)] if view.names else f"{value:.4g}" if np.isfinite(value) else "none"
    coloured = f"{theme.label(view.value_title)}: {theme.label(shown)}"
    return "<br>".join([named(view, token), theme.label(view.stages[at]), coloured])


def named(view: CloudView, token: int) -> str:
    """A token's number and label, and which text it is of where there are several."""
    index = view.index[token] if view.index else token
    origin = [theme.label(view.origin[token])] if view.origin else []
    return "<br>".join([f"({index}) {theme.label(view.tokens[token])}", *origin])


def _label(view: CloudView, token: int) -> str:
    """A token beside its mark; beside its ring, where it has one."""
    room = "\u2002" if token == view.selected or token in view.marked else ""
    return f"{room}{_flat(view, view.tokens[token])}{room}"


def _flat(view: CloudView, token: str) -> str:
    """A token as text in the picture. In 3-D Plotly reads tags and knows no entities."""
    short = token if len(token) <= 16 else token[:15] + "…"
    return short.replace("<", "\u2039").replace(">", "\u203a") if view.dims == 3 else theme.label(short)
