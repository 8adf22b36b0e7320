"""All heads of all layers: what the atlas component draws, its Plotly twin, the ranked table; the score's terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures import theme
from app.figures.colour_scales import bent

GAP = 0.06
"""Between two tiles of the twin, in tiles."""


@dataclass(frozen=True)
class HeadAtlas:
    """One tile a head: a max-pooled map of n x m cells, or one number (n = m = 1).

    Where some layers have no attention, ``layers`` are the true numbers of those that stand here; where some have fewer
    heads, ``heads`` are theirs, and the tiles beyond are empty.
    """

    cells: np.ndarray  # (layer, head, n, m) float32, NaN where not finite
    causal: bool  # the cells above a tile's diagonal are masked
    readings: np.ndarray  # (layer, head): what the cursor reads out
    readings_name: str
    chosen: tuple[int, int]  # true numbers
    title: str
    unit: str
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    name: str = "head-atlas"
    note: str = ""
    colour: str = "sqrt"
    diverging: bool = False
    ceiling: float | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The true number of each layer."""
        return self.layers or tuple(range(self.cells.shape[0]))

    @property
    def counts(self) -> tuple[int, ...]:
        """How many heads each layer has."""
        return self.heads or (self.cells.shape[1],) * self.cells.shape[0]

    @property
    def shown(self) -> np.ndarray:
        """The cells with NaN where they are masked, and where a layer has no such head."""
        masked = np.triu(np.ones(self.cells.shape[-2:], dtype=bool), 1) & self.causal
        absent = np.arange(self.cells.shape[1]) >= np.array(self.counts)[:, None]
        return np.where(masked | absent[..., None, None], np.float32(np.nan), self.cells)

    @property
    def place(self) -> tuple[int, int]:
        """Column and row of the chosen head's tile; column -1 where its layer does not stand here."""
        layer, head = self.chosen
        return (self.numbers.index(layer) if layer in self.numbers else -1), head

    def top(self) -> float:
        """The ceiling of the colour scale: given, or the largest magnitude."""
        finite = np.abs(self.shown[np.isfinite(self.shown)])
        return self.ceiling or float(finite.max(initial=0.0)) or 1.0


def atlas_figure(atlas: HeadAtlas, dark: bool = False) -> go.Figure:
    """The twin: one heat map in which tiles are one unit wide, layers from left to right, heads from top to bottom."""
    layers, heads, rows, columns = atlas.cells.shape
    across, down = (np.linspace(-0.5 + GAP / 2, 0.5 - GAP / 2, count + 1) for count in (columns, rows))
    mosaic = np.full((heads * (rows + 1), layers * (columns + 1)), np.nan, np.float32)
    for layer in range(layers):
        for head in range(heads):
            top, left = head * (rows + 1), layer * (columns + 1)
            mosaic[top : top + rows, left : left + columns] = atlas.shown[layer, head]
    x = np.concatenate([place + across for place in range(layers)])
    y = np.concatenate([place + down for place in range(heads)])
    figure = go.Figure(
        go.Heatmap(z=mosaic[:-1, :-1], x=x, y=y, coloraxis="coloraxis", hoverongaps=False,
                   hovertemplate="tile %{x:.0f}, head %{y:.0f}<br>%{z:.4f}<extra></extra>")
    )  # fmt: skip
    layer, head = atlas.place
    figure.add_shape(type="rect", x0=layer - 0.5, x1=layer + 0.5, y0=head - 0.5, y1=head + 0.5,
                     line={"color": theme.CATEGORIES[1], "width": 3})  # fmt: skip
    scale = theme.DIVERGING if atlas.diverging else theme.SEQUENTIAL
    low = -atlas.top() if atlas.diverging else 0
    bar = {"title": {"text": theme.label(f"{atlas.unit} ({atlas.colour} colour)"), "side": "right"}, "thickness": 10}
    figure.update_layout(
        coloraxis={
            "colorscale": bent(scale, atlas.colour, atlas.diverging), "cmin": low, "cmax": atlas.top(), "colorbar": bar,
        },
        title_text=theme.label(f"{atlas.title} — {atlas.note}" if atlas.note else atlas.title), height=110 + 90 * heads,
    )  # fmt: skip
    names = {
        "tickmode": "array",
        "tickvals": list(range(layers)),
        "ticktext": [str(number) for number in atlas.numbers],
    }
    figure.update_xaxes(title_text="layer", **names, range=[-0.5, layers - 0.5], showgrid=False, constrain="domain")
    figure.update_yaxes(
        title_text="head", dtick=1, range=[heads - 0.5, -0.5], showgrid=False, scaleanchor="x", constrain="domain"
    )
    return theme.dress(figure, dark)


