"""What a page draws: one side, or two when comparing. A page reads everything from here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import streamlit as st

from app import cache, inputs, metrics
from app.cache import Request
from app.run import MATCHES, Run
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import is_causal
from fbt_core.checkpoints import Checkpoint
from fbt_core.measures import MEASURES, Reading
from fbt_core.measures.field import ROWS as FIELD
from fbt_core.measures.geometry import GEOMETRY
from fbt_core.tokenizer import Encoding
from fbt_core.trace import LayerTrace, Trace

Part = TypeVar("Part")

QUIET = 256**2 * 36
"""Cells of all attention maps up to which they take under a second: no progress bar."""

READS_METRIC = {row.name for row in FIELD}
"""Measures of the metric itself. Those of two scores read it too, since one of them does."""


@dataclass(frozen=True)
class Side:
    """One checkpoint on one input. ``layer`` and ``head`` are this side's own numbers, mapped from the run's."""

    name: str  # "A" or "B"
    label: str  # what people call the checkpoint
    request: Request
    encoding: Encoding  # of the rows of its attention
    layer: int
    head: int
    missing: str = ""  # why there is no trace, a sentence; empty where there is one

    @property
    def checkpoint(self) -> Checkpoint:
        """The cached checkpoint, which a side does not hold: what a closed page leaves must keep no tensors alive."""
        return cache.checkpoint(self.request.reference)

    @property
    def trace(self) -> Trace:
        """The cached trace, its metric with it; computed at the first use."""
        return cache.trace(self.request)

    @property
    def forward(self) -> Trace:
        """The trace as the model gives it, without a metric from elsewhere: for what no such metric touches."""
        return cache.trace(self.request.bare)

    @property
    def block(self) -> LayerTrace:
        """The chosen layer."""
        return self.trace.layers[self.layer]

    @property
    def tokens(self) -> tuple[str, ...]:
        """One label a token; needs no forward pass."""
        return tuple(self.encoding.tokens)

    @property
    def key_tokens(self) -> tuple[str, ...]:
        """Labels of the columns of a map, where they are other tokens than the rows."""
        return self.forward.key_tokens

    @property
    def foreign(self) -> bool:
        """Whether it is a model of the transformers library."""
        return inputs.is_foreign(self.checkpoint)

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return len(self.forward.layers) if self.foreign else self.checkpoint.config.layers

    @property
    def heads(self) -> int:
        """How many heads a layer has: the most that any has."""
        return self.forward.heads if self.foreign else self.checkpoint.config.heads

    @property
    def causal(self) -> bool:
        """Whether nothing above the diagonal of its maps may be attended to."""
        return is_causal(self.trace, self.layer)

    @property
    def has_metric(self) -> bool:
        """Whether its tokens carry metrics: its own, or from a source."""
        return self.checkpoint.config.has_metric or bool(self.request.source)

    @property
    def score(self) -> str:
        """The score that the model itself runs: a key of SCORES."""
        return self.checkpoint.config.own_score

    def score_title(self, score: str) -> str:
        """A score's name; that of a model of the library is its own, whatever it adds to the dot product."""
        return "the model's own" if self.foreign and score == self.score else SCORES[score].title

    def attends(self, layer: int) -> bool:
        """Whether a layer has attention at all."""
        return self.forward.layers[layer].heads > 0

    @property
    def title(self) -> str:
        """``A · riemannian``, and the stack where there are several."""
        stack = {"": "", "cross": " · cross-attention"}.get(self.request.stack, f" · {self.request.stack}")
        return f"{self.name} · {self.label}{stack}"

    @property
    def what_if_forward(self) -> str | None:
        """A label for every figure when the model ran otherwise than trained: with another strength of its metric."""
        if self.checkpoint.config.has_metric and self.request.strength != 1.0:
            return f"what-if: metric strength {self.request.strength:g} (trained at 1)"
        return None

    @property
    def what_if(self) -> str | None:
        """A label for every figure that the metric enters, when the metric is not the model's own as trained."""
        return self.what_if_forward or (metrics.label(self.request) if self.request.source else None)

    @property
    def explained(self) -> str | None:
        """``what_if`` in full, for a caption."""
        return metrics.explained(self.request) if self.request.source else self.what_if_forward

    def what_if_score(self, score: str) -> str | None:
        """The label when ``score`` is not the one that the model runs, joined with what is not as trained."""
        touched = self.what_if if SCORES[score].reads_metric else self.what_if_forward
        notes = [touched] if touched else []
        if score != self.score:
            runs = "its own dot product" if self.foreign else SCORES[self.score].title
            notes.append(f"what-if: {SCORES[score].title} score; the model runs {runs}")
        return "; ".join(notes) or None

    def reading(self, name: str, **options: Hashable) -> Reading:
        """A row of MEASURES, or of GEOMETRY, on this side's trace, cached. Options must be hashable."""
        if name in GEOMETRY:
            return self.geometry(name, **options)
        touched = reads_metric(name, options.get("score"))
        return cache.reading(self.request if touched else self.request.bare, name, **options)

    def by_layer(self, name: str, **options: Hashable) -> Reading:
        """``reading`` layer after layer: a long text shows its progress, can be stopped, and goes on where it was."""
        parts = _even(self.each_layer(name, lambda layer: self.reading(name, layer=layer, **options)))
        labels = parts[0].labels | {"layer": tuple(label for part in parts for label in part.labels["layer"])}
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        values = np.concatenate([part.values for part in parts])
        return replace(parts[0], values=values, labels=labels, notes=notes, options={**parts[0].options, "layer": None})

    def each_layer(self, what: str, one: Callable[[int], Part], slow: bool = False) -> list[Part]:
        """``one(layer)`` of every layer. What is slow, as all is of a long text, has a progress bar, and Stop takes
        effect at each layer."""
        cells = self.layers * self.heads * len(self.tokens) * len(self.key_tokens or self.tokens)
        bar = st.progress(0.0, f"{what}, layer by layer") if slow or cells > QUIET else None
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

    def of_model(self, function: Callable[..., Any], **options: Hashable) -> Any:
        """``function(model, trace, **options)``, cached. Read-only."""
        return cache.of_model(self.request, function, **options)

    def geometry(self, name: str, **options: Hashable) -> Reading:
        """A row of GEOMETRY on this side's model and trace, cached."""
        return cache.geometry(self.request, name, **options)


