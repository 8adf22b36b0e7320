"""A row of attention maps on the picture that a model sees: each key at its patch's place."""

from __future__ import annotations

import plotly.graph_objects as go

from app.figures import theme
from app.figures.map_figures import bars, subplots, titled
from app.figures.maps import MapPanels


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
    figure = subplots(panels, 0.06)
    for place, cells in enumerate(panels.shown, start=1):
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
    bars(figure, panels)
    heading = f"Query ({panels.numbers[row]}) {panels.tokens[row]}: attention on the picture"
    figure.update_layout(title_text=titled(heading, panels), height=400, margin={"t": 80, "b": 110})
    return theme.dress(figure, dark)
