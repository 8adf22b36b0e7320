"""What a file truly is, from its headers alone, as a card: shown when it arrives, and on the Overview page."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app import loading, widgets

MOST = 12
"""Names listed of each kind; the number of all is said."""


def card(reference: str, key: str) -> None:
    """Format, size, memory, keys, and what the app can do with it. Everything that a file chose is shown as text."""
    found = loading.inspection(reference)
    st.markdown(f"**{widgets.plain(found.format or 'Unknown format')}**")
    st.text(found.message)
    with st.container(horizontal=True, gap="large"):
        for title, value, beside in numbers(found):
            with st.container(width="content", gap=None):
                st.metric(title, value, width="content")
                st.caption(widgets.plain(beside), width="content")
    rows = details(found)
    if rows:
        table = pd.DataFrame({"": rows.keys(), "what the headers say": rows.values()})
        st.dataframe(table, hide_index=True, key=f"inspection-{key}", height=36 * min(len(table) + 1, 9))
    if found.can:
        st.caption(widgets.plain(" ".join(found.can)))


def numbers(found: Any) -> list[tuple[str, str, str]]:
    """Title, value and a line to hold it against, of an ``Inspection``."""
    if not found.tensors:
        return [("Size", size(found.bytes), "on disk")]
    shown = [
        ("Tensors", f"{found.tensors:,}", ", ".join(f"{kind} × {count:,}" for kind, count in found.dtypes.items())),
        ("Parameters", short(found.parameters), f"{found.parameters:,} numbers"),
        ("Size", size(found.bytes), "on disk"),
    ]
    if found.needed_bytes:
        shown.append(("Memory to open it", size(found.needed_bytes), f"{size(found.available_bytes)} free"))
    return shown


def details(found: Any) -> dict[str, str]:
    """What is remarkable, a row each; what is as usual is left out."""
    listed = {
        "architecture": found.architecture, "quantisation": found.quantisation, "tied": found.tied,
        "missing": found.missing, "unexpected": found.unexpected, "prefixes stripped": found.prefixes,
        "state dicts in it": found.parts, "objects left out, never executed": found.ignored,
    }  # fmt: skip
    return {title: value if isinstance(value, str) else names(value) for title, value in listed.items() if value}


def names(found: Any) -> str:
    """The first few of a list, and how many there are."""
    rest = f" and {len(found) - MOST:,} more" if len(found) > MOST else ""
    return ", ".join(str(name)[:120] for name in list(found)[:MOST]) + rest


def short(count: int) -> str:
    """``22.7 M``."""
    for limit, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)


def size(count: int) -> str:
    """``1.3 GB``."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count} bytes"
