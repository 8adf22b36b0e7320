"""What the Collapse page draws: one cell of the experiment, some arms. Chosen in its toolbar, kept in the URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from app import collapse_data, widgets
from app.choices import pick
from app.collapse_data import Rows
from fbt_core.experiments.ruling import title_of

NAMES = {
    "transport": "Transport", "held": "Whose R", "omega": "Curvature proxy Ω", "task": "Task",
    "steps": "Training steps", "vocabulary": "Vocabulary", "batch": "Batch",
    "learning_rate": "Learning rate", "device": "Device",
}  # fmt: skip

OFFERED = "_collapse_arms"
"""Session state: the arms among which was chosen last."""

SIZES = ("length", "width", "layers", "rank")

SHOWN_FIRST = {"heterogeneous", "homogeneous", "matched", "matched_homogeneous", "identity", "free"}
"""Arms that the rules compare, and the one without a metric; the others are a click away."""


@dataclass(frozen=True)
class Choice:
    """What is drawn: one value of every parameter but the strength, one strength, some arms."""

    cell: dict[str, Any]  # column to value, without unit and strength
    unit: str
    strength: float
    arms: tuple[str, ...]
    known: tuple[str, ...]  # every arm of the files, which decides on colours

    def rows(self, table: pd.DataFrame, *, strength: bool = True) -> pd.DataFrame:
        """Those of a table that are of the cell; of every strength, if it does not matter."""
        good = pd.Series(True, index=table.index)
        for name, value in self.cell.items():
            if name in table:
                good &= table[name].isna() if pd.isna(value) else table[name] == value
        if strength:
            good &= (table["unit"] == self.unit) & (table["strength"] == self.strength)
        return table[good]


def greek(text: str) -> str:
    """With the symbols that the columns of a file spell out."""
    return text.replace("tau", "τ").replace("^2", "²")


def choose(files: list[Rows]) -> Choice:
    """The toolbar. Each choice is among what the choices before it leave."""
    left = pd.concat([rows.depths.assign(file=number) for number, rows in enumerate(files)], ignore_index=True)
    known = tuple(collapse_data.arms_of(files))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        cell, left = _cell(left)
        unit, strength = _strength(left)
    offered = [arm for arm in known if arm in set(left["arm"])]
    usual = [arm for arm in offered if arm in SHOWN_FIRST] or offered
    moved = st.session_state.get(OFFERED, offered) != offered
    if moved and not set(st.session_state.get("arms", ())) & set(offered):
        st.session_state["arms"] = usual  # what was chosen was of another file
    st.session_state[OFFERED] = offered
    arms = st.pills(
        "Arms", offered, selection_mode="multi", default=None if moved else usual, key="arms", bind="query-params",
        format_func=lambda arm: widgets.plain(title_of(arm)), help="All arms of a run share tokens and weights.",
    )  # fmt: skip
    return Choice(cell, unit, strength, tuple(arm for arm in offered if arm in arms), known)


def _cell(left: pd.DataFrame) -> tuple[dict[str, Any], pd.DataFrame]:
    cell: dict[str, Any] = {}

    def narrow(label: str, key: str, columns: tuple[str, ...], words: dict[str, tuple[Any, ...]], width: int) -> None:
        nonlocal left
        name = pick(label, key, list(words), next(iter(words)), width) if len(words) > 1 else next(iter(words))
        for column, value in zip(columns, words[name], strict=True):
            cell[column] = value
            left = left[left[column].isna() if pd.isna(value) else left[column] == value]

    narrow("Stage", "stage-of", ("stage",), {str(one): (one,) for one in left["stage"].unique()}, 130)
    narrow("Size", "size", SIZES, _sizes(left), 270)
    narrow("Weights", "tied", ("tied",), {"tied" if one else "untied": (one,) for one in left["tied"].unique()}, 130)
    for column in left.columns[: list(left.columns).index("arm")]:
        if column not in (*cell, "unit", "strength"):
            words = {f"{one}": (one,) for one in left[column].unique()}
            narrow(NAMES.get(column, column), f"cell-{column}", (column,), words, 160)
    return cell, left


def _sizes(left: pd.DataFrame) -> dict[str, tuple[Any, ...]]:
    sizes = left[list(SIZES)].drop_duplicates().itertuples(index=False, name=None) if "rank" in left else ()
    return {f"L = {n}, d = {d}, {layers} layers, rank {r}": (n, d, layers, r) for n, d, layers, r in sizes}


def _strength(left: pd.DataFrame) -> tuple[str, float]:
    """A great one, where arms differ, of those that every file has, until another is picked."""
    ordered = left.sort_values("ubar_squared")
    words = {
        (unit, value): greek(f"{value:g} {unit}")
        for unit, value in zip(ordered["unit"], ordered["strength"], strict=True)
    }
    files = ordered.groupby(["unit", "strength"])["file"].nunique()
    shared = [key for key in words if files[key] == files.max()]
    usual = words[shared[3 * (len(shared) - 1) // 4]]
    help_ = "Of the metric: Ubar² = max over tokens of ||U||². R is the largest distance of a query from a key."
    picked = pick("Strength Ubar²", "strength-of", list(words.values()), usual, 160, help_=help_)
    unit, value = next(key for key, word in words.items() if word == picked)
    return str(unit), float(value)
