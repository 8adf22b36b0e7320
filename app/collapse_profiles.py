"""Measures by layer on the Collapse page: the residual, where the rules look, and any other."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app.collapse_choice import Choice
from app.collapse_data import Rows, by_layer
from app.collapse_lines import arms_in, having, line_of, notes_of, say_none, show_lines, titled
from app.figures import collapse as figures
from app.figures.collapse import Rule
from fbt_core.experiments.depths import COLLAPSED
from fbt_core.experiments.profile import FLOOR

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
"""The caption of the residual."""


def residuals(rows: Rows, choice: Choice) -> None:
    """log residual by depth: where the rules look."""
    frame = choice.rows(rows.frame)
    lines = [
        line_of(choice, arm, 10.0 ** by_layer(frame, arm, "log10_residual")[1:], by_layer(frame, arm, "layer")[0])
        for arm in arms_in(choice, frame)
    ]
    if not lines:
        say_none(rows)
        return
    rules = [Rule("y", 10.0**COLLAPSED, "collapsed: below 10⁻³ (T2)")]
    if min(float(np.nanmin(line.y)) for line in lines) < 10 * FLOOR:
        rules.append(Rule("y", FLOOR, "rounding of float64"))
    alive = max(int(line.x[np.nonzero(line.y > 1.01 * FLOOR)[0]].max(initial=0)) for line in lines) + 1
    figure = figures.profile(
        lines,
        titled("Residual by depth", rows),
        "Dong residual (log scale)",
        notes_of(choice, frame, "mean of the log"),
        rules,
        log=True,
    )
    last = min(alive, int(choice.cell["layers"]))  # what follows lies on the floor
    figure.update_xaxes(range=[-0.3, last + 0.3])
    show_lines(figure, lines, rows, "residual", RESIDUAL)


def measure(rows: Rows, choice: Choice, name: str) -> None:
    """Any other measure by depth."""
    if (frame := having(rows, choice, name)) is None:
        return
    arms = [arm for arm in arms_in(choice, frame) if frame.loc[frame["arm"] == arm, name].notna().any()]
    lines = [line_of(choice, arm, by_layer(frame, arm, name)[1:], by_layer(frame, arm, name)[0]) for arm in arms]
    axis = (MEASURES | ENTROPY)[name]
    title = axis.partition(" (")[0]
    if not lines:
        st.caption(f"{rows.name}: {title} is not defined for these arms.")
        return
    rules, length = [], choice.cell["length"]
    if name == "entropy":
        rules = [Rule("y", float(length), f"uniform attention: L = {length}")]
    elif name in ("effective_rank", "effective_rank_centred"):
        rules = [Rule("y", 1.0, "one direction")]
    figure = figures.profile(
        lines,
        titled(title, rows),
        axis,
        notes_of(choice, frame, "mean"),
        rules,
        log=name in ("M", "entropy_deficit"),
    )
    words = (
        "Mean over the attention rows of the exponential of their entropy: among how many tokens a row spreads."
        if name == "entropy"
        else ""
    )
    show_lines(figure, lines, rows, name, f"{words} Band: bootstrap 95 % interval of the mean over seeds.")
