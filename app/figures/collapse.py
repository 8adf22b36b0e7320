"""The collapse experiment drawn: depth profiles by arm, exponents, collapse depth against strength, trained stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme


@dataclass(frozen=True)
class Line:
    """One arm's line. ``index`` is the arm's own, so that it looks the same whatever else is drawn.

    ``x``, ``y``, ``low`` and ``high`` are (n,); ``open`` marks points that are lower bounds; ``names`` are for hover.
    """

    label: str
    index: int
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    open: np.ndarray | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A labelled straight line across the figure: at a height for axis y, at a place for x."""

    axis: str
    value: float
    text: str


MORE = (
    (0, "dash", "star-triangle-up"), (1, "dot", "hexagon"), (6, "dot", "pentagon"), (6, "dash", "hourglass"),
    (6, "solid", "bowtie"), (6, "longdash", "hexagram"), (6, "dashdot", "asterisk"),
)  # fmt: skip
"""Beyond the seven categories: colour, dashes and symbol; a variant of an arm has that arm's colour."""


def style(index: int) -> dict[str, Any]:
    """Line and marker of the index-th arm."""
    if index < len(theme.CATEGORIES):
        return theme.style(index)
    colour, dash, symbol = MORE[(index - len(theme.CATEGORIES)) % len(MORE)]
    found = theme.style(colour)
    return {"line": found["line"] | {"dash": dash}, "marker": found["marker"] | {"symbol": symbol}}


def _colour(index: int) -> int:
    """The category whose colour the index-th arm has."""
    return theme.CATEGORIES.index(style(index)["line"]["color"])


def profile(
    lines: Sequence[Line], title: str, y_title: str, notes: Sequence[str] = (), rules: Sequence[Rule] = (),
    *, log: bool = False, height: int = 420,
) -> go.Figure:  # fmt: skip
    """A quantity by depth, one line an arm, its interval over seeds as a band."""
    figure = go.Figure()
    figure.add_traces([_band(line) for line in lines])
    figure.add_traces([_line(line, "layer") for line in lines])
    _draw_rules(figure, rules, log_y=log)
    longest = _longest(lines)
    ends = [-0.03 * longest, 1.03 * longest]
    figure.update_xaxes(title="layers passed (0 is the input)", dtick=max(1, round(longest / 12)), range=ends)
    figure.update_yaxes(title=y_title)
    if log:
        figure.update_yaxes(type="log", exponentformat="power", dtick=_decades(lines))
    return _finish(figure, title, notes, height)


def against_strength(
    lines: Sequence[Line], title: str, notes: Sequence[str], rules: Sequence[Rule], zero: float | None, layers: int
) -> go.Figure:
    """Collapse depth against Ubar^2 in units of tau/L, intervals as bars; ``zero`` is where strength 0 is drawn."""
    figure = go.Figure()
    for place, line in enumerate(lines):
        drawn = _line(line, "Ubar² L/τ")
        shift = 10 ** (0.022 * (place - (len(lines) - 1) / 2))  # side by side where they would hide one another
        bars = {"type": "data", "symmetric": False, "array": line.high - line.y, "arrayminus": line.y - line.low}
        drawn.update(
            x=line.x * shift, error_y=bars | {"thickness": 1.2, "width": 3, "color": style(line.index)["line"]["color"]}
        )
        figure.add_trace(drawn)
    _draw_rules(figure, rules, log_x=True)
    values = np.concatenate([line.x for line in lines])
    ends = np.log10([values.min(), values.max()]) + np.array([-0.18, 0.18])
    figure.update_xaxes(
        title="strength Ubar² in units of τ/L (log scale)", type="log", range=list(ends), **_powers(ends, zero)
    )
    figure.update_yaxes(title="collapse depth l* (layers)", range=[0, layers + 1.8])
    return _finish(figure, title, notes, 420, above=16)


def dots(
    lines: Sequence[Line], title: str, x_title: str, notes: Sequence[str], rules: Sequence[Rule] = ()
) -> go.Figure:
    """One row an arm: the mean and its interval. ``y`` of a line is its one value."""
    figure = go.Figure()
    for line in reversed(lines):
        look = style(line.index)
        bars = {"type": "data", "symmetric": False, "array": line.high - line.y, "arrayminus": line.y - line.low}
        figure.add_trace(
            go.Scatter(
                x=line.y, y=[theme.label(line.label)], mode="markers", marker=look["marker"] | {"size": 11},
                error_x=bars | {"color": look["line"]["color"], "thickness": 2, "width": 5}, showlegend=False,
                hovertemplate="%{y}: %{x:.4g}<extra></extra>", line=look["line"],
            )
        )  # fmt: skip
    _draw_rules(figure, rules)
    highest = max((float(np.nanmax(line.high)) for line in lines), default=1.0)
    figure.update_xaxes(
        title=x_title, range=[0, 1.12 * max([highest, *(rule.value for rule in rules if rule.axis == "x")])]
    )
    return _finish(figure, title, notes, 150 + 34 * len(lines) + 18 * len(notes), above=16)


