"""Attention of any head under two scores, beside their difference; all heads at once; what the score's terms do."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from app import attention, frame, widgets
from app.attention_choice import choose, wanted
from app.attention_heads import draw_every_head
from app.attention_sections import attending, draw_maps, draw_own
from app.attention_terms import draw_terms
from app.attention_words import missing_scores

view = frame.open_page("Attention")
sides = attending(view)
if not sides:
    st.stop()
view = replace(view, sides=sides)
choice = choose(view)
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
    if wanted(view, "Every head at once"):
        with st.spinner("Drawing every head"):
            draw_every_head(view, choice)

st.subheader("Terms of the score", anchor=False)
if wanted(view, "The terms as maps"):
    draw_terms(view)
widgets.footnotes(view)
