"""What the four rules say of the collapse experiment: a card each, with its numbers and its table behind a fold."""

from __future__ import annotations

import streamlit as st

from app import widgets
from app.collapse_choice import greek
from app.collapse_data import Rows
from fbt_core.experiments.depths import cell_columns
from fbt_core.experiments.report import provenance
from fbt_core.experiments.ruling import Ruling, title_of

COLOURS = {
    "supported": "green", "doubly exponential": "green", "measured": "blue", "a kink at tau/L": "green",
    "not testable": "gray", "some arms only": "orange",
}  # fmt: skip
"""Of a verdict; red for the others."""

KEPT = ("arm", "depth", "low", "high", "censored", "exponents", "median", "from", "to", "strengths", "kink",
    "inverse_radius")  # fmt: skip
"""Columns that stand in a table though all rows should agree; parameters that all rows share are left out."""

TOLD = ("by", "cell", "seeds", "own", "own_low", "own_high", "control", "best", "best_low", "best_high", "advantage",
    "advantage_low", "advantage_high", "says", "why")  # fmt: skip
"""Those of rule T3 beside the parameters of a cell."""


def verdicts(rows: Rows, several: bool) -> None:
    """The four rules as cards, each with its rule, its numbers and its table behind a fold."""
    if several:
        st.subheader(rows.name, anchor=False)
    for column, ruling in zip(st.columns(4), rows.rulings, strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{ruling.id}** {ruling.title}")
            st.badge(greek(ruling.verdict), color=COLOURS.get(ruling.verdict, "red"))
            st.caption(widgets.plain(greek(ruling.why)))
    with st.expander(f"The rules, and what each was applied to{f' ({rows.name})' if several else ''}"):
        st.caption(widgets.plain(provenance(rows.frame, rows.about)))
        for ruling in rows.rulings:
            st.markdown(f"**{ruling.id}** {widgets.plain(greek(ruling.rule))}")
            _table(ruling)


def _table(ruling: Ruling) -> None:
    table = ruling.table.copy()
    if table.empty:
        return
    for name in ("arm", "control"):
        if name in table:
            table[name] = [title_of(str(arm)) for arm in table[name]]
    same = [name for name in table.columns if table[name].dropna().nunique() < 2 and name not in (*KEPT, *TOLD)]
    told = [name for name in cell_columns(table) if "cell" in table and name not in TOLD]  # "cell" says it in words
    shown = table.drop(columns={*same, *told} if len(table) > 1 else [])
    st.dataframe(shown, hide_index=True, height=min(38 * len(table) + 40, 320))
