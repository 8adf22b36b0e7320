"""The only ``st.cache_*`` there are. Keys are strings and numbers, never arrays; what they return is not written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st
import torch

from app import inputs, metrics, pictures, uploads
from fbt_core import checkpoints
from fbt_core.checkpoints import Checkpoint, load
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.measures import Reading, read
from fbt_core.measures.geometry import read_geometry
from fbt_core.model import build
from fbt_core.tokenizer import Encoding
from fbt_core.trace import Trace

if TYPE_CHECKING:
    from fbt_core.claims import Evidence, Finding  # its fifteen files are for the page that asks for them

MAXIMUM_TOKENS = 4096
"""A longer text is cut, with a notice."""

MAXIMUM_CHARACTERS = 65_536
"""Of which a tokenizer is asked to make tokens at all."""

HEAVY = threading.RLock()
"""One heavy computation at a time, whatever the number of sessions: two would only be slower on the same cores."""


CHECKED = 64
"""Tokens of a text that are compared with the library's own forward pass."""

Options = tuple[tuple[str, Hashable], ...]

SHIFTED = ("roberta", "camembert", "xlm-roberta", "mpnet", "longformer", "xmod", "data2vec-text")
"""Model types that count positions from the one after their padding's, so that two of their table are never used."""


@dataclass(frozen=True)
class Request:
    """All that a trace depends on."""

    reference: str
    text: str
    strength: float = 1.0
    device: str = "cpu"
    source: str = ""  # of the metric, for a model that has none
    rank: int = 4  # of that metric
    stack: str = ""  # of a model that has several
    target: str = ""  # what its decoder reads
    image: str = ""

    @property
    def forward(self) -> Request:
        """What the model runs on: neither where a metric comes from nor which stack is shown makes it run again."""
        strength = 1.0 if self.source else self.strength
        return replace(self, strength=strength, source="", rank=4, stack="")

    @property
    def bare(self) -> Request:
        """The same stack without a metric from elsewhere: what no such metric touches depends on this alone."""
        return replace(self.forward, stack=self.stack)


@st.cache_resource(max_entries=4, show_spinner="Reading the checkpoint")
def checkpoint(reference: str) -> Checkpoint:
    """The checkpoint of a reference, of which a file may hold several. Raises ``CheckpointError``."""
    asked = uploads.parsed(reference)
    chosen: dict[str, Any] = {}
    if asked.part:
        chosen["part"] = _part(reference, asked.part)
    if asked.base:
        chosen["base"] = checkpoint(asked.base)
    return load(uploads.path_of(reference), name=uploads.label_of(reference), **chosen)


def _part(reference: str, part: str) -> str:
    """A state dict's name, which a reference that cannot hold it gives as ``~`` and its number."""
    if not part.startswith("~"):
        return part
    asked = uploads.parsed(reference)
    parts, number = inspection(f"{asked.kind}:{asked.name}").parts, part[1:]
    if not number.isdecimal() or int(number) >= len(parts):
        raise CheckpointError(f"state dict number {number!r}", f"one of {len(parts)}", "Choose the checkpoint again.")
    return str(parts[int(number)])


@st.cache_resource(max_entries=32, show_spinner=False)
def inspection(reference: str) -> Any:
    """What the headers say of a file. Raises nothing for a bad one, and ``CheckpointError`` where there is none."""
    asked = uploads.parsed(reference)
    chosen = {"part": _part(reference, asked.part)} if asked.part else {}
    return checkpoints.inspect(uploads.path_of(reference), name=uploads.label_of(reference), **chosen)


def release(reference: str) -> None:
    """Nobody shows this checkpoint any more: its tensors and its model leave the memory."""
    inspection.clear(reference)
    checkpoint.clear(reference)
    for device in devices():
        model.clear(reference, device)
    for held in (traces, _at_strength, _box, evidence):  # by whole requests, of which only some are this checkpoint's
        held.clear()


@st.cache_resource(max_entries=4, show_spinner="Building the model")
def model(reference: str, device: str) -> Any:
    """The model in eval mode on a device."""
    return build(checkpoint(reference), device=device)


