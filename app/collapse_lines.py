"""From the rows of the collapse experiment to the lines of a figure, and the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import collapse_data, widgets
from app.collapse_choice import Choice, greek
from app.collapse_data import Rows
from app.figures.collapse import Line
from fbt_core.experiments.ruling import title_of


def line_of(choice: Choice, arm: str, values: np.ndarray, layers: np.ndarray) -> Line:
    """One arm's line: mean, low and high by layer."""
    return Line(title_of(arm), index_in(choice, arm), layers, *values)


def index_in(choice: Choice, arm: str) -> int:
    """Which colour and symbol an arm has."""
    return collapse_data.index_of(arm, choice.known)


def arms_in(choice: Choice, frame: pd.DataFrame) -> list[str]:
    """The chosen arms that a table has, in their order."""
    return [arm for arm in choice.arms if arm in set(frame["arm"])]


def having(rows: Rows, choice: Choice, name: str) -> pd.DataFrame | None:
    """The cell's rows, where they have this column; else None, which is said on the page."""
    frame = choice.rows(rows.frame)
    if name in frame and not frame.empty:
        return frame
    say_none(rows)
    return None


def titled(text: str, rows: Rows) -> str:
    """A figure's title; a file of the user's is named."""
    return text if rows.name == "Ours" else f"{text}: your file"


def in_words(choice: Choice) -> str:
    """The cell in words."""
    cell = choice.cell
    return f"{cell['stage']}, L = {cell['length']}, d = {cell['width']}, {'tied' if cell['tied'] else 'untied'}"


def notes_of(choice: Choice, frame: pd.DataFrame, what: str) -> list[str]:
    """Below a title: which cell, which strength, over how many seeds."""
    where = greek(f"{in_words(choice)}, Ubar² = {choice.strength:g} {choice.unit}")
    seeds = collapse_data.seeds_of(frame)
    return [where, f"{what} over {seeds} seeds, 95 % interval" if seeds > 1 else "one seed"]


def say_none(rows: Rows) -> None:
    """Said in place of a figure."""
    st.caption(f"{rows.name}: no such cell in this file.")


def show_lines(figure: Any, lines: Sequence[Line], rows: Rows, key: str, caption: str, x: str = "layer") -> None:
    """A figure with its caption and the numbers of its lines as a table."""
    table = pd.DataFrame(
        [
            {"arm": line.label, x: line.x[i], "value": line.y[i], "low": line.low[i], "high": line.high[i]}
            for line in lines for i in range(len(line.x))
        ]
    )  # fmt: skip
    widgets.show(figure, table, f"collapse-{key}-{rows.name}", caption, f"collapse-{key}")
