"""Stored weights: singular values against those of a random matrix, values against a Gaussian, norms by layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.figures import theme


@dataclass(frozen=True)
class Values:
    """One matrix's singular values (k,), from large to small, and those expected of a random one, with its edges."""

    label: str
    values: np.ndarray
    random: np.ndarray
    edges: tuple[float, float]


@dataclass(frozen=True)
class Counts:
    """How many values of one tensor fall between the ``edges`` (bins + 1,): ``counts`` (bins,)."""

    label: str
    counts: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True)
class Norms:
    """One kind of tensor by layer: ``rms`` (n,) at ``layers`` (n,)."""

    label: str
    layers: np.ndarray
    rms: np.ndarray


def spectrum(series: list[Values], title: str) -> go.Figure:
    """Singular values over their rank, both axes logarithmic. Dashed: a random matrix of that size and power.

    The band is where a random matrix has its singular values; what stands above it is structure.
    """
    figure = go.Figure()
    for index, one in enumerate(series):
        rank = np.arange(1, len(one.values) + 1)
        colour = theme.CATEGORIES[index]
        symbol = {"color": colour, "symbol": theme.SYMBOLS[index], "size": 5 if len(rank) < 200 else 3}
        figure.add_scatter(
            x=rank, y=_positive(one.values), mode="lines+markers", name=theme.label(one.label),
            line={"color": colour, "width": 2}, marker=symbol,
            hovertemplate="singular value %{x}: %{y:.5g}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=rank, y=_positive(one.random), mode="lines", line={"color": colour, "width": 1.5, "dash": "dash"},
            name=theme.label(f"{one.label}: random, same size and power" if len(series) > 1 else
                             "random matrix of the same size and power"),
            hovertemplate="random, %{x}: %{y:.5g}<extra></extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=[1, max(len(rank), 2)], y=[one.edges[1]] * 2, mode="lines+text", showlegend=False, hoverinfo="skip",
            text=["", "Marchenko–Pastur edge" if not index else ""], textposition="top left", textfont={"size": 11},
            cliponaxis=False, line={"color": colour, "width": 1, "dash": "dot"},
        )  # fmt: skip
    figure.update_layout(title=theme.label(title), height=430)
    figure.update_xaxes(title="number of the singular value (log scale)", type="log", dtick=1)
    figure.update_yaxes(title="singular value (log scale)", type="log", exponentformat="power")
    _decades(figure, [one.values for one in series])
    return figure


def histogram(series: list[Counts], title: str) -> go.Figure:
    """Densities of values on a logarithmic axis, and a Gaussian of the same mean and spread, dashed."""
    figure = go.Figure()
    for index, one in enumerate(series):
        if not one.counts.sum():
            continue
        middle, width = (one.edges[1:] + one.edges[:-1]) / 2, np.diff(one.edges)
        density = one.counts / one.counts.sum() / width
        colour = theme.CATEGORIES[index]
        figure.add_scatter(
            x=np.repeat(one.edges, 2)[1:-1], y=_positive(np.repeat(density, 2)), mode="lines",
            line={"color": colour, "width": 2}, name=theme.label(one.label), customdata=np.repeat(one.counts, 2),
            hovertemplate="%{x:.4g}: %{customdata:,} values<extra></extra>",
        )  # fmt: skip
        bell = _bell(middle, density * width, width)
        figure.add_scatter(
            x=middle, y=np.where(bell >= density[density > 0].min() / 2, bell, np.nan), mode="lines", hoverinfo="skip",
            line={"color": colour, "width": 1.5, "dash": "dash"},
            name=theme.label(f"{one.label}: Gaussian" if len(series) > 1 else "Gaussian of the same mean and spread"),
        )  # fmt: skip
    figure.update_layout(title=theme.label(title), height=430)
    figure.update_xaxes(title="value of an entry")
    figure.update_yaxes(title="density (log scale)", type="log", exponentformat="power")
    _decades(figure, [one.counts for one in series])
    return figure


def _bell(middle: np.ndarray, share: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The Gaussian density (bins,) of the mean and spread that shares (bins,) have; nothing where all is in one bin."""
    mean = float((middle * share).sum())
    spread = float(np.sqrt(((middle - mean) ** 2 * share).sum()))
    if spread < width.min():
        return np.full(len(middle), np.nan)
    return np.exp(-(((middle - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))


def norms(series: list[Norms], title: str, bounds: tuple[float, float] | None = None) -> go.Figure:
    """Root mean square of entries by layer, a line a kind of tensor, on a logarithmic axis."""
    figure = go.Figure()
    for index, one in enumerate(series):
        style = theme.style(index)
        figure.add_scatter(
            x=one.layers, y=_positive(one.rms), mode="lines+markers", name=theme.label(one.label), **style,
            hovertemplate="layer %{x}: %{y:.4g}<extra>" + theme.label(one.label) + "</extra>",
        )  # fmt: skip
    figure.update_layout(title=theme.label(title), height=400 + 22 * len(series), showlegend=True)
    figure.update_layout(legend={"orientation": "v"})
    last = max((float(one.layers.max()) for one in series if len(one.layers)), default=1.0)
    figure.update_xaxes(title="layer (counted from 0)", range=[-0.03 * last - 0.1, 1.03 * last + 0.1], tickformat="d")
    figure.update_yaxes(title="root mean square of entries (log scale)", type="log", exponentformat="power")
    if bounds:
        figure.update_yaxes(range=[np.log10(bounds[0]) - 0.1, np.log10(bounds[1]) + 0.1])
    return figure


def _positive(values: np.ndarray) -> np.ndarray:
    """A logarithmic axis has no place for zero: those are gaps."""
    return np.where(values > 0, values, np.nan)


def _decades(figure: go.Figure, values: list[np.ndarray]) -> None:
    """Not more than nine decades: what lies deeper is rounding. Labels at whole decades where there are several."""
    every = np.concatenate([one[one > 0] for one in values]) if values else np.zeros(0)
    if every.size and every.max() > 30 * every.min():
        figure.update_yaxes(dtick=1)
    if every.size and every.min() < every.max() * 1e-9:
        top = float(np.log10(every.max()))
        figure.update_yaxes(range=[top - 9, top + 0.3])
