"""What a page draws: one side, or two when comparing. A page reads everything from here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import streamlit as st

from app import cache
from app.cache import Request
from app.run import MATCHES, Run
from fbt_core.attention.scores import SCORES
from fbt_core.checkpoints import Checkpoint
from fbt_core.measures import MEASURES, Reading
from fbt_core.tokenizer import Encoding
from fbt_core.trace import Trace

Part = TypeVar("Part")

QUIET = 256
"""Tokens up to which attention of all layers takes under a second: no progress bar."""


@dataclass(frozen=True)
class Side:
    """One checkpoint on one text. ``layer`` and ``head`` are this side's own numbers, already mapped from the run's."""

    name: str  # "A" or "B"
    label: str  # what people call the checkpoint
    request: Request
    checkpoint: Checkpoint
    encoding: Encoding
    layer: int
    head: int

    @property
    def trace(self) -> Trace:
        """The cached trace; computed at the first use."""
        return cache.trace(self.request)

    @property
    def tokens(self) -> tuple[str, ...]:
        """One label a token; needs no forward pass."""
        return tuple(self.encoding.tokens)

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return self.checkpoint.config.layers

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return self.checkpoint.config.heads

    @property
    def has_metric(self) -> bool:
        """Whether its tokens carry metrics."""
        return self.checkpoint.config.has_metric

    @property
    def score(self) -> str:
        """The score that the model itself runs: a key of SCORES."""
        return self.checkpoint.config.own_score

    @property
    def title(self) -> str:
        """``A · riemannian``."""
        return f"{self.name} · {self.label}"

    @property
    def what_if(self) -> str | None:
        """A label for every figure when the metric is not as trained."""
        if self.has_metric and self.request.strength != 1.0:
            return f"what-if: metric strength {self.request.strength:g} (trained at 1)"
        return None

    def what_if_score(self, score: str) -> str | None:
        """The label when ``score`` is not the one that the model runs, joined with ``what_if``."""
        notes = [self.what_if] if self.what_if else []
        if score != self.score:
            notes.append(f"what-if: {SCORES[score].title} score; the model runs {SCORES[self.score].title}")
        return "; ".join(notes) or None

    def reading(self, name: str, **options: Hashable) -> Reading:
        """A row of MEASURES on this side's trace, cached. Options must be hashable."""
        return cache.reading(self.request, name, **options)

    def by_layer(self, name: str, **options: Hashable) -> Reading:
        """``reading`` layer after layer: a long text shows its progress, can be stopped, and goes on where it was."""
        parts = self.each_layer(name, lambda layer: self.reading(name, layer=layer, **options))
        labels = parts[0].labels | {"layer": tuple(label for part in parts for label in part.labels["layer"])}
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        values = np.concatenate([part.values for part in parts])
        return replace(parts[0], values=values, labels=labels, notes=notes, options={**parts[0].options, "layer": None})

    def each_layer(self, what: str, one: Callable[[int], Part]) -> list[Part]:
        """``one(layer)`` of every layer; of a long text behind a progress bar, and Stop takes effect at each layer."""
        bar = st.progress(0.0, f"{what}, layer by layer") if len(self.tokens) > QUIET else None
        parts = []
        for layer in range(self.layers):
            parts.append(one(layer))
            if bar is not None:
                bar.progress((layer + 1) / self.layers, f"{what}: layer {layer + 1} of {self.layers}")
        if bar is not None:
            bar.empty()
        return parts

    def derived(self, function: Callable[..., Any], **options: Hashable) -> Any:
        """``function(trace, **options)``, cached; for what is no measure (maps, glyphs). Read-only."""
        return cache.derived(self.request, function, **options)


@dataclass(frozen=True)
class View:
    """What a page draws: the run and one side, or two when comparing."""

    run: Run
    sides: tuple[Side, ...]

    @property
    def a(self) -> Side:
        """The first side."""
        return self.sides[0]

    @property
    def b(self) -> Side | None:
        """The second side, when comparing."""
        return self.sides[1] if len(self.sides) > 1 else None

    @property
    def compare(self) -> bool:
        """Whether there are two sides."""
        return len(self.sides) > 1

    @property
    def token(self) -> int:
        """The selected token, inside the text of every side."""
        return min([self.run.token, *(len(side.tokens) - 1 for side in self.sides)])

    @property
    def mismatch(self) -> str | None:
        """Why no difference between the sides can be drawn, or None when it can (tokens match one to one)."""
        if self.b is None:
            return "one checkpoint is open"
        if self.a.tokens != self.b.tokens:
            return f"the tokenizers differ: {len(self.a.tokens)} tokens in A, {len(self.b.tokens)} in B"
        return None

    @property
    def what_if(self) -> str | None:
        """Every side's label for what is not as trained: to be said on every figure that its metric enters."""
        return "; ".join(f"{side.name}: {side.what_if}" for side in self.sides if side.what_if) or None

    def what_if_of(self, name: str) -> str | None:
        """``what_if``, and for a measure of two scores that the model runs but one of them."""
        notes = [self.what_if] if self.what_if else []
        if "score_a" in MEASURES[name].options:
            notes.append("what-if: both scores on the same factors, the model runs one of them")
        return "; ".join(notes) or None

    @property
    def mapping(self) -> str | None:
        """How layer and head of A became those of B: to be said on every figure of one layer or head."""
        if self.b is None:
            return None
        how = MATCHES[self.run.match]
        return f"A layer {self.a.layer}, head {self.a.head}; B layer {self.b.layer}, head {self.b.head} ({how})"