def ranked(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row a head from (layer, head) arrays, sorted by the first column, largest first; not-finite rows last."""
    first = next(iter(columns.values()))
    layer, head = np.indices(first.shape).reshape(2, -1)
    frame = pd.DataFrame({"layer": layer, "head": head} | {name: values.ravel() for name, values in columns.items()})
    return frame.sort_values(next(iter(columns)), ascending=False, kind="stable", ignore_index=True)


def shares_figure(
    shares: dict[str, np.ndarray], terms: tuple[str, ...], heading: str, note: str = "", dark: bool = False
) -> go.Figure:
    """The share of each term in the row-centred variance of the score, one bar a term and checkpoint."""
    figure = go.Figure()
    for index, (name, values) in enumerate(shares.items()):
        figure.add_bar(
            y=list(terms), x=values, orientation="h", name=theme.label(name), text=[f"{value:.3f}" for value in values],
            textposition="outside", cliponaxis=False, showlegend=len(shares) > 1,
            marker={"color": theme.CATEGORIES[index], "pattern": {"shape": ["", "/"][index % 2]}},
        )  # fmt: skip
    everything = np.concatenate([np.zeros(1), *[values[np.isfinite(values)] for values in shares.values()]])
    low, high = float(everything.min()), max(float(everything.max()), 0.05)
    room = 0.18 * (high - low)
    figure.add_vline(x=0, line={"color": theme.MUTED[dark], "width": 1})
    figure.update_xaxes(
        title_text="share of the row-centred variance of the score", range=[low - room * (low < 0), high + room]
    )
    figure.update_yaxes(autorange="reversed", title_text="term")
    figure.update_layout(title_text=theme.label(heading), height=350 if note else 330, bargap=0.35)
    return theme.note(theme.dress(figure, dark), note)


def terms_figure(
    terms: dict[str, np.ndarray], tokens: tuple[str, ...], heading: str, note: str = "", dark: bool = False,
    keys: tuple[str, ...] = (),
) -> go.Figure:  # fmt: skip
    """Each term of the score as a map, minus its mean over the keys in sight of the row; one scale symmetric about 0.

    ``terms`` maps a title to (n, m) float32, NaN where masked, and holds one at least; ``tokens`` labels the n rows
    and ``keys`` the m columns, where they are others. ``note`` says why this is not what the model ran.
    """
    titles = [theme.label(title) for title in terms]
    figure = make_subplots(1, len(terms), subplot_titles=titles, horizontal_spacing=0.02, shared_yaxes=True)
    finite = np.concatenate([np.abs(cells[np.isfinite(cells)]) for cells in terms.values()] + [np.zeros(1)])
    top = float(finite.max()) or 1.0
    for column, cells in enumerate(terms.values(), start=1):
        figure.add_heatmap(
            z=cells, coloraxis="coloraxis", hoverongaps=False, row=1, col=column,
            hovertemplate="query %{y}, key %{x}<br>%{z:+.4f} nats<extra></extra>",
        )  # fmt: skip
    side = min(330, 850 // len(terms))  # pixels of a map on a page of usual width: more height would stay empty
    most, shared = max(4, side // 22), {"constrain": "domain", "title_font": {"size": 12}}
    shared |= {"tickfont": {"size": 11}, "showgrid": False}
    columns, rows = theme.ticks(keys or tokens, most), theme.ticks(tokens, most)
    low, high = rows.pop("range")
    figure.update_xaxes(**columns, **shared, matches="x", tickangle=-90)
    figure.update_yaxes(**rows, **shared, range=[high, low], matches="y", constraintoward="top")
    for column in range(1, len(terms) + 1) if not keys or keys == tokens else ():
        figure.update_yaxes(scaleanchor=f"x{column if column > 1 else ''}", col=column)
    figure.update_xaxes(title_text="key j (token)", row=1, col=(len(terms) + 1) // 2)
    figure.update_yaxes(title_text="query i (token)", col=1)
    words = {"text": "nats, signed √ colour", "side": "right", "font": {"size": 11}}
    bar = {"title": words, "thickness": 10, "tickfont": {"size": 11}}
    figure.update_annotations(font_size=13)  # the panels' titles
    figure.update_layout(
        coloraxis={"colorscale": bent(theme.DIVERGING, "sqrt", True), "cmin": -top, "cmax": top, "colorbar": bar},
        title_text=theme.label(heading),
    )  # fmt: skip
    above, below = (100 if note else 70), 72
    theme.note(theme.dress(figure, dark), note)
    return figure.update_layout(height=above + side + below, margin={"t": above})
