"""Says whether the browser's page is dark or light, and runs the page again when that changes.

Streamlit's own ``st.context.theme`` knows it when a session starts, and not when the theme is changed afterwards; the
colours of a Plotly figure are made in Python.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

KEY = "theme-watch"


@cache
def _component() -> Any:
    return component("theme_watch", js=(Path(__file__).parent / "theme_watch.js").read_text())


def theme_watch() -> str:
    """``dark`` or ``light``. Nothing to see: place it where a gap does not matter."""
    reported = st.session_state.get(KEY, {}).get("theme")
    known = reported or st.context.theme.type or "light"
    return _component()(key=KEY, data=known, on_theme_change=lambda: None).theme or known
