"""What is stored: every tensor in a table, the spectrum and the values of a chosen one, norms by layer.

The one page that needs no model: a file without a configuration has it all the same.
"""

from __future__ import annotations

import streamlit as st

from app import frame, weights_panels

frame.open_text_page("Weights")
with frame.guard():
    shown = weights_panels.sides()
    if not shown:
        st.stop()
    rows = [weights_panels.tensors(side) for side in shown]
    st.subheader("One tensor", anchor=False)
    picked = weights_panels.chosen(shown)
    found = weights_panels.measured(picked)
    left, right = st.columns([3, 2]) if found else (None, st.container())
    if left is not None:
        with left:
            weights_panels.spectrum(picked, found)
    with right:
        weights_panels.values(picked)
    st.subheader("By layer", anchor=False)
    weights_panels.norms(shown, rows)
