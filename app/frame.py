"""What every page shares: the heading, the view, and the one place for errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
import torch
from streamlit.runtime.pages_manager import PagesManager

from app import running, sidebar, widgets
from app.components.theme_watch import theme_watch
from app.intake import described
from app.view import View
from fbt_core.checkpoints.faults import CheckpointError

VIEW = "_view"
"""Where the entry script leaves the view of this script run for the page that it then runs."""


@contextmanager
def guard() -> Iterator[None]:
    """Show a file's or a value's fault as one message and go on; wrap a fragment's body in it."""
    try:
        yield
    except CheckpointError as fault:
        st.error("This checkpoint cannot be used.")
        st.text(described(fault))
    except ValueError as fault:
        st.error("This cannot be shown: the values do not fit together.")
        st.text(str(fault)[:LONGEST])
    except (MemoryError, torch.OutOfMemoryError) as fault:
        st.error("There is not enough memory for this. Everything that was open still is.")
        running.short_of_memory(fault)
    except Exception as fault:  # a model's own code may raise anything; Streamlit's control flow is no Exception
        logging.getLogger(__name__).exception("a page failed")
        st.error("This could not be computed. Everything that was open still is.")
        st.text(f"{type(fault).__name__}: {str(fault)[:LONGEST]}")


LONGEST = 1000
"""Characters of a fault's message that are shown."""

STYLE = """<style>
[data-testid="stMainBlockContainer"] { padding: 4rem 2.5rem 2rem; }
[data-testid="stSidebarContent"] [data-testid="stVerticalBlock"] { gap: 0.6rem; }
[data-testid="stMainMenu"] { display: none; }
div:has(> [data-testid="stToolbarActions"]) { min-width: 0; width: auto; }
[data-testid="stStatusWidget"] { position: fixed; top: 3.4rem; right: 1.5rem; }
</style>"""
"""Less empty space than Streamlit leaves: the figures want it. Its menu has nothing for us, and its Stop stands below
the pages' names, of which it would hide some whenever a script runs."""


def begin() -> None:
    """Draw the sidebar and leave the view for the page. Called once a script run, by the entry script."""
    st.html(STYLE)
    st.session_state[VIEW] = None
    with guard():
        st.session_state[VIEW] = sidebar.draw()
    with st.sidebar:
        st.session_state[widgets.THEME] = theme_watch()


def open_page(title: str) -> View:
    """The page's heading and what it draws. Stops the page, the reason shown, when there is nothing to draw."""
    view = _heading(title)
    view = None if view is None else running.ran(view)
    if view is None:
        st.stop()
    return view


def open_text_page(title: str) -> None:
    """The heading of a page that draws no checkpoint, and so is there whatever is open."""
    _heading(title)


def _heading(title: str) -> View | None:
    if VIEW not in st.session_state:
        _run_from_the_entry()
    view = st.session_state.pop(VIEW)
    st.header(title, anchor=False)
    return view


def _run_from_the_entry() -> None:
    """Start again with the entry script: a page that runs alone has no sidebar and no view.

    Streamlit takes a folder named ``pages`` for its old way of many pages until ``st.navigation`` first runs, so the
    first visitor of a server who comes by a link to a page, not to its root, would get that page alone.
    """
    PagesManager.uses_pages_directory = False
    st.rerun()
