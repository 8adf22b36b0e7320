"""The tables of ``docs/verdict.md``, from the rows alone: ``python -m fbt_core collapse --report FILE``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fbt_core.experiments.depths import cell_columns
from fbt_core.experiments.intervals import interval
from fbt_core.experiments.rules import judge
from fbt_core.experiments.ruling import Ruling, title_of

TRAINED = {"effective_rank": "effective rank", "effective_rank_centred": "centred", "entropy": "exp-entropy",
    "accuracy": "accuracy", "loss": "loss (nats)"}  # fmt: skip
"""What is told of the last layer of a trained stack."""


def report(frame: pd.DataFrame, exponents: pd.DataFrame | None, about: dict[str, Any]) -> str:
    """Markdown: what made the rows, the four verdicts, and a table for each."""
    rulings = {ruling.id: ruling for ruling in judge(frame, exponents)}
    parts = [provenance(frame, about), "### The four rules", verdicts(rulings.values())]
    parts += ["### T1: exponents", exponents_table(rulings["T1"].table)]
    parts += ["### T2: collapse depth l*, mean over seeds [95 % interval]", *depth_tables(rulings["T2"].table)]
    parts += ["### T3: the heterogeneous arm beside its best control", conjecture_table(rulings["T3"].table)]
    parts += ["### Trained stacks at their last layer, mean over seeds [95 % interval]", *trained_tables(frame)]
    parts += ["### T4: where the corner of l* lies, in units of tau/L", kink_table(rulings["T4"].table)]
    return "\n\n".join(parts) + "\n"


def verdict_lines(rulings: Iterable[Ruling]) -> str:
    """The four rules for a terminal: one line each, and why below it."""
    return "\n".join(f"{one.id} {one.title} {one.verdict.upper()}\n   {one.why}" for one in rulings)


def provenance(frame: pd.DataFrame, about: dict[str, Any]) -> str:
    """Plan, versions, hours."""
    identity, seconds, made_with = (about.get(name) for name in ("identity", "job_seconds", "versions"))
    identity = identity if isinstance(identity, dict) else {}  # a file of anybody's may say anything
    hours = seconds / 3600 if isinstance(seconds, int | float) else np.nan
    digest = str(identity.get("jobs_sha256"))[:12]
    versions = (
        ", ".join(f"{k} {v}" for k, v in made_with.items()) if isinstance(made_with, dict) else "unknown versions"
    )
    return (
        f"Plan `{identity.get('plan')}`, {identity.get('jobs')} jobs (SHA-256 `{digest}`), "
        f"{len(frame):,} rows, {hours:.2f} core hours, backend {about.get('backend')}; {versions}."
    )


def verdicts(rulings: Iterable[Ruling]) -> str:
    """Id, question, verdict, why."""
    return markdown(("", "question", "verdict", "why"), [(r.id, r.title, f"**{r.verdict}**", r.why) for r in rulings])


def exponents_table(table: pd.DataFrame) -> str:
    """Median exponent by arm."""
    rows = [
        (
            title_of(row["arm"]), "tied" if row["tied"] else "untied", row["seeds"], row["exponents"],
            _with_interval(row["median"], row["low"], row["high"], 3),
            "-" if np.isnan(row["from"]) else f"[{row['from']:g}, {row['to']:g}]", row["says"],
        )
        for row in table.to_dict("records")
    ]  # fmt: skip
    return markdown(("arm", "weights", "seeds", "exponents", "median [95 %]", "band", "doubly exponential"), rows)


def depth_tables(table: pd.DataFrame) -> list[str]:
    """One table a stage, size and kind of weights: strengths down, arms across."""
    parts = []
    shown = [name for name in cell_columns(table) if name not in NUMBERS and name not in ("strength", "unit")]
    for key, group in table.groupby(shown, dropna=False, sort=False):
        arms = list(dict.fromkeys(group["arm"]))
        rows = [
            (f"{strength:g} {unit}", *(_depth_cell(cell[cell["arm"] == arm]) for arm in arms))
            for (unit, strength), cell in group.groupby(["unit", "strength"], sort=False)
        ]
        parts += [_heading(table, shown, key), markdown(("Ubar²", *map(title_of, arms)), rows)]
    return parts


NUMBERS = ("depth", "low", "high", "seeds", "censored")


def conjecture_table(table: pd.DataFrame) -> str:
    """Every case of T3: the heterogeneous arm, its best control, and what the rule says."""
    rows = [
        (
            case["by"], case["cell"], _count(case.get("seeds")), _number(case.get("own")), _number(case.get("best")),
            title_of(case["control"]) if case["control"] else "-", _number(case.get("advantage")), case["says"],
        )
        for case in table.to_dict("records")
    ]  # fmt: skip
    heads = ("by", "cell", "seeds", "heterogeneous", "best control", "which", "difference or ratio", "meets the rule")
    return markdown(heads, rows)


def trained_tables(frame: pd.DataFrame) -> list[str]:
    """Effective rank, entropy, accuracy and loss at the last layer, a table a cell."""
    trained = frame[(frame["stage"] == "trained") & (frame["layer"] == frame["layers"])]
    parts = []
    names = [name for name in cell_columns(trained) if name != "stage"] if len(trained) else []
    columns = {name: title for name, title in TRAINED.items() if name in trained}
    for key, group in trained.groupby(names, dropna=False, sort=False) if names else ():
        rows = []
        for arm, runs in group.groupby("arm", sort=False):
            values = [interval(runs[name].dropna().to_numpy(float)) for name in columns]
            rows.append((title_of(str(arm)), len(runs), *(_with_interval(*value, 2) for value in values)))
        chance = f" (chance {group['chance'].mean():.3f})" if "chance" in group else ""
        parts += [_heading(trained, names, key) + chance, markdown(("arm", "seeds", *columns.values()), rows)]
    return parts or ["No trained stacks."]


def kink_table(table: pd.DataFrame) -> str:
    """The corner at each length."""
    rows = [
        (
            case["length"], case["width"], "tied" if case["tied"] else "untied", case["strengths"],
            _with_interval(case["kink"], case["low"], case["high"], 2), _number(case.get("inverse_radius")),
            case["says"],
        )
        for case in table.to_dict("records")
    ]  # fmt: skip
    return markdown(("L", "d", "weights", "strengths", "corner [95 %]", "tau/R²", "holds tau/L alone"), rows)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; a line that says so where there are no rows."""
    if not rows:
        return "No rows."
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def _heading(table: pd.DataFrame, names: Sequence[str], key: Any) -> str:
    """A cell without its strength: what is always told, and what else differs between the tables."""
    cell = dict(zip(names, key, strict=True))
    tied = "tied" if cell["tied"] else "untied"
    always = (
        f"{cell.get('stage', 'trained')}, L = {cell['length']}, d = {cell['width']}, {cell['layers']} layers, {tied}"
    )
    told = ("stage", "length", "width", "layers", "tied", "unit", "strength")
    more = [
        f"{name} {value}" for name, value in cell.items() if name not in told and table[name].dropna().nunique() > 1
    ]
    if "strength" in cell:
        more.insert(0, f"Ubar² = {cell['strength']:g} {cell['unit']}")
    return f"**{', '.join([always, *more])}**"


def _depth_cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "-"
    row = rows.iloc[0]
    if row["censored"] == row["seeds"]:
        return f"> {row['depth'] - 1:g}"
    more = f", {row['censored']} of {row['seeds']} open" if row["censored"] else ""
    return _with_interval(row["depth"], row["low"], row["high"], 1) + more


def _with_interval(value: float, low: float, high: float, digits: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _number(value: Any) -> str:
    return "-" if value is None or pd.isna(value) else f"{value:.2f}"


def _count(value: Any) -> str:
    return "-" if value is None or pd.isna(value) else f"{value:.0f}"
