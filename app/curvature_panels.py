"""The panels of the curvature page: figures, their tables and captions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import curvature, uploads, widgets
from app.curvature import PARTS, Choice, Curved
from app.curvature_truth import TRUTHS, points, rho
from app.curvature_words import axis, degenerate, sampled, verdict
from app.figures import curvature as figures
from app.figures.signed_log import scale_of
from app.side import Side
from app.view import View
from fbt_core.measures.correlation import LEVEL

A_MINUTE = 4000
"""Points of a head's own metric that a core does in one."""

TWIN = "demo:riemannian"

WITHOUT = (
    "Curvature is how the metric $g(x)$ changes from place to place: where it is the same everywhere, geodesics are "
    "straight lines and $K = 0$ in every plane, whatever the proxy $\\Omega = \\operatorname{softplus}(\\beta) "
    "\\lVert U \\rVert_F^2$ says. A MetricNet, an adapter's among them, and the Fisher metric are functions of $x$."
)

OMEGA = r"$\Omega = \operatorname{softplus}(\beta_h) \lVert U \rVert_F^2$"
S = r"$S = \sum_{i \ne j} K(e_i, e_j)$ over a $g$-orthonormal frame"


def with_field(view: View) -> View:
    """The view with the sides whose metric is a field; for the others why it is none, and what can be done."""
    kept = []
    for side in view.sides:
        if not (why := curvature.unavailable(side)) or curvature.constant(side):
            kept.append(side)
        if not why:
            continue
        st.info(widgets.plain(f"{side.title}: {why}."))
        _ways_on(view, side)
    return replace(view, sides=tuple(kept))


def functions(view: View) -> View:
    """The view with the sides whose metric is a function of the point, and so can be asked between the tokens."""
    return replace(view, sides=tuple(side for side in view.sides if not curvature.unavailable(side)))


def _ways_on(view: View, side: Side) -> None:
    """What else can be looked at where a side has no curvature."""
    st.caption(WITHOUT)
    with st.container(horizontal=True):
        if not side.checkpoint.config.has_metric and side.trace.source != "fisher":
            st.button(
                "Take the Fisher metric of its predictions", key=f"fisher-{side.name}", on_click=_take,
                kwargs={"source": "fisher"}, help="A what-if. Others are under Metric in the sidebar.",
            )  # fmt: skip
        if not view.compare and TWIN in uploads.demos():
            st.button("Compare with the bundled Riemannian twin", key="twin", on_click=_take, kwargs={"b": TWIN})


def _take(**values: str) -> None:
    st.session_state[widgets.PENDING] = values


def computed(view: View, choice: Choice) -> list[Curved]:
    """Every side's numbers: at once where that is quick, else when asked for."""
    count = sum(curvature.points_of(side, choice) for side in view.sides)
    cost = sum(curvature.points_of(side, choice) * curvature.weight(side, choice.reading) for side in view.sides)
    if cost > curvature.ASKED and not st.toggle(
        f"Compute the curvature at {count:,} points (tokens × heads × layers): about {cost / A_MINUTE:.0f} minutes",
        key="compute", bind="query-params",
        help="It shows its progress, can be stopped, and goes on where it was. Quicker: this layer or head alone.",
    ):  # fmt: skip
        return []
    found = []
    for side in view.sides:
        try:
            found.append(curvature.curved(side, choice))
        except ValueError as reason:  # a reading that this model's shape has not
            st.info(widgets.plain(f"{side.title}: {reason}."))
    return found


def tell(found: list[Curved]) -> None:
    """Whether the proxy means anything, a sentence a side, where nobody can overlook it."""
    for column, one in zip(st.columns(len(found)), found, strict=True):
        with column.container(border=True, height="stretch"):
            st.caption(f"Does the proxy mean anything here? {widgets.plain(one.side.title)}, {one.where}")
            answer, numbers = verdict(one)
            st.markdown(f"**{widgets.plain(answer)}**")
            st.markdown(widgets.plain(numbers))


