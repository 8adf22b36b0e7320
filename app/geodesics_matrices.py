"""Matrices of lengths of the geodesics page, and what attention would make of the true one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import frame, widgets
from app.components.attention_maps import attention_maps
from app.figures.geodesics import (
    Distances,
    distance_figure,
    distance_table,
    ratio_difference,
    true_against_chord,
)
from app.figures.map_figures import attention_figure
from app.figures.maps import MapPanels, table
from app.figures.total_variation import Variation, variation_figure
from app.geodesics import Choice, place, reading_title, sliced, span, unit
from app.geodesics_lengths import Replaced, replaced, row
from app.geodesics_scene import WHOLE
from app.side import Side
from app.view import View

WHAT_IF = "what-if: true distance in place of the chord"

SLOW = {True: 80, False: 400}
"""Pairs above which the matrix is computed only when asked for: of the whole stream, and of a head."""


@st.fragment
def matrices(view: View, choice: Choice) -> None:
    """Distances among the tokens of a range, and attention by them."""
    with frame.guard():
        st.subheader("Distances between tokens", anchor=False)
        first, last = span(view)
        pairs = (
            (last - first)
            * (last - first - 1)
            // (1 if any(sliced(side, choice.reading) for side in view.sides) else 2)
        )
        if pairs > SLOW[choice.reading == WHOLE] and not st.toggle(
            f"Compute {pairs:,} geodesics a side", key=f"want-{first}-{last}-{choice.reading}", persist_state="session"
        ):
            st.caption("A geodesic of the whole stream takes about half a second, one of a head a tenth of that.")
            return
        found = [distances(side, choice, first, last) for side in view.sides]
        draw_matrices(view, found)
        draw_attention(view, choice, found, first)


def distances(side: Side, choice: Choice, first: int, last: int) -> Distances:
    """Row by row behind a progress bar, where Stop takes effect; rows that are done are kept."""
    count, both_ways = last - first, sliced(side, choice.reading)
    cells = {name: np.zeros((count, count)) for name in ("true", "error", "chord", "euclid")}
    bar = st.progress(0.0, f"{side.name}: geodesics from token {first}")
    for done in range(count):
        others = [k for k in range(count) if k > done or (both_ways and k < done)]
        numbers = side.of_model(
            row, layer=side.layer, head=side.head, reading=choice.reading, token=first + done,
            others=tuple(first + other for other in others),
        )  # fmt: skip
        for name, values in numbers.items():
            cells[name][done, list(others)] = values
            if not both_ways:
                cells[name][list(others), done] = values
        bar.progress((done + 1) / count, f"{side.name}: geodesics from token {first + done}")
    bar.empty()
    inside = first <= min(choice.token, choice.other) and max(choice.token, choice.other) < last
    pair = (choice.token - first, choice.other - first) if inside and choice.token != choice.other else None
    return Distances(
        **cells, tokens=side.tokens[first:last], numbers=tuple(range(first, last)),
        title=f"{side.title} · {place(side, choice.reading)}", note=side.what_if or "", selected=pair,
        unit=unit(choice.reading),
    )  # fmt: skip


def draw_matrices(view: View, found: list[Distances]) -> None:
    """The four matrices a side, on shared scales, and B minus A of the ratio."""
    longest, widest = max(one.longest for one in found), max(one.widest for one in found)
    per_row = 2 if view.compare else 4
    for column, side, one in zip(st.columns(len(found)), view.sides, found, strict=True):
        with column:
            widgets.show(
                distance_figure(one, longest, widest, per_row), lambda one=one: distance_table(one),
                f"distances-{side.name}", words(one), f"distances-{side.name}",
            )  # fmt: skip
    if not view.compare:
        return
    left, right = st.columns(2)
    with left:
        widgets.show(
            true_against_chord(found), lambda: pd.concat([distance_table(one) for one in found]), "true-against-chord",
            f"A point a pair of tokens; on the line the two lengths are equal. {view.mapping}.", "true-against-chord",
        )  # fmt: skip
    with right:
        if view.mismatch:
            st.info(f"No difference between A and B: {view.mismatch}. They stand side by side, on the same scales.")
            return
        widgets.show(
            ratio_difference(found[0], found[1], [side.title for side in view.sides]),
            lambda: pd.concat([distance_table(one) for one in found]), "distances-difference", f"{view.mapping}.",
            "distances-difference",
        )  # fmt: skip


def words(found: Distances) -> str:
    """Under the matrices: errors, what is missing, and a sentence that says what the ratio means here."""
    upper = ~np.eye(len(found.tokens), dtype=bool)
    ratio, error = found.ratio[upper], found.error[upper]
    good = np.isfinite(ratio)
    text = (
        r"True: length of the geodesic; chord: $\sqrt{\delta^\top \frac12 (g_i + g_j)\, \delta}$; Euclidean: "
        r"$\lVert \delta \rVert$, with $\delta$ the step from token $i$ to $j$."
    )
    if good.any():
        text += (
            f" Here true / chord lies between {ratio[good].min():.4f} and {ratio[good].max():.4f}; the error of a true "
            f"length is at most {np.nanmax(error[np.isfinite(error)], initial=0):.1e}."
        )
    return text + (f" Not found: {int((~good).sum())} lengths, left blank." if (~good).any() else "")


def draw_attention(view: View, choice: Choice, found: list[Distances], first: int) -> None:
    """Two maps and their difference a side, and the total variation of each row."""
    st.subheader("Attention, if the true distance replaced the chord", anchor=False)
    st.caption(DEFINITION)
    attending = [
        (side, one)
        for side, one in zip(view.sides, found, strict=True)
        if side.block.factors is not None and not side.trace.rectangular
    ]
    if not attending:
        st.caption("No head of this layer has queries and keys, so there is no attention to change.")
        return
    results = [replaced(side.trace, side.layer, side.head, one.ratio, first) for side, one in attending]
    panels = [
        maps(side, choice, one, result, view.token - first)
        for (side, one), result in zip(attending, results, strict=True)
    ]
    top = max(one.top() for one in panels)
    wide = max(float(np.abs(one.difference[one.allowed]).max(initial=0)) for one in panels) or None
    for (side, _), shown in zip(attending, panels, strict=True):
        shown = replace(shown, ceiling=top, difference_ceiling=wide)
        key = f"replaced-{side.name}"
        picked = attention_maps(shown, key=key)
        widgets.below(
            key, lambda shown=shown: attention_figure(shown, widgets.is_dark()), lambda shown=shown: table(shown),
            f"{partial_rows(side, first, len(shown.tokens))} A click selects the query everywhere.", shown.name,
            seen=False,
        )  # fmt: skip
        if picked:
            widgets.select_token(picked[0])
    series = [
        Variation(f"{side.title} · layer {side.layer}, head {side.head}", result.variation, one.tokens, one.numbers)
        for (side, one), result in zip(attending, results, strict=True)
    ]
    scores = [
        f"{side.name}: {why}" if view.compare else why
        for (side, _), result in zip(attending, results, strict=True) if (why := side.what_if_score(result.score))
    ]  # fmt: skip
    notes = "; ".join([WHAT_IF, *scores])
    title = f"Total variation of each row: {GIVEN}" + ("" if view.compare else f" · {series[0].label}")
    widgets.show(
        variation_figure(series, title, notes), lambda: variation_table(series),
        "replaced-variation",
        r"$\mathrm{TV}_i = \frac12 \sum_j |a_{ij} - a'_{ij}|$, in $[0, 1]$: the share of the row's attention that goes "
        "to other keys.", "replaced-variation",
    )  # fmt: skip


GIVEN = "true distance against chord"

DEFINITION = (
    r"What-if. The score of a query and a key is $s_{ij} = -D_{ij} / \tau - \Omega_j$, with $D_{ij}$ the squared "
    r"chord of $q_i$ and $k_j$, which is no distance of tokens. It becomes "
    r"$s'_{ij} = -\rho_{ij}^2 D_{ij} / \tau - \Omega_j$, where $\rho_{ij}$ = true / chord is that of tokens $i$ and "
    "$j$ in the matrix above, and 1 for a token and itself: our definition, for which the model was not trained. Masks "
    "and position biases stay."
)


def maps(side: Side, choice: Choice, found: Distances, result: Replaced, selected: int) -> MapPanels:
    """Chord, true and difference."""
    notes = [WHAT_IF, *filter(None, [side.what_if_score(result.score)])]
    return MapPanels(
        left=result.chord.astype(np.float32), right=result.true.astype(np.float32),
        titles=("by the chord", "by the true distance"), tokens=found.tokens, causal=side.causal,
        entropy=(result.entropy("chord"), result.entropy("true")),
        heading=f"{side.title} · layer {side.layer}, head {side.head} · metric: {reading_title(side, choice.reading)}",
        name=f"attention-true-{side.name}", note="; ".join(dict.fromkeys(notes)), positions=found.numbers,
        selected=selected if 0 <= selected < len(found.tokens) else None, hidden=result.hidden,
    )  # fmt: skip


def partial_rows(side: Side, first: int, count: int) -> str:
    """What the softmax went over."""
    whole = first == 0 and (side.causal or count == len(side.tokens))
    if whole:
        return "Rows $i$ are queries, columns $j$ keys; each row is a softmax over every key that it may see."
    return (
        "Rows $i$ are queries, columns $j$ keys; each row is a softmax over the tokens shown only, the others left out."
    )


def variation_table(series: list[Variation]) -> pd.DataFrame:
    """One row a query and side."""
    return pd.concat([
        pd.DataFrame({"checkpoint": one.label, "query": one.numbers, "text": one.tokens, "total_variation": one.values})
        for one in series
    ])  # fmt: skip
