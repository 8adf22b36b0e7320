"""The panels of the Collapse page: what the rules say, and the figures behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import collapse_data, widgets
from app.choices import pick
from app.collapse_choice import Choice, greek
from app.collapse_data import Rows, by_layer
from app.figures import collapse as figures
from app.figures.collapse import Line, Rule
from fbt_core.experiments.depths import COLLAPSED, cell_columns
from fbt_core.experiments.intervals import interval
from fbt_core.experiments.profile import FLOOR
from fbt_core.experiments.report import provenance
from fbt_core.experiments.rule_depth import CONTROLS, TIMES
from fbt_core.experiments.rule_exponent import CONTENT, POSITIONAL
from fbt_core.experiments.ruling import Ruling, title_of

MEASURES = {
    "effective_rank": "Effective rank, raw (dimensionless)",
    "effective_rank_centred": "Effective rank, centred (dimensionless)",
    "participation_ratio": "Participation ratio (dimensionless)",
    "mu": "Spread μ = ||Xc|| / ||X|| (dimensionless)",
    "dobrushin": "Dobrushin coefficient of A (dimensionless)",
    "self_attention": "Mean diagonal of A (probability)",
    "norm_U_mean": "Mean ||U|| (dimensionless)",
    "norm_U_max": "Ubar = max ||U|| (dimensionless)",
    "M": "Estimate of M in Theorem A (inverse squared length)",
    "entropy_deficit": "log L − H of rows (nats)",
}
"""What can be drawn by depth, beside the entropy."""

ENTROPY = {"entropy": "Exp-entropy of rows (tokens)"}

RESIDUAL = (
    r"$\sqrt{\|X_c\|_1\|X_c\|_\infty}\,/\sqrt{\|X\|_1\|X\|_\infty}$, after Dong et al. "
    "Band: bootstrap 95 % interval of the mean of its logarithm over seeds."
)
DEPTH = (
    "First layer whose Dong residual is below 1e-3. An arm without a metric stands at the strength of the "
    "heterogeneous arm of the same runs."
)
EXPONENT = (
    r"$(l_{n+2} - l_{n+1}) / (l_{n+1} - l_n)$, $l$ the log residual. Grey: where T1 wants the median. Theorem A gives "
    "3, and 2 for a positional metric with untied weights."
)
"""Captions."""

COLOURS = {
    "supported": "green", "doubly exponential": "green", "measured": "blue", "a kink at tau/L": "green",
    "not testable": "gray", "some arms only": "orange",
}  # fmt: skip
"""Of a verdict; red for the others."""


def verdicts(rows: Rows, several: bool) -> None:
    """The four rules as cards, each with its rule, its numbers and its table behind a fold."""
    if several:
        st.subheader(rows.name, anchor=False)
    for column, ruling in zip(st.columns(4), rows.rulings, strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{ruling.id}** {ruling.title}")
            st.badge(greek(ruling.verdict), color=COLOURS.get(ruling.verdict, "red"))
            st.caption(widgets.plain(greek(ruling.why)))
    with st.expander(f"The rules, and what each was applied to{f' ({rows.name})' if several else ''}"):
        st.caption(widgets.plain(provenance(rows.frame, rows.about)))
        for ruling in rows.rulings:
            st.markdown(f"**{ruling.id}** {widgets.plain(greek(ruling.rule))}")
            _table(ruling)


def _table(ruling: Ruling) -> None:
    table = ruling.table.copy()
    if table.empty:
        return
    for name in ("arm", "control"):
        if name in table:
            table[name] = [title_of(str(arm)) for arm in table[name]]
    same = [name for name in table.columns if table[name].dropna().nunique() < 2 and name not in (*KEPT, *TOLD)]
    told = [name for name in cell_columns(table) if "cell" in table and name not in TOLD]  # "cell" says it in words
    shown = table.drop(columns={*same, *told} if len(table) > 1 else [])
    st.dataframe(shown, hide_index=True, height=min(38 * len(table) + 40, 320))


KEPT = ("arm", "depth", "low", "high", "censored", "exponents", "median", "from", "to", "strengths", "kink",
    "inverse_radius")  # fmt: skip
"""Columns that stand in a table though all rows should agree; parameters that all rows share are left out."""

TOLD = ("by", "cell", "seeds", "own", "own_low", "own_high", "control", "best", "best_low", "best_high", "advantage",
    "advantage_low", "advantage_high", "says", "why")  # fmt: skip
"""Those of rule T3 beside the parameters of a cell."""


def draw(files: list[Rows], choice: Choice) -> None:
    """All figures of a cell; two files stand side by side."""
    if not choice.arms:
        st.info("Choose at least one arm.")
        return
    beside = len(files) > 1
    _row(files, lambda rows: residuals(rows, choice), lambda rows: depth_by_strength(rows, choice), beside)
    with st.container(horizontal=True):
        name = pick("By depth", "measure-of", list(MEASURES), "effective_rank", 330, MEASURES.__getitem__)
    _row(files, lambda rows: measure(rows, choice, name), lambda rows: measure(rows, choice, "entropy"), beside)
    if choice.cell["stage"] == "trained":
        _row(
            files,
            lambda rows: last_layer(rows, choice, "effective_rank"),
            lambda rows: last_layer(rows, choice, "accuracy"),
            beside,
        )
    held = [rows for rows in files if rows.exponents is not None]
    if held:
        _row(held, lambda rows: exponents(rows, choice, False), lambda rows: exponents(rows, choice, True), False)


def _row(files: list[Rows], first: Callable[[Rows], None], second: Callable[[Rows], None], beside: bool) -> None:
    """Two figures of one file in a row; of two files, each figure in a row of its own, ours beside theirs."""
    if not beside:
        for rows in files:
            for column, one in zip(st.columns(2), (first, second), strict=True):
                with column:
                    one(rows)
        return
    for one in (first, second):
        for column, rows in zip(st.columns(len(files)), files, strict=True):
            with column:
                one(rows)


def residuals(rows: Rows, choice: Choice) -> None:
    """log residual by depth: where the rules look."""
    frame = choice.rows(rows.frame)
    lines = [
        _line(choice, arm, 10.0 ** by_layer(frame, arm, "log10_residual")[1:], by_layer(frame, arm, "layer")[0])
        for arm in _arms(choice, frame)
    ]
    if not lines:
        _none(rows)
        return
    rules = [Rule("y", 10.0**COLLAPSED, "collapsed: below 10⁻³ (T2)")]
    if min(float(np.nanmin(line.y)) for line in lines) < 10 * FLOOR:
        rules.append(Rule("y", FLOOR, "rounding of float64"))
    alive = max(int(line.x[np.nonzero(line.y > 1.01 * FLOOR)[0]].max(initial=0)) for line in lines) + 1
    figure = figures.profile(
        lines,
        _title("Residual by depth", rows),
        "Dong residual (log scale)",
        _notes(choice, frame, "mean of the log"),
        rules,
        log=True,
    )
    last = min(alive, int(choice.cell["layers"]))  # what follows lies on the floor
    figure.update_xaxes(range=[-0.3, last + 0.3])
    _show(figure, lines, rows, "residual", RESIDUAL)


def measure(rows: Rows, choice: Choice, name: str) -> None:
    """Any other measure by depth."""
    frame = choice.rows(rows.frame)
    if name not in frame or frame.empty:
        _none(rows)
        return
    arms = [arm for arm in _arms(choice, frame) if frame.loc[frame["arm"] == arm, name].notna().any()]
    lines = [_line(choice, arm, by_layer(frame, arm, name)[1:], by_layer(frame, arm, name)[0]) for arm in arms]
    if not lines:
        st.caption(f"{rows.name}: {(MEASURES | ENTROPY)[name].partition(' (')[0]} is not defined for these arms.")
        return
    title = (MEASURES | ENTROPY)[name].partition(" (")[0]
    rules, length = [], choice.cell["length"]
    if name == "entropy":
        rules = [Rule("y", float(length), f"uniform attention: L = {length}")]
    elif name in ("effective_rank", "effective_rank_centred"):
        rules = [Rule("y", 1.0, "one direction")]
    figure = figures.profile(
        lines,
        _title(title, rows),
        (MEASURES | ENTROPY)[name],
        _notes(choice, frame, "mean"),
        rules,
        log=name in ("M", "entropy_deficit"),
    )
    words = (
        "Mean over the attention rows of the exponential of their entropy: among how many tokens a row spreads."
        if name == "entropy"
        else ""
    )
    _show(figure, lines, rows, f"{name}", f"{words} Band: bootstrap 95 % interval of the mean over seeds.")


def depth_by_strength(rows: Rows, choice: Choice) -> None:
    """T2 and T4: l* of every arm at every strength of the cell."""
    table = choice.rows(rows.depths, strength=False)
    lines, zero = _strength_lines(table, choice)
    if not lines:
        _none(rows)
        return
    inside = table[table["ubar_squared"] > 0]
    rules = [Rule("x", 1.0, "τ/L")]
    if len(inside):
        rules.append(Rule("x", float(inside["unit_radius"].median()), "τ/R²"))
    layers = int(choice.cell["layers"])
    rules.append(Rule("y", layers + 1.0, f"not collapsed in {layers} layers"))
    notes = [_where(choice), f"{int(table['seeds'].min())} seeds", "bars: bootstrap 95 % intervals"]
    if any(line.open is not None and line.open.any() for line in lines):
        notes.append("open: some runs never collapse, a lower bound")
    figure = figures.against_strength(lines, _title("Collapse depth by strength", rows), notes, rules, zero, layers)
    caption = DEPTH
    if zero is not None:
        caption += " Strength 0 is drawn at the left end."
    _show(figure, lines, rows, "depth", caption, x="strength in tau/L")


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
        lines.append(Line(title_of(arm), _index(choice, arm), x, y, low, high, rows["censored"].to_numpy() > 0, names))
    return lines, least


def last_layer(rows: Rows, choice: Choice, name: str) -> None:
    """Trained stacks: rank at the last layer beside what the task is done with."""
    frame = choice.rows(rows.frame)
    if name not in frame or frame.empty:
        _none(rows)
        return
    last = frame[frame["layer"] == frame["layers"]]
    by_arm = {arm: last.loc[last["arm"] == arm, name].dropna().to_numpy(float) for arm in _arms(choice, last)}
    drawn = {arm: interval(values) for arm, values in by_arm.items() if len(values)}
    if not drawn:
        st.caption(f"{rows.name}: no {name} at the last layer.")
        return
    lines = [_line(choice, arm, np.array(values)[:, None], np.zeros(1)) for arm, values in drawn.items()]
    rules = []
    if name == "accuracy" and "chance" in last and last["chance"].notna().any():
        rules = [Rule("x", float(last["chance"].median()), "chance")]
    controls = [values[0] for arm, values in drawn.items() if arm in CONTROLS]
    if name == "effective_rank" and controls:
        best = max(controls)
        rules = [Rule("x", TIMES * best, f"T3: {TIMES:g} × the best control shown")]
    titles = {"effective_rank": "Effective rank after the last layer", "accuracy": "Accuracy on held-out sequences"}
    units = {"effective_rank": "effective rank, raw (dimensionless)", "accuracy": "share of tokens answered rightly"}
    figure = figures.dots(lines, _title(titles[name], rows), units[name], _notes(choice, last, "mean"), rules)
    _show(figure, lines, rows, f"last-{name}", "After training. Bars: bootstrap 95 % interval of the mean over seeds.")


def exponents(rows: Rows, choice: Choice, tied: bool) -> None:
    """T1: exponents by layer, in high precision. The experiment's own sizes, not those of the cell."""
    assert rows.exponents is not None
    table = rows.exponents[rows.exponents["tied"] == tied]
    lines = []
    for arm in dict.fromkeys(table["arm"]):
        layer, median, low, high = collapse_data.exponents_of(table, arm)
        if len(layer):
            lines.append(
                Line(title_of(arm), collapse_data.index_of(arm, [*choice.known, arm]), layer, median, low, high)
            )
    kind = "tied" if tied else "untied"
    if not lines:
        st.caption(f"No exponents with {kind} weights.")
        return
    bands: list[tuple[float, float, str]] = [(*CONTENT, "doubly exponential, content: 2.7 to 3.3")]
    if not tied:
        bands.append((*POSITIONAL, "positional: 1.8 to 2.3"))
    notes = [f"{table['seed'].nunique()} seeds, median", "from residuals below 10⁻²", "high precision, own sizes"]
    figure = figures.exponents(lines, f"Exponent of the collapse, {kind} weights", notes, bands)
    _show(
        figure,
        lines,
        rows,
        f"exponents-{kind}",
        EXPONENT,
    )


