"""The metric of every token as an ellipsoid at the token's position, for a head or for the residual stream."""

from __future__ import annotations

import streamlit as st

from app import ellipsoids, frame, widgets
from app.components.ellipsoid_field import ellipsoid_field
from app.figures.ellipsoids import difference, figure, table

view = frame.open_page("Ellipsoid field")
choice = ellipsoids.choose(view)
shown = ellipsoids.views(view, choice)
dark = widgets.is_dark()

for column, side, drawn in zip(st.columns(len(shown)), view.sides, shown, strict=True):
    with column:
        key = f"ellipsoids-{side.name}"
        picked = ellipsoid_field(drawn, key=key)
        widgets.below(
            key, lambda drawn=drawn: figure(drawn, dark), lambda drawn=drawn: table(drawn),
            ellipsoids.caption(choice, drawn.field), drawn.name, seen=False,
        )  # fmt: skip
        if picked is not None:
            widgets.select_token(picked)

if view.compare and view.mismatch is None:
    titles = [side.title for side in view.sides]
    widgets.show(
        difference(shown[0], shown[1], titles), lambda: ellipsoids.both(shown, titles), "ellipsoids-difference",
        f"B minus A of the colour measure, token by token. {view.mapping}.",
        f"{shown[1].name}-minus-{shown[0].name.removeprefix('ellipsoids-')}",
    )  # fmt: skip
elif view.compare:
    st.info(f"No difference between A and B: {view.mismatch}. They stand side by side, on the same scales.")
