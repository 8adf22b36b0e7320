"""The Collapse page: which files, which cell of the experiment, which arms; then its panels."""

from __future__ import annotations

import streamlit as st

from app import collapse_data, collapse_panels, frame
from app.choices import pick
from app.collapse_choice import choose
from app.collapse_data import Rows
from app.collapse_verdicts import verdicts

QUESTION = (
    "The paper conjectures that a metric for each token prevents rank collapse: the loss of all differences between "
    "tokens in a deep stack of attention without residual stream. Here are the rows of an experiment whose arms and "
    "decision rules were fixed before it was run. An **arm** is one way to attend; all arms of a run share tokens and "
    "weights. Sharpness of attention delays collapse by itself, so the arms called *matched* have no metric but the "
    "heterogeneous arm's entropy, layer by layer."
)

COMMAND = "python -m fbt_core collapse --plan experiments/collapse.toml --out experiments/results.parquet"


def draw() -> None:
    """The whole page below its heading."""
    st.markdown(QUESTION)
    files = _files()
    if not files:
        st.info(f"No results are here yet. `{COMMAND}` makes them; or upload a results file of your own.")
        return
    for rows in files:
        verdicts(rows, several=len(files) > 1)
    _figures(files)


def _files() -> list[Rows]:
    """Ours and the user's, as far as they are there."""
    found = []
    with frame.guard():
        ours = collapse_data.kept()
        found += [ours] if ours else []
    with frame.guard(), st.expander("Show a results file of your own beside ours"):
        mine = collapse_data.chosen()
        if mine:
            found.append(mine)
    if len(found) > 1:
        shown = pick("Show", "files", ["both", *(rows.name for rows in found)], "both", 160)
        found = [rows for rows in found if shown in ("both", rows.name)]
    return found


@st.fragment
def _figures(files: list[Rows]) -> None:
    with frame.guard():
        choice = choose(files)
        collapse_panels.draw(files, choice)
