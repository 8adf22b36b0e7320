"""Fiberscope: the geometry inside a transformer, in the browser. Start with ``streamlit run streamlit_app.py``."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app import frame

HERE = Path(__file__).parent
ICON = str(HERE / "assets" / "icon.svg")

PAGES = {
    "Overview": "pages/overview.py",
    "Ellipsoid field": "pages/ellipsoids.py",
    "Attention": "pages/attention.py",
    "Depth": "pages/depth.py",
    "Glossary": "pages/glossary.py",
}
"""To add a page: write the file, add its row."""

st.set_page_config(page_title="Fiberscope", page_icon=ICON, layout="wide", initial_sidebar_state="expanded")
st.logo(ICON, size="large")
page = st.navigation([st.Page(path, title=title) for title, path in PAGES.items()], position="top")
frame.begin()
with frame.guard():
    page.run()
