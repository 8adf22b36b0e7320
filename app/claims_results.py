"""A sweep's results file for the one claim that trained twins decide."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from app import results_file

KEY = "claims-file"


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of a sweep, told apart by the digest of their file; without one, neither."""

    digest: str = ""
    rows: Any = None


def held() -> Results:
    """What was chosen."""
    return results_file.held(KEY) or Results()


def choose() -> None:
    """The chooser, folded: few have such a file."""
    from fbt_core.experiments.uploaded import MOST_BYTES

    source = "What `python -m fbt_core collapse --plan ...` wrote, with trained twins of at least two ranks. "
    with st.popover("Results of a sweep", help="For C14: twins trained at several ranks."):
        try:
            results_file.chosen("Results file", KEY, MOST_BYTES, source, read)
        except ValueError as fault:
            st.error("This file cannot be used.")
            st.text(str(fault))


def read(path: Path) -> Results:
    """The rows of an uploaded file. Raises ``ValueError`` for one that cannot be used."""
    from fbt_core.experiments.uploaded import read_uploaded

    return Results(hashlib.sha256(path.read_bytes()).hexdigest(), read_uploaded(path)[0])
