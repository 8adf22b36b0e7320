"""The only ``st.cache_*`` there are. Keys are strings and numbers, never arrays; what they return is not written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st
import torch

from app import uploads
from fbt_core.checkpoints import Checkpoint, load
from fbt_core.measures import Reading, read
from fbt_core.model import FiberBundleTransformer, build
from fbt_core.tokenizer import Encoding
from fbt_core.trace import Trace

MAXIMUM_TOKENS = 4096
"""A longer text is cut, with a notice."""

MAXIMUM_CHARACTERS = 65_536
"""Of which a tokenizer is asked to make tokens at all."""

HEAVY = threading.RLock()
"""One heavy computation at a time, whatever the number of sessions: two would only be slower on the same cores."""


@dataclass(frozen=True)
class Request:
    """All that a trace depends on."""

    reference: str
    text: str
    strength: float = 1.0
    device: str = "cpu"


@st.cache_resource(max_entries=4, show_spinner="Reading the checkpoint")
def checkpoint(reference: str) -> Checkpoint:
    """The checkpoint of a reference. Raises ``CheckpointError``."""
    return load(uploads.path_of(reference), name=uploads.label_of(reference))


@st.cache_resource(max_entries=4, show_spinner="Building the model")
def model(reference: str, device: str) -> FiberBundleTransformer:
    """The model in eval mode on a device."""
    return build(checkpoint(reference), device=device)


@st.cache_resource(max_entries=64, show_spinner=False)
def encoding(reference: str, text: str) -> tuple[Encoding, int]:
    """The text as this checkpoint's tokenizer sees it, cut at ``length_limit``, and its number of tokens uncut."""
    loaded = checkpoint(reference)
    full = loaded.tokenizer.encode(text[:MAXIMUM_CHARACTERS])
    limit = length_limit(loaded)
    return Encoding(full.ids[:limit], full.tokens[:limit], full.offsets[:limit], full.unknown[:limit]), len(full.ids)


def length_limit(loaded: Checkpoint) -> int:
    """The longest text in tokens: a learned position table ends at the context."""
    config = loaded.config
    return min(MAXIMUM_TOKENS, config.context) if config.position == "learned" else MAXIMUM_TOKENS


@st.cache_resource(max_entries=8, show_spinner="Running the model")
def trace(request: Request) -> Trace:
    """One forward pass, kept as factors."""
    encoded, _ = encoding(request.reference, request.text)
    built = model(request.reference, request.device)
    with HEAVY, torch.no_grad():
        ids = torch.tensor(encoded.ids, device=request.device)
        return built.trace(ids, strength=request.strength, tokens=tuple(encoded.tokens))


Options = tuple[tuple[str, Hashable], ...]


@st.cache_resource(max_entries=512, show_spinner=False)
def _reading(request: Request, name: str, options: Options) -> Reading:
    traced = trace(request)
    with HEAVY, torch.no_grad():
        reading = read(traced, name, **dict(options))
    reading.values.setflags(write=False)
    return reading


def reading(request: Request, name: str, **options: Hashable) -> Reading:
    """A measure of the table on the trace of a request."""
    return _reading(request, name, tuple(sorted(options.items())))


@st.cache_resource(max_entries=48, show_spinner=False)
def _derived(
    request: Request, name: str, options: tuple[tuple[str, Hashable], ...], _compute: Callable[[], Any]
) -> Any:
    with HEAVY, torch.no_grad():
        return _compute()


def derived(request: Request, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(trace, **options)``, cached by the function's name and its options. Do not write to the result."""
    traced = trace(request)
    name = f"{function.__module__}.{function.__qualname__}"
    return _derived(request, name, tuple(sorted(options.items())), partial(function, traced, **options))


def devices() -> list[str]:
    """Where a model may run here."""
    return ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