def reads_metric(name: str, score: Hashable = None) -> bool:
    """Whether a measure, of the attention by ``score``, depends on where the metric comes from."""
    if name in GEOMETRY:
        return True
    row = MEASURES[name]
    own = score in (None, "own") or not SCORES[str(score)].reads_metric
    return name in READS_METRIC or bool({"score_a", "of"} & set(row.options)) or not own


def _even(parts: list[Reading]) -> list[Reading]:
    """The readings of single layers with as many heads each: NaN where a layer has fewer."""
    if "head" not in parts[0].measure.axes:
        return parts
    most = max(parts, key=lambda part: part.values.shape[1])
    full = [np.full((1, *most.values.shape[1:]), np.nan) for _ in parts]
    for whole, part in zip(full, parts, strict=True):
        whole[:, : part.values.shape[1]] = part.values
    return [
        replace(part, values=whole, labels=part.labels | {"head": most.labels["head"]})
        for whole, part in zip(full, parts, strict=True)
    ]


@dataclass(frozen=True)
class View:
    """What a page draws: the run and one side, or two when comparing."""

    run: Run
    sides: tuple[Side, ...]
    layer_note: Any = field(default=None, compare=False, repr=False)  # the sidebar's place for a layer's kind
    source_note: Any = field(default=None, compare=False, repr=False)  # and for the sources that cannot be had

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
    def marked(self) -> tuple[int, ...]:
        """The marked tokens, in order, inside the text of every side."""
        shortest = min(len(side.tokens) for side in self.sides)
        return tuple(token for token in self.run.marks if token < shortest)

    @property
    def mismatch(self) -> str | None:
        """Why no difference between the sides can be drawn, or None when it can (tokens match one to one)."""
        if self.b is None:
            return "one checkpoint is open"
        if bool(self.a.key_tokens) != bool(self.b.key_tokens) or self.a.key_tokens != self.b.key_tokens:
            return "their keys are different tokens"
        if self.a.tokens != self.b.tokens:
            return f"the tokenizers differ: {len(self.a.tokens)} tokens in A, {len(self.b.tokens)} in B"
        return None

    @property
    def what_if(self) -> str | None:
        """Every side's label for a metric that is not as trained: to be said on every figure that it enters."""
        return self._told({side.name: side.what_if for side in self.sides})

    @property
    def what_if_forward(self) -> str | None:
        """The same for what made the model run otherwise, and so is to be said on every figure."""
        return self._told({side.name: side.what_if_forward for side in self.sides})

    def _told(self, labels: dict[str, str | None]) -> str | None:
        """The sides' labels as one, each with its side's name where there are two."""
        found = [f"{name}: {label}" if self.compare else label for name, label in labels.items() if label]
        return "; ".join(found) or None

    def what_if_of(self, name: str) -> str | None:
        """The label of a measure's figure; for one of two scores also that the model runs but one of them."""
        notes = [self.what_if if reads_metric(name) else self.what_if_forward]
        if "score_a" in MEASURES[name].options:
            notes.append("what-if: both scores on the same factors, the model runs one of them")
        return "; ".join(filter(None, notes)) or None

    @property
    def mapping(self) -> str | None:
        """How layer and head of A became those of B: to be said on every figure of one layer or head."""
        if self.b is None:
            return None
        how = MATCHES[self.run.match]
        return f"A layer {self.a.layer}, head {self.a.head}; B layer {self.b.layer}, head {self.b.head} ({how})"
