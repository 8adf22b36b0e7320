"""The metric of every token as an ellipsoid at the token's position, for a head or for the residual stream."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from app import ellipsoids, frame, widgets
from app.components.ellipsoid_field import ellipsoid_field
from app.ellipsoids_words import both, caption
from app.figures.ellipsoid_view import table
from app.figures.ellipsoids import difference, figure
from app.view import View


def drawable(view: View, choice: ellipsoids.Choice) -> View:
    """The view with the sides that have such ellipsoids; for the others the reason, and a way on."""
    reasons = {side.name: ellipsoids.unavailable(side, choice.space) for side in view.sides}
    for side in view.sides:
        if not reasons[side.name]:
            continue
        st.info(f"{widgets.plain(side.title)}: {widgets.plain(reasons[side.name])}.")
        near = ellipsoids.nearest(side, choice.space)
        if near is not None and st.button(f"Go to layer {near}", key=f"near-{side.name}"):
            widgets.open_head(view, side, near, 0)
    sides = tuple(side for side in view.sides if not reasons[side.name])
    if not sides:
        widgets.footnotes(view)
        st.stop()
    return replace(view, sides=sides)


view = frame.open_page("Ellipsoid field")
choice = ellipsoids.choose(view)
view = drawable(view, choice)
shown = ellipsoids.views(view, choice)
dark = widgets.is_dark()

for column, side, drawn in zip(st.columns(len(shown)), view.sides, shown, strict=True):
    with column:
        key = f"ellipsoids-{side.name}"
        picked = ellipsoid_field(drawn, key=key)
        widgets.below(
            key, lambda drawn=drawn: figure(drawn, dark), lambda drawn=drawn: table(drawn),
            caption(choice, drawn.field, side.block.residual_U is not None), drawn.name, seen=False,
        )  # fmt: skip
        if picked is not None:
            widgets.select_token(picked)

if view.compare and view.mismatch is None:
    titles = [side.title for side in view.sides]
    widgets.show(
        difference(shown[0], shown[1], titles), lambda: both(shown, titles), "ellipsoids-difference",
        f"B minus A of the colour measure, token by token. {view.mapping}.",
        f"{shown[1].name}-minus-{shown[0].name.removeprefix('ellipsoids-')}",
    )  # fmt: skip
elif view.compare:
    st.info(f"No difference between A and B: {view.mismatch}. They stand side by side, on the same scales.")
widgets.footnotes(view)