@st.cache_resource(max_entries=64, show_spinner=False)
def encoding(reference: str, text: str) -> tuple[Encoding, int]:
    """The text as this checkpoint's tokenizer sees it, cut at ``length_limit``, and its number of tokens uncut.

    Without a tokenizer the text is read as the ids themselves.
    """
    loaded = checkpoint(reference)
    if inputs.reads_ids(loaded):
        full = inputs.ids_in(text[:MAXIMUM_CHARACTERS], loaded.config.vocab_size)
    else:
        full = loaded.tokenizer.encode(text[:MAXIMUM_CHARACTERS])
    return full.cut(length_limit(loaded)), len(full.ids)


def length_limit(loaded: Checkpoint) -> int:
    """The longest text in tokens: a learned position table ends at the context."""
    config = loaded.config
    if isinstance(config, HuggingFaceConfig):
        context = config.context - 2 * (config.model_type in SHIFTED)
        return min(MAXIMUM_TOKENS, context) if config.context else MAXIMUM_TOKENS
    return min(MAXIMUM_TOKENS, config.context) if config.position == "learned" else MAXIMUM_TOKENS


def decoder_encoding(request: Request) -> Encoding:
    """What the decoder of an encoder-decoder reads: its first token, then the target, or else the text."""
    loaded = checkpoint(request.reference)
    full, _ = encoding(request.reference, request.target or request.text)
    return inputs.shifted(full, loaded, keep_last=bool(request.target), limit=length_limit(loaded))


def rows(request: Request) -> Encoding:
    """The tokens that stand at the rows of a request's trace. For an image model this runs it."""
    if inputs.sees_pictures(checkpoint(request.reference)):
        return inputs.patches(next(iter(traces(request.forward).values())))
    if request.stack in ("decoder", "cross"):
        return decoder_encoding(request)
    return encoding(request.reference, request.text)[0]


@st.cache_resource(max_entries=4, show_spinner="Running the model")
def traces(request: Request) -> dict[str, Trace]:
    """One forward pass, kept as factors: a trace a stack. Ask with ``Request.forward``."""
    return _run(request)


