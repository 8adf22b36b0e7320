"""What the ellipsoid page shows: its choices, and how they and a side become an ``EllipsoidView``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from app import token_measures
from app.choices import pick
from app.figures.ellipsoid_view import IN_VIEW, LABELLED, EllipsoidView
from app.side import Side
from app.view import View
from fbt_core.geometry.drawn_space import BASES, SPACES, basis
from fbt_core.geometry.ellipsoid import SHAPES, EllipsoidField, trace_field

HOVERED = ("trace_k", "logdet_g", "anisotropy", "omega", "torsion_norm")
"""Measures told of a token besides the one that colours it: all of them cheap."""

GLYPHS = ("unit ball", "dual glyph")

SIZES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    space: str  # a key of SPACES
    shape: str  # a key of SHAPES
    dual: bool
    base: str  # one of BASES
    colour: str  # a key of token_measures.CHOICES
    roomy: bool  # one frame for all layers
    size: float  # glyphs are drawn so much larger than the stage's scale
    labels: bool
    shared: bool  # B in A's directions

    @property
    def alike(self) -> bool:
        """Whether all layers have one glyph scale. Residuals grow with depth, often tenfold: there it is an option."""
        return SPACES[self.space].per_head or self.roomy


def unavailable(side: Side, space: str) -> str:
    """Why a side has no ellipsoids in a space, a sentence for people; empty where it has."""
    block = side.block
    if SPACES[space].per_head:
        if side.trace.rectangular and space in ("keys", "values"):
            return f"the {space} of cross-attention are the encoder's tokens: look at the encoder"
        if space == "values" and block.factors is not None and block.factors.v.shape[-1] != block.metric.dim:
            return "its values are not as wide as its keys, whose space the metric is of"
        return block.unavailable("riemannian")
    if side.request.source and block.residual_U is None:
        return f"the {side.request.source} metric lives in the heads' spaces and not on the residual stream"
    return ""


def nearest(side: Side, space: str) -> int | None:
    """The layer nearest to the chosen one that has such ellipsoids."""
    good = [n for n in range(side.layers) if not unavailable(replace(side, layer=n), space)]
    return min(good, key=lambda n: abs(n - side.layer), default=None)


def choose(view: View) -> Choice:
    """The toolbar. Its choices are in the URL, so a copied link shows the same field."""
    metric = any(side.has_metric for side in view.sides)
    few = max(len(side.tokens) for side in view.sides) <= LABELLED
    first = "keys" if nearest(view.a, "keys") is not None else "residual"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        space = pick("Positions", "space", SPACES, first, 150)
        shape = pick("Drawn of each metric", "shape", SHAPES, "metric frame", 170)
        glyph = pick("Glyph", "glyph", GLYPHS, "unit ball", 150)
        colours = token_measures.choices(view)
        usual = "anisotropy" if metric else token_measures.usual(view)
        colour = pick("Colour", "tint", colours, usual, 290, token_measures.CHOICES.__getitem__)
        with st.popover("More"):
            base = pick("Directions", "base", BASES, "shared PCA", 240)
            roomy = pick("Frame", "frame", ("this layer", "all layers"), "this layer", 240) == "all layers"
            size, labels = pick_look(few, f"labels-{few}")
            shared = _one_basis(view, space)
    return Choice(space, shape, glyph == "dual glyph", base, colour, roomy, size, labels, shared)


def pick_look(few: bool, key: str) -> tuple[float, bool]:
    """The size of the glyphs, in the URL, and whether tokens have labels: at first where they are ``few``."""
    size = pick("Glyph size", "size", SIZES, 1.0, 240, lambda factor: f"{factor:g} times")
    return size, st.toggle("Token labels", value=few, key=key, persist_state="session")


def _one_basis(view: View, space: str) -> bool:
    """Whether B is drawn along A's directions: possible where the widths agree."""
    if any(unavailable(side, space) for side in view.sides):
        return False
    if len({SPACES[space].positions(side.block, 0).shape[1] for side in view.sides}) > 1:
        return False
    help_ = "Two models have no axes in common: this is a choice, not an alignment."
    return view.compare and st.toggle("A's directions for B too", key="along-a", help=help_, persist_state="session")


