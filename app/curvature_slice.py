"""The field on the plane through three chosen tokens: its choices and its panel."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import curvature, widgets
from app.choices import pick
from app.curvature import Choice
from app.curvature_cells import Cut, field_on
from app.figures import fields
from app.figures.curvature import bound, tell
from app.figures.fields import SliceField
from app.side import Side
from app.view import View
from fbt_core.geometry.model_field import field_heads
from fbt_core.geometry.slice import QUANTITIES, Plane

ASKED = 15_000
"""Cells, by their weight, above which a plane is computed only when asked for."""

CELLS = {"coarse": 17, "fine": 33, "finest": 65}
"""Cells of the longer side of the picture."""

KINK = (
    "A sharp edge in the colours is where $\\lVert U \\rVert_F^2$ meets its ceiling: there $g$ has a kink, and the "
    "curvature jumps. "
)
"""Of a MetricNet, whose ceiling is hard."""

WHOLE = 0.9995
"""Of the way to the other tokens: from here on the slice is said to hold all of it."""


def choose(view: View, choice: Choice) -> Cut | None:
    """The panel's toolbar; None, and the reason on the page, for a text of fewer than three tokens."""
    length = min(len(side.tokens) for side in view.sides)
    if length < 3:
        st.info("A plane needs three tokens: write a longer text.")
        return None
    names = [f"({index}) {token}" for index, token in enumerate(view.a.tokens[:length])]
    first = usual(view, length)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        quantity = pick("On the plane", "field", QUANTITIES, "scalar", 290, lambda name: QUANTITIES[name].title)
        tokens = tuple(
            pick(f"Token {place}", f"corner{place}", range(length), index, 150, names.__getitem__)
            for place, index in enumerate(first, 1)
        )
        heavy = any(curvature.weight(side, choice.reading) > 1 for side in view.sides)
        fine = pick("Grid", "grid", CELLS, "coarse" if heavy else "fine", 110)
    return Cut(choice.reading, tokens, quantity, CELLS[fine], choice.planes)


def usual(view: View, length: int) -> tuple[int, int, int]:
    """The first three marked tokens; else the selected one and two others, apart from it and from each other."""
    if len(view.marked) >= 3:
        return view.marked[:3]
    others = [place for place in (length - 1, length // 2, length // 3, 0, 1, 2) if place != view.token]
    second, third = list(dict.fromkeys(others))[:2]
    return view.token, second, third


def draw(view: View, choice: Choice) -> None:
    """The plane of each side, on one colour scale."""
    st.subheader("The field between three tokens", anchor=False)
    cut = choose(view, choice)
    if cut is None:
        return
    cost = sum(curvature.weight(side, cut.reading) * cut.cells**2 for side in view.sides)
    if cost > ASKED and cut.quantity != "volume" and not st.toggle(
        f"Compute {len(view.sides) * cut.cells**2:,} cells: minutes", key="compute-plane", bind="query-params",
        help="It shows its progress, can be stopped, and goes on where it was. The log volume element is quick.",
    ):  # fmt: skip
        return
    drawn = [(side, *found) for side in view.sides if (found := field_on(side, cut)) is not None]
    if not drawn:
        return
    top = bound([field.values for _, field, _ in drawn])
    finite = np.concatenate([field.values[np.isfinite(field.values)] for _, field, _ in drawn])
    low = float(finite.min()) if finite.size else 0.0
    for column, (side, field, plane) in zip(st.columns(len(drawn)), drawn, strict=True):
        with column:
            _panel(side, cut, field, plane, top, low, 600 if len(drawn) == 1 else 480)


def _panel(side: Side, cut: Cut, field: SliceField, plane: Plane, top: float, low: float, width: int) -> None:
    row = QUANTITIES[cut.quantity]
    shared = "the stream's metric" if side.trace.source == "fisher" else "whole stream"
    head = f", head {side.head}" if field_heads(side.trace, cut.reading) is not None else f", {shared}"
    figure = fields.slice_figure(
        field, f"{row.title} · {side.title}", f"{row.title} ({row.unit})", top, 0.0 if row.signed else low,
        width,
    )  # fmt: skip
    sampled = f"{cut.planes} random planes a cell" if (field.error > 0).any() else "exact in each cell"
    told = [f"layer {side.layer}{head}; {field.values.shape[1]} × {field.values.shape[0]} cells, {sampled}"]
    if plane.inside < WHOLE:
        told.append(
            f"plane in token 1's slice, which holds {100 * plane.inside:.0f} % of the way to the others (squared)"
        )
    tell(figure, told, side.what_if)
    caption = (
        f"${row.symbol}$: {row.meaning} Ellipses: the unit ball $v^\\top h v \\le 1$ of the metric $h$ that the plane "
        "has, short where distance is expensive, inside that of $g = I$ (dotted). "
    )
    caption += KINK if row.signed and side.trace.source != "fisher" else ""
    caption += (
        "The plane holds all three tokens as they are." if plane.inside >= WHOLE else
        "The other two tokens stand where their coordinates in the slice are; what of them lies outside it stays that "
        "of token 1, so the values at their stars are not those of the maps above."
    )  # fmt: skip
    name = f"slice-{cut.quantity}-{side.name}"
    widgets.show(figure, lambda: fields.table(field, cut.quantity), f"slice-{side.name}", caption, name)
