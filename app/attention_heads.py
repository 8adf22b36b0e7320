"""Every head at once on the attention page: the atlas of each side, and its heads ranked."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from app import widgets
from app.attention_atlas import atlases, variation, variation_table
from app.attention_choice import Choice, pick_tile
from app.attention_words import note
from app.components.head_atlas import head_atlas
from app.figures.atlas import HeadAtlas, atlas_figure, ranked
from app.side import Side
from app.view import View

WIDE = 14
"""Layers above which the atlas takes the whole width."""


def draw_every_head(view: View, choice: Choice) -> None:
    """The atlas of each side, and its heads by how far the scores lead them apart."""
    several = atlases(view, choice, pick_tile(choice))
    for (left, right), side, shown in zip(_places(view, choice), view.sides, several, strict=True):
        with left:
            draw_atlas(view, side, choice, shown)
        if not choice.single:
            with right:
                draw_ranking(view, side, choice)


def _places(view: View, choice: Choice) -> list[tuple[Any, Any]]:
    """Where each side's atlas and ranking stand: beside each other, or below where two sides or many layers want it."""
    if choice.single or any(side.layers > WIDE for side in view.sides):
        return [(st.container(), st.container()) for _ in view.sides]
    if view.compare:
        return [(column, column) for column in st.columns(2)]
    left, right = st.columns([3, 2])
    return [(left, right)]


def draw_atlas(view: View, side: Side, choice: Choice, shown: HeadAtlas) -> None:
    """All heads of a side; a click opens one."""
    picked = head_atlas(shown, key=f"atlas-{side.name}")
    caption = "Every head of every layer, max-pooled so that no hot cell is lost; masked cells have the page's colour."
    dark = widgets.is_dark()
    widgets.below(
        f"atlas-{side.name}", lambda: atlas_figure(shown, dark), lambda: variation_table(side, choice), caption,
        shown.name, seen=False,
    )  # fmt: skip
    if picked:
        widgets.open_head(view, side, *picked)


def draw_ranking(view: View, side: Side, choice: Choice) -> None:
    """Heads by how far the two scores lead them apart; choosing a row opens that head."""
    rows = variation(side, choice)
    largest = np.where(np.isnan(rows), -1.0, rows).argmax(-1)
    frame = ranked({"mean": rows.mean(-1), "largest": rows.max(-1), "at query": largest})
    there = [head < side.trace.layers[layer].heads for layer, head in zip(frame["layer"], frame["head"], strict=True)]
    frame = frame[np.array(there)].reset_index(drop=True)
    names = [widgets.plain(choice.title(side, score)) for score in (choice.left, choice.right)]
    st.markdown(f"**Heads by total variation**, {names[0]} against {names[1]}")
    what_if = note(side, choice, choice.left, choice.right)
    if what_if:
        st.markdown(f":orange[{widgets.plain(what_if)}]")
    key = f"ranking-{side.name}"
    event = st.dataframe(
        frame, hide_index=True, key=key, on_select="rerun", selection_mode="single-row", height=330, width="stretch",
        column_config={
            "layer": st.column_config.NumberColumn(width=50), "head": st.column_config.NumberColumn(width=50),
            "mean": st.column_config.ProgressColumn("mean TV", min_value=0.0, max_value=1.0, format="%.4f", width=110),
            "largest": st.column_config.NumberColumn(format="%.4f", width=65, help="TV of the row where it is largest"),
            "at query": st.column_config.NumberColumn("query", width=55, help="The row of the largest TV"),
        },
    )  # fmt: skip
    st.caption(
        r"$\mathrm{TV}_i = \frac12 \sum_j |a_{ij} - b_{ij}|$, mean over rows, in $[0, 1]$. Choose a row to open it."
    )
    chosen = tuple(event["selection"]["rows"])
    if chosen and st.session_state.get(f"{key}-opened") != chosen:  # a selection lasts; it opens its head once
        st.session_state[f"{key}-opened"] = chosen
        row = frame.iloc[chosen[0]]
        widgets.open_head(view, side, int(row["layer"]), int(row["head"]))
    if not chosen:
        st.session_state.pop(f"{key}-opened", None)