def _run(request: Request, **more: str) -> dict[str, Trace]:
    """The pass itself; ``variant`` may be among ``more``."""
    loaded, built = checkpoint(request.reference), model(request.reference, request.device)
    with HEAVY, torch.no_grad():
        ids, given = _inputs(request, loaded)
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
        return _at_strength(request, with_metric(replace(request, strength=1.0)))
    found = traces(request.forward)
    return found.get(request.stack) or next(iter(found.values()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _at_strength(request: Request, _traced: Trace) -> Trace:
    return metrics.strengthened(_traced, request.strength)


def with_metric(request: Request) -> Trace:
    """The trace with a source's metric at strength 1. What shows progress cannot itself be cached: a box for it is."""
    box = _box(request)
    with HEAVY, torch.no_grad():
        if "trace" not in box:
            plain = trace(request.bare)
            built, base = model(request.reference, request.device), checkpoint(request.reference).origin
            box["trace"] = metrics.applied(built, plain, request, base, box.setdefault("finished", {}))
            del box["finished"]
    return box["trace"]


@st.cache_resource(max_entries=3, show_spinner=False)
def _box(request: Request) -> dict[str, Any]:
    return {}


@st.cache_resource(max_entries=32, show_spinner=False)
def reasons(request: Request) -> dict[str, str]:
    """Why a source of a metric cannot be had for this model and stack, by its name."""
    with HEAVY, torch.no_grad():
        return metrics.reasons(model(request.reference, request.device), trace(request))


@st.cache_resource(max_entries=32, show_spinner="Checking the trace against the library's own forward pass")
def self_check(request: Request) -> Any:
    """How far a traced pass of a model of the library lies from the library's own; None where it cannot be told."""
    loaded, built = checkpoint(request.reference), model(request.reference, request.device)
    with HEAVY, torch.no_grad():
        ids, more = _inputs(request, loaded)
        more = {name: value for name, value in more.items() if name in ("target", "pixels")}
        try:
            return built.self_check(ids[:CHECKED], **more)
        except (ValueError, RuntimeError):
            return None


def _sorted(options: dict[str, Hashable]) -> Options:
    return tuple(sorted(options.items()))


@st.cache_resource(max_entries=512, show_spinner=False)
def _reading(request: Request, of: str, name: str, options: Options, _compute: Callable[[], Reading]) -> Reading:
    with HEAVY, torch.no_grad():
        found = _compute()
    found.values.setflags(write=False)
    return found


def reading(request: Request, name: str, **options: Hashable) -> Reading:
    """A measure of the table on the trace of a request."""
    return _reading(request, "trace", name, _sorted(options), lambda: read(trace(request), name, **options))


def ablated(request: Request, name: str, variant: str, **options: Hashable) -> Reading:
    """A measure of the model with parts of it left out: a key of VARIANTS. Raises ``ValueError`` with the reason."""

    def compute() -> Reading:
        found = _run(request.forward, variant=variant)
        return read(found.get(request.stack) or next(iter(found.values())), name, **options)

    return _reading(request, variant, name, _sorted(options), compute)


def geometry(request: Request, name: str, **options: Hashable) -> Reading:
    """A measure of the metric as a function of the residual stream, for which the model is asked again."""

    def compute() -> Reading:
        return read_geometry(model(request.reference, request.device), trace(request), name, **options)

    return _reading(request, "model", name, _sorted(options), compute)


@st.cache_resource(max_entries=192, show_spinner=False)
def _kept(of: Hashable, name: str, options: Options, _compute: Callable[[], Any]) -> Any:
    with HEAVY, torch.no_grad():
        return _compute()


def _keep(of: Hashable, function: Callable[..., Any], options: dict[str, Hashable], *given: Any) -> Any:
    """``function(*given, **options)``, cached by what it is of, its name and its options. The result is not written."""
    name = f"{function.__module__}.{function.__qualname__}"
    return _kept(of, name, _sorted(options), partial(function, *given, **options))


def of_weights(reference: str, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(checkpoint, **options)``, cached, for what needs no forward pass."""
    return _keep(reference, function, options, checkpoint(reference))


def derived(request: Request, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(trace, **options)``, cached, for what is no measure: maps, glyphs."""
    return _keep(request, function, options, trace(request))


def of_model(request: Request, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(model, trace, **options)``, cached, for what the trace alone does not tell: geodesics, transport."""
    return _keep(request, function, options, model(request.reference, request.device), trace(request))


@st.cache_resource(max_entries=48, show_spinner=False)
def _shelf(of: Hashable, name: str, options: Options) -> dict[str, Any]:
    return {}


def watched(of: Hashable, function: Callable[..., Any], watch: Callable[..., None], **options: Hashable) -> Any:
    """``function(of, watch, **options)``, cached. What shows progress cannot itself be cached: a shelf for it is."""
    shelf = _shelf(of, f"{function.__module__}.{function.__qualname__}", _sorted(options))
    with HEAVY, torch.no_grad():
        if "found" not in shelf:
            shelf["found"] = function(of, watch, **options)
    return shelf["found"]


def is_there(of: Hashable, function: Callable[..., Any], **options: Hashable) -> bool:
    """Whether ``watched`` would answer at once."""
    return "found" in _shelf(of, f"{function.__module__}.{function.__qualname__}", _sorted(options))


@st.cache_resource(max_entries=2, show_spinner="Running the model in float64")
def evidence(request: Request, text: str, tokens: int) -> Evidence:
    """What the claims are checked on: a copy of the model in float64, and its trace. Raises ``ValueError``."""
    with HEAVY, torch.no_grad():
        return metrics.evidence(checkpoint(request.reference), request, text, tokens)


def findings(of: Hashable) -> dict[str, Finding]:
    """The claims that were checked so far, by their id: a shelf, which whoever checks one writes."""
    return _shelf(of, "claims", ())


def devices() -> list[str]:
    """Where a model may run here; ``auto`` is all GPUs together."""
    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return ["cpu", *found, *(["auto"] if len(found) > 1 else [])]
