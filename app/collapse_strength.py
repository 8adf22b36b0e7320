"""Collapse depth against the strength of the metric, one line an arm: what T2 and T4 read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from app.collapse_choice import Choice
from app.collapse_data import Rows
from app.collapse_lines import in_words, index_in, say_none, show_lines, titled
from app.figures import collapse as figures
from app.figures.collapse import Line, Rule
from fbt_core.experiments.ruling import title_of

DEPTH = (
    "First layer whose Dong residual is below 1e-3. An arm without a metric stands at the strength of the "
    "heterogeneous arm of the same runs."
)
"""The caption."""


def depth_by_strength(rows: Rows, choice: Choice) -> None:
    """T2 and T4: l* of every arm at every strength of the cell."""
    table = choice.rows(rows.depths, strength=False)
    lines, zero = _strength_lines(table, choice)
    if not lines:
        say_none(rows)
        return
    inside = table[table["ubar_squared"] > 0]
    rules = [Rule("x", 1.0, "τ/L")]
    if len(inside):
        rules.append(Rule("x", float(inside["unit_radius"].median()), "τ/R²"))
    layers = int(choice.cell["layers"])
    rules.append(Rule("y", layers + 1.0, f"not collapsed in {layers} layers"))
    notes = [in_words(choice), f"{int(table['seeds'].min())} seeds", "bars: bootstrap 95 % intervals"]
    if any(line.open is not None and line.open.any() for line in lines):
        notes.append("open: some runs never collapse, a lower bound")
    figure = figures.against_strength(lines, titled("Collapse depth by strength", rows), notes, rules, zero, layers)
    caption = DEPTH
    if zero is not None:
        caption += " Strength 0 is drawn at the left end."
    show_lines(figure, lines, rows, "depth", caption, x="strength in tau/L")


def _strength_lines(table: pd.DataFrame, choice: Choice) -> tuple[list[Line], float | None]:
    """One line an arm over Ubar^2 L / tau; where strength 0 stands, if it is there."""
    keys = ["unit", "strength"]
    own = table[table["arm"] == "heterogeneous"].set_index(keys)["ubar_squared"]
    nominal = table.groupby(keys, sort=False)["ubar_squared"].max()
    places = own.reindex(nominal.index).fillna(nominal) * choice.cell["length"] / table["tau"].median()
    places = places.where(np.isfinite(places))
    positive = places[places > 0]
    if positive.empty:
        return [], None
    least = float(positive.min()) / 10**0.6 if (places == 0).any() or (table["strength"] == 0).any() else None
    lines = []
    for arm in choice.arms:
        rows = table[table["arm"] == arm].copy()
        rows["x"] = [
            least if s == 0 else places.get((u, s), np.nan) for u, s in zip(rows["unit"], rows["strength"], strict=True)
        ]
        rows = rows.dropna(subset="x").sort_values("x")
        if rows.empty:
            continue
        x, y, low, high = (rows[name].to_numpy(float) for name in ("x", "depth", "low", "high"))
        names = tuple(
            f"{s:g} {u}, {n} seeds, {c} not collapsed"
            for s, u, n, c in rows[["strength", "unit", "seeds", "censored"]].itertuples(index=False)
        )
        lines.append(
            Line(title_of(arm), index_in(choice, arm), x, y, low, high, rows["censored"].to_numpy() > 0, names)
        )
    return lines, least
