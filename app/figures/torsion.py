"""What turns vectors: FiberTransport's planes on the tokens, its angles, and a vector carried around a loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme
from app.figures.ellipsoid_view import Curve

CIRCLE = 49
"""Points of a whole circle, the first and the last the same."""

PLANE, TURN = "rotation plane, which has no sign", "turn of the value, by the rotation angle"

SPREAD = 1.6
"""Radius of a drawn plane over that of the unit sphere: outside of most glyphs."""

MOST_TICKS = 24
"""Labels along the tokens' axis of half a page."""

VISIBLE = np.radians(0.05)
"""An angle below it has no arc."""


@dataclass(frozen=True)
class Planes:
    """Rotation planes of one head at n tokens, r' each: orthonormal pairs of vectors projected to the drawn space.

    The rotation turns the first of a pair towards the second by its angle. ``phase`` is where the token's value points
    in the plane, from the first vector; ``in_view`` the share of the plane that the drawn directions hold, in [0, 1].
    """

    pairs: np.ndarray  # (n, r', 2, 3)
    angles: np.ndarray  # (n, r') radians, >= 0
    phase: np.ndarray  # (n, r') radians; NaN where the value has no part in the plane

    @property
    def in_view(self) -> np.ndarray:
        """(n, r') half the sum of squares of the projected pair."""
        return np.square(self.pairs).sum((-2, -1)) / 2

    def into_view(self) -> Planes:
        """The same turns in planes turned into the picture: the orthonormal pairs nearest to the projected ones.

        What is not finite stays NaN: it has no plane.
        """
        finite = np.isfinite(self.pairs).all((-2, -1))[..., None, None]
        left, _, right = np.linalg.svd(np.where(finite, self.pairs, 0.0), full_matrices=False)
        return Planes(np.where(finite, left @ right, np.nan), self.angles, self.phase)


def plane_curves(planes: Planes, centres: np.ndarray, radius: float, tokens: np.ndarray) -> tuple[Curve, ...]:
    """A circle for every plane of the given tokens, and an arrow along it from the value by the rotation angle.

    A circle has no direction, because a plane has no sign; the arrow has one, because a rotation has.
    """
    circles, arrows = [], []
    for token in tokens:
        for pair, angle, phase in zip(planes.pairs[token], planes.angles[token], planes.phase[token], strict=True):
            if not np.isfinite(pair).all() or not np.isfinite(centres[token]).all() or not angle > VISIBLE:
                continue
            circles.append(Curve(PLANE, _arc(pair, 0, 2 * np.pi, CIRCLE) * radius + centres[token], 6, width=1.2))
            if np.isfinite(phase):
                steps = max(3, int(np.ceil(CIRCLE * angle / (2 * np.pi))) + 1)
                line = _arc(pair, phase, phase + angle, steps) * radius + centres[token]
                arrows.append(Curve(TURN, line, 1, width=3.0, arrow=True))
    return (*circles, *arrows)


def _arc(pair: np.ndarray, start: float, stop: float, count: int) -> np.ndarray:
    """(count, 3): along the image of the unit circle."""
    t = np.linspace(start, stop, count)
    return np.cos(t)[:, None] * pair[0] + np.sin(t)[:, None] * pair[1]


