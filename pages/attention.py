"""Attention of any head under two scores, beside their difference; all heads at once; what the score's terms do."""

from __future__ import annotations

import streamlit as st

from app import attention, frame
from app.attention_sections import draw_atlas, draw_maps, draw_own, draw_ranking, draw_terms

view = frame.open_page("Attention")
choice = attention.choose(view)
overview = st.container()  # above the maps on the page, but filled after them: the maps are what one waits for

if view.compare:
    draw_own(view, choice)
several = attention.same_scales([attention.panels(side, choice, view.token) for side in view.sides])
for side, panels in zip(view.sides, several, strict=True):
    draw_maps(panels, choice, key=f"maps-{side.name}")

with overview, st.spinner("Drawing every head"):
    atlases = attention.atlases(view, choice, attention.pick_tile())
    columns = st.columns([1, 1] if view.compare else [3, 2])
    for index, side in enumerate(view.sides):
        with columns[index]:
            draw_atlas(view, side, choice, atlases[index])
        with columns[index if view.compare else 1]:
            draw_ranking(view, side, choice)

st.subheader("Terms of the score", anchor=False)
draw_terms(view)
