"""The claims page: the controls, and the run of one claim after the other."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import claims_results
from app.claims_findings import Asked, check, findings
from app.claims_table import table
from app.line import COMPUTING
from app.view import View
from fbt_core.claims import CLAIMS
from fbt_core.sample import sample_text

TEXTS = {"bundled": "the bundled text", "sidebar": "the sidebar's text"}
"""Which text is read: claims on losses and ranks need some thousand words, and the sidebar's has seldom so many."""

RUNNING = "_claims_running"
"""Session state: the questions that are being answered, until Stop."""


def choose(view: View) -> list[Asked]:
    """The controls, and what they ask of every side."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        which = st.segmented_control(
            "Read", list(TEXTS), default="bundled", required=True, key="claims-text", bind="query-params",
            format_func=TEXTS.__getitem__,
        )  # fmt: skip
        tokens = st.number_input(
            "Tokens traced", 16, 1024, 256, step=16, key="claims-tokens", bind="query-params", width=160,
            help="The ranks and maps are of the text's first so many tokens; losses are of windows behind them.",
        )  # fmt: skip
        claims_results.choose()
    text = sample_text() if which == "bundled" else view.run.text
    return [Asked(side.request, text, int(tokens)) for side in view.sides]


def run(view: View, asked: list[Asked], place: Any) -> None:
    """The button; once pressed, claim after claim, the table in ``place`` growing with every one. Stop ends it at
    once, and what was found stays; after any other click it goes on."""
    todo = [(side, one, name) for name in CLAIMS for side, one in zip(view.sides, asked, strict=True)
            if name not in findings(one)]  # fmt: skip
    total = len(CLAIMS) * len(asked)
    if not todo:
        return
    words = f"Check {'all' if len(todo) == total else 'the other'} {len(todo)} claims"
    button, line = st.empty(), st.empty()  # two places: what stood in one would linger beside what comes
    if st.session_state.get(RUNNING) != tuple(asked):
        with button.container(horizontal=True, vertical_alignment="center"):
            st.button(words, type="primary", key="claims-check", on_click=_go, args=(tuple(asked),))
            st.caption("About a minute a checkpoint on two cores, more for a large model: everything is in float64.")
        return
    button.empty()
    with line.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Running the model in float64")
        st.button("Stop", key="claims-stop", on_click=_stopped, help="At once; what was found stays.")
    for done, (side, one, name) in enumerate(todo):
        bar.progress(done / len(todo), f"{side.name + ': ' if view.compare else ''}{name} {CLAIMS[name].title}")
        check(one, name)
        with place.container():
            table(view, asked)
    _stop()
    line.empty()


def _go(asked: tuple[Asked, ...]) -> None:
    st.session_state[RUNNING] = asked


def _stopped() -> None:
    for asked in st.session_state.get(RUNNING, ()):
        COMPUTING.give_up(asked)
    _stop()


def _stop() -> None:
    st.session_state.pop(RUNNING, None)
