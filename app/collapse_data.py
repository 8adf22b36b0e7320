"""The rows behind the Collapse page: those that are kept with the program, and a file of the user's."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import results_file
from fbt_core.experiments import results
from fbt_core.experiments.depths import cell_columns, collapse_depths, depth_table
from fbt_core.experiments.intervals import bands, interval
from fbt_core.experiments.profile import FLOOR
from fbt_core.experiments.rule_exponent import triples
from fbt_core.experiments.rules import judge
from fbt_core.experiments.ruling import Ruling
from fbt_core.experiments.uploaded import MOST_BYTES, read_uploaded

RESULTS = Path(os.environ.get("FIBERSCOPE_RESULTS", Path(__file__).parent.parent / "experiments" / "results.parquet"))
"""The kept results; whoever starts the server may name another file."""

ORDER = (
    "heterogeneous", "homogeneous", "matched", "matched_dot", "shuffled", "positional", "identity",
    "free_heterogeneous", "matched_homogeneous", "free", "dot",
)  # fmt: skip
"""Of the arms: decides on colours, so the arm that matters comes first and those that it must beat after it."""

DEEPEST = math.log10(FLOOR)
"""log10 of the residual below which float64 holds rounding only: lines lie there."""


@dataclass(frozen=True)
class Rows:
    """One results file, judged."""

    name: str
    frame: pd.DataFrame
    exponents: pd.DataFrame | None
    about: dict[str, Any]
    depths: pd.DataFrame  # a row a cell and arm
    rulings: tuple[Ruling, ...]


def judged(name: str, frame: pd.DataFrame, exponents: pd.DataFrame | None, about: dict[str, Any]) -> Rows:
    """The rows with everything that the page draws of all cells at once."""
    runs = collapse_depths(frame)
    keys = [*cell_columns(frame), "arm"]
    scale = runs.assign(unit_radius=runs["length"] / runs["R"] ** 2).groupby(keys, dropna=False, sort=False)
    places = scale[["ubar_squared", "tau", "unit_radius"]].median().reset_index()
    depths = depth_table(runs).merge(places, on=keys, how="left")
    return Rows(name, frame, exponents, about, depths, judge(frame, exponents))


def kept() -> Rows | None:
    """Ours, or None where the file is not there."""
    if not RESULTS.is_file():
        return None
    beside = results.exponents_beside(RESULTS)
    stamps = tuple(path.stat().st_mtime_ns if path else 0 for path in (RESULTS, beside))
    return _kept(str(RESULTS), stamps)


@st.cache_resource(max_entries=2, show_spinner="Reading the results")
def _kept(path: str, stamps: tuple[int, ...]) -> Rows:
    beside = results.exponents_beside(Path(path))
    exponents = results.read(beside)[0] if beside else None
    frame, about = results.read(Path(path))
    return judged("Ours", frame, exponents, about)


def chosen() -> Rows | None:
    """The user's own file, if one is chosen and sound. Raises ``ValueError`` for one that is not."""
    source = "What `python -m fbt_core collapse --plan ...` wrote. "
    return results_file.chosen("Your results file", "collapse-file", MOST_BYTES, source, _yours)


def _yours(path: Path) -> Rows:
    frame, about = read_uploaded(path)
    return judged("Yours", frame, None, about)


def arms_of(files: list[Rows]) -> list[str]:
    """Every arm of the files: those that we know in their order, then others."""
    found = {str(name) for rows in files for name in rows.frame["arm"].unique()}
    return [*(name for name in ORDER if name in found), *sorted(found - set(ORDER))]


def index_of(arm: str, arms: Sequence[str]) -> int:
    """Which colour and symbol an arm has, ``arms`` being all that are there."""
    return ORDER.index(arm) if arm in ORDER else len(ORDER) + sorted(set(arms) - set(ORDER)).index(arm)


def by_layer(frame: pd.DataFrame, arm: str, name: str) -> np.ndarray:
    """(layer, mean, low, high) as four rows: over the seeds of a cell; a layer where a seed has no number is NaN.

    Residuals are no deeper than float64's floor.
    """
    runs = frame[frame["arm"] == arm].pivot(index="seed", columns="layer", values=name).astype(float)
    values = runs.to_numpy()
    if name == "log10_residual":
        values = np.maximum(values, DEEPEST)
    return np.concatenate([runs.columns.to_numpy(float)[None], bands(values)])


def exponents_of(exponents: pd.DataFrame, arm: str) -> np.ndarray:
    """(layer, median, low, high): of the exponents that T1 reads, over seeds; layers that two seeds or more have."""
    found: dict[int, list[float]] = {}
    for _, run in exponents[exponents["arm"] == arm].groupby("seed"):
        ordered = run.sort_values("layer").reset_index(drop=True)
        for start in range(len(ordered) - 2):
            for value in triples(ordered.iloc[start : start + 3]):
                found.setdefault(int(ordered.loc[start, "layer"]), []).append(float(value))
    points = [(layer, *interval(np.array(values), np.median)) for layer, values in sorted(found.items())]
    return np.array(points).T if points else np.empty((4, 0))


def seeds_of(frame: pd.DataFrame) -> int:
    """How many seeds the rows have."""
    return int(frame["seed"].nunique())
