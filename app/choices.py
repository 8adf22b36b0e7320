"""The select box of every page's toolbar, bound to the URL, and what pages offer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")

READINGS = {"whole": "whole stream", "block": "block of the head", "key": "key space of the head"}
"""Short names of the core's readings: of what the metric is one."""


def pick(
    label: str, key: str, options: Iterable[T], default: T, width: int, title: Callable[[T], str] = str,
    help_: str | None = None,
) -> T:  # fmt: skip
    """A select box bound to the URL; a value that is not offered falls back to the default."""
    known = list(options)
    return st.selectbox(
        label, known, index=start(key, known, default), key=key, format_func=title, bind="query-params", width=width,
        persist_state="session", help=help_,
    )  # fmt: skip


def start(key: str, options: list[Any], default: Any) -> int:
    """The index at which a select box starts. A value that is no longer offered becomes the default.

    It is written and not only forgotten: the browser would go on showing it.
    """
    if key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = default
        return 0  # Streamlit warns of a default beside a value
    return options.index(default)
