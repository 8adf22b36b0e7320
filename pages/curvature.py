"""The curvature of the metric field, beside the proxy that is called curvature: over tokens, layers, and a plane."""

from __future__ import annotations

import streamlit as st

from app import curvature, curvature_maps, curvature_panels, curvature_planes, curvature_slice, frame, widgets
from app.curvature_truth import TRUTHS
from app.view import View


@st.fragment
def plane(view: View, choice: curvature.Choice) -> None:
    """The field between three tokens, which has choices of its own."""
    with frame.guard():
        curvature_slice.draw(view, choice)


view = frame.open_page("Curvature")
toolbar, choice = st.container(), curvature.USUAL
curved = curvature_panels.with_field(view)
if curved.sides:
    with toolbar:
        choice = curvature.choose({name: truth.title for name, truth in TRUTHS.items()})
found = curvature_panels.computed(curved, choice)
if found:
    curvature_panels.tell(found)
    curvature_panels.compared(view, choice, found)
    curvature_maps.draw(view, choice, found)
    curvature_maps.difference(view, choice, found)
    curvature_planes.draw(view, choice, found)
fields = curvature_panels.functions(curved)
left, right = st.columns([3, 2]) if len(fields.sides) == 1 else (st.container(), st.container())
with left:
    if fields.sides:
        plane(fields, choice)
with right:
    curvature_maps.volume(view, choice, found)
widgets.footnotes(view)
