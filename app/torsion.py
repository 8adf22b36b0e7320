"""What the torsion page shows: its choices, the planes on the values, and the loop in the residual stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from app import ellipsoids
from app.choices import pick
from app.figures.ellipsoid_view import LABELLED, Curve, EllipsoidView
from app.figures.torsion import SPREAD, Carried, carried_curves, plane_curves
from app.geodesics import pick_reading
from app.geodesics_scene import Scene
from app.side import Side
from app.torsion_numbers import VECTORS, Loop, Turns, carried, loop_of, turns, value_planes
from app.view import View

DRAWN = {"turned": "turned into view", "exact": "exact projection"}
"""How a plane of many dimensions becomes one of three."""

ARROW = 4.5
"""Length of the longest arrow, in radii of the unit sphere."""

LEAST_ARROW, LEAST_RADIUS = 0.15, 0.03
"""Of arrows and planes, in diagonals of the scene's box: in a crowd the glyphs are small."""

IN_A_CROWD = 12
"""Tokens whose planes are drawn where there are too many for all."""

MOST_CORNERS = 8
"""Tokens that a loop may pass."""

MOST_NEIGHBOURS = 24
"""Loops of three neighbouring tokens in the table, from the first on."""

SIGNED = "next"
"""The carried vector that has a sign."""


@dataclass(frozen=True)
class Choice:
    """What the controls of the loop say."""

    tokens: tuple[int, ...]
    reading: str  # a key of READINGS
    vector: str  # a key of VECTORS
    size: float
    labels: bool


def choose_loop(view: View) -> Choice:
    """The toolbar of the loop. Its choices are in the URL."""
    count = min(len(side.tokens) for side in view.sides)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        tokens = _corners(view, count)
        reading = pick_reading(view, "loop_on", "block")
        vector = pick("Carried vector", "vector", VECTORS, SIGNED, 250, VECTORS.__getitem__)
        with st.popover("More"):
            size, labels = ellipsoids.pick_look(count <= LABELLED, "loop-labels")
    return Choice(tokens, reading, vector, size, labels)


def _corners(view: View, count: int) -> tuple[int, ...]:
    """The tokens of the loop, in the order in which they were chosen; at first the marked ones, or three."""
    usual = list(view.marked[:MOST_CORNERS]) if len(view.marked) > 2 else first_loop(view.token, count)
    key = "loop"
    if key in st.session_state and any(token >= count for token in st.session_state[key]):
        st.session_state[key] = [token for token in st.session_state[key] if token < count]
    chosen = st.multiselect(
        "Loop of tokens, in this order and back", range(count), default=None if key in st.session_state else usual,
        key=key, format_func=lambda token: f"({token}) {view.a.tokens[token]}", max_selections=MOST_CORNERS,
        bind="query-params", width=420, persist_state="session",
    )  # fmt: skip
    return tuple(chosen)


def first_loop(token: int, count: int) -> list[int]:
    """Three tokens: the chosen one, and the two that follow at a third of the text each."""
    step = max(1, count // 3)
    return list(dict.fromkeys((token + k * step) % count for k in range(min(3, count))))


def turned(side: Side) -> Turns | None:
    """FiberTransport of a side, cached; None for a model without torsion."""
    return side.of_model(turns) if side.trace.layers and any(layer.torsion for layer in side.trace.layers) else None


def value_views(view: View, how: str, size: float, labels: bool) -> tuple[list[EllipsoidView], list[tuple[int, int]]]:
    """The values of each side's head with their rotation planes, and how many tokens have one drawn, of how many."""
    asked = ellipsoids.Choice(
        "values", "metric frame", False, "shared PCA", "torsion_norm", False, size, labels, False
    )  # fmt: skip
    shown, counts = [], []
    for side, picture in zip(view.sides, ellipsoids.views(view, asked), strict=True):
        planes = side.derived(value_planes, layer=side.layer, head=side.head)
        tokens = most_turned(planes.angles, view.token)
        drawn = planes.into_view() if how == "turned" else planes
        radius = max(SPREAD * picture.field.stage.scale, LEAST_RADIUS * extent(picture))
        curves = plane_curves(drawn, picture.field.centres, radius, tokens)
        shown.append(replace(picture, curves=curves, name=f"torsion-{side.name}", title=f"{picture.title}"))
        counts.append((len(tokens), len(planes.angles)))
    return shown, counts


def most_turned(angles: np.ndarray, selected: int) -> np.ndarray:
    """The tokens whose planes are drawn: all while they are few, else those of the largest angles and the selected."""
    if len(angles) <= LABELLED:
        return np.arange(len(angles))
    largest = np.nan_to_num(angles.max(1), nan=-1.0)
    order = np.argsort(-largest, kind="stable")
    return np.sort(np.unique([selected, *order[: IN_A_CROWD - 1]]))


def carried_loop(side: Side, choice: Choice, tokens: tuple[int, ...]) -> Loop:
    """A loop of one side with the vector carried around it, cached."""
    return side.of_model(
        carried, layer=side.layer, head=side.head, reading=choice.reading, tokens=tokens, vector=choice.vector
    )  # fmt: skip


def other_loop(side: Side, choice: Choice, tokens: tuple[int, ...]) -> Loop:
    """A loop of the table, cached."""
    return side.of_model(
        loop_of, layer=side.layer, head=side.head, reading=choice.reading, tokens=tokens, rough=True
    )  # fmt: skip


def arrow_length(picture: EllipsoidView) -> float:
    """Of the longest arrow, in the units of the axes."""
    return max(ARROW * picture.field.stage.scale, LEAST_ARROW * extent(picture))


def extent(picture: EllipsoidView) -> float:
    """The diagonal of the scene's box."""
    low, high = picture.box
    return float(np.linalg.norm(high - low))


def loop_curves(seen: Scene, choice: Choice, loop: Loop, length: float) -> tuple[Curve, ...]:
    """The loop, and the vector at its stations, in the coordinates of the picture."""
    assert loop.stations is not None and loop.vectors is not None
    drawn = Carried(
        seen.project(loop.stations), seen.turn(loop.vectors), tuple(map(seen.project, loop.edges)),
        choice.vector == SIGNED,
    )  # fmt: skip
    finite = all(np.isfinite(part).all() for part in (drawn.places, drawn.vectors, *drawn.loop))
    return carried_curves(drawn, length) if finite else ()


def in_view(seen: Scene, loop: Loop) -> float:
    """The share of the carried vector's squared length that the drawn directions hold, at the start."""
    assert loop.coordinates is not None and loop.vectors is not None
    whole = float(np.square(loop.coordinates).sum())
    return float(np.square(seen.turn(loop.vectors[:1])).sum()) / whole if whole > 0 else float("nan")


def loops_of(tokens: tuple[int, ...], count: int, neighbours: bool) -> list[tuple[int, ...]]:
    """The loops of the table: the chosen one, its reverse, the triangles in it, and every three neighbours if asked."""
    found = [tokens, tokens[:1] + tokens[:0:-1]]
    if len(tokens) > 3:
        found += [(tokens[0], tokens[k], tokens[k + 1]) for k in range(1, len(tokens) - 1)]
    if neighbours:
        found += [(token, token + 1, token + 2) for token in range(min(count - 2, MOST_NEIGHBOURS))]
    return list(dict.fromkeys(found))


def label(tokens: Sequence[int]) -> str:
    """``2 → 5 → 7 → 2``."""
    return " → ".join(str(token) for token in (*tokens, tokens[0]))
