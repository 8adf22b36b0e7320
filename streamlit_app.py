"""Fiberscope: the geometry inside a transformer, in the browser. Start with ``streamlit run streamlit_app.py``.

Streamlit reads this file twice: once as a module, for the server with its upload route; and at every view of a page as
the script that draws it.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

PAGES = {
    "Overview": "pages/overview.py",
    "Ellipsoid field": "pages/ellipsoids.py",
    "Attention": "pages/attention.py",
    "Depth": "pages/depth.py",
    "Curvature": "pages/curvature.py",
    "Geodesics": "pages/geodesics.py",
    "Torsion and transport": "pages/torsion.py",
    "Cloud": "pages/cloud.py",
    "Claims": "pages/claims.py",
    "Collapse": "pages/collapse.py",
    "Weights": "pages/weights.py",
    "Glossary": "pages/glossary.py",
}
"""To add a page: write the file, add its row."""

if __name__ == "__main__":
    ICON = str(Path(__file__).parent / "assets" / "icon.svg")
    st.set_page_config(page_title="Fiberscope", page_icon=ICON, layout="wide", initial_sidebar_state="expanded")
    st.logo(ICON, size="large")
    page = st.navigation([st.Page(path, title=title) for title, path in PAGES.items()], position="top")

    # After the page has its frame: the first visitor of a server waits for torch to be imported.
    from app import frame, warming

    frame.begin()
    with frame.guard():
        page.run()
    warming.DRAWN.set()
else:
    from app import server

    asgi = st.App(Path(__file__).name, routes=server.routes(), lifespan=server.lifespan)
