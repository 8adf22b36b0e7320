"""Lengths between tokens: matrices of true, chord and Euclidean distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme

UNIT = "units of the residual stream"

KINDS = {"true": "true, along the geodesic", "chord": "chord, as attention measures", "euclid": "Euclidean"}
"""The lengths that a matrix is drawn of: name to title."""

RATIO = "true / chord (dimensionless)"

LEAST_WIDE = 1e-3
"""Half of the ratio's colour scale where all ratios are nearer to 1."""

MOST_TICKS = 16
"""Labels along an axis of a small matrix."""


@dataclass(frozen=True)
class Distances:
    """Lengths between n tokens of a text, symmetric, 0 on the diagonal; NaN where none could be found.

    ``numbers`` are the tokens' places in the text, ``error`` the estimated error of ``true``.
    """

    true: np.ndarray  # (n, n)
    chord: np.ndarray
    euclid: np.ndarray
    error: np.ndarray
    tokens: tuple[str, ...]
    numbers: tuple[int, ...]
    title: str
    note: str = ""  # a what-if
    selected: tuple[int, int] | None = None  # places in the matrix
    unit: str = UNIT

    @property
    def ratio(self) -> np.ndarray:
        """(n, n) true / chord, NaN where the chord is 0."""
        return np.divide(self.true, self.chord, out=np.full_like(self.true, np.nan), where=self.chord > 0)

    @property
    def longest(self) -> float:
        """The ceiling of the colour scale of lengths."""
        return _largest(np.stack([self.true, self.chord, self.euclid]))

    @property
    def widest(self) -> float:
        """The half-width of the ratio's colour scale about 1: rounding shall not look like a difference."""
        far = np.abs(self.ratio - 1)
        return max(LEAST_WIDE, float(far[np.isfinite(far)].max(initial=0)))


def _largest(values: np.ndarray) -> float:
    """The largest finite magnitude; 1 where that is 0 or there is none."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def distance_figure(
    shown: Distances, longest: float | None = None, widest: float | None = None, columns: int = 4
) -> go.Figure:
    """Four matrices: the three lengths on one scale, and true / chord on a diverging one about 1.

    ``longest`` and ``widest`` are ceilings shared with another figure; ``columns`` is 4, or 2 where there is less room.
    """
    rows = 4 // columns
    panels = {**{KINDS[name]: getattr(shown, name) for name in KINDS}, RATIO: shown.ratio}
    figure = make_subplots(
        rows, columns, subplot_titles=list(panels), horizontal_spacing=0.2 / columns, vertical_spacing=0.2,
        shared_yaxes=True, shared_xaxes=True,
    )  # fmt: skip
    for place, (title, cells) in enumerate(panels.items()):
        where = {"row": place // columns + 1, "col": place % columns + 1}
        text = "%{customdata}<br>%{z:.5g}<extra></extra>"
        figure.add_trace(
            go.Heatmap(
                z=cells, hovertemplate=text, hoverongaps=False,
                customdata=_pairs(shown), coloraxis="coloraxis2" if title == RATIO else "coloraxis",
            ), **where,
        )  # fmt: skip
        if shown.selected is not None:
            figure.add_trace(_frame(shown.selected), **where)
    _square_axes(figure, shown.tokens, rows, columns)
    bars = _bars(longest or shown.longest, widest or shown.widest, shown.unit)
    title = f"Distances between tokens · {shown.title}"
    figure.update_layout(
        title=theme.label(title), **bars, height=430 if rows == 1 else 760, showlegend=False, margin={"t": 70, "b": 140}
    )
    return _noted(figure, shown.note, 70)


def _noted(figure: go.Figure, note: str, top: int) -> go.Figure:
    """The figure with its what-if under the title, and room above the panels' own titles."""
    theme.note(figure, note)
    return figure.update_layout(margin={"t": top + (20 if note else 0)})


def _pairs(shown: Distances) -> np.ndarray:
    """(n, n) of ``(2) old – (7) sings``."""
    names = [f"({n}) {theme.label(token)}" for n, token in zip(shown.numbers, shown.tokens, strict=True)]
    return np.array([[f"{a} – {b}" for b in names] for a in names], dtype=object)


def _frame(pair: tuple[int, int]) -> go.Scatter:
    """Squares around the chosen pair's two cells."""
    i, j = pair
    return go.Scatter(
        x=[j, i], y=[i, j], mode="markers", hoverinfo="skip", showlegend=False,
        marker={"symbol": "square-open", "size": 13, "color": theme.WARNING, "line": {"width": 2}},
    )  # fmt: skip


def _token_axes(figure: go.Figure, tokens: tuple[str, ...]) -> None:
    """Tokens along both axes of every panel, the first one on top."""
    ticks: dict[str, Any] = theme.ticks(tokens, MOST_TICKS)
    low, high = ticks.pop("range")
    ticks["ticktext"] = [_short(text) for text in ticks["ticktext"]]
    figure.update_xaxes(**ticks, range=[low, high], autotickangles=theme.SLANT, constrain="domain", showgrid=False)
    figure.update_yaxes(**ticks, range=[high, low], constrain="domain", showgrid=False)


