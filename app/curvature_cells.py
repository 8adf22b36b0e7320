"""A quantity over the plane through three tokens, computed part by part in a side's layer and head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
import torch
from torch import Tensor

from app import widgets
from app.figures.fields import SliceField
from app.side import Side
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.model_field import field_points, model_field
from fbt_core.geometry.slice import QUANTITIES, Plane, lattice, plane_through, quantity_on, surface_metrics
from fbt_core.measures.tokens import to_numpy
from fbt_core.trace import Trace

PARTS = 8
"""A plane is computed in so many parts: each moves the progress bar, is kept, and lets Stop take effect."""

ELLIPSES = 9
"""Along the longer side."""

Corners = tuple[int, int, int]


@dataclass(frozen=True)
class Cut:
    """What is drawn, of which plane, how finely."""

    reading: str
    tokens: tuple[int, int, int]
    quantity: str  # a key of QUANTITIES
    cells: int
    planes: int


def field_on(side: Side, cut: Cut) -> tuple[SliceField, Plane] | None:
    """A side's plane, part by part; None, the reason on the page, where three tokens span none."""
    options = {"layer": side.layer, "head": side.head, "reading": cut.reading, "tokens": cut.tokens}
    try:
        plane = side.of_model(plane_of, **options)
    except ValueError as reason:
        st.info(widgets.plain(f"{side.title}, layer {side.layer}: {reason}."))
        return None
    bar = st.progress(0.0, f"{side.title}: {QUANTITIES[cut.quantity].title.lower()} on the plane")
    parts = []
    for part in range(PARTS):
        parts.append(side.of_model(
            part_of, **options, quantity=cut.quantity, cells=cut.cells, planes=cut.planes, part=part
        ))  # fmt: skip
        bar.progress((part + 1) / PARTS)
    bar.empty()
    values, error = (np.concatenate(column) for column in zip(*parts, strict=True))
    x, y = (to_numpy(axis) for axis in lattice(plane, cut.cells))
    at, metrics, spacing = side.of_model(ellipses_of, **options)
    names = tuple(side.tokens[token] for token in cut.tokens)
    row = QUANTITIES[cut.quantity]
    field = SliceField(
        x, y, values.reshape(len(y), len(x)), error.reshape(len(y), len(x)), at, metrics, spacing,
        to_numpy(plane.tokens), names, row.signed, "units of the " + ("keys" if cut.reading == "key" else "stream"),
    )  # fmt: skip
    return field, plane


def plane_of(model: Any, trace: Trace, *, layer: int, head: int, reading: str, tokens: Corners) -> Plane:
    """The plane of three tokens in a layer. Raises ``ValueError`` where they span none."""
    return _spanned(model, trace, layer, head, reading, tokens)[1]


def part_of(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, tokens: Corners, quantity: str, cells: int,
    planes: int, part: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """One part of the cells, row by row: values and standard errors."""
    g, plane = _spanned(model, trace, layer, head, reading, tokens)
    places = _places(*lattice(plane, cells)).tensor_split(PARTS)[part]
    values, error = quantity_on(g, plane, quantity, places, planes)
    return to_numpy(values), to_numpy(error)


def ellipses_of(
    model: Any, trace: Trace, *, layer: int, head: int, reading: str, tokens: Corners
) -> tuple[np.ndarray, np.ndarray, float]:
    """Where ellipses stand, the plane's metric there, and how far they are apart."""
    g, plane = _spanned(model, trace, layer, head, reading, tokens)
    x, y = (axis[2::4] for axis in lattice(plane, 4 * ELLIPSES + 1))
    places = _places(x, y)
    return to_numpy(places), to_numpy(surface_metrics(g, plane, places)), float(x[1] - x[0])


def _spanned(
    model: Any, trace: Trace, layer: int, head: int, reading: str, tokens: Corners
) -> tuple[MetricFunction, Plane]:
    """The metric, in the slice of the first token, and the plane."""
    g = model_field(model, trace, layer, head, reading, token=tokens[0])
    return g, plane_through(g, field_points(trace, layer)[list(tokens)])


def _places(x: Tensor, y: Tensor) -> Tensor:
    """(cell, 2), row by row."""
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    return torch.stack([columns.ravel(), rows.ravel()], -1)
