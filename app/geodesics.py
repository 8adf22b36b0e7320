"""What the geodesics page shows: its choices, and how a side's ways between two tokens become curves and words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from app import ellipsoids, token_measures
from app.choices import READINGS, pick
from app.figures.ellipsoid_view import LABELLED, Curve, EllipsoidView
from app.geodesics_lengths import Way, way
from app.geodesics_scene import WHOLE, Scene, lacking, scene
from app.side import Side
from app.view import View
from fbt_core.geometry.model_field import ONE_SPACE

GEODESIC, CHORD, GRAPH = "geodesic", "straight chord", "graph path"

LENGTHS = {
    "euclid": ("Euclidean", "The straight way with $g = I$."),
    "chord": ("Chord", r"What attention uses: $\sqrt{\delta^\top \frac12 (g_x + g_y)\, \delta}$, no way's length."),
    "true": ("True", "Along the geodesic, the way of least energy that was found."),
    "graph": ("Graph path", "Straight segments from token to near token, measured by the metric: an upper bound."),
}
"""The four lengths: name to title and help."""

NEIGHBOURS = (1, 2, 3, 5, 8)
"""Tokens to which the graph joins each token."""

USUAL_RANGE = 10
"""Tokens of a text in the matrix, unless more are asked for."""

MOST_RANGE = 32
"""Tokens that the matrix can hold: the pairs are quadratic in them."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    token: int  # where the way begins, the sidebar's
    other: int  # where it ends
    reading: str  # a key of READINGS
    neighbours: int  # of a token in the graph
    labels: bool
    size: float


def choose(view: View) -> Choice:
    """The toolbar. Its choices are in the URL, so a copied link shows the same ways."""
    count = min(len(side.tokens) for side in view.sides)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text(f"From ({view.token}) {view.a.tokens[view.token]}", width="content")
        usual = next(
            (token for token in view.marked if token != view.token), count - 1 if view.token < count - 1 else 0
        )
        other = pick("To token", "to", range(count), usual, 200, lambda token: f"({token}) {view.a.tokens[token]}")
        reading = pick_reading(view, "metric_on", WHOLE)
        with st.popover("More"):
            near = pick("Graph: each token's nearest", "near", NEIGHBOURS, 3, 240)
            size, labels = ellipsoids.pick_look(count <= LABELLED, "way-labels")
    return Choice(view.token, other, reading, near, labels, size)


def pick_reading(view: View, key: str, default: str) -> str:
    """How the metric is one on the residual stream; no choice where all sides have a metric with slices of its own."""
    if all(side.trace.source in ONE_SPACE for side in view.sides):
        st.text("Metric on slices of its top directions", width="content")
        return WHOLE
    return pick("Metric on", key, READINGS, default, 220, READINGS.__getitem__)


def sliced(side: Side, reading: str) -> bool:
    """Whether vectors are those of a slice, so that ways from one token are not those back."""
    return (reading != WHOLE or side.trace.source in ONE_SPACE) and not missing(side, reading, 0)


def reading_title(side: Side, reading: str) -> str:
    """``whole stream``; what it is for a metric that is known on slices only, or not at all."""
    if missing(side, reading, 0):
        return f"{READINGS[WHOLE]}, g = I"
    own = side.trace.source in ONE_SPACE
    return f"slice of the metric's top {side.request.rank} directions" if own else READINGS[reading]


def scenes(view: View, reading: str, token: int) -> list[Scene]:
    """Each side's, cached."""
    return [
        side.of_model(scene, layer=side.layer, head=side.head, reading=reading, token=token) for side in view.sides
    ]  # fmt: skip


def drawn(view: View, reading: str, found: list[Scene], size: float, labels: bool) -> list[EllipsoidView]:
    """The ellipsoids of every side's scene, on one scale of sizes and one of colours."""
    colour = "anisotropy" if any(side.has_metric for side in view.sides) else token_measures.usual(view)
    whole = reading == WHOLE or any(ellipsoids.unavailable(side, "queries") for side in view.sides)
    asked = ellipsoids.Choice(
        "residual" if whole else "queries", "metric frame", False, "shared PCA", colour,
        False, size, labels, False,
    )  # fmt: skip
    sides = tuple(
        replace(side, request=side.request.bare) if ellipsoids.unavailable(side, asked.space) else side
        for side in view.sides
    )
    stage = found[0].field.stage
    for other in found[1:]:
        stage = stage.joined(other.field.stage)
    stage = stage.enlarged(size)
    return [
        replace(picture, field=one.field.on(stage))
        for picture, one in zip(ellipsoids.views(replace(view, sides=sides), asked), found, strict=True)
    ]


def ways(side: Side, choice: Choice) -> Way:
    """The ways of one side, cached."""
    return side.of_model(
        way, layer=side.layer, head=side.head, reading=choice.reading, first=choice.token, second=choice.other,
        neighbours=choice.neighbours,
    )  # fmt: skip


def curves(seen: Scene, found: Way) -> tuple[Curve, ...]:
    """Geodesic, chord and graph path in the coordinates of the picture: a linear map, so nothing is bent by it."""
    lines = [(CHORD, found.straight, 1, "dash", 2.0), (GRAPH, found.graph, 2, "dot", 2.5)]
    lines += [(GEODESIC, found.geodesic, 0, "solid", 3.0)]
    return tuple(
        Curve(name, seen.project(points), category, dash, width)
        for name, points, category, dash, width in lines
        if points is not None and len(points) > 1 and np.isfinite(points).all()
    )


def place(side: Side, reading: str) -> str:
    """``layer 3, whole stream`` or ``layer 3, head 1, block of the head``."""
    head = f", head {side.head}" if reading != WHOLE and not missing(side, reading, 0) else ""
    return f"layer {side.layer}{head}, {reading_title(side, reading)}"


def unit(reading: str) -> str:
    """Of lengths."""
    return "units of the head's keys" if reading == "key" else "units of the residual stream"


def missing(side: Side, reading: str, token: int) -> str:
    """Why a side has no metric as a function of the point, a sentence; empty where it has."""
    return side.of_model(lacking, layer=side.layer, head=side.head, reading=reading, token=token)


def span(view: View) -> tuple[int, int]:
    """The tokens of the matrix, first and past the last: a slider, which many of them need."""
    count = min(len(side.tokens) for side in view.sides)
    if count <= 2:
        return 0, count
    first, last = st.slider(
        "Tokens of the matrix", 0, count, (0, min(count, USUAL_RANGE)), key=f"span-{count}",
        help=f"At most {MOST_RANGE} are taken: the pairs grow with the square.",
    )  # fmt: skip
    last = max(last, min(first + 2, count))
    return min(first, last - 2), min(last, max(first, 0) + MOST_RANGE)
