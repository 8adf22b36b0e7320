"""Measures by depth as lines: one a checkpoint, with bands, the entry after the final norm told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme


@dataclass(frozen=True)
class Series:
    """One checkpoint's line. ``x`` and ``y`` are (n,), ``low`` and ``high`` the band around it, where there is one.

    ``final`` says that the last entry is the residual after the final norm: its own marker at the end of a dotted line.
    ``hollow`` marks entries (n,) that stand after attention, inside a block.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    final: bool = False
    hollow: np.ndarray | None = None
    names: tuple[str, ...] = ()  # what each entry is, for hover
    look: dict[str, Any] | None = None  # ``line`` and ``marker``, in place of the category's


def by_depth(series: list[Series], title: str, x_title: str, y_title: str, *, log: bool = False) -> go.Figure:
    """All series on one pair of axes. A log axis leaves out what is not positive; its title says log."""
    figure = go.Figure()
    figure.add_traces([_band(one, index) for index, one in enumerate(series) if one.low is not None])
    for index, one in enumerate(series):
        figure.add_traces(_line(one, index))
    figure.update_layout(title=theme.label(title), height=380, showlegend=len(series) > 1)
    figure.update_xaxes(title=x_title, tickangle=0, **_depth_ticks(series))
    figure.update_yaxes(title=y_title.replace("dimensionless", "log scale") if log else y_title)
    return figure.update_yaxes(type="log", exponentformat="power") if log else figure


def difference(x: np.ndarray, values: np.ndarray, title: str, x_title: str, y_title: str) -> go.Figure:
    """B - A as bars, on an axis symmetric about 0."""
    finite = np.abs(values[np.isfinite(values)])
    bound = float(finite.max()) * 1.1 if finite.size and finite.max() > 0 else 1.0
    colours = [theme.CATEGORIES[1] if value > 0 else theme.CATEGORIES[0] for value in values]
    bars = go.Bar(x=x, y=values, marker={"color": colours}, hovertemplate="%{x}: %{y:.4g}<extra></extra>")
    figure = go.Figure(bars)
    figure.update_layout(title=theme.label(title), height=300, bargap=0.35)
    figure.update_xaxes(title=x_title, dtick=_step(x))
    figure.update_yaxes(title=y_title, range=[-bound, bound], zeroline=True)
    return figure


def _line(one: Series, index: int) -> list[go.Scatter]:
    style = one.look or theme.style(index)
    count = len(one.x) - one.final
    names = one.names or tuple(f"{value:g}" for value in one.x)
    symbols = None
    if one.hollow is not None:
        symbols = [style["marker"]["symbol"] + ("-open" if hollow else "") for hollow in one.hollow[:count]]
    shared = {
        "name": theme.label(one.label), "legendgroup": str(index),
        "hovertemplate": "%{text}: %{y:.5g}<extra>" + theme.label(one.label) + "</extra>",
    }  # fmt: skip
    marker = style["marker"] | ({"symbol": symbols} if symbols else {})
    traces = [
        go.Scatter(
            x=one.x[:count], y=one.y[:count], mode="lines+markers", line=style["line"], marker=marker,
            text=[theme.label(name) for name in names[:count]], **shared,
        )
    ]  # fmt: skip
    if one.final:
        line = style["line"] | {"dash": "dot", "width": 1.5}
        end = style["marker"] | {"symbol": "star-open", "size": 11, "line": {"width": 2}}
        traces.append(
            go.Scatter(
                x=one.x[-2:], y=one.y[-2:], mode="lines+markers", line=line, showlegend=False,
                marker=end | {"opacity": [0, 1]}, text=[theme.label(name) for name in names[-2:]], **shared,
            )
        )  # fmt: skip
    return traces


def _band(one: Series, index: int) -> go.Scatter:
    """Without the entry after the final norm, which stands apart."""
    assert one.low is not None and one.high is not None
    count = len(one.x) - one.final
    return theme.band(one.x[:count], one.low[:count], one.high[:count], theme.faint(index), str(index))


def _depth_ticks(series: list[Series]) -> dict:
    """Whole layers, thinned so that they fit, first and last kept; "final norm" where a series ends with it."""
    longest = max(series, key=lambda one: one.x[-1] if len(one.x) else 0)
    inside = longest.x[: len(longest.x) - longest.final]
    whole = [float(value) for value in inside if float(value).is_integer()]
    kept = [0, 0.25, 0.5, 0.75, 1] if len(inside) > 2 and inside[-1] == 1 else _thinned(whole)
    ticks, names = list(kept), [f"{value:g}" for value in kept]
    if longest.final:
        ticks.append(longest.x[-1])
        names.append("final<br>norm")
    return {"tickmode": "array", "tickvals": ticks, "ticktext": names}


def _thinned(values: list[float]) -> list[float]:
    """At most about 14 of them, the first and the last always among them."""
    step = max(1, -(-len(values) // 14))
    kept = [*values[:-1:step], *values[-1:]]
    if len(kept) > 2 and kept[-1] - kept[-2] < step:
        del kept[-2]
    return kept


def _step(x: np.ndarray) -> int:
    return max(1, -(-len(x) // 16))
