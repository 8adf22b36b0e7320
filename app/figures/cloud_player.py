"""Depth as time: frames for the stages, what stands between two of them, play, pause and a slider."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.cloud_traces import HEIGHT, Traces
from app.figures.cloud_view import CloudView

NUMBERS = 250_000
"""Of all frames together: each takes some eight bytes of the message."""

BETWEEN = 8
"""The most frames between two stages."""

PAUSE = 650
"""Milliseconds from one stage to the next."""


def frames_between(many: list[Traces]) -> int:
    """How many frames stand between two stages: what the message can bear."""
    numbers = sum(len(moved["x"]) for moved in many[0]) * 3 * len(many)
    return int(np.clip(NUMBERS // max(numbers, 1) - 1, 0, BETWEEN))


def mixed(now: Traces, then: Traces, share: float) -> Traces:
    """Part of the way from one stage to the next: positions and colours alike; words stay."""
    return [{key: _blend(value, after.get(key), share) for key, value in moved.items()}
            for moved, after in zip(now, then, strict=True)]  # fmt: skip


def _blend(value: Any, after: Any, share: float) -> Any:
    if isinstance(value, dict):
        return {key: _blend(inner, after[key], share) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return (1 - share) * value + share * after
    if not value or isinstance(value[0], str):
        return value
    return [
        None if a is None or b is None else float(f"{(1 - share) * a + share * b:.5g}")
        for a, b in zip(value, after, strict=True)
    ]


def player(view: CloudView, figure: go.Figure, stops: list[str], between: int, smooth: bool, dark: bool) -> go.Figure:
    """Play, pause, and a slider whose steps are the stages."""
    pause = PAUSE // (between + 1)
    moving = {
        "frame": {"duration": pause, "redraw": not smooth}, "fromcurrent": True, "mode": "immediate",
        "transition": {"duration": pause - 50 if smooth else 0, "easing": "linear"},
    }  # fmt: skip
    jump = {"frame": {"duration": 0, "redraw": not smooth}, "mode": "immediate",
            "transition": {"duration": 250 if smooth else 0}}  # fmt: skip
    colours = {"bgcolor": theme.PAPER[dark], "bordercolor": theme.MUTED[dark], "borderwidth": 1}
    buttons = [
        {"label": "▶ Play", "method": "animate", "args": [None, moving]},
        {"label": "❚❚", "method": "animate", "args": [[None], {**jump, "mode": "immediate"}]},
    ]
    steps = [
        {"label": str(at), "method": "animate", "args": [[stop], jump], "value": stop} for at, stop in enumerate(stops)
    ]
    drop = 54 if view.dims == 2 else 8  # below the axis and its title
    return figure.update_layout(
        height=HEIGHT[view.dims] + 94, margin={"b": 116 + drop},
        updatemenus=[{
            "type": "buttons", "direction": "right", "buttons": buttons, "showactive": False, "x": 0, "y": 0,
            "xanchor": "left", "yanchor": "top", "pad": {"t": drop, "l": 0}, **colours,
            "font": {"size": 12, "color": theme.INK[dark]},
        }],
        sliders=[{
            "steps": steps, "active": view.stage, "x": 0, "len": 1, "y": 0,
            "pad": {"t": drop + 6, "b": 6, "l": 6, "r": 6}, "xanchor": "left", "ticklen": 4,
            "currentvalue": {"prefix": "blocks passed: ", "font": {"size": 13}, "xanchor": "right", "offset": 22},
            "font": {"size": 11}, "bgcolor": theme.GRID[dark], "activebgcolor": theme.MUTED[dark],
            "bordercolor": theme.MUTED[dark], "tickcolor": theme.MUTED[dark],
            "transition": {"duration": 250 if smooth else 0},
        }],
    )  # fmt: skip
