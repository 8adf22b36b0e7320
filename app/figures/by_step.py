"""A measure by depth for many checkpoints: a line each, coloured by the step of training where steps are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from app.figures import lines, theme
from app.figures.lines import Series

SEEN = {False: (0.0, 0.8), True: (0.22, 1.0)}
"""What of the colour scale is used on light and on dark ground: its yellow vanishes on white, its violet on black."""

WIDE = 30.0
"""Largest step over smallest, above which colours follow their logarithm."""

MOST_TICKS = 5
UNKNOWN = theme.CATEGORIES[6]
"""Of a checkpoint without a step among others that have one."""


@dataclass(frozen=True)
class Checkpoint:
    """One line. ``model`` is what the steps of one training share, ``step`` NaN where it is not known."""

    series: Series
    model: str
    step: float


def has_steps(checkpoints: list[Checkpoint]) -> bool:
    """Whether any model is there at two steps: only then does colour tell steps apart, else it tells checkpoints."""
    steps = {(one.model, one.step) for one in checkpoints if np.isfinite(one.step)}
    return len(steps) > len({model for model, _ in steps})


def by_step(
    checkpoints: list[Checkpoint], title: str, x_title: str, y_title: str, *, log: bool = False, dark: bool = False
) -> go.Figure:
    """All checkpoints on one pair of axes. Colour is the step, dash and symbol the model.

    Where no model is there at two steps, a category each, as ``lines.by_depth`` draws them.
    """
    if not has_steps(checkpoints):
        return lines.by_depth([one.series for one in checkpoints], title, x_title, y_title, log=log)
    models = list(dict.fromkeys(one.model for one in checkpoints))
    steps = np.array([one.step for one in checkpoints if np.isfinite(one.step)])
    place = _placing(steps)
    series = [replace(one.series, look=_look(one, models, place, dark)) for one in checkpoints]
    figure = lines.by_depth(series, title, x_title, y_title, log=log).update_traces(showlegend=False)
    figure.add_trace(_bar(steps, place, dark))
    if len(models) > 1:
        figure.add_traces([_key(model, index) for index, model in enumerate(models)])
    return figure.update_layout(showlegend=len(models) > 1)


def _placing(steps: np.ndarray) -> Callable[[float], float]:
    """From a step to its place on the colour scale, 0 to 1; by log(1 + step) where steps span much."""
    scale = np.log1p if _is_wide(steps) else np.asarray
    low, high = scale(steps.min()), scale(steps.max())
    return lambda step: float((scale(step) - low) / (high - low))


def _is_wide(steps: np.ndarray) -> bool:
    return bool(steps.max() > WIDE * steps[steps > 0].min(initial=np.inf))


def _look(one: Checkpoint, models: list[str], place: Callable[[float], float], dark: bool) -> dict[str, Any]:
    style = theme.style(models.index(one.model))
    colour = _shades([place(one.step)], dark)[0] if np.isfinite(one.step) else UNKNOWN
    return {part: style[part] | {"color": colour} for part in ("line", "marker")}


def _shades(places: list[float], dark: bool) -> list[str]:
    low, high = SEEN[dark]
    return sample_colorscale(theme.SEQUENTIAL, [low + (high - low) * min(max(at, 0.0), 1.0) for at in places])


def _bar(steps: np.ndarray, place: Callable[[float], float], dark: bool) -> go.Scatter:
    """A trace without points that carries the colour bar, in the steps that are there."""
    there = np.unique(steps)
    kept = np.unique(np.linspace(0, len(there) - 1, min(MOST_TICKS, len(there))).round().astype(int))
    along = list(np.linspace(0, 1, 64))
    title = "training<br>step" + (", log" if _is_wide(steps) else "")
    bar = {
        "title": {"text": title, "font": {"size": 13}}, "tickvals": [place(step) for step in there[kept]],
        "ticktext": [f"{step:,.0f}" for step in there[kept]], "thickness": 14, "outlinewidth": 0,
    }  # fmt: skip
    marker = {"color": [0.0], "cmin": 0, "cmax": 1, "colorbar": bar, "showscale": True}
    marker["colorscale"] = [[at, shade] for at, shade in zip(along, _shades(along, dark), strict=True)]
    return go.Scatter(x=[None], y=[None], mode="markers", marker=marker, hoverinfo="skip", showlegend=False)


def _key(model: str, index: int) -> go.Scatter:
    """A legend entry: the model's dash and symbol, without a colour of its own."""
    style = theme.style(index)
    grey = {part: style[part] | {"color": theme.MUTED[False]} for part in ("line", "marker")}
    return go.Scatter(x=[None], y=[None], mode="lines+markers", name=theme.label(model), hoverinfo="skip", **grey)
