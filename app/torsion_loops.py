"""Loops of tokens on the torsion page: a vector carried around one, its holonomy, and a table of loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import frame, widgets
from app.components.ellipsoid_field import ellipsoid_field
from app.figures.ellipsoids import figure
from app.figures.torsion import table_of_curves
from app.geodesics import drawn, place, scenes, sliced, unit
from app.geodesics_panels import tell_missing
from app.geodesics_scene import Scene
from app.side import Side
from app.torsion import (
    MOST_NEIGHBOURS,
    SIGNED,
    Choice,
    arrow_length,
    carried_loop,
    choose_loop,
    in_view,
    label,
    loop_curves,
    loops_of,
    other_loop,
)
from app.torsion_numbers import VECTORS, Loop
from app.view import View

WHY_ZERO = (
    r"FiberTransport's holonomy is zero by construction: it moves a vector from token $j$ to token $i$ by "
    r"$C_i^\top C_j$, one rotation of each token by itself, so around a loop every $C_j C_j^\top$ cancels and the "
    "product is the identity, whatever the model learned. What is shown is rounding."
)


@st.fragment
def loops(view: View) -> None:
    """A vector around a loop, by the metric's own transport, with FiberTransport's beside it, and a table of loops."""
    with frame.guard():
        st.subheader("Transport around a loop of tokens", anchor=False)
        choice = choose_loop(view)
        if len(choice.tokens) < 2:
            st.info("Choose two tokens or more; with two, the way back is the way there, and nothing is turned.")
            return
        lost = [side for side in view.sides if not side.block.residual_in[list(choice.tokens)].isfinite().all()]
        for side in lost:
            st.info(f"{widgets.plain(side.title)}: in layer {side.layer} a token of the loop is not finite.")
        if lost:
            return
        tell_missing(view, choice.reading, choice.tokens[0])
        draw_loop(view, choice)
        table_of_loops(view, choice)


def draw_loop(view: View, choice: Choice) -> None:
    """The picture of each side with its cards."""
    with st.spinner("Carrying a vector around the loop"):
        found = [carried_loop(side, choice, choice.tokens) for side in view.sides]
    seen = scenes(view, choice.reading, choice.tokens[0])
    pictures = drawn(view, choice.reading, seen, choice.size, choice.labels)
    for column, side, picture, one, loop in zip(
        st.columns(len(pictures)), view.sides, pictures, seen, found, strict=True
    ):
        with column:
            title = f"{side.title}: {place(side, choice.reading)}, loop {label(choice.tokens)}"
            curves = loop_curves(one, choice, loop, arrow_length(picture))
            shown = replace(picture, curves=curves, title=title, name=f"loop-{side.name}", selected=choice.tokens[0])
            key = f"loops-{side.name}"
            ellipsoid_field(shown, key=key, height=560)
            widgets.below(
                key, lambda shown=shown: figure(shown, widgets.is_dark()), lambda c=curves: table_of_curves(c),
                loop_caption(side, one, choice, loop), shown.name, seen=False,
            )  # fmt: skip
            cards(side, choice, loop)


def loop_caption(side: Side, seen: Scene, choice: Choice, loop: Loop) -> str:
    """What the arrows are."""
    sign = "" if choice.vector == SIGNED else " It has no sign, so a line stands for it and not an arrow."
    slices = f" All corners are taken into the slice $x_i + E a$ of token {choice.tokens[0]}; the rest stays."
    slices = slices if sliced(side, choice.reading) else ""
    return (
        f"Levi-Civita transport, $\\dot w = -\\Gamma(\\dot c, w)$, along geodesics from token to token and back. The "
        f"vector: {VECTORS[choice.vector]}.{sign} Arrows are projected as the points are, all at one scale; the drawn "
        f"directions hold {100 * in_view(seen, loop):.0f} % of the first one.{slices}"
    )


def cards(side: Side, choice: Choice, loop: Loop) -> None:
    """Angles, and FiberTransport's beside them."""
    if side.what_if:
        st.markdown(f":orange[{widgets.plain(side.what_if)}]")
    with st.container(horizontal=True, gap="medium"):
        st.metric(
            "Start to end", degrees(loop.turned), width="content",
            help="The angle, in the metric, between the vector at the start and when it is back.",
        )  # fmt: skip
        st.metric(
            "Largest holonomy angle", degrees(loop.largest), width="content",
            help="Of the planes that the loop turns, the one that it turns most. No plane has a sign.",
        )  # fmt: skip
        gauge = "no torsion" if np.isnan(loop.gauge) else f"{loop.gauge:.1e}"
        st.metric(
            "FiberTransport's max |M − I|", gauge, width="content",
            help="The largest entry of its holonomy M less the identity, dimensionless: rounding.",
        )  # fmt: skip
    several = ", ".join(f"{np.degrees(angle):.3g}°" for angle in loop.angles[:6])
    end = " and smaller ones." if len(loop.angles) > 6 else "."
    trust = f":orange[Not to be trusted: {widgets.plain(loop.why)}.] " if loop.why else ""
    why = "" if np.isnan(loop.gauge) else WHY_ZERO
    st.caption(
        f"{trust}Length of the loop: {loop.length:.5g} {unit(choice.reading)}. Angles of all planes: {several}{end} "
        f"Error of an angle: about {np.degrees(loop.error):.1e}°; the vector's length changed by at most "
        f"{loop.kept:.1e} of itself. {why}"
    )


