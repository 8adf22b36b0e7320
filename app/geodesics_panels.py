"""The ways of the geodesics page in the 3-D frame, with their lengths and how far these can be trusted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import streamlit as st

from app import widgets
from app.components.ellipsoid_field import ellipsoid_field
from app.figures.ellipsoids import figure
from app.figures.torsion import table_of_curves
from app.geodesics import LENGTHS, Choice, curves, drawn, missing, place, scenes, sliced, unit, ways
from app.geodesics_lengths import Way
from app.side import Side
from app.view import View


def draw_ways(view: View, choice: Choice) -> None:
    """Each side's picture with its cards below, one scale for both."""
    seen = scenes(view, choice.reading, choice.token)
    pictures = drawn(view, choice.reading, seen, choice.size, choice.labels)
    found = [ways(side, choice) for side in view.sides]
    lines = [curves(one, way) for one, way in zip(seen, found, strict=True)]
    for column, side, picture, one, several in zip(
        st.columns(len(pictures)), view.sides, pictures, found, lines, strict=True
    ):
        with column:
            title = f"{side.title}: {place(side, choice.reading)}, token {choice.token} to {choice.other}"
            shown = replace(
                picture,
                curves=several,
                title=title,
                name=f"geodesic-{side.name}",
                selected=choice.token,
                marked=tuple({*picture.marked, choice.other}),
            )
            key = f"ways-{side.name}"
            picked = ellipsoid_field(shown, key=key, height=560)
            widgets.below(
                key, lambda shown=shown: figure(shown, widgets.is_dark()), lambda s=several: table_of_curves(s),
                caption(side, choice, one), shown.name, seen=False,
            )  # fmt: skip
            cards(side, choice, one)
            if picked is not None:
                widgets.select_token(picked)


def caption(side: Side, choice: Choice, found: Way) -> str:
    """What the lines are."""
    text = (
        "Ellipsoids: unit balls of the metric at the tokens. Lines are projected along the same directions, which is "
        "linear and exact. The geodesic is the way of least energy between the two ends that was found; the chord is "
        "straight. Where a glyph hides a line, the line is faint."
    )
    if sliced(side, choice.reading):
        text += (
            r" Vectors move a token within its slice $x_i + E a$ only, so ways are those in the slice of token "
            f"{choice.token}, to where the other token's coordinates lie in it; what is outside of the slice stays."
        )
    if len(found.passed) > 2:
        text += f" The graph path passes tokens {', '.join(map(str, found.passed))}"
    elif found.passed:
        text += " The graph path is the direct edge"
    return text + (f"; each token is joined to its {found.neighbours} nearest." if found.passed else "")


def cards(side: Side, choice: Choice, found: Way) -> None:
    """The four lengths, and how far they can be trusted."""
    note = side.what_if
    if note:
        st.markdown(f":orange[{widgets.plain(note)}]")
    with st.container(horizontal=True, gap="medium"):
        for name, (title, help_) in LENGTHS.items():
            value = found.lengths.get(name, float("nan"))
            if name == "graph" and found.neighbours:
                title += f", {found.neighbours} nearest"  # another number gives another path
            st.metric(title, f"{value:.5g}" if np.isfinite(value) else "none", width="content", help=help_)
    ratio = found.lengths["true"] / found.lengths["chord"] if found.lengths["chord"] else float("nan")
    told = f" **True / chord = {ratio:.4f}.**" if np.isfinite(ratio) else ""
    st.caption(f"Lengths in {unit(choice.reading)}.{told} {trust(found)}")


def trust(found: Way) -> str:
    """Errors in words."""
    if found.why:
        return f":orange[No geodesic to be trusted: {widgets.plain(found.why)}.]"
    if found.geodesic is None:
        return "The two tokens are one."
    return (
        f"Error of the true length: about {found.error:.1e}; its speed drifts by {found.drift:.1e} of itself; "
        f"{found.steps} iterations. The geodesic is a local minimum: a shorter way may exist. The length of the graph "
        "path is an upper bound."
    )


def tell_missing(view: View, reading: str, token: int) -> None:
    """For sides whose metric is no function of the point: why, and what is drawn instead."""
    for side in view.sides:
        why = missing(side, reading, token)
        if why:
            st.info(
                f"{widgets.plain(side.title)}: {widgets.plain(why)}. What follows is with $g = I$: geodesics are "
                "straight, so chord, true and Euclidean length are one, and a loop turns no vector."
            )
