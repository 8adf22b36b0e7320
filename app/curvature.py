"""What the curvature page shows: its choices, and a side's proxy and true curvature over layers, heads and tokens."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import streamlit as st

from app.choices import READINGS as NAMES
from app.choices import pick
from app.side import Side, of_layers
from fbt_core.geometry.model_field import READINGS, field_heads, field_unavailable
from fbt_core.measures import Reading
from fbt_core.measures.geometry import SHARED_LABEL

ALL_AT_ONCE = "The whole stream, and a source that lives on it, have one metric for all heads at once."

SCALES = ("signed log", "linear")

PLANES = (16, 64, 256, 1024)
"""How many random planes a point may be given."""

ASKED = 2000
"""Points, by their weight, above which they are computed only when asked for: half a minute or more."""

PARTS = (
    "scalar_curvature", "scalar_error", "sampling_error", "sectional_max", "sectional_min", "sectional_top",
    "sectional_qk", "volume",
)  # fmt: skip
"""Rows of GEOMETRY that the page draws."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    reading: str  # a key of READINGS
    every: bool  # all heads, or the sidebar's
    deep: bool  # all layers, or the sidebar's
    planes: int
    truth: str  # a key of the table of truths
    log: bool  # the scale of curvatures

    def per_head(self, side: Side) -> bool:
        """Whether a side's heads have metrics of their own in this reading."""
        return field_heads(side.trace, self.reading) is not None


@dataclass(frozen=True)
class Curved:
    """A side's numbers, each (layer, head, token), by name: omega, and those of ``PARTS``."""

    side: Side
    parts: dict[str, np.ndarray]
    layers: tuple[str, ...]  # their numbers
    heads: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether the scalar curvature is no sample: its error is then not that of the sampled one, or 0."""
        error, sampled = self.parts["scalar_error"], self.parts["sampling_error"]
        return not np.array_equal(error, sampled, equal_nan=True) or not (error > 0).any()

    @property
    def place(self) -> int:
        """Which of the layers that are shown is the sidebar's."""
        return self.side.layer if len(self.layers) > 1 else 0

    @property
    def where(self) -> str:
        """Which heads are shown, and the layer where it is one, for a title."""
        heads = self.head_name(0) if len(self.heads) == 1 else f"{len(self.heads)} heads"
        return heads if len(self.layers) > 1 else f"layer {self.layers[0]}, {heads}"

    def head_name(self, place: int) -> str:
        """One of the heads, or what all of them share."""
        if self.heads != (SHARED_LABEL,):
            return f"head {self.heads[place]}"
        return (
            "the stream's metric, in each token's own slice" if self.side.trace.source == "fisher" else "whole stream"
        )


UNIT = "1 / length²"
"""Of every curvature, with lengths under the metric."""


USUAL = Choice(next(iter(READINGS)), True, True, 64, "scalar", True)


def choose(truths: dict[str, str]) -> Choice:
    """The toolbar. Its choices are in the URL, so a copied link shows the same figures. ``truths``: name to title."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        reading = pick("Metric on", "reading", READINGS, next(iter(READINGS)), 215, NAMES.__getitem__)
        which = pick("Heads", "heads", ("all heads", "this head"), "all heads", 112, help_=ALL_AT_ONCE)
        deep = pick("Layers", "layers", ("all layers", "this layer"), "all layers", 116)
        truth = pick("Truth", "truth", truths, "scalar", 215, truths.__getitem__)
        planes = pick("Planes a point", "planes", PLANES, 64, 112)
        scale = pick("Scale", "scale", SCALES, "signed log", 120)
    return Choice(reading, which == "all heads", deep == "all layers", planes, truth, scale == "signed log")


def unavailable(side: Side) -> str:
    """Why a side has no metric field, a sentence; empty where it has."""
    return str(side.of_model(field_unavailable))


def constant(side: Side) -> bool:
    """Whether a side's metric is the same everywhere, and more than the identity: its curvature is known to be 0."""
    return side.trace.source == "causal"


def points_of(side: Side, choice: Choice) -> int:
    """How many points there are: tokens, times the heads and the layers that are shown."""
    heads = side.heads if choice.every and choice.per_head(side) else 1
    return len(side.tokens) * heads * (side.layers if choice.deep else 1)


def weight(side: Side, reading: str) -> float:
    """What a point costs beside one of a head's own metric, as measured: Fisher's takes the whole vocabulary."""
    if side.trace.source == "fisher":
        return 11 + side.checkpoint.config.vocab_size / 550
    return 4.0 if reading == "whole" else 1.0


def quick(side: Side) -> bool:
    """Whether a side has a metric field whose curvature at every token, in every layer and head, takes seconds."""
    return not unavailable(side) and len(side.tokens) * side.layers * side.heads * weight(side, "block") <= ASKED


def curved(side: Side, choice: Choice) -> Curved:
    """Proxy and truth of every layer, behind a progress bar; what is done is kept when it is stopped."""
    options = options_of(side, choice)

    def layer(index: int) -> list[Reading]:
        return [side.geometry(name, layer=index, **options) for name in PARTS]

    readings = side.each_layer(f"{side.title}: curvature", layer, slow=True) if choice.deep else [layer(side.layer)]
    parts = {
        name: np.concatenate([found[place].values for found in readings]) for place, name in enumerate(PARTS)
    }  # fmt: skip
    notes = tuple(dict.fromkeys(note for found in readings for one in found for note in one.notes))
    layers = tuple(found[0].labels["layer"][0] for found in readings)
    return Curved(side, {"omega": proxy(side, choice)} | parts, layers, readings[0][0].labels["head"], notes)


def options_of(side: Side, choice: Choice) -> dict[str, Hashable]:
    """What the rows of GEOMETRY are asked with, but for the layer."""
    options: dict[str, Hashable] = {"reading": choice.reading, "planes": choice.planes, "seed": 0}
    return options | ({"head": side.head} if choice.per_head(side) and not choice.every else {})


def volume(side: Side, choice: Choice) -> Reading:
    """The log volume element of every layer: of layers that are done it costs nothing."""
    options = options_of(side, choice)
    layers = range(side.layers) if choice.deep else [side.layer]
    return of_layers([side.geometry("volume", layer=layer, **options) for layer in layers])


def proxy(side: Side, choice: Choice) -> np.ndarray:
    """Omega (layer, head, token); summed over the heads where they share one metric."""
    layer = {} if choice.deep else {"layer": side.layer}
    if not choice.per_head(side):
        return side.reading("omega", **layer).values.sum(1, keepdims=True)
    return side.reading("omega", **layer, **({} if choice.every else {"head": side.head})).values
