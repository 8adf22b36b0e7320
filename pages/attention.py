"""Attention of any head under two scores, beside their difference; all heads at once; what the score's terms do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from app import attention, attention_atlas, frame, widgets
from app.attention_sections import (
    attending,
    draw_atlas,
    draw_maps,
    draw_own,
    draw_ranking,
    draw_terms,
    missing_scores,
)
from app.view import View


def places(view: View, choice: attention.Choice) -> list[tuple[Any, Any]]:
    """Where each side's atlas and ranking stand: beside each other, or below where two sides or many layers want it."""
    if choice.single or any(side.layers > attention.WIDE for side in view.sides):
        return [(st.container(), st.container()) for _ in view.sides]
    if view.compare:
        return [(column, column) for column in st.columns(2)]
    left, right = st.columns([3, 2])
    return [(left, right)]


def draw_every_head(view: View, choice: attention.Choice) -> None:
    """The atlas of each side, and its heads by how far the scores lead them apart."""
    several = attention_atlas.atlases(view, choice, attention.pick_tile(choice))
    for (left, right), side, shown in zip(places(view, choice), view.sides, several, strict=True):
        with left:
            draw_atlas(view, side, choice, shown)
        if not choice.single:
            with right:
                draw_ranking(view, side, choice)


view = frame.open_page("Attention")
sides = attending(view)
if not sides:
    st.stop()
view = replace(view, sides=sides)
choice = attention.choose(view)
for why in dict.fromkeys(filter(None, map(missing_scores, view.sides))):
    st.caption(widgets.plain(why))
overview = st.container()  # above the maps on the page, but filled after them: the maps are what one waits for

if view.compare:
    draw_own(view, choice)
several = attention.same_scales([attention.panels(side, choice, view.token, view.marked) for side in view.sides])
for side, panels in zip(view.sides, several, strict=True):
    draw_maps(side, panels, choice, key=f"maps-{side.name}")

widgets.send()
with overview:
    if attention.wanted(view, "Every head at once"):
        with st.spinner("Drawing every head"):
            draw_every_head(view, choice)

st.subheader("Terms of the score", anchor=False)
if attention.wanted(view, "The terms as maps"):
    draw_terms(view)
widgets.footnotes(view)