def _square_axes(figure: go.Figure, tokens: tuple[str, ...], rows: int, columns: int) -> None:
    """Tokens along both axes, equal cells, the first token on top."""
    _token_axes(figure, tokens)
    figure.update_xaxes(title_text="token j", row=rows)
    figure.update_yaxes(title_text="token i", col=1)
    for place in range(rows * columns):
        axis = str(place + 1) if place else ""
        figure.update_layout({f"yaxis{axis}": {"scaleanchor": f"x{axis}"}})


def _short(text: str, length: int = 12) -> str:
    """A label that leaves room for the matrix; it was escaped, so an entity is not cut in two."""
    return text if len(text) <= length or "&" in text else f"{text[: length - 1]}…"


def _bars(longest: float, widest: float, unit: str) -> dict[str, Any]:
    """Two horizontal bars below: one for lengths, one for the ratio."""
    shape = {"orientation": "h", "thickness": 10, "yref": "container", "y": 0.0, "yanchor": "bottom", "outlinewidth": 0}
    lengths = {"text": f"length ({unit})", "side": "bottom"}
    ratio = {"text": RATIO, "side": "bottom"}
    return {
        "coloraxis": {"colorscale": theme.SEQUENTIAL, "cmin": 0, "cmax": longest,
                      "colorbar": shape | {"x": 0, "xanchor": "left", "len": 0.5, "title": lengths}},
        "coloraxis2": {"colorscale": theme.DIVERGING, "cmin": 1 - widest, "cmax": 1 + widest,
                       "colorbar": shape | {"x": 1, "xanchor": "right", "len": 0.38, "title": ratio}},
    }  # fmt: skip


def ratio_difference(a: Distances, b: Distances, titles: list[str]) -> go.Figure:
    """B minus A of true / chord, on a diverging scale about 0."""
    cells = b.ratio - a.ratio
    wide = max(LEAST_WIDE, float(np.abs(cells[np.isfinite(cells)]).max(initial=0)))
    figure = go.Figure(
        go.Heatmap(
            z=cells, colorscale=theme.DIVERGING, zmin=-wide, zmax=wide, customdata=_pairs(b), hoverongaps=False,
            hovertemplate="%{customdata}<br>%{z:.4g}<extra></extra>",
            colorbar={"title": {"text": "B − A of true / chord<br>(dimensionless)", "side": "right"}, "thickness": 12},
        )
    )  # fmt: skip
    _token_axes(figure, b.tokens)
    figure.update_xaxes(title_text="token j")
    figure.update_yaxes(title_text="token i", scaleanchor="x")
    figure.update_layout(title=theme.label(f"true / chord: {titles[1]} minus {titles[0]}"), height=480)
    return theme.note(figure, a.note, b.note)


def true_against_chord(sides: list[Distances]) -> go.Figure:
    """A point a pair, one symbol a side, and the line on which the two are equal."""
    figure = go.Figure()
    top = 1.05 * max(one.longest for one in sides)
    figure.add_scatter(
        x=[0, top], y=[0, top], mode="lines", name="true = chord", hoverinfo="skip",
        line={"color": theme.CATEGORIES[6], "width": 1, "dash": "dot"},
    )  # fmt: skip
    for index, one in enumerate(sides):
        i, j = np.nonzero(~np.eye(len(one.tokens), dtype=bool))
        if np.array_equal(one.true, one.true.T, equal_nan=True):
            i, j = i[i < j], j[i < j]
        style = theme.style(index)
        figure.add_scatter(
            x=one.chord[i, j], y=one.true[i, j], mode="markers", name=theme.label(one.title), marker=style["marker"],
            text=_pairs(one)[i, j], hovertemplate="%{text}<br>chord %{x:.5g}<br>true %{y:.5g}<extra></extra>",
        )  # fmt: skip
    unit = sides[0].unit
    figure.update_xaxes(title=f"chord ({unit})", range=[0, top], constrain="domain")
    figure.update_yaxes(title=f"true ({unit})", range=[0, top], scaleanchor="x", constrain="domain")
    figure.update_layout(title="True distance against chord", height=480, margin={"b": 120})
    return theme.note(figure, *(one.note for one in sides))


def distance_table(shown: Distances) -> pd.DataFrame:
    """One row a pair i < j."""
    i, j = np.triu_indices(len(shown.tokens), 1)
    numbers = np.array(shown.numbers)
    names = np.array(shown.tokens, dtype=object)
    return pd.DataFrame({
        "checkpoint": shown.title, "i": numbers[i], "j": numbers[j], "text_i": names[i], "text_j": names[j],
        **{name: getattr(shown, name)[i, j] for name in KINDS}, "error_of_true": shown.error[i, j],
        "true/chord": shown.ratio[i, j], "unit": shown.unit, "what_if": shown.note,
    })  # fmt: skip
