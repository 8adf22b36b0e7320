"""The traces of a cloud: points, rings, ways through depth, labels, ellipsoids. Some move with depth, some stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.cloud_glyphs import glyph, outlines
from app.figures.cloud_points import is_svg, scatter, size_of, xyz
from app.figures.cloud_view import LABELLED, CloudView
from app.figures.cloud_words import label_of, named, sides_of, told

TOLD = 12_000
"""Points up to which hovering tells of the stage: each frame repeats its texts. Of more, it names the token only."""

HEIGHT = {2: 600, 3: 620}
"""CSS pixels, by dimensions."""

Traces = list[dict[str, Any]]
"""What moves of each trace at one stage: x, y, and colours or text; the same traces in the same order at each."""


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
            found.append(outlines(view, here, which[at]))
    labelled = view.labels and len(view.tokens) <= LABELLED
    sides = sides_of(here) if labelled else []
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
    found: list[Any] = [glyph(view, next(rest), plain=True, dark=dark)] if view.plain is not None else []
    found += [glyph(view, next(rest), plain=False, dark=dark)] if view.glyphs is not None else []
    labelled = view.labels and len(view.tokens) <= LABELLED
    for name, chosen, marker in groups(view):
        now = next(rest)
        now = {"hovertext": [named(view, token) for token in chosen], **now}
        words = {"text": [label_of(view, token) for token in chosen], "textfont": {"size": 12}}
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
