"""Attention maps: what the canvas component draws, and its Plotly twin for export and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme
from fbt_core.attention.pooling import max_pool
from fbt_core.attention.tiles import PooledPair

COLOURS = {"sqrt": "square root", "linear": "linear", "log": "log"}
"""Colour scales, the first is the default: attention in linear colour is nearly black."""

FLOOR = 1e-4
"""Of the ceiling: where the log colour scale ends."""

TWIN_CELLS = 512
"""Cells a side of the Plotly twin; a longer map is max-pooled."""

UNIT = "attention weight, rows sum to 1"
SHORT_UNIT = "attention weight, rows sum to at most 1"
"""Where a sink takes a share of the row, which no key has."""


@dataclass(frozen=True)
class MapPanels:
    """Two maps of one sequence and all that is said about them; the third panel is right minus left.

    The keys are the queries' own tokens, unless ``key_tokens`` says that they are others, as in cross-attention. Maps
    of long texts are ``pooled``: their cells are bins of ``factor`` tokens a side, and everything else stays by token.
    """

    left: np.ndarray  # (L, K) float32, rows are queries; cells j > i are not read when causal; bins where pooled
    right: np.ndarray
    titles: tuple[str, str]
    tokens: tuple[str, ...]  # of the L rows
    causal: bool
    entropy: tuple[np.ndarray, np.ndarray]  # (L,) each, nats
    heading: str = ""  # such as "Layer 2, head 1"
    name: str = "attention"  # of files
    note: str = ""  # a what-if
    colour: str = "sqrt"  # a key of COLOURS
    unit: str = UNIT
    selected: int | None = None
    expected: tuple[tuple[int, int], ...] = ()  # (query, key) pairs that a head should attend to
    expected_name: str = "expected by the grammar"
    positions: tuple[int, ...] = ()  # the token number of each row; 0, 1, ... unless some were chosen
    key_tokens: tuple[str, ...] = ()  # of the K columns, where they are other tokens than the rows
    hidden: np.ndarray | None = None  # (L, K) bool: where a mask lets no attention be, beside the future
    single: bool = False  # there is one map only: the right one is the left one, and is not drawn
    ceiling: float | None = None  # of the colour scale, so that several figures share one
    difference_ceiling: float | None = None
    difference_title: str = ""  # right title minus left title, unless given
    marked: tuple[int, ...] = ()  # rows, and columns where those are the same tokens, with a triangle
    pooled: PooledPair | None = None  # of which ``left``, ``right`` and ``hidden`` are then the cells
    exact: np.ndarray | None = None  # (2, K): the selected row of both maps, where they are pooled
    tiles: str = ""  # where the browser may ask for exact parts and rows; empty where it cannot

    def __post_init__(self) -> None:
        shape = tuple(-(-len(labels) // self.factor) for labels in (self.tokens, self.columns))
        if self.left.shape != shape or self.right.shape != shape:
            raise ValueError(f"got maps of shape {self.left.shape} and {self.right.shape}, expected {shape}")
        if self.causal and self.key_tokens:
            raise ValueError("got a causal map of two kinds of tokens, expected a square one")
        if self.colour not in COLOURS:
            raise ValueError(f"got colour scale {self.colour!r}, expected one of {', '.join(COLOURS)}")

    @property
    def factor(self) -> int:
        """Tokens a cell, each way."""
        return self.pooled.factor if self.pooled else 1

    @property
    def difference(self) -> np.ndarray:
        """Right minus left; where pooled the largest such of each bin, and not one of maxima."""
        return self.pooled.difference if self.pooled else self.right - self.left

    @property
    def all_titles(self) -> tuple[str, str, str]:
        """Of the three panels."""
        return (*self.titles, self.difference_title or f"{self.titles[1]} − {self.titles[0]}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The token number of each row."""
        return self.positions or tuple(range(len(self.tokens)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The tokens of the columns."""
        return self.key_tokens or self.tokens

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """The token number of each column."""
        return tuple(range(len(self.key_tokens))) if self.key_tokens else self.numbers

    @property
    def allowed(self) -> np.ndarray:
        """(L, K) bool: False in a causal map's future."""
        seen = np.tri(len(self.left), dtype=bool) if self.causal else np.ones(self.left.shape, dtype=bool)
        return seen if self.hidden is None else seen & ~self.hidden

    @property
    def not_finite(self) -> int:
        """How many allowed cells of the two maps are NaN or infinite."""
        if self.pooled:
            return self.pooled.not_finite
        return int(sum((~np.isfinite(cells[self.allowed])).sum() for cells in (self.left, self.right)))

    def top(self) -> float:
        """The ceiling of the sequential scale: given, or the largest cell of both maps."""
        return self.ceiling or max(_largest(cells, self.allowed) for cells in (self.left, self.right))

    def difference_top(self) -> float:
        """The half-width of the diverging scale, symmetric about 0."""
        return self.difference_ceiling or _largest(self.difference, self.allowed)


def _largest(cells: np.ndarray, allowed: np.ndarray) -> float:
    """The largest finite magnitude of the allowed cells, 1 if that is 0 or there is none."""
    chosen = np.abs(cells[allowed])
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.max()) if chosen.size and chosen.max() > 0 else 1.0


def attention_figure(panels: MapPanels, dark: bool = False) -> go.Figure:
    """Left, right and difference as heat maps with one zoom, max-pooled to at most ``TWIN_CELLS`` cells a side.

    The numbers in the figure are the attention weights themselves: a colour scale other than linear bends the
    colours, not the data. Masked cells are NaN and so take the page's colour.
    """
    count = 1 if panels.single else 3
    titles = [theme.label(title) for title in panels.all_titles[:count]]
    figure = make_subplots(1, count, subplot_titles=titles, horizontal_spacing=0.075, shared_yaxes=True)
    seen = max_pool(panels.allowed.astype(np.float32), TWIN_CELLS).values > 0
    for column, cells in enumerate((panels.left, panels.right, panels.difference)[:count], start=1):
        pool = max_pool(cells, TWIN_CELLS, panels.causal, magnitude=column == 3)
        heat = go.Heatmap(
            z=np.where(pool.masked | ~seen, np.float32(np.nan), pool.values),
            x=np.minimum(panels.factor * pool.column_edges, len(panels.columns)) - 0.5,
            y=np.minimum(panels.factor * pool.edges, len(panels.tokens)) - 0.5,
            coloraxis="coloraxis2" if column == 3 else "coloraxis", hoverongaps=False,
            hovertemplate="query %{y:.0f}, key %{x:.0f}<br>%{z:.6f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
        if panels.expected:
            figure.add_trace(_expected(panels, column), row=1, col=column)
        if panels.marked:
            figure.add_traces(_marks(panels), rows=1, cols=column)
    _axes(figure, panels)
    _bars(figure, panels)
    figure.update_layout(
        title_text=_title(panels.heading, panels), height=520, margin={"t": 90, "b": 150},
        legend={"y": 1.12, "x": 1.0, "xanchor": "right"},
    )  # fmt: skip
    return theme.dress(figure, dark)


def _title(text: str, panels: MapPanels) -> str:
    """The heading with its what-if: in the title no panel can hide it, and every export keeps it."""
    return theme.label(f"{text} — {panels.note}" if panels.note else text)


def _expected(panels: MapPanels, column: int) -> go.Scatter:
    rows, columns = zip(*panels.expected, strict=True)
    return go.Scatter(
        x=columns, y=rows, mode="markers", name=theme.label(panels.expected_name), showlegend=column == 1,
        hoverinfo="skip", marker={"symbol": "circle", "size": 8, "color": "rgba(0,0,0,0)", "line": {"width": 1.6,
                                  "color": "#000000" if column == 3 else theme.CATEGORIES[1]}},
    )  # fmt: skip


def _marks(panels: MapPanels) -> list[go.Scatter]:
    """Triangles at the rows of marked tokens, and at their columns where those are the same tokens."""
    rows, edge, floor = (
        list(panels.marked),
        [-0.5] * len(panels.marked),
        [len(panels.tokens) - 0.5] * len(panels.marked),
    )
    ends = [(edge, rows, "triangle-right")] + ([] if panels.key_tokens else [(rows, floor, "triangle-up")])
    return [
        go.Scatter(
            x=x, y=y, mode="markers", hoverinfo="skip", showlegend=False, name="marked",
            marker={"symbol": symbol, "size": 10, "color": theme.MARK, "line": {"width": 1, "color": "#000000"}},
        )
        for x, y, symbol in ends
    ]  # fmt: skip


def _axes(figure: go.Figure, panels: MapPanels) -> None:
    rows, columns = theme.ticks(panels.tokens, 40), theme.ticks(panels.columns, 40)
    low, high = columns.pop("range")
    figure.update_xaxes(
        **columns, range=[low, high], tickangle=-90, title_text="key j (token)", matches="x", constrain="domain",
        showgrid=False,
    )  # fmt: skip
    low, high = rows.pop("range")
    figure.update_yaxes(**rows, range=[high, low], matches="y", constrain="domain", showgrid=False)
    figure.update_yaxes(title_text="query i (token)", col=1)
    several = (1,) if panels.single else (1, 2, 3)
    for column in several if not panels.key_tokens else ():  # cells of cross-attention need not be square
        figure.update_yaxes(scaleanchor=f"x{column if column > 1 else ''}", col=column)


def _bars(figure: go.Figure, panels: MapPanels) -> None:
    """One bar for the two maps, one for the difference, below the panels they belong to."""
    shape = {"orientation": "h", "thickness": 9, "y": -0.3, "yanchor": "top", "xanchor": "left", "outlinewidth": 0}
    colour = COLOURS[panels.colour]
    signed = "linear" if panels.colour == "linear" else f"signed {colour}"
    bar = shape | {"len": 0.62, "x": 0.0, "title": {"text": f"{panels.unit} ({colour} colour)", "side": "bottom"}}
    other = shape | {"len": 0.28, "x": 0.72, "title": {"text": f"difference ({signed} colour)", "side": "bottom"}}
    top, wide = panels.top(), panels.difference_top()
    figure.update_layout(
        coloraxis={"colorscale": bent(theme.SEQUENTIAL, panels.colour), "cmin": 0, "cmax": top, "colorbar": bar},
        coloraxis2={
            "colorscale": bent(theme.DIVERGING, panels.colour, diverging=True), "cmin": -wide, "cmax": wide,
            "colorbar": other,
        },
    )  # fmt: skip


def stops(name: str, count: int = 11) -> list[tuple[float, str]]:
    """A named Plotly colour scale as ``count`` evenly spaced (position, "#rrggbb")."""
    at = np.linspace(0, 1, count)
    colours = plotly.colors.sample_colorscale(name, list(at), colortype="tuple")
    return [
        (round(float(t), 6), "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in rgb))
        for t, rgb in zip(at, colours, strict=True)
    ]


def bent(name: str, colour: str, diverging: bool = False, count: int = 65) -> list[tuple[float, str]]:
    """The colour scale ``name`` with its stops moved so that colour is linear, square root or log in the value."""
    table = stops(name, count)
    return [(_value_of(t, colour, diverging), shade) for t, shade in table]


def shade(values: np.ndarray, ceiling: float, colour: str, diverging: bool = False) -> np.ndarray:
    """The place of each value on the bent colour scale, from 0 to 1; what is beyond the ceiling is cut to it."""
    size = np.minimum(np.abs(values) / ceiling, 1)
    if colour == "log":
        size = np.maximum(0, 1 - np.log(np.maximum(size, FLOOR)) / np.log(FLOOR))
    elif colour == "sqrt":
        size = np.sqrt(size)
    return 0.5 + 0.5 * np.sign(values) * size if diverging else size


def _value_of(t: float, colour: str, diverging: bool) -> float:
    """Where on a linear scale from 0 to 1 the colour at t of the bent scale stands."""
    if diverging:
        side = 2 * t - 1
        return 0.5 + 0.5 * float(np.sign(side)) * _value_of(abs(side), colour, diverging=False)
    if colour == "log":
        return 0.0 if t <= 0 else float(FLOOR ** (1 - t))
    return t * t if colour == "sqrt" else t


def entropy_figure(panels: MapPanels, dark: bool = False) -> go.Figure:
    """Entropy of every row under the two scores, with its bound: log of how many keys the row may see."""
    length, keys = len(panels.tokens), len(panels.columns)
    count = np.arange(1, length + 1) if panels.causal else np.full(length, keys)
    figure = go.Figure()
    numbers = list(panels.numbers)
    lines = list(zip(panels.titles, panels.entropy, strict=True))[: 1 if panels.single else 2]
    for index, (title, values) in enumerate(lines):
        figure.add_scatter(x=numbers, y=values, name=theme.label(title), mode="lines+markers", **theme.style(index))
    if not panels.positions and panels.hidden is None:
        figure.add_scatter(
            x=numbers, y=np.log(count), name="log of the keys in sight", mode="lines",
            line={"color": theme.MUTED[dark], "dash": "dot", "width": 1},
        )  # fmt: skip
    ticks = theme.ticks(panels.tokens, 48)
    if panels.positions:
        ticks |= {"tickvals": [panels.positions[t] for t in ticks["tickvals"]], "range": [numbers[0], numbers[-1]]}
    figure.update_xaxes(**ticks, autotickangles=theme.SLANT, title_text="query i (token)")
    figure.update_yaxes(title_text="entropy (nats)", rangemode="tozero")
    figure.update_layout(title_text=_title(f"Entropy by row, {panels.heading}", panels), height=340)
    return theme.dress(figure, dark)


def table(panels: MapPanels) -> pd.DataFrame:
    """The allowed (query, key) cells, one a row: made only when someone downloads it. Of a pooled map its bins."""
    rows, columns = np.nonzero(panels.allowed)
    left, right = panels.left[rows, columns], panels.right[rows, columns]
    both = {panels.titles[1]: right, "difference": panels.difference[rows, columns]} if not panels.single else {}
    tokens, keys = (np.asarray(labels, dtype=object) for labels in (panels.tokens, panels.columns))
    size = panels.factor
    numbers, key_numbers = np.asarray(panels.numbers), np.asarray(panels.key_numbers)
    where: dict[str, Any] = {"query": numbers[size * rows], "key": key_numbers[size * columns]}
    if panels.pooled:
        last = {"query": (rows, len(tokens)), "key": (columns, len(keys))}
        where |= {f"last_{name}": np.minimum(size * (at + 1), count) - 1 for name, (at, count) in last.items()}
    where |= {"query_token": tokens[size * rows], "key_token": keys[size * columns]}
    return pd.DataFrame({**where, panels.titles[0]: left, **both})


def patch_grid(tokens: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Rows and columns of the patches, and how many tokens stand before them; None where tokens are no patches."""
    places = [token.removeprefix("patch ").split(",") for token in tokens if token.startswith("patch ")]
    if not places or not all(len(place) == 2 and "".join(place).isdecimal() for place in places):
        return None
    rows, columns = (1 + max(int(place[axis]) for place in places) for axis in (0, 1))
    return (rows, columns, len(tokens) - len(places)) if rows * columns == len(places) else None


def patches_figure(panels: MapPanels, row: int, dark: bool = False) -> go.Figure:
    """One row of the maps on the picture's patches: what the query ``row`` attends to, where it lies.

    Raises ``ValueError`` for keys that are no patches.
    """
    grid = patch_grid(panels.columns)
    if grid is None:
        raise ValueError("got keys that are no patches, expected tokens named patch r,c")
    rows, columns, before = grid
    count = 1 if panels.single else 3
    titles = [theme.label(title) for title in panels.all_titles[:count]]
    figure = make_subplots(1, count, subplot_titles=titles, horizontal_spacing=0.06)
    for place, cells in enumerate((panels.left, panels.right, panels.difference)[:count], start=1):
        figure.add_heatmap(
            z=cells[row, before:].reshape(rows, columns), row=1, col=place,
            coloraxis="coloraxis2" if place == 3 else "coloraxis",
            hovertemplate="patch %{y},%{x}<br>%{z:.6f}<extra></extra>",
        )  # fmt: skip
        figure.update_yaxes(scaleanchor=f"x{place if place > 1 else ''}", autorange="reversed", col=place)
    figure.update_xaxes(
        title_text="column of the patch", constrain="domain", showgrid=False, dtick=max(1, columns // 8)
    )
    figure.update_yaxes(constrain="domain", showgrid=False, dtick=max(1, rows // 8))
    figure.update_yaxes(title_text="row of the patch", col=1)
    _bars(figure, panels)
    heading = f"Query ({panels.numbers[row]}) {panels.tokens[row]}: attention on the picture"
    figure.update_layout(title_text=_title(heading, panels), height=400, margin={"t": 80, "b": 110})
    return theme.dress(figure, dark)
