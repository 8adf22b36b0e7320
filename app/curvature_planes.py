"""Sectional curvature of the planes that matter, beside the random ones."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import widgets
from app.curvature import Choice, Curved
from app.curvature_panels import joined, table
from app.curvature_words import axis
from app.figures.curvature import bound, tell
from app.figures.curvature_planes import Family, planes
from app.figures.signed_log import scale_of
from app.view import View
from fbt_core.geometry.model_field import field_unavailable


def draw(view: View, choice: Choice, found: list[Curved]) -> None:
    """Sectional curvature of the planes that matter beside the random ones, in the sidebar's layer and head."""
    drawn = {one.side.name: families(*_here(one), dimension(one, choice)) for one in found}
    for one in found:
        if not drawn[one.side.name]:
            why = one.side.block.unavailable("riemannian") or one.side.of_model(field_unavailable, layer=one.side.layer)
            why = why or "no plane has a finite curvature"
            st.info(widgets.plain(f"{one.side.title}: no curvature by plane here: {why}."))
    found = [one for one in found if drawn[one.side.name]]
    if not found:
        return
    every = [part for several in drawn.values() for family in several.values() for part in family.drawn]
    scale, room = scale_of(every, choice.log), bound(every)
    for column, one in zip(st.columns(len(found)), found, strict=True):
        figure = planes(
            drawn[one.side.name], f"Sectional curvature by plane · {one.side.title}", one.side.tokens,
            axis("sectional curvature K"), scale, room, view.marked,
        )  # fmt: skip
        told = joined(
            [
                f"layer {one.layers[one.place]}, {one.head_name(_here(one)[1])}",
                f"{choice.planes} random planes a token",
                scale.words,
            ]
        )
        tell(figure, [told], one.side.what_if)
        with column:
            widgets.show(
                figure, lambda one=one: table(one), f"planes-{one.side.name}",
                "The mean over all planes is $S / (d (d - 1))$; its bar spans the smallest and the largest $K$ that "
                "were found. Top metric directions: the two leading eigenvectors of $g$, in which the metric stretches "
                "most. $q$ and $k$: the plane of the token's own query and key. Positive: geodesics in the plane "
                "converge; negative: they part.",
                f"planes-{one.side.name}",
            )  # fmt: skip


def _here(one: Curved) -> tuple[Curved, int]:
    """The side's numbers and which of the heads that are shown is the sidebar's."""
    return one, min(one.side.head, len(one.heads) - 1) if len(one.heads) > 1 else 0


def families(one: Curved, head: int, d: int) -> dict[int, Family]:
    """Kinds of planes in the sidebar's layer: mean of all with its range, top directions, q and k."""
    cells = {name: values[one.place, head] for name, values in one.parts.items()}
    mean = cells["scalar_curvature"] / max(d * (d - 1), 1)
    kinds = (
        Family("all planes: mean, with the range found", mean, cells["sectional_min"], cells["sectional_max"]),
        Family("top two metric directions", cells["sectional_top"]),
        Family("the token's q and k", cells["sectional_qk"]),
    )
    return {index: kind for index, kind in enumerate(kinds) if np.isfinite(kind.values).any()}


def dimension(one: Curved, choice: Choice) -> int:
    """d of the reading."""
    attending = [layer for layer in one.side.trace.layers if layer.factors is not None]
    if one.side.trace.source == "fisher":
        return next(layer.residual_U.shape[-1] for layer in attending if layer.residual_U is not None)
    return (attending[0].given.U.shape[-2]) if choice.per_head(one.side) else attending[0].residual_in.shape[-1]
