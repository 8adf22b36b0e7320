"""What the claims are checked on: one checkpoint, one text, a float64 trace of its first tokens, held-out losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from fbt_core.checkpoints import Checkpoint
from fbt_core.claims import altered
from fbt_core.claims.heads import Head, heads_of, with_metrics
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.sources import apply
from fbt_core.model import build
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.tokenizer import Encoding
from fbt_core.trace import Trace
from fbt_core.training.data import GrammarSource

LONGEST_TEXT = 400_000
"""Characters of the text that are read; far more than the windows need."""

WINDOWS, WINDOW = 16, 128
"""Held-out rows for losses, and their tokens: 2,048 in all, a second a pass in float64 for the shipped models."""

FAMILIAR = 0.5
"""The least share of a text's tokens that are words of the vocabulary, for a loss on it to say something."""


class Unavailable(ValueError):
    """Why a claim cannot be tested here: a sentence without its full stop."""


@dataclass(frozen=True)
class Options:
    """What the user may choose. ``results`` are the rows of a sweep, for the claim that needs trained twins."""

    tokens: int = 256  # N, of the trace
    seed: int = 0
    results: Any = field(default=None, compare=False)  # a pandas.DataFrame, or None


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that a claim may look at. What several claims share is computed once, when first asked for."""

    model: Any  # float64: a FiberBundleTransformer or a HuggingFaceModel
    checkpoint: Checkpoint | None
    trace: Trace  # float64, of the first N tokens
    text: str
    ids: Int[Tensor, " token"]  # of the whole text
    options: Options = field(default_factory=Options)
    unknown: float = 0.0  # share of the tokens behind the traced ones for which the vocabulary has no word
    foreign: float = 0.0  # the same of the traced ones
    retrace: Callable[[int], Trace] | None = None  # the trace of the first so many tokens, for who needs more

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of everything that is found here, sentences."""
        if self.foreign <= 1 - FAMILIAR:
            return ()
        return (f"{self.foreign:.0%} of the traced tokens are no words of the model's vocabulary, but bytes: what is "
                f"found is found on a text unlike what the model was trained on.",)  # fmt: skip

    @property
    def native(self) -> FiberBundleTransformer:
        """The model, where it is one of ours. Raises ``Unavailable`` for any other."""
        if not isinstance(self.model, FiberBundleTransformer):
            raise Unavailable("this checkpoint is no Fiber Bundle Transformer: another metric can be shown on it, but "
                              "not run in it")  # fmt: skip
        return self.model

    @property
    def learned(self) -> FiberBundleTransformer:
        """The model, where it is one of ours with a MetricNet. Raises ``Unavailable`` for any other."""
        if not self.native.config.has_metric:
            raise Unavailable(f"this checkpoint attends by the {self.native.config.score} score and has no metric")
        return self.native

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """Every head whose q and k are known. Raises ``Unavailable`` where there is none."""
        found = heads_of(self.trace)
        if not found:
            raise Unavailable("no layer of this checkpoint gives its queries and keys")
        if wild := next((head for head in found if not head.finite), None):
            raise Unavailable(f"the numbers of layer {wild.place} are not finite")
        return found

    @cached_property
    def metric_heads(self) -> tuple[Head, ...]:
        """Every head whose tokens carry metrics, be they the identity. Raises ``Unavailable`` without one."""
        found = with_metrics(self.heads)
        if not found:
            raise Unavailable("no token of this checkpoint carries a metric: give it one with --source")
        return found

    def longer(self, count: int) -> tuple[Head, ...]:
        """``metric_heads`` on the first ``count`` tokens of the text, or on as many as text and model have."""
        if self.retrace is None or count <= self.trace.length:
            return self.metric_heads
        return with_metrics(heads_of(self.retrace(count)))

    def grid(self, values: dict[tuple[int, int], float]) -> Float64[np.ndarray, "layer head"]:
        """(layer, head) of values by (place, head); NaN where there is none."""
        found = np.full((len(self.trace.layers), self.trace.heads), np.nan)
        for (place, head), value in values.items():
            found[place, head] = value
        return found

    def losses(self, model: Any = None) -> Float64[np.ndarray, " row"]:
        """Mean next-token cross-entropy of each held-out row, nats a token, of a variant of the model (default itself).

        Compare two variants row by row: the rows are the same.
        """
        model = self.native if model is None else model
        rows = torch.from_numpy(self.held_out).to(self.trace.ids.device)
        with torch.no_grad():
            parts = [altered.row_losses(model(some), some) for some in rows.chunk(math.ceil(len(rows) / 8))]
        found = torch.cat(parts).double().cpu().numpy()
        if not np.isfinite(found).all():
            raise Unavailable("the loss is not finite")
        return found

    @cached_property
    def base_losses(self) -> Float64[np.ndarray, " row"]:
        """``losses`` of the model as it is."""
        return self.losses()

    @property
    def on_grammar(self) -> bool:
        """Whether losses are taken on the grammar that the model was trained on, because the text is foreign to it."""
        data = {} if self.checkpoint is None else self.checkpoint.training.get("data")
        trained = isinstance(data, Mapping) and data.get("source") == "grammar"
        return trained and self.unknown > 1 - FAMILIAR

    @cached_property
    def held_out(self) -> Int[np.ndarray, "row token"]:
        """Rows for the losses: windows of the text behind the traced tokens, or held-out rows of the grammar.

        Raises ``Unavailable`` where the text is too short for two windows.
        """
        longest = min(WINDOW, positions(self.native.config))
        if self.on_grammar:
            return GrammarSource().held_out(WINDOWS, longest).ids
        ids = self.ids[len(self.trace.ids) :].cpu().numpy()
        length = min(longest, len(ids) // 2)
        if length < 16:
            raise Unavailable(f"{len(ids)} tokens of the text are left for held-out losses, and two windows of 16 are "
                              "the least: give a longer text")  # fmt: skip
        count = min(WINDOWS, len(ids) // length)
        rows = ids[: count * length].reshape(count, length)
        first = getattr(self.checkpoint and self.checkpoint.tokenizer, "bos", None)  # what every text starts with
        return rows.copy() if first is None else np.insert(rows[:, :-1], 0, first, axis=1)

    @property
    def loss_note(self) -> str:
        """On what the losses were taken, a sentence."""
        rows, length = self.held_out.shape
        if self.on_grammar:
            return (f"Losses: {rows} held-out rows of {length} tokens of the grammar that the model was trained on, "
                    f"because {self.unknown:.0%} of the text behind the traced tokens is bytes that it hardly saw in "
                    "training; at the trained strength of the metric.")  # fmt: skip
        return (f"Losses: {rows} windows of {length} tokens of the text, behind the traced ones, at the trained "
                "strength of the metric; windows of one text hang together: errors are too small.")  # fmt: skip


def paired(losses: Float64[np.ndarray, " row"], base: Float64[np.ndarray, " row"]) -> tuple[float, float]:
    """Mean of the differences row by row, and its standard error over rows; infinite for a single row."""
    moved = losses - base
    error = moved.std(ddof=1) / math.sqrt(len(moved)) if len(moved) > 1 else math.inf
    return float(moved.mean()), float(error)


def gather(
    checkpoint: Checkpoint, text: str, options: Options | None = None, *, source: str = "", rank: int = 4,
    strength: float = 1.0, device: str = "cpu",
) -> Evidence:  # fmt: skip
    """The evidence of a checkpoint on a text: its model in float64, and the trace of the text's first tokens.

    ``source`` puts a metric of ``SOURCES`` on a model that has none, a what-if. Raises ``ValueError`` (got, expected)
    for a checkpoint that reads no text, and where the pass or the source fails.
    """
    options = options or Options()
    if checkpoint.tokenizer is None:
        raise ValueError("got a model that reads no text, expected one that does")
    if options.tokens < 2:
        raise ValueError(f"got {options.tokens} tokens, expected at least 2")
    model = build(checkpoint, device, "float64")
    encoding = checkpoint.tokenizer.encode(text[:LONGEST_TEXT])
    if len(encoding.ids) < 2:
        raise ValueError(f"got a text of {len(encoding.ids)} tokens, expected at least 2")

    def traced(count: int) -> Trace:
        first = encoding.cut(min(count, positions(checkpoint.config)))
        traces = model.traces(torch.tensor(first.ids), strength=strength, tokens=first.tokens)
        trace = traces["decoder" if "decoder" in traces else next(iter(traces))]
        return apply(model, trace, source, rank, strength) if source else trace

    trace = traced(options.tokens)
    foreign, unknown = _unknown(encoding, 0, trace.length), _unknown(encoding, trace.length, None)
    return Evidence(model, checkpoint, trace, text, torch.tensor(encoding.ids), options, unknown, foreign, traced)


def _unknown(encoding: Encoding, start: int, stop: int | None) -> float:
    """The share of some tokens for which the vocabulary has no word."""
    some = encoding.unknown[start:stop]
    return sum(some) / len(some) if some else 0.0


def positions(config: Any) -> int:
    """How many tokens a model has positions for, where that is a number of its config."""
    if isinstance(config, FiberBundleConfig):
        return config.context if config.position == "learned" else LONGEST_TEXT
    return int(getattr(config, "context", 0) or LONGEST_TEXT)
