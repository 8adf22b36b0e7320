"""One claim opened: what it says, what was found on each side, the pictures, what would have changed the verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import frame, widgets
from app.claims_findings import Asked, findings
from app.claims_table import chip, measured
from app.figures import claims as figures
from app.figures import theme
from app.side import Side
from app.tables import Table
from app.view import View
from fbt_core.claims import CLAIMS, Claim, Finding
from fbt_core.claims.chart import Chart

Found = list[tuple[Side, Finding]]


@st.fragment
def opened(view: View, asked: list[Asked]) -> None:
    """The chooser of a claim, and the claim."""
    with frame.guard():
        found = {name: [findings(one).get(name) for one in asked] for name in CLAIMS}

        name = st.pills(
            "Open a claim", list(CLAIMS), default=next(iter(CLAIMS)), required=True, key="claim", bind="query-params"
        )
        claim = CLAIMS[str(name)]
        says(claim)
        there = [(side, one) for side, one in zip(view.sides, found[claim.id], strict=True) if one is not None]
        if not there:
            st.info("This claim was not checked yet.")
            return
        verdicts(view, claim, there)
        pictures(view, claim, there)
        numbers(claim, there)
        remarks(view, there)


def remarks(view: View, there: Found) -> None:
    """The findings' notes; one that both sides share is said once."""
    lines = []
    for note in dict.fromkeys(note for _, found in there for note in found.notes):
        names = [side.name for side, found in there if note in found.notes]
        lines.append(note if len(names) == len(view.sides) else f"{', '.join(names)}: {note}")
    st.caption("  \n".join(map(widgets.plain, lines)))


def says(claim: Claim) -> None:
    """The statement, in words and in mathematics, and the rule."""
    st.subheader(f"{claim.id} · {claim.title}", anchor=False)
    st.markdown(widgets.plain(claim.statement))
    st.latex(claim.equation)
    threshold = f"{claim.threshold:g} {claim.unit}".strip()
    rows = {
        "Statistic and rule": claim.statistic, f"Threshold {threshold}": claim.reason,
        "The paper": claim.says_paper, "Source": claim.source,
    }  # fmt: skip
    st.caption("  \n".join(f"**{widgets.plain(name)}.** {widgets.plain(text)}" for name, text in rows.items()))


def verdicts(view: View, claim: Claim, there: Found) -> None:
    """Verdict, reason, and what would have changed it, a column a side."""
    for column, (side, found) in zip(st.columns(len(there)), there, strict=True):
        with column, st.container(border=True):
            name = f"{theme.label(side.title)}: " if view.compare else ""
            st.html(f'<div style="font-size:1.05rem">{name}{chip(found.verdict)}</div>')
            st.markdown(f"{widgets.plain(measured(claim, found))}. {widgets.plain(found.why)}"
                        if np.isfinite(found.statistic) else widgets.plain(found.why))  # fmt: skip
            st.caption(f"**What would have changed it.** {widgets.plain(found.would_change)}")
            if side.what_if:
                st.markdown(f":orange[{widgets.plain(side.what_if)}]")


@dataclass(frozen=True)
class Picture:
    """A figure on the page, with the table behind it."""

    key: str
    figure: go.Figure
    table: Table


def pictures(view: View, claim: Claim, there: Found) -> None:
    """The charts and the map: two beside each other, or those of the two sides."""
    found = [_pictures(view, claim, side, one, there) for side, one in there]
    if view.compare:
        pairs = [[each[index] for each in found if index < len(each)] for index in range(max(map(len, found)))]
    else:
        pairs = [found[0][start : start + 2] for start in range(0, len(found[0]), 2)]
    for pair in pairs:
        for column, one in zip(st.columns(2), pair, strict=False):
            with column:
                widgets.show(one.figure, one.table, one.key, "", one.key)


def _pictures(view: View, claim: Claim, side: Side, found: Finding, there: Found) -> list[Picture]:
    """All of one side's. Maps of both sides have one colour scale."""
    name, start = side.title if view.compare else "", f"claim-{claim.id}-{side.name}"
    made = [
        Picture(f"{start}-{index}", figures.chart(one, name), lambda one=one: frame_of(one))
        for index, one in enumerate(found.charts)
    ]
    if found.grid is not None and np.isfinite(found.grid).any():
        limits = figures.bounds(*(one.grid for _, one in there if one.grid is not None))
        layers = tuple(str(layer.index) for layer in side.forward.layers)
        figure = figures.grid(found.grid, found.grid_title, layers[: len(found.grid)], name, limits)
        made.append(Picture(f"{start}-map", figure, lambda: _grid_frame(found)))
    for one in made:
        theme.note(one.figure, side.what_if)
    return made


def frame_of(given: Chart) -> pd.DataFrame:
    """What is drawn, a row a point; marks are rows without one of the two."""
    rows = [
        {"curve": curve.name, given.x_title: x, given.y_title: y}
        | ({} if curve.low is None or curve.high is None else {"low": curve.low[i], "high": curve.high[i]})
        for curve in given.curves for i, (x, y) in enumerate(zip(curve.x, curve.y, strict=True))
    ]  # fmt: skip
    rows += [
        {"curve": mark.text, given.x_title if mark.axis == "x" else given.y_title: mark.value} for mark in given.marks
    ]
    return pd.DataFrame(rows)


def _grid_frame(found: Finding) -> pd.DataFrame:
    assert found.grid is not None
    layer, head = np.indices(found.grid.shape).reshape(2, -1)
    return pd.DataFrame({"layer": layer, "head": head, found.grid_title: found.grid.ravel()})


def numbers(claim: Claim, there: Found) -> None:
    """Every number by name, a column a side."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for side, found in there:
        for name, value, unit in found.numbers:
            rows.setdefault((name, unit), {})[side.title] = value
    if not rows:
        return
    made = pd.DataFrame(
        [{"number": name, **{side: f"{value:.5g}" for side, value in values.items()}, "unit": unit or "1"}
         for (name, unit), values in rows.items()]
    )  # fmt: skip
    wide = {"number": st.column_config.TextColumn("number", width="large")}
    st.dataframe(made, hide_index=True, width="stretch", key=f"claim-{claim.id}-numbers", column_config=wide)
