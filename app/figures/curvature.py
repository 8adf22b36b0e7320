"""Proxy against truth: points by layer, rank correlations with their intervals, maps over tokens and layers, planes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.colors
import plotly.graph_objects as go

from app.figures import theme
from app.figures.signed_log import Scale
from fbt_core.measures.correlation import Correlation

SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon", "hexagram",
)  # fmt: skip
"""One a layer, or one a range of layers where there are more."""

SHADES = (0.2, 0.9)
"""The part of the sequential scale that layers get: its ends are not seen on dark, and on light, ground."""

MANY_POINTS = 4000
"""Above so many, points are drawn by WebGL and without error bars."""

LONG = 52
"""Characters of a title that half a page holds."""

TICKS = 48
"""Token labels under a map; of a longer text every n-th token has one."""


@dataclass(frozen=True)
class Points:
    """One side's proxy and truth, each (layer, head, token), and all that is said of them. Tokens are untrusted."""

    proxy: np.ndarray
    truth: np.ndarray
    error: np.ndarray  # standard error of the truth, 0 where it is exact
    layers: tuple[str, ...]
    heads: tuple[str, ...]
    tokens: tuple[str, ...]
    marked: tuple[int, ...] = ()  # tokens with a ring


@dataclass(frozen=True)
class Axes:
    """What the scatters of two sides share: the range of each axis, in places of its scale."""

    proxy: tuple[float, float]
    truth: tuple[float, float]
    log: bool  # the proxy's axis
    scale: Scale  # of the truth


def axes(several: list[Points], scale: Scale) -> Axes:
    """Axes that hold the finite points of all sides, with a margin. The proxy's is a log axis where the truth's is,
    if no proxy is 0."""
    proxy, truth = (
        np.concatenate([getattr(one, part)[_good(one)].ravel() for one in several]) for part in ("proxy", "truth")
    )
    log = bool(scale.linear) and bool((proxy > 0).all())
    return Axes(_padded(np.log10(proxy) if log else proxy), _padded(scale.places(truth)), log, scale)


def scatter(points: Points, title: str, x_title: str, y_title: str, shared: Axes) -> go.Figure:
    """Each token of each layer and head as a point; a symbol and a colour a layer, or a range of layers."""
    figure = go.Figure()
    bands = _bands(len(points.layers))
    along = np.linspace(*SHADES, len(bands)) if len(bands) > 1 else [sum(SHADES) / 2]
    shades = plotly.colors.sample_colorscale(theme.SEQUENTIAL, list(along))
    many = int(_good(points).sum()) > MANY_POINTS
    kind = go.Scattergl if many else go.Scatter
    for (low, high), shade, symbol in zip(bands, shades, SYMBOLS, strict=False):
        at = np.argwhere(_good(points)[low:high]) + np.array([low, 0, 0])
        places = tuple(at.T)
        truth, first, last = points.truth[places], points.layers[low], points.layers[high - 1]
        error = {} if many else {"error_y": _bars(truth, points.error[places], shared.scale, shade)}
        ringed = np.isin(at[:, 2], points.marked)
        figure.add_trace(kind(
            x=points.proxy[places], y=shared.scale.places(truth), mode="markers", customdata=truth,
            name=first if first == last else f"{first}–{last}",
            marker={"symbol": symbol, "color": shade, "size": 5 if many else 8,
                    "line": {"width": np.where(ringed, 1.6, 0.5), "color": np.where(ringed, theme.MARK, "#ffffff")}},
            text=[_told(points, *place) for place in at], **error,
            hovertemplate="%{text}<br>proxy %{x:.4g}<br>truth %{customdata:.4g}<extra></extra>",
        ))  # fmt: skip
    figure.add_hline(y=0, line={"color": theme.MUTED[False], "width": 1, "dash": "dot"})
    figure.update_xaxes(title=x_title, range=shared.proxy, **(_log_ticks(shared.proxy) if shared.log else {}))
    figure.update_yaxes(title=y_title, range=shared.truth, **_ticks(shared.scale, shared.truth))
    return figure.update_layout(
        title=theme.label(title), height=430, showlegend=True, margin={"r": 90},
        legend={"title": {"text": "layer", "font": {"size": 13}}, "orientation": "v", "yref": "paper", "y": 1,
                "yanchor": "top", "x": 1.01},
    )  # fmt: skip


@dataclass(frozen=True)
class Rho:
    """One row of the figure of correlations: against which truth, over all, and within one layer and head."""

    truth: str
    pooled: Correlation
    within: Correlation


