"""What attention would make of the true distance: total variation by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.figures import theme

LEAST_TALL = 1e-3
"""The least top of the axis, so that rounding does not look like a difference."""


@dataclass(frozen=True)
class Variation:
    """Total variation (n,) of one side's rows between attention by the chord and by the true distance."""

    label: str
    values: np.ndarray
    tokens: tuple[str, ...]
    numbers: tuple[int, ...]


def variation_figure(series: list[Variation], title: str, note: str | None = None) -> go.Figure:
    """Bars a query, one colour and pattern a side."""
    figure = go.Figure()
    for index, one in enumerate(series):
        figure.add_bar(
            x=list(range(len(one.values))), y=one.values, name=theme.label(one.label),
            marker={"color": theme.CATEGORIES[index], "pattern": {"shape": ("", "/")[index % 2]}},
            text=[f"({n}) {theme.label(token)}" for n, token in zip(one.numbers, one.tokens, strict=True)],
            textposition="none", hovertemplate="%{text}<br>TV %{y:.4g}<extra></extra>",
        )  # fmt: skip
    longest = max(series, key=lambda one: len(one.tokens))
    ticks = theme.shared_ticks([one.tokens for one in series], longest.numbers, 48)
    figure.update_xaxes(**ticks, autotickangles=theme.SLANT, title="query i (token)")
    top = max(float(np.nanmax(one.values, initial=0)) for one in series)
    figure.update_yaxes(title="total variation (0 to 1)", range=[0, max(1.08 * top, LEAST_TALL)])
    figure.update_layout(
        title=theme.label(title), height=330, bargap=0.3, showlegend=len(series) > 1, legend={"y": 0.0},
        margin={"b": 120 if len(series) > 1 else 90},
    )  # fmt: skip
    return theme.note(figure, note)
