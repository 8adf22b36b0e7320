"""Buttons that make PNG and SVG of a Plotly figure in the browser, as it is seen: its zoom, its camera."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

HERE = Path(__file__).parent


@cache
def _component() -> Any:
    return component(
        "figure_export",
        html='<div class="bar"></div>',
        css=(HERE / "figure_export.css").read_text(),
        js=(HERE / "figure_export.js").read_text(),
    )


def figure_export(chart: str, name: str) -> None:
    """PNG, SVG, and SVG at a journal's column width (3.25 in) of the chart whose Streamlit key is ``chart``."""
    _component()(key=f"{chart}-image", data={"chart": f"st-key-{chart}", "name": name})
