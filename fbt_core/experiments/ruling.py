"""What a rule says, and the words that all rules use."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from fbt_core.experiments.arms import ARMS

NOT_TESTABLE = "not testable"


@dataclass(frozen=True)
class Ruling:
    """One rule applied. ``table`` is what it was applied to, a row a case, with a column ``says``."""

    id: str  # T1 ... T4
    title: str
    rule: str  # in words, as fixed before
    verdict: str
    why: str  # one or two sentences with the numbers
    numbers: dict[str, float] = field(default_factory=dict)
    table: pd.DataFrame = field(default_factory=pd.DataFrame)


def title_of(arm: str) -> str:
    """What people call an arm; its own name, if it is not one of ours."""
    return ARMS[arm].title if arm in ARMS else arm


def words(cell: dict[str, object]) -> str:
    """A cell of the experiment in a few words."""
    size = f"L = {cell['length']}, d = {cell['width']}"
    tied = "tied" if cell["tied"] else "untied"
    return f"{cell['stage']}, {cell['strength']:g} {cell['unit']}, {size}, {tied}"