def exponents(
    lines: Sequence[Line], title: str, notes: Sequence[str], bands: Sequence[tuple[float, float, str]]
) -> go.Figure:
    """The exponent at every layer, median over seeds; ``bands`` are where rule T1 wants the median."""
    figure = profile(lines, title, "exponent (dimensionless)", notes)
    for low, high, text in bands:
        figure.add_hrect(y0=low, y1=high, fillcolor="rgba(128,128,128,0.16)", line_width=0, layer="below")
        figure.add_annotation(
            x=1, xref="paper", y=high, text=theme.label(text), showarrow=False, xanchor="right", yanchor="bottom",
            font={"size": 11},
        )  # fmt: skip
    figure.update_yaxes(range=[1.4, 3.6])
    return figure.update_xaxes(title="layers passed before the three residuals of an exponent")


def _line(line: Line, x_name: str) -> go.Scatter:
    look = style(line.index)
    marker = look["marker"]
    if line.open is not None:
        marker = marker | {"symbol": [marker["symbol"] + ("-open" if one else "") for one in line.open], "size": 9}
    names = line.names or tuple(f"{x_name} {value:g}" for value in line.x)
    return go.Scatter(
        x=line.x, y=line.y, mode="lines+markers", name=theme.label(line.label), legendgroup=str(line.index),
        line=look["line"], marker=marker, text=[theme.label(name) for name in names],
        hovertemplate="%{text}: %{y:.4g}<extra>" + theme.label(line.label) + "</extra>",
    )  # fmt: skip


def _band(line: Line) -> go.Scatter:
    return theme.band(line.x, line.low, line.high, theme.faint(_colour(line.index), 0.16), str(line.index))


def _draw_rules(figure: go.Figure, rules: Sequence[Rule], *, log_x: bool = False, log_y: bool = False) -> None:
    """Shapes take the value, annotations on a log axis its logarithm: Plotly's own convention.

    Names of heights stand at the left, where the lines of a stack that collapses are far, and a marker's size above the
    rule; those of places on top.
    """
    places = [rule.value for rule in rules if rule.axis == "x"]
    for rule in rules:
        shown = {"line": {"color": theme.MUTED[False], "dash": "dash", "width": 1.2}, "layer": "below"}
        words = {"text": theme.label(rule.text), "showarrow": False, "font": {"size": 11}, "yanchor": "bottom"}
        if rule.axis == "y":
            place = float(np.log10(rule.value)) if log_y else rule.value
            figure.add_hline(y=rule.value, **shown)
            figure.add_annotation(x=0, xref="paper", xanchor="left", xshift=2, y=place, yshift=7, **words)
        else:
            place = float(np.log10(rule.value)) if log_x else rule.value
            anchor = (
                "center" if len(rule.text) < 8 and len(places) < 2 else "left" if rule.value == max(places) else "right"
            )
            anchor = "right" if len(rule.text) > 12 else anchor
            figure.add_vline(x=rule.value, **shown)
            figure.add_annotation(y=1, yref="paper", x=place, xanchor=anchor, **words)


def _finish(figure: go.Figure, title: str, notes: Sequence[str], height: int, above: int = 0) -> go.Figure:
    """``above`` pixels are left free over the plot, for names that stand there."""
    figure.update_layout(title=theme.label(title), height=height, showlegend=True)
    if notes:
        theme.subtitle(figure, " · ".join(notes), 68)
    return figure.update_layout(margin_t=(figure.layout.margin.t or 44) + above)


def _longest(lines: Sequence[Line]) -> float:
    return max((float(line.x.max()) for line in lines if len(line.x)), default=1.0)


def _decades(lines: Sequence[Line]) -> int:
    values = np.concatenate([line.y[np.isfinite(line.y) & (line.y > 0)] for line in lines] or [np.ones(1)])
    return max(1, round(float(np.ptp(np.log10(values))) / 7)) if len(values) else 1


def _powers(ends: np.ndarray, zero: float | None) -> dict[str, Any]:
    """Ticks at powers of ten, between them where there are few; a 0 where strength 0 is drawn."""
    powers = range(int(np.floor(ends[0])), int(np.ceil(ends[1])) + 1)
    inside = [
        step * 10.0**power for power in powers for step in (1, 2, 5) if ends[0] <= np.log10(step) + power <= ends[1]
    ]
    whole = [value for value in inside if np.isclose(np.log10(value) % 1, [0, 1]).any()]
    few = inside if len(inside) > 1 else [float(10 ** ends.mean())]
    ticks = [value for value in (whole if len(whole) > 1 else few) if zero is None or value > 2 * zero]
    names = [f"{value:.3g}" for value in ticks]
    if zero is not None:
        ticks, names = [zero, *ticks], ["0", *names]
    return {"tickmode": "array", "tickvals": ticks, "ticktext": names}
