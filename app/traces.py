"""Forward passes, each run once and kept as factors, and the metrics that are put on them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from app import inputs, metrics, pictures, stored
from app.encodings import decoder_encoding, encoding
from app.kept import BUDGET, MISSING, keep, kept
from app.line import COMPUTING, at_work, tell
from app.loading import checkpoint, model
from app.request import Request
from fbt_core.checkpoints import Checkpoint
from fbt_core.tokenizer import Encoding
from fbt_core.trace import Trace

CHECKED = 64
"""Tokens of a text that are compared with the library's own forward pass."""


@keep(COMPUTING, "Running the model")
def traces(request: Request) -> dict[str, Trace]:
    """One forward pass, kept as factors: a trace a stack. Ask with ``Request.forward``."""
    return stored.stored(request, checkpoint(request.reference)) or run(request)


def run(request: Request, **more: str) -> dict[str, Trace]:
    """The pass itself; ``variant`` may be among ``more``."""
    loaded, built = checkpoint(request.reference), model(request.reference, request.device)
    ids, given = _inputs(request, loaded)
    with torch.no_grad():
        return built.traces(ids, strength=request.strength, **given, **more)


def _inputs(request: Request, loaded: Checkpoint) -> tuple[torch.Tensor, dict[str, Any]]:
    """Ids, and the keywords of ``traces`` that go with them."""
    if inputs.sees_pictures(loaded):
        return torch.zeros(0, dtype=torch.long), {"pixels": pictures.pixels(request.image, loaded.config)}
    encoded, _ = encoding(request.reference, request.text)
    given: dict[str, Any] = {"tokens": tuple(encoded.tokens)}
    if len(inputs.stacks_of(loaded)) > 1:
        read = decoder_encoding(request)
        given |= {"target": torch.tensor(read.ids), "target_tokens": tuple(read.tokens)}
    return torch.tensor(encoded.ids), given


def trace(request: Request) -> Trace:
    """The trace of the stack that is shown, with the metric that is asked for."""
    if request.source:
        return with_metric(request) if request.strength == 1.0 else _strengthened(request)
    found = traces(request.forward)
    return found.get(request.stack) or next(iter(found.values()))


@keep()
def _strengthened(request: Request) -> Trace:
    return metrics.strengthened(with_metric(replace(request, strength=1.0)), request.strength)


def with_metric(request: Request) -> Trace:
    """The trace with a source's metric at strength 1, behind a progress bar where it takes longer."""
    found = BUDGET.get(("metric", request), MISSING)
    if found is not MISSING:
        return found
    cells = checkpoint(request.reference).config.layers * len(rows(request.bare).ids)
    with nullcontext() if at_work() else metrics.progress(request, cells) as watch:
        return kept(COMPUTING, ("metric", request), partial(_with_metric, request), watch=watch)


def _with_metric(request: Request) -> Trace:
    """Layer by layer. Those that are done are kept until all are: work that was stopped goes on there."""
    plain, key = trace(request.bare), ("layers", request)
    built, base = model(request.reference, request.device), checkpoint(request.reference).origin
    finished: dict[int, Any] = BUDGET.get(key, {})

    def progress(done: int, layers: int) -> None:
        BUDGET.put(key, finished)
        tell(done / layers, f"{metrics.title(metrics.kind(request.source))} metric: layer {done} of {layers}")

    found = metrics.applied(built, plain, request, base, finished, progress)
    BUDGET.release(lambda other: other == key)
    return found


@keep(COMPUTING, "Looking for metrics")
def reasons(request: Request) -> dict[str, str]:
    """Why a source of a metric cannot be had for this model and stack, by its name."""
    return metrics.reasons(model(request.reference, request.device), trace(request))


@keep(COMPUTING, "Checking the trace against the library's own forward pass")
def self_check(request: Request) -> Any:
    """How far a traced pass of a model of the library lies from the library's own; None where it cannot be told."""
    loaded, built = checkpoint(request.reference), model(request.reference, request.device)
    ids, more = _inputs(request, loaded)
    more = {name: value for name, value in more.items() if name in ("target", "pixels")}
    try:
        return built.self_check(ids[:CHECKED], **more)
    except (ValueError, RuntimeError):
        return None


def rows(request: Request) -> Encoding:
    """The tokens that stand at the rows of a request's trace. For an image model this runs it."""
    if inputs.sees_pictures(checkpoint(request.reference)):
        return inputs.patches(next(iter(traces(request.forward).values())))
    if request.stack in ("decoder", "cross"):
        return decoder_encoding(request)
    return encoding(request.reference, request.text)[0]
