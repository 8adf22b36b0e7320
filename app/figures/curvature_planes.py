"""Sectional curvature token by token, a mark a kind of plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.curvature import TICKS, mark
from app.figures.signed_log import Scale


@dataclass(frozen=True)
class Family:
    """Sectional curvatures of one kind of plane, a value a token, with what is to be drawn as its bar."""

    name: str
    values: np.ndarray  # (token,)
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @property
    def drawn(self) -> list[np.ndarray]:
        """Everything that the axis must hold."""
        return [part for part in (self.values, self.low, self.high) if part is not None]


def planes(
    families: Mapping[int, Family],
    title: str,
    tokens: tuple[str, ...],
    y_title: str,
    scale: Scale,
    room: float,
    marked: tuple[int, ...] = (),
) -> go.Figure:
    """Sectional curvatures token by token, a symbol a kind of plane, whose index is the key; the axis runs to
    ``room`` on both sides of 0."""
    figure, count = go.Figure(), len(families)
    for place, (index, family) in enumerate(families.items()):
        bars = {}
        places = scale.places(family.values)
        if family.low is not None and family.high is not None:
            bars = {"error_y": {
                "type": "data", "symmetric": False, "array": scale.places(family.high) - places,
                "arrayminus": places - scale.places(family.low), "width": 3, "thickness": 1.5,
            }}  # fmt: skip
        figure.add_scatter(
            x=np.arange(len(tokens)) + 0.16 * (place - (count - 1) / 2), y=places, mode="markers", **bars,
            name=theme.label(family.name), **mark(index), text=[theme.label(token) for token in tokens],
            customdata=family.values,
            hovertemplate="%{text}: %{customdata:.4g}<extra>" + theme.label(family.name) + "</extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": theme.MUTED[False], "width": 1, "dash": "dot"})
    figure.update_xaxes(**theme.ticks(tokens, TICKS, marked), autotickangles=theme.SLANT, title="token")
    edge = 1.06 * float(scale.places(np.array(room)))
    figure.update_yaxes(title=y_title, range=[-edge, edge], **scale.ticks(-room, room))
    return figure.update_layout(title=theme.label(title), height=400, margin={"b": 140})
