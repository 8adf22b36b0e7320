"""The run of a session: begun from the URL, kept by its widgets, put back into the URL."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.run import Run
from app.widgets import PENDING

RUN = "run"
"""Session state: the run of this session, whether or not its widgets are drawn."""


def begin() -> Run:
    """The run so far: of the URL in a new session or after the back button, else the last one with what was picked."""
    context = get_script_run_ctx()
    back = context is not None and getattr(context, "is_history_navigation", False)
    if RUN not in st.session_state or back:
        run = Run.from_query(st.query_params.to_dict())
        _write(run)
    else:
        run = st.session_state[RUN]
    picked = st.session_state.pop(PENDING, {})
    if picked:
        run = run.change(**picked)
        _write(run)
    return run


def _write(run: Run) -> None:
    """Make every widget show the run, and forget what it showed."""
    for name, value in vars(run).items():
        st.session_state[f"run-{name}"] = value


def settle(run: Run) -> None:
    """Remember the run and put it in the URL; parameters of a page's own stay."""
    st.session_state[RUN] = run
    query, shown = run.to_query(), st.query_params.to_dict()
    for name in vars(run):
        if shown.get(name) != query.get(name):
            if name in query:
                st.query_params[name] = query[name]
            else:
                st.query_params.pop(name, None)


def value(run: Run, name: str, allowed: list[Any] | tuple[Any, ...] | None = None) -> str:
    """The widget key of a field, its state made valid: what the user just set, else the run's."""
    key = f"run-{name}"
    now = st.session_state.get(key, getattr(run, name))
    if allowed is not None and now not in allowed:
        now = getattr(run, name) if getattr(run, name) in allowed else allowed[0]
    st.session_state[key] = now
    return key


def number(run: Run, name: str, low: float, high: float) -> str:
    """``value`` of a number, brought inside its range."""
    key = f"run-{name}"
    st.session_state[key] = min(max(st.session_state.get(key, getattr(run, name)), low), high)
    return key