def correlations(rows: list[Rho], title: str) -> go.Figure:
    """Spearman's rho against every truth as a mark with its interval, on the axis from -1 to 1."""
    figure = go.Figure()
    names = [theme.label(row.truth) for row in rows]
    for index, (part, name) in enumerate((("pooled", "all points together"), ("within", "within one layer and head"))):
        found = [getattr(row, part) for row in rows]
        rho, low, high = (np.array([getattr(one, value) for one in found]) for value in ("rho", "low", "high"))
        places = np.arange(len(rows)) + (0.15 if index else -0.15)
        figure.add_scatter(
            x=rho, y=places, mode="markers", name=name, **mark(index),
            error_x={"type": "data", "symmetric": False, "array": high - rho, "arrayminus": rho - low, "width": 5},
            customdata=np.stack([low, high], -1), text=names,
            hovertemplate="%{text}<br>ρ = %{x:.3f}, %{customdata[0]:.3f} to %{customdata[1]:.3f}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=0, line={"color": theme.MUTED[False], "width": 1, "dash": "dot"})
    figure.update_xaxes(title="Spearman's ρ with Ω (dimensionless)", range=[-1.05, 1.05], dtick=0.5)
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5],
    )  # fmt: skip
    return figure.update_layout(title=theme.label(title), height=430, margin={"b": 100})


def tell(figure: go.Figure, lines: list[str], what_if: str | None, room: int = 0) -> go.Figure:
    """Lines under the title and the what-if below them, and the height that they take, in place. ``room``: px between
    them and the picture. Of a long title, what follows its first dot becomes the first line."""
    title, told = str(figure.layout.title.text), [theme.label(line) for line in lines if line]
    if len(title) > LONG:
        title, _, rest = title.partition(" · ")
        told = [rest, *told] if rest else told
    told = "<br>".join(told)
    figure.update_layout(title={"text": title, "subtitle": {"text": told, "font": {"size": 12}}})
    count = told.count("<br>") + 1 + bool(what_if)
    theme.note(figure, what_if)
    top = 44 + 18 * count + room
    return figure.update_layout(margin={"t": top}, height=figure.layout.height + top)


def mark(index: int) -> dict:
    """Colour and symbol of a mark without a line."""
    marker = theme.style(index)["marker"]
    return {"marker": marker | {"size": 9}}


def bound(several: list[np.ndarray]) -> float:
    """The largest finite size among all arrays, 1 where that is 0 or there is none."""
    sizes = np.concatenate([np.abs(values[np.isfinite(values)]) for values in several])
    return float(sizes.max()) if sizes.size and sizes.max() > 0 else 1.0


def _bands(layers: int) -> list[tuple[int, int]]:
    """Layers in at most ten ranges (first, one after the last), each with a symbol of its own."""
    size = -(-layers // len(SYMBOLS))
    return [(start, min(start + size, layers)) for start in range(0, layers, size)]


def _good(points: Points) -> np.ndarray:
    return np.isfinite(points.proxy) & np.isfinite(points.truth)


def _told(points: Points, layer: int, head: int, token: int) -> str:
    error = points.error[layer, head, token]
    sampled = f" (standard error of truth {error:.2g})" if error > 0 else ""
    where = f"layer {points.layers[layer]}, head {points.heads[head]}"
    return f"{theme.label(points.tokens[token])}, {where}{sampled}"


def _bars(values: np.ndarray, error: np.ndarray, scale: Scale, colour: str) -> dict:
    """Plus and minus a standard error, on the scale."""
    places, error = scale.places(values), np.where(error > 0, error, np.nan)
    return {
        "type": "data", "symmetric": False, "array": scale.places(values + error) - places,
        "arrayminus": places - scale.places(values - error), "width": 0, "thickness": 1, "color": colour,
    }  # fmt: skip


def _log_ticks(room: tuple[float, float]) -> dict:
    """1, 2 and 5 of each decade of a log axis whose range is given in powers of ten; 1 alone where there are many."""
    low, high = room
    steps = range(1, 10) if high - low < 0.7 else (1, 2, 5) if high - low < 2.5 else (1,)
    values = [step * 10.0**power for power in range(int(np.floor(low)), int(np.ceil(high))) for step in steps]
    kept = [value for value in values if low <= np.log10(value) <= high]
    return {"type": "log", "tickmode": "array", "tickvals": kept, "ticktext": [f"{value:g}" for value in kept]}


def _ticks(scale: Scale, room: tuple[float, float]) -> dict:
    """Ticks for a range that is given in places."""
    if not scale.linear:
        return scale.ticks(*room)
    low, high = (float(np.sign(end) * scale.linear * (10 ** abs(end) - 1)) for end in room)
    return scale.ticks(low, high)


def _padded(values: np.ndarray) -> tuple[float, float]:
    if not values.size:
        return (-1.0, 1.0)
    low, high = float(values.min()), float(values.max())
    room = 0.07 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room
