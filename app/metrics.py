"""A metric for a model that has none: what the figures call it, and how it is put on a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from fbt_core.checkpoints import Checkpoint, Origin
from fbt_core.geometry.sources import SOURCES, Options, apply, with_strength
from fbt_core.trace import Trace

if TYPE_CHECKING:
    from app.request import Request
    from fbt_core.claims import Evidence

OFFERED = tuple(name for name in SOURCES if name != "learned")
"""The sources that a model without a metric may get one from."""

ADAPTER = "adapter"
QUIET = 1000
"""Tokens times layers up to which a metric takes about a second: no progress bar."""


def kind(source: str) -> str:
    """The row of SOURCES that a run's source names: an adapter's reference stands behind its own."""
    return source.partition(":")[0]


def title(name: str) -> str:
    """What the chooser shows."""
    return SOURCES[name].title if name else "none: the model as it is"


def label(request: Request) -> str:
    """Short enough for a figure."""
    rank = "" if kind(request.source) in ("identity", ADAPTER) else f", rank {request.rank}"
    return f"what-if: {kind(request.source)} metric{rank}, strength {request.strength:g}"


def explained(request: Request) -> str:
    """``label``, and how it was scaled, for a caption."""
    scaled = {"identity": "", ADAPTER: ", in its own units"}
    how = scaled.get(kind(request.source), ", normalised to mean tr K = 1 a layer")
    return f"{label(request)}{how}; the model was not trained with it"


def options(request: Request, base: Origin) -> dict[str, Any]:
    """What ``apply`` takes beside rank and strength. Raises ``CheckpointError`` for an adapter of another base."""
    if kind(request.source) != ADAPTER or ":" not in request.source:
        return {}
    from app import uploads
    from fbt_core.checkpoints.adapter import open_adapter

    found = open_adapter(uploads.path_of(request.source.partition(":")[2]))
    found.check_base(base)
    return {"adapter": found}


@contextmanager
def progress(request: Request, cells: int) -> Iterator[Callable[[float, str], None] | None]:
    """What draws the progress of ``applied``, for tokens times layers that take longer; else nothing."""
    words = f"{SOURCES[kind(request.source)].title} metric, layer by layer"
    bar = st.progress(0.0, words) if cells > QUIET else None
    yield None if bar is None else bar.progress
    if bar is not None:
        bar.empty()


def applied(
    model: Any, trace: Trace, request: Request, base: Origin, finished: dict[int, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Trace:  # fmt: skip
    """The trace with the metric at strength 1. ``finished`` keeps the layers that are done, for who was stopped."""
    name = kind(request.source)
    return apply(model, trace, name, request.rank, progress=progress, finished=finished, **options(request, base))


def strengthened(trace: Trace, strength: float) -> Trace:
    """A trace of ``applied`` at another strength, at no cost."""
    return trace if strength == 1.0 else with_strength(trace, strength)


def reasons(model: Any, trace: Trace) -> dict[str, str]:
    """Why a source cannot be had, by its name; the adapter, which comes from a file, is not asked for."""
    found = {name: SOURCES[name].unavailable(model, trace, Options()) for name in OFFERED if name != ADAPTER}
    return {name: why for name, why in found.items() if why}


def evidence(checkpoint: Checkpoint, request: Request, text: str, tokens: int) -> Evidence:
    """What the claims look at, on a text that need not be the sidebar's, with the metric that the request names.

    Raises ``ValueError`` where the model cannot run on the text, and ``CheckpointError`` for an adapter of another
    base.
    """
    from fbt_core import claims

    name, more = kind(request.source), options(request, checkpoint.origin)
    given = {"rank": request.rank, "strength": request.strength, "device": request.device}
    if not more:
        return claims.gather(checkpoint, text, claims.Options(tokens), source=name, **given)
    found = claims.gather(checkpoint, text, claims.Options(tokens), device=request.device)
    trace = apply(found.model, found.trace, name, request.rank, request.strength, **more)
    return replace(found, trace=trace, retrace=None)
