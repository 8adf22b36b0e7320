"""A results file of the visitor's: read once, in a folder of its own, and kept for the session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

Held = TypeVar("Held")


def chosen(label: str, key: str, most_bytes: int, source: str, read: Callable[[Path], Held]) -> Held | None:
    """The chooser, and what ``read`` makes of the file that is chosen; None without one.

    ``source`` says what writes such files. Raises the ``ValueError`` that ``read`` raised, again at every view.
    """
    file = st.file_uploader(
        label, type=["parquet"], key=key, max_upload_size=most_bytes >> 20,
        help=f"{source}It is read in a process of its own and kept for this session only.",
    )  # fmt: skip
    if file is None:
        st.session_state.pop(_place(key), None)
        return None
    before = st.session_state.get(_place(key))
    if before is None or before[0] != file.file_id:
        st.session_state[_place(key)] = (file.file_id, _read(file.getvalue(), read))
    found = st.session_state[_place(key)][1]
    if isinstance(found, ValueError):
        raise found
    return found


def held(key: str) -> Any:
    """What was made of the file in the chooser of this key; None without a sound one."""
    found = st.session_state.get(_place(key), ("", None))[1]
    return None if isinstance(found, ValueError) else found


def _place(key: str) -> str:
    """In the session's state: the last file by its id, so that it is read once, and what came of it."""
    return f"_{key}"


def _read(content: bytes, read: Callable[[Path], Held]) -> Held | ValueError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        path.write_bytes(content)
        try:
            return read(path)
        except ValueError as fault:
            return fault
