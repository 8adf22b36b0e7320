"""The figures of the Collapse page in their rows, for one file or two; the last layer and the exponents among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from app import collapse_data
from app.choices import pick
from app.collapse_choice import Choice
from app.collapse_data import Rows
from app.collapse_lines import arms_in, having, line_of, notes_of, show_lines, titled
from app.collapse_profiles import MEASURES, measure, residuals
from app.collapse_strength import depth_by_strength
from app.figures import collapse as figures
from app.figures.collapse import Line, Rule
from fbt_core.experiments.intervals import interval
from fbt_core.experiments.rule_depth import CONTROLS, TIMES
from fbt_core.experiments.rule_exponent import CONTENT, POSITIONAL
from fbt_core.experiments.ruling import title_of

EXPONENT = (
    r"$(l_{n+2} - l_{n+1}) / (l_{n+1} - l_n)$, $l$ the log residual. Grey: where T1 wants the median. Theorem A gives "
    "3, and 2 for a positional metric with untied weights."
)
"""The caption of the exponents."""


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


def last_layer(rows: Rows, choice: Choice, name: str) -> None:
    """Trained stacks: rank at the last layer beside what the task is done with."""
    if (frame := having(rows, choice, name)) is None:
        return
    last = frame[frame["layer"] == frame["layers"]]
    by_arm = {arm: last.loc[last["arm"] == arm, name].dropna().to_numpy(float) for arm in arms_in(choice, last)}
    drawn = {arm: interval(values) for arm, values in by_arm.items() if len(values)}
    if not drawn:
        st.caption(f"{rows.name}: no {name} at the last layer.")
        return
    lines = [line_of(choice, arm, np.array(values)[:, None], np.zeros(1)) for arm, values in drawn.items()]
    rules = []
    if name == "accuracy" and "chance" in last and last["chance"].notna().any():
        rules = [Rule("x", float(last["chance"].median()), "chance")]
    controls = [values[0] for arm, values in drawn.items() if arm in CONTROLS]
    if name == "effective_rank" and controls:
        best = max(controls)
        rules = [Rule("x", TIMES * best, f"T3: {TIMES:g} × the best control shown")]
    titles = {"effective_rank": "Effective rank after the last layer", "accuracy": "Accuracy on held-out sequences"}
    units = {"effective_rank": "effective rank, raw (dimensionless)", "accuracy": "share of tokens answered rightly"}
    figure = figures.dots(lines, titled(titles[name], rows), units[name], notes_of(choice, last, "mean"), rules)
    show_lines(
        figure, lines, rows, f"last-{name}", "After training. Bars: bootstrap 95 % interval of the mean over seeds."
    )


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
    show_lines(figure, lines, rows, f"exponents-{kind}", EXPONENT)