def compared(view: View, choice: Choice, found: list[Curved]) -> None:
    """Proxy against truth, and beside or below it the rank correlations with every truth."""
    drawn = [points(one, TRUTHS[choice.truth], view.marked) for one in found]
    shared = figures.axes(drawn, scale_of([one.truth for one in drawn], choice.log))
    ordered = [one for one in found if not degenerate(one)]
    alone = len(found) == 1
    columns = st.columns([3, 2]) if alone and ordered else st.columns(len(found))
    for column, one, shown in zip(columns, found, drawn, strict=False):
        with column:
            _scatter(choice, one, shown, shared)
    columns = columns[1:] if alone else st.columns(len(ordered) or 1)
    for column, one in zip(columns, ordered, strict=False):
        with column:
            _correlations(one)


def _scatter(choice: Choice, one: Curved, shown: figures.Points, shared: figures.Axes) -> None:
    truth = TRUTHS[choice.truth]
    figure = figures.scatter(
        shown, f"Proxy against truth · {one.side.title}", f"curvature proxy Ω ({omega_unit(one, choice)})",
        axis(truth.title), shared,
    )  # fmt: skip
    every = "every layer and token" if len(one.layers) > 1 else "every token"
    told = joined([f"{one.where}, {every}", shared.scale.words])
    figures.tell(figure, [told, sampled(one, choice.planes)], one.side.what_if)
    bars = " Bars: standard error." if truth.sampled and not one.exact else ""
    ringed = " Ringed: marked tokens." if shown.marked else ""
    widgets.show(
        figure, lambda: table(one), f"scatter-{one.side.name}",
        f"Each point is a token in a layer and head. {OMEGA}; truth: ${truth.symbol}$, {truth.title.lower()}; "
        f"{S}. A metric that does not change from place to place has $\\Omega > 0$ and $S = 0$.{bars}{ringed}",
        f"proxy-against-{choice.truth}-{one.side.name}",
    )  # fmt: skip


def _correlations(one: Curved) -> None:
    rows = [rho(one, truth) for truth in TRUTHS.values()]
    figure = figures.correlations(rows, f"Rank correlation of Ω · {one.side.title}")
    figures.tell(figure, [f"bars: {LEVEL} % bootstrap interval over whole tokens"], one.side.what_if)
    reasons = [f"{row.truth}: {part.reason}" for row in rows for part in (row.pooled, row.within) if part.reason]
    first = rows[0].pooled
    widgets.show(
        figure, lambda: _rho_table(one), f"rho-{one.side.name}",
        f"Spearman's $\\rho$ over {first.n:,} points of {first.groups} tokens. Squares: of ranks within one layer and "
        "head, so that differences between layers and heads do not count.",
        f"rank-correlation-{one.side.name}",
    )  # fmt: skip
    widgets.remarks(list(dict.fromkeys(reasons)))


def omega_unit(one: Curved, choice: Choice) -> str:
    """Omega's unit, and that it is a sum where it is one."""
    return "nats" if choice.per_head(one.side) else "nats, sum over heads"


def joined(told: list[str]) -> str:
    """What there is to tell, as one line."""
    return "; ".join(filter(None, told))


def table(one: Curved) -> pd.DataFrame:
    """One row a layer, head and token: everything that the page's figures show."""
    layer, head, token = np.indices(one.parts["omega"].shape).reshape(3, -1)
    numbers = {name: one.parts[name].ravel() for name in ("omega", *PARTS)}
    return pd.DataFrame({
        "checkpoint": one.side.title, "layer": np.asarray(one.layers, dtype=object)[layer],
        "head": np.asarray(one.heads, dtype=object)[head], "token": token,
        "text": np.asarray(one.side.tokens, dtype=object)[token], **numbers, "what_if": one.side.what_if or "",
    })  # fmt: skip


def _rho_table(one: Curved) -> pd.DataFrame:
    rows = []
    for truth in TRUTHS.values():
        row = rho(one, truth)
        for kind, found in (("pooled", row.pooled), ("within one layer and head", row.within)):
            rows.append({"truth": row.truth, "kind": kind, "rho": found.rho, "low": found.low, "high": found.high,
                         "pairs": found.n, "tokens": found.groups, "reason": found.reason})  # fmt: skip
    return pd.DataFrame(rows)