def head_maps(panels: dict[str, tuple[np.ndarray, str, float]], title: str, chosen: tuple[int, int]) -> go.Figure:
    """Heatmaps layer x head: title -> values (layer, head), the unit of the bar, and the scale's ceiling."""
    count = len(panels)
    figure = make_subplots(1, count, subplot_titles=[theme.label(name) for name in panels], horizontal_spacing=0.24)
    for place, (values, unit, ceiling) in enumerate(panels.values(), start=1):
        domain = figure.layout["xaxis" if place == 1 else f"xaxis{place}"].domain
        figure.add_heatmap(
            z=values, row=1, col=place, colorscale=theme.SEQUENTIAL, zmin=0, zmax=ceiling or 1, hoverongaps=False,
            hovertemplate="layer %{y}, head %{x}<br>%{z:.4g}<extra></extra>",
            texttemplate="%{z:.3g}" if values.size <= 60 else None,
            colorbar={"x": domain[1] + 0.01, "xanchor": "left", "thickness": 10, "outlinewidth": 0,
                      "title": {"text": theme.label(unit), "side": "right"}},
        )  # fmt: skip
        layer, head = chosen
        figure.add_shape(
            type="rect", x0=head - 0.5, x1=head + 0.5, y0=layer - 0.5, y1=layer + 0.5, row=1, col=place,
            line={"color": theme.WARNING, "width": 3},
        )  # fmt: skip
    figure.update_xaxes(title_text="head", showgrid=False)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    for axis, size in (("x", 1), ("y", 0)):
        length = max(values.shape[size] for values, _, _ in panels.values())
        step = max(1, -(-length // 12))
        getattr(figure, f"update_{axis}axes")(tickmode="linear", tick0=0, dtick=step)
    figure.update_yaxes(title_text="layer (counted from 0)", col=1)
    return figure.update_layout(title=theme.label(title), height=380, margin={"t": 78, "r": 90})


@dataclass(frozen=True)
class ByToken:
    """One side's numbers (n,) by token."""

    label: str
    values: np.ndarray
    tokens: tuple[str, ...]


def by_token(series: list[ByToken], title: str, y_title: str) -> go.Figure:
    """Lines with symbols, one a side."""
    figure = go.Figure()
    for index, one in enumerate(series):
        few = len(one.values) <= 4 * MOST_TICKS
        figure.add_scatter(
            x=np.arange(len(one.values)), y=one.values, name=theme.label(one.label), **theme.style(index),
            mode="lines+markers" if few else "lines", hovertemplate="%{text}: %{y:.4g}<extra></extra>",
            text=[f"({t}) {theme.label(token)}" for t, token in enumerate(one.tokens)],
        )  # fmt: skip
    longest = max(len(one.tokens) for one in series)
    ticks = theme.shared_ticks([one.tokens for one in series], range(longest), MOST_TICKS)
    figure.update_xaxes(**ticks, autotickangles=theme.SLANT, title="token")
    figure.update_yaxes(title=y_title, rangemode="tozero")
    return figure.update_layout(
        title=theme.label(title), height=380, showlegend=len(series) > 1, margin={"b": 110 if len(series) > 1 else 60}
    )


@dataclass(frozen=True)
class Carried:
    """A vector at the stations of a loop, first and last at the same token: what is drawn of ``stations`` x d numbers.

    ``sign`` says whether the vector has one; without, a line stands for it and not an arrow.
    """

    places: np.ndarray  # (n + 1, 3), in the coordinates of the axes
    vectors: np.ndarray  # (n + 1, 3), projected
    loop: tuple[np.ndarray, ...]  # the geodesics between the stations, each (k, 3)
    sign: bool = True


def carried_curves(carried: Carried, length: float) -> tuple[Curve, ...]:
    """The loop, the vector at each station, and where it comes back; the longest arrow has the given length."""
    longest = float(np.linalg.norm(carried.vectors, axis=1).max())
    arrows = carried.vectors * (length / longest if longest > 0 else 0.0)
    loop = [Curve("loop of geodesics", line, 0, width=2.0) for line in carried.loop]
    names = ["the vector at the start", *["carried, at each token"] * (len(arrows) - 2), "when it is back"]
    looks = [
        (2, "solid", 5.0),
        *[(5, "solid", 3.0)] * (len(arrows) - 2),
        (1, "dash", 2.5),
    ]  # the last lies on the first
    drawn = [
        Curve(name, _arrow(place, arrow, carried.sign), category, dash, width, carried.sign)
        for name, place, arrow, (category, dash, width) in zip(names, carried.places, arrows, looks, strict=True)
    ]
    return (*loop, *drawn)


def _arrow(place: np.ndarray, vector: np.ndarray, sign: bool) -> np.ndarray:
    """From the station along the vector; to both sides where it has no sign."""
    return np.stack([place if sign else place - vector, place + vector])


def table_of_curves(curves: tuple[Curve, ...]) -> pd.DataFrame:
    """One row a point."""
    rows = [
        {"curve": place, "name": curve.name, "point": k, "x": x, "y": y, "z": z}
        for place, curve in enumerate(curves) for k, (x, y, z) in enumerate(curve.points.tolist())
    ]  # fmt: skip
    return pd.DataFrame(rows)
