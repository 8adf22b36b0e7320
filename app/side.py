"""One checkpoint on one input, as pages read it: its trace, its cached measures, and what is not as trained."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import streamlit as st

from app import answers, inputs, loading, metrics, traces
from app.request import Request
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
        return loading.checkpoint(self.request.reference)

    @property
    def trace(self) -> Trace:
        """The cached trace, its metric with it; computed at the first use."""
        return traces.trace(self.request)

    @property
    def forward(self) -> Trace:
        """The trace as the model gives it, without a metric from elsewhere: for what no such metric touches."""
        return traces.trace(self.request.bare)

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

    def what_if_score(self, *scores: str) -> str | None:
        """The label when a score is not the one that the model runs, joined with what is not as trained."""
        reads = any(SCORES[score].reads_metric for score in scores)
        notes = [self.what_if if reads else self.what_if_forward]
        others = [SCORES[score].title for score in dict.fromkeys(scores) if score != self.score]
        if others:
            runs = "its own dot product" if self.foreign else SCORES[self.score].title
            notes.append(f"what-if: {' and '.join(others)} score; the model runs {runs}")
        return "; ".join(filter(None, notes)) or None

    def reading(self, name: str, **options: Hashable) -> Reading:
        """A row of MEASURES, or of GEOMETRY, on this side's trace, cached. Options must be hashable."""
        if name in GEOMETRY:
            return self.geometry(name, **options)
        touched = reads_metric(name, options.get("score"))
        return answers.reading(self.request if touched else self.request.bare, name, **options)

    def by_layer(self, name: str, **options: Hashable) -> Reading:
        """``reading`` layer after layer: a long text shows its progress, can be stopped, and goes on where it was."""
        parts = _even(self.each_layer(name, lambda layer: self.reading(name, layer=layer, **options)))
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        return replace(of_layers(parts), notes=notes, options={**parts[0].options, "layer": None})

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
        return answers.derived(self.request, function, **options)

    def of_model(self, function: Callable[..., Any], **options: Hashable) -> Any:
        """``function(model, trace, **options)``, cached. Read-only."""
        return answers.of_model(self.request, function, **options)

    def geometry(self, name: str, **options: Hashable) -> Reading:
        """A row of GEOMETRY on this side's model and trace, cached."""
        return answers.geometry(self.request, name, **options)


def reads_metric(name: str, score: Hashable = None) -> bool:
    """Whether a measure, of the attention by ``score``, depends on where the metric comes from."""
    if name in GEOMETRY:
        return True
    row = MEASURES[name]
    own = score in (None, "own") or not SCORES[str(score)].reads_metric
    return name in READS_METRIC or bool({"score_a", "of"} & set(row.options)) or not own


def of_layers(parts: list[Reading]) -> Reading:
    """The readings of single layers, in their order, as one; its notes and options are those of the first."""
    labels = parts[0].labels | {"layer": tuple(label for part in parts for label in part.labels["layer"])}
    return replace(parts[0], values=np.concatenate([part.values for part in parts]), labels=labels)


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
