"""Tokens of all layers in two or three dimensions: where they stand, and how they move through depth."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import cloud, cloud_choices, cloud_fit, cloud_members, frame, widgets
from app.cloud_choices import Choice
from app.cloud_fit import Fit
from app.cloud_members import Member
from app.figures.cloud_view import table
from app.figures.clouds import all_stages, by_stage
from app.view import View
from fbt_core.cloud import Cloud


def draw(
    view: View, choice: Choice, members: list[Member], found: Cloud, fit: Fit, key: str, limits: tuple[float, float]
) -> None:
    """One cloud, and what is picked in it: marked everywhere."""
    name = "A-and-B" if choice.together else members[0].side.name
    shown = cloud.view_of(view, choice, members, found, fit, name, limits)
    make = by_stage if choice.shown == "depth" else all_stages
    picked = widgets.show(
        make(shown, widgets.is_dark()), lambda: table(shown), key,
        cloud.caption(choice, found, shown.glyphs is not None), shown.name,
        on_select="rerun" if choice.dims == 2 else "ignore",
    )  # fmt: skip
    widgets.remarks(list(found.notes))
    if choice.dims == 2:
        mark(members, picked, key)


def mark(members: list[Member], event: Any, key: str) -> None:
    """Mark the tokens of a selection, once: a chart keeps its selection, and what is later cleared must stay so.

    A click adds to what is marked: the chart is drawn anew after each, and so knows of none before. Lasso and box mark
    what they hold, and nothing else.
    """
    selection = event["selection"] if event else {"points": []}
    known = [token if member.own else -1 for member in members for token in member.tokens]
    places = {place_of(point) for point in selection["points"]} - {-1}
    tokens = {known[place] for place in places} - {-1}
    drawn = repr((sorted(tokens), selection.get("lasso"), selection.get("box")))  # no two hands draw one lasso
    if tokens and st.session_state.get(f"{key}-marked") != drawn:
        st.session_state[f"{key}-marked"] = drawn
        clicked = not (selection.get("lasso") or selection.get("box"))
        widgets.mark({*tokens, *st.session_state["run"].marks} if clicked else tokens)
    if not tokens:
        st.session_state.pop(f"{key}-marked", None)


def place_of(point: Any) -> int:
    """Which token of the cloud a selected point is; -1 for what is none."""
    found = point.get("customdata")
    found = found[0] if isinstance(found, list) and found else found
    return int(found) if isinstance(found, (int, float)) else -1


view = frame.open_page("Cloud")
choice = cloud_choices.choose(view)
if view.compare and view.mismatch:
    st.caption(widgets.plain(f"A and B cannot share a cloud: {view.mismatch}. Each stands in a frame of its own."))
groups = cloud_members.clouds(view, choice)
limits = cloud_members.limits(groups, choice)
waiting = st.container()  # progress stands above the pictures
for column, members in zip(st.columns(len(groups)), groups, strict=True):
    fit = cloud_members.fit_of(members, choice)
    key = f"cloud-{members[0].side.name}-{choice.dims}"
    place = column.empty()
    if not cloud_fit.at_once(fit):
        with place.container():
            draw(view, choice, members, cloud_fit.fitted(fit.plain), fit.plain, f"{key}-first", limits)
    with waiting:
        found = cloud_fit.settled(fit, key)
    if found is not None:
        with place.container():
            draw(view, choice, members, found, fit, key, limits)
widgets.footnotes(view)
