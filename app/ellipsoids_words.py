"""Under the ellipsoid field: what a glyph is, in words, and the table of one side or of both."""

from __future__ import annotations

import numpy as np
import pandas as pd

from app import token_measures
from app.ellipsoids import Choice
from app.figures.ellipsoid_view import EllipsoidView
from fbt_core.geometry.ellipsoid import EllipsoidField


def caption(choice: Choice, field: EllipsoidField, whole: bool = False) -> str:
    """The equation of the glyph and of its colour. ``whole``: the residual stream's metric is not its heads'."""
    colour = token_measures.LOSS_CAPTION.removesuffix(".")
    if row := token_measures.PER_TOKEN.get(choice.colour):
        colour = f"${row.symbol} = {row.equation}$, its range over all layers"
    return (
        f"{_drawn(choice, field, whole)}, at each token's position relative to the mean token. Colour: {colour}. The "
        "grey sphere is the unit ball of $g = I$ at the same scale. Drag turns, shift-drag moves, wheel zooms, double "
        "click shows all; a click selects the token everywhere."
    )


def _drawn(choice: Choice, field: EllipsoidField, whole: bool) -> str:
    """The metric and the surface that is drawn of it, every symbol explained."""
    if not field.has_metric:
        return "No metric here, $g = I$: every glyph is the unit ball"
    blocks = choice.space == "residual" and not whole
    where = r"$g = I + \mathrm{blockdiag}_h(U_h U_h^\top)$ over all heads $h$" if blocks else r"$g = I + U U^\top$"
    symbols = "the rows of $P$ are the drawn directions"
    if choice.shape == "metric frame":
        symbols = (
            r"$u_m$ are the eigenvectors of the three largest; $\hat u_m$ are the orthonormal directions nearest "
            r"to their projections on the picture, weighted by $\lambda_m - 1$"
        )
    return f"{where}; drawn is ${field.equation}$, where {symbols}"


def both(shown: list[EllipsoidView], titles: list[str]) -> pd.DataFrame:
    """What the bars of B minus A show: one row a token, the colour measure of A, of B and their difference."""
    a, b = shown
    constant = {"measure": b.value_title, "checkpoint_A": titles[0], "checkpoint_B": titles[1]}
    constant |= {
        f"{name}_{view.facts['side']}": view.facts[name]
        for name in ("layer", "head", "strength", "what_if") for view in shown
    }  # fmt: skip
    values = {"A": a.values, "B": b.values, "B − A": b.values - a.values}
    tokens = {"token": np.arange(len(b.tokens)), "text": list(b.tokens)}
    return pd.DataFrame({**tokens, **values, "space": b.facts["space"], **constant})