def views(view: View, choice: Choice) -> list[EllipsoidView]:
    """One view a side: the same scale, room and colour range, so that two sides may be compared."""
    fields = [_field(side, choice, view.a) for side in view.sides]
    stage = fields[0].stage
    for other in fields[1:]:
        stage = stage.joined(other.stage)
    stage = stage.enlarged(choice.size)
    values, ranges = zip(*(_coloured(side, choice) for side in view.sides), strict=True)
    limits = min(low for low, _ in ranges), max(high for _, high in ranges)
    return [
        _view(view, side, choice, field.on(stage), value, limits)
        for side, field, value in zip(view.sides, fields, values, strict=True)
    ]


def _field(side: Side, choice: Choice, first: Side) -> EllipsoidField:
    """The glyphs of a side's layer and head, cached; along A's directions they are made afresh."""
    options = {
        "layer": side.layer, "space": choice.space, "head": side.head, "shape": choice.shape, "dual": choice.dual,
        "alike": choice.alike, "roomy": choice.roomy,
    }  # fmt: skip
    if choice.shared and side is not first:
        along = basis(first.trace, choice.base, choice.space, first.layer, first.head)
        return trace_field(side.trace, **options, along=replace(along, name=f"{along.name} of A"))
    return side.derived(trace_field, **options, base=choice.base)


def _view(
    view: View, side: Side, choice: Choice, field: EllipsoidField, values: np.ndarray, limits: tuple[float, float]
) -> EllipsoidView:
    """Words and measures added to a field."""
    others = [name for name in HOVERED if name != choice.colour] if side.has_metric else []
    extras = {token_measures.CHOICES[name]: _by_layer(side, choice, name)[side.layer] for name in others}
    if side.has_metric:
        extras[IN_VIEW] = field.in_view
    return EllipsoidView(
        field, side.tokens, values, _title(choice), limits, f"{side.title}: {field.where}", extras,
        side.what_if, view.mapping, view.token, choice.labels, _file_name(side, choice), _facts(side, choice),
        marked=view.marked,
    )  # fmt: skip


def _facts(side: Side, choice: Choice) -> dict[str, object]:
    """What holds for every row of the exported table: where its numbers come from."""
    per_head = SPACES[choice.space].per_head
    return {
        "side": side.name, "checkpoint": side.label, "layer": side.layer, "head": side.head if per_head else "all",
        "space": choice.space, "strength": side.request.strength, "what_if": side.what_if or "",
    }  # fmt: skip


def _file_name(side: Side, choice: Choice) -> str:
    """Of exports. A checkpoint's label is of its owner's choosing, so only what every file system takes is kept."""
    label = re.sub(r"[^\w.-]+", "-", side.label).strip("-.")[:60] or "checkpoint"
    head = f"-head{side.head}" if SPACES[choice.space].per_head else ""
    return f"ellipsoids-{side.name}-{label}-{choice.space}-layer{side.layer}{head}"


def _title(choice: Choice) -> str:
    """The colour bar's title, with the unit."""
    title = token_measures.CHOICES[choice.colour]
    return title if SPACES[choice.space].per_head or choice.colour == token_measures.LOSS else f"{title}, mean of heads"


def _coloured(side: Side, choice: Choice) -> tuple[np.ndarray, tuple[float, float]]:
    """(L,) values of the colour measure, and its range over all layers: a colour means the same at every depth."""
    if choice.colour == token_measures.LOSS:
        values = every = token_measures.values(side, choice.colour)
    else:
        every = _by_layer(side, choice, choice.colour)
        values = every[side.layer]
    finite = every[np.isfinite(every)]
    return values, (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _by_layer(side: Side, choice: Choice, name: str) -> np.ndarray:
    """(layer, L): a measure of this side's head, or its mean over heads, NaN without any, for the residual stream."""
    if SPACES[choice.space].per_head:
        return side.reading(name, head=side.head).values[:, 0]
    values = side.reading(name).values
    return values.mean(1) if values.shape[1] else np.full((len(values), values.shape[2]), np.nan)