def _line(choice: Choice, arm: str, values: np.ndarray, layers: np.ndarray) -> Line:
    return Line(title_of(arm), _index(choice, arm), layers, *values)


def _index(choice: Choice, arm: str) -> int:
    return collapse_data.index_of(arm, choice.known)


def _arms(choice: Choice, frame: pd.DataFrame) -> list[str]:
    return [arm for arm in choice.arms if arm in set(frame["arm"])]


def _title(text: str, rows: Rows) -> str:
    return text if rows.name == "Ours" else f"{text}: your file"


def _where(choice: Choice) -> str:
    cell = choice.cell
    return f"{cell['stage']}, L = {cell['length']}, d = {cell['width']}, {'tied' if cell['tied'] else 'untied'}"


def _notes(choice: Choice, frame: pd.DataFrame, what: str) -> list[str]:
    where = greek(f"{_where(choice)}, Ubar² = {choice.strength:g} {choice.unit}")
    seeds = collapse_data.seeds_of(frame)
    return [where, f"{what} over {seeds} seeds, 95 % interval" if seeds > 1 else "one seed"]


def _none(rows: Rows) -> None:
    st.caption(f"{rows.name}: no such cell in this file.")


def _show(figure: Any, lines: Sequence[Line], rows: Rows, key: str, caption: str, x: str = "layer") -> None:
    table = pd.DataFrame(
        [
            {"arm": line.label, x: line.x[i], "value": line.y[i], "low": line.low[i], "high": line.high[i]}
            for line in lines for i in range(len(line.x))
        ]
    )  # fmt: skip
    widgets.show(figure, table, f"collapse-{key}-{rows.name}", caption, f"collapse-{key}")
