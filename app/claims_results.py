"""A sweep's results file for the one claim that trained twins decide."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

HELD = "_claims_results"
"""Session state: the file that was chosen last, by its id, and its rows, so that it is read once."""


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of a sweep, told apart by the digest of their file; without one, neither."""

    digest: str = ""
    rows: Any = None
    fault: str = ""


def held() -> Results:
    """What was chosen."""
    return st.session_state.get(HELD, ("", Results()))[1]


def choose() -> None:
    """The chooser, folded: few have such a file."""
    from fbt_core.experiments.uploaded import MOST_BYTES

    with st.popover("Results of a sweep", help="For C14: twins trained at several ranks."):
        file = st.file_uploader(
            "Results file", type=["parquet"], key="claims-file", max_upload_size=MOST_BYTES >> 20,
            help="What `python -m fbt_core collapse --plan ...` wrote, with trained twins of at least two ranks. It is "
            "read in a process of its own and kept for this session only.",
        )  # fmt: skip
        if file is None:
            st.session_state.pop(HELD, None)
            return
        before = st.session_state.get(HELD)
        if before is None or before[0] != file.file_id:
            st.session_state[HELD] = (file.file_id, read(file.getvalue()))
        if held().fault:
            st.error("This file cannot be used.")
            st.text(held().fault)


def read(content: bytes) -> Results:
    """The rows of an uploaded file, or why there are none."""
    from fbt_core.experiments.uploaded import read_uploaded

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        path.write_bytes(content)
        try:
            return Results(hashlib.sha256(content).hexdigest(), read_uploaded(path)[0])
        except ValueError as fault:
            return Results(fault=str(fault))
