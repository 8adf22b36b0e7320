"""Clouds of tokens as Plotly figures: one stage at a time with a play button over depth, or all stages at once.

Axis ranges hold every stage, so that nothing moves but tokens. A figure of a few tokens is SVG, whose points Plotly
moves smoothly by itself and exports as vectors; of many, or in 3-D, it is WebGL, with frames between two stages.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from app.figures import theme
from app.figures.cloud_player import frames_between, mixed, player
from app.figures.cloud_points import is_svg, scatter, size_of, xyz
from app.figures.cloud_traces import HEIGHT, groups, moving, ring, scale_keeper, starts, traces, ways, wrapped
from app.figures.cloud_view import CloudView
from app.figures.cloud_words import end_labels, told
from app.figures.ellipsoids import LINES

LEGEND = 26
"""CSS pixels."""


def by_stage(view: CloudView, dark: bool = False) -> go.Figure:
    """The tokens at one stage, a slider over stages, and a play button. The frame holds all stages."""
    many = [moving(view, at) for at in range(len(view.stages))]
    figure = go.Figure([*ways(view, dark), *starts(view, dark), *traces(view, many[view.stage], dark)])
    first = len(figure.data) - len(many[0])
    places = list(range(first, len(figure.data)))
    smooth = is_svg(view)
    between = 0 if smooth else frames_between(many)
    frames, stops = [], []
    for at, now in enumerate(many):
        stops.append(f"stage {at}")
        frames.append(go.Frame(name=stops[-1], data=wrapped(view, now), traces=places))
        for step in range(1, between + 1) if at + 1 < len(many) else ():
            part = mixed(now, many[at + 1], step / (between + 1))
            frames.append(go.Frame(name=f"{at}+{step}", data=wrapped(view, part), traces=places))
    figure.frames = frames
    _dressed(view, figure, dark)
    return player(view, figure, stops, between, smooth, dark)


def all_stages(view: CloudView, dark: bool = False) -> go.Figure:
    """The tokens of all stages at once, each token's way a line."""
    count = len(view.stages)
    figure = go.Figure(ways(view, dark))
    for name, chosen, marker in groups(view):
        shape = [(at, token) for token in chosen for at in range(count)]
        where = np.array([view.positions[at, token] for at, token in shape]).reshape(-1, view.dims)
        colour = {"color": view.values[:, chosen].T.ravel().astype("f4")} if not view.names else {}
        figure.add_trace(scatter(view)(
            **xyz(where), mode="markers", name=theme.label(name), marker={**marker, **colour, "size": size_of(view, 6)},
            text=[told(view, at, token) for at, token in shape], hovertemplate="%{text}<extra></extra>",
            customdata=[token for _, token in shape], showlegend=bool(view.names),
        ))  # fmt: skip
    figure.add_trace(end_labels(view))
    for tokens, colour, width in ((list(view.marked), theme.MARK, 2.0), ([view.selected], theme.INK[dark], 1.6)):
        chosen = [token for token in tokens if token >= 0]
        figure.add_trace(ring(view, view.positions[-1, chosen], colour, width, 13))  # where their ways end
    figure.update_layout(height=HEIGHT[view.dims])
    return _dressed(view, figure, dark)


def _dressed(view: CloudView, figure: go.Figure, dark: bool) -> go.Figure:
    """Title, axes that hold every stage, colour bar or legend."""
    low, high = view.box
    figure.update_layout(
        title={"text": theme.label(view.title)}, dragmode="zoom" if view.dims == 2 else "orbit", hovermode="closest",
        legend={"orientation": "h", "yref": "paper", "yanchor": "bottom", "y": 1.0, "x": 0, "xanchor": "left",
                "itemsizing": "constant"},
    )  # fmt: skip
    if not view.names:
        least, most = view.limits
        figure.add_trace(scale_keeper(view))
        figure.update_layout(coloraxis={
            "colorscale": theme.SEQUENTIAL, "cmin": least, "cmax": most if most > least else least + 1,
            "colorbar": {"title": {"text": theme.label(view.value_title), "side": "right"}, "thickness": 12, "len": 0.8,
                         "y": 0.5},
        })  # fmt: skip
    titles = [theme.label(title) for title in view.axes]
    if view.dims == 2:
        figure.update_xaxes(title_text=titles[0], range=[low[0], high[0]], autorange=False)
        figure.update_yaxes(
            title_text=titles[1], range=[low[1], high[1]], autorange=False, scaleanchor="x", constrain="range"
        )
    else:
        axes = {
            f"{axis}axis": {"title": {"text": title, "font": {"size": 12}}, "range": [low[place], high[place]],
                            "tickfont": {"size": 10}, "showspikes": False, "showbackground": False, "zeroline": False,
                            "gridcolor": LINES[dark], "linecolor": LINES[dark]}
            for place, (axis, title) in enumerate(zip("xyz", titles, strict=True))
        }  # fmt: skip
        figure.update_layout(
            scene={**axes, "aspectmode": "data", "domain": {"x": [0, 1], "y": [0, 1]},
                   "camera": {"eye": _eye(high - low, view.narrow), "center": {"x": 0, "y": 0, "z": -0.06}}},
            margin={"l": 0, "r": 0, "b": 24},
        )  # fmt: skip
    theme.dress(figure, dark)
    theme.subtitle(figure, view.description, 86 if view.narrow else 165)
    theme.note(figure, view.note)
    if view.names or view.glyphs is not None:  # a line of its own for the legend
        figure.update_layout(margin={"t": figure.layout.margin.t + LEGEND})
    return figure


def _eye(size: np.ndarray, narrow: bool) -> dict[str, float]:
    """Where the camera stands so that the box fits: Plotly's unit is the cube root of the scene's volume."""
    toward = np.array([0.66, 0.62, 0.42]) * (1.6 if narrow else 1.32) * np.linalg.norm(size / np.cbrt(np.prod(size)))
    return dict(zip("xyz", toward.tolist(), strict=True))
