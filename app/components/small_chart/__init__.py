"""An SVG of our own making, in the page's colours: Streamlit's own HTML and images allow no such thing."""

from __future__ import annotations

from functools import cache
from typing import Any

from streamlit.components.v2 import component

# The SVG comes from app.figures.sparkline, which lets numbers and escaped labels in and nothing else.
JS = "export default ({ data, parentElement }) => { parentElement.querySelector('.chart').innerHTML = data; };"
CSS = ".chart { color: var(--st-text-color); font-family: var(--st-font); width: 100%; }"


@cache
def _component() -> Any:
    return component("small_chart", html='<div class="chart"></div>', css=CSS, js=JS)


def small_chart(svg: str, key: str) -> None:
    """Draw an SVG string that this app made, never one from a user."""
    _component()(key=key, data=svg)
