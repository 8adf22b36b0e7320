"""The paper's claims, each a check on the open checkpoint and a text, with a verdict and what would have changed it."""

from __future__ import annotations

import streamlit as st

from app import claims, claims_table, frame, widgets
from app.claims_panels import opened

view = frame.open_page("Claims")
st.caption(
    "What the paper says, each sentence as a check on the checkpoint that is open, with the threshold and its reason "
    "fixed beforehand. A verdict is of this checkpoint and this text; none is a proof."
)
asked = claims.choose(view)
line = st.container()
place = st.empty()
with place.container():
    claims_table.table(view, asked)
with line:
    claims.run(view, asked, place)
with st.container():  # always there: a chooser whose place on the page moves would forget the link
    claims_table.export(view, asked)
opened(view, asked)
claims_table.remarks(view, asked)
widgets.footnotes(view)