def degrees(angle: float) -> str:
    """``3.21°``."""
    return "none" if not np.isfinite(angle) else f"{np.degrees(angle):.3g}°"


def table_of_loops(view: View, choice: Choice) -> None:
    """Rows behind a progress bar, where Stop takes effect; rows that are done are kept."""
    count = min(len(side.tokens) for side in view.sides)
    st.markdown("**Loops compared**")
    more = min(count - 2, MOST_NEIGHBOURS)
    neighbours = more > 0 and st.toggle(
        f"Also every three neighbouring tokens ({more} loops)", key="neighbour-loops", persist_state="session",
        help="A second to some ten seconds a loop: a hard ceiling of the metric makes small steps.",
    )  # fmt: skip
    asked = loops_of(choice.tokens, count, bool(neighbours))
    rows, bar, todo = [], st.progress(0.0, "Loops"), len(asked) * len(view.sides)
    for side in view.sides:
        for tokens_ in asked:
            found = (carried_loop if tokens_ == choice.tokens else other_loop)(side, choice, tokens_)
            rows.append(_row(side, tokens_, found))
            bar.progress(len(rows) / todo, f"Loops: {len(rows)} of {todo}")
    bar.empty()
    made = pd.DataFrame(rows)
    st.dataframe(made, hide_index=True, width="stretch", column_config=COLUMNS)
    st.caption(
        "Holonomy angles by Levi-Civita transport, largest three, in degrees and without sign. The reverse of a loop "
        "turns back, so its angles are the same. Angles grow with the curvature that a loop encloses; FiberTransport's "
        "column is rounding."
    )


def _row(side: Side, tokens_: tuple[int, ...], loop: Loop) -> dict[str, object]:
    angles_ = [*np.degrees(loop.angles[:3]), np.nan, np.nan, np.nan][:3]
    return {
        "side": side.name, "loop": label(tokens_), "text": " → ".join(side.tokens[token] for token in tokens_),
        "length": loop.length, **{f"angle {k + 1}": value for k, value in enumerate(angles_)},
        "error": float(np.degrees(loop.error)), "FiberTransport": loop.gauge, "remark": loop.why,
    }  # fmt: skip


COLUMNS = {
    "length": st.column_config.NumberColumn("length", format="%.4g"),
    **{f"angle {k}": st.column_config.NumberColumn(f"angle {k} (°)", format="%.4f") for k in (1, 2, 3)},
    "error": st.column_config.NumberColumn("error (°)", format="%.1e"),
    "FiberTransport": st.column_config.NumberColumn("FiberTransport (max |M − I|)", format="%.1e"),
}
