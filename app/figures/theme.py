"""One look for every figure: templates for light and dark, colours that colour-blind people can tell apart."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fbt_core.measures.table import Measure

SEQUENTIAL = "Viridis"
DIVERGING = "RdBu_r"  # blue negative, red positive; always with a range symmetric about 0
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
"""Okabe and Ito, without the yellow that vanishes on white and the black that vanishes on dark."""

DARK = {"#0072B2": "#56B4E9", "#56B4E9": "#0072B2"}
"""On dark ground the two blues change places: the first category must be the one that is seen best."""

WARNING = "#D55E00"

MARK = "#E69F00"
"""Of marked tokens, on every page."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")

FONT = "Source Sans, Source Sans Pro, Helvetica, Arial, sans-serif"
INK = {False: "#262730", True: "#fafafa"}
PAPER = {False: "#ffffff", True: "#0e1117"}
GRID = {False: "rgba(38,39,48,0.13)", True: "rgba(250,250,250,0.16)"}
MUTED = {False: "#6b6e7a", True: "#a3a8b8"}


def style(index: int) -> dict[str, Any]:
    """Colour, dash and symbol of the index-th category: ``line`` and ``marker`` of a Scatter."""
    colour = CATEGORIES[index % len(CATEGORIES)]
    return {
        "line": {"color": colour, "dash": DASHES[index % len(DASHES)], "width": 2},
        "marker": {"color": colour, "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7},
    }


def category(index: int, dark: bool) -> str:
    """The colour of the index-th category on light or dark ground."""
    colour = CATEGORIES[index % len(CATEGORIES)]
    return DARK.get(colour, colour) if dark else colour


def faint(index: int, alpha: float = 0.18) -> str:
    """The category's colour for a band."""
    colour = CATEGORIES[index % len(CATEGORIES)]
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def band(x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, group: str) -> go.Scatter:
    """Low to high as one filled outline, gaps left out; it comes and goes with the legend's entry of its group."""
    good = np.isfinite(low) & np.isfinite(high)
    x, low, high = x[good], low[good], high[good]
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="lines", line={"width": 0},
        fill="toself", fillcolor=colour, hoverinfo="skip", showlegend=False, legendgroup=group,
    )  # fmt: skip


def template(dark: bool) -> go.layout.Template:
    """The Plotly template. Paper is transparent on the page; exports get the page's colour."""
    axis = {
        "gridcolor": GRID[dark], "linecolor": GRID[dark], "zeroline": False, "showline": True, "ticks": "outside",
        "tickcolor": GRID[dark], "ticklen": 4, "automargin": True, "title": {"standoff": 8, "font": {"size": 13}},
    }  # fmt: skip
    scene = {"showspikes": False, "zeroline": False, "gridcolor": GRID[dark], "showbackground": False}
    layout = go.Layout(
        font={"family": FONT, "size": 13, "color": INK[dark]},
        title={
            "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "font": {"size": 15},
            "pad": {"l": 8, "t": 10},
        },
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        colorway=list(CATEGORIES), colorscale={"sequential": SEQUENTIAL, "diverging": DIVERGING},
        margin={"l": 56, "r": 16, "t": 44, "b": 48}, xaxis=axis, yaxis=axis,
        coloraxis={"colorbar": {"exponentformat": "power"}},
        scene={"xaxis": scene, "yaxis": scene, "zaxis": scene, "aspectmode": "data"},
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "xanchor": "left", "x": 0},
        hoverlabel={"font": {"family": FONT}},
    )  # fmt: skip
    return go.layout.Template(layout=layout)


DRESSED = {False: "light", True: "dark"}
"""What ``layout.meta`` of a figure says of the ground that it was dressed for."""


def dress(figure: go.Figure, dark: bool = False) -> go.Figure:
    """Give a figure the template, and categories their colours on dark ground, in place."""
    if dark and figure.layout.meta != DRESSED[True]:  # the blues change places: twice would change them back
        figure.for_each_trace(_on_dark)
    return figure.update_layout(template=template(dark), meta=DRESSED[dark])


def _on_dark(trace: Any) -> None:
    for part in ("line", "marker"):
        colour = getattr(getattr(trace, part, None), "color", None)
        if isinstance(colour, str) and colour in DARK:
            trace.update({part: {"color": DARK[colour]}})


def subtitle(figure: go.Figure, text: str, width: int = 0) -> go.Figure:
    """A second, smaller line under the title, in place; several of at most ``width`` characters, if that is given."""
    lines = textwrap.wrap(text, width) if width else [text]
    return _below_title(figure, "<br>".join(map(label, lines)))


def note(figure: go.Figure, *labels: str | None) -> go.Figure:
    """Print labels, such as a what-if, each once under the title, in place: over no data, and in every export."""
    text = " · ".join(dict.fromkeys(filter(None, labels)))
    if not text:
        return figure
    above = figure.layout.title.subtitle.text  # pyright: ignore[reportAttributeAccessIssue]
    line = f'<span style="color:{WARNING}">{label(text)}</span>'
    return _below_title(figure, f"{above}<br>{line}" if above else line)


def _below_title(figure: go.Figure, text: str) -> go.Figure:
    lines = 1 + text.count("<br>")
    height = 44 + 18 * lines
    return figure.update_layout(title={"subtitle": {"text": text, "font": {"size": 12}}}, margin={"t": height})


def label(text: str) -> str:
    """Text that a page, or Plotly, which reads a subset of HTML, will show and not interpret."""
    return html.escape(text, quote=False)


def flat(text: str) -> str:
    """The same inside a 3-D scene, where Plotly reads tags and knows no entities."""
    return text.replace("<", "\u2039").replace(">", "\u203a")


def axis_title(measure: Measure) -> str:
    """``Attention entropy (nats)``: every axis has a unit, or says that it has none."""
    return f"{measure.title} ({measure.unit or 'dimensionless'})"


def caption(measure: Measure) -> str:
    """The measure's equation, range and source as one line of markdown with LaTeX."""
    return f"${measure.symbol} = {measure.equation}$, in {measure.range}. Source: {measure.source}."


SLANT = [0, -60]
"""Degrees at which the names of tokens under an axis stand: the first at which none overlaps."""


def ticks(tokens: tuple[str, ...], most: int = 64, marked: tuple[int, ...] = ()) -> dict[str, Any]:
    """Numeric axis with a tick a token: repeated tokens would merge on a category axis. Thinned above ``most``; the
    ``marked`` tokens stand in the colour of marks.
    """
    count = len(tokens)
    step = max(1, -(-count // most))
    values = list(range(0, count, step))
    return {
        "tickmode": "array", "tickvals": values,
        "ticktext": [_name(tokens[value], value in marked) for value in values],
        "range": [-0.5, count - 0.5],
    }  # fmt: skip


def shared_ticks(several: Sequence[tuple[str, ...]], numbers: Sequence[int], most: int) -> dict[str, Any]:
    """``ticks`` of several texts on one axis: the tokens where they are the same, else ``numbers``, of the longest."""
    longest = max(several, key=len)
    alike = all(tokens == longest for tokens in several)
    return ticks(longest if alike else tuple(map(str, numbers)), most)


def _name(token: str, marked: bool) -> str:
    return f'<span style="color:{MARK}"><b>{label(token)}</b></span>' if marked else label(token)
