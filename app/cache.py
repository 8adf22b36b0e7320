"""What is computed once and kept, for all sessions. Keys are strings and numbers; what comes back is not written.

All of it stands in one budget of bytes (``FIBERSCOPE_MEMORY``, or half of what the machine had free at the start), and
what keeps the cores busy is computed one by one, first come, first served.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from app import inputs, metrics, pictures, stored, uploads
from app.kept import BUDGET, MISSING, keep, kept
from app.line import COMPUTING, READING, at_work, tell
from app.turns import Watch
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


@keep(READING, "Reading the checkpoint")
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


@keep()
def inspection(reference: str) -> Any:
    """What the headers say of a file. Raises nothing for a bad one, and ``CheckpointError`` where there is none."""
    asked = uploads.parsed(reference)
    chosen = {"part": _part(reference, asked.part)} if asked.part else {}
    return checkpoints.inspect(uploads.path_of(reference), name=uploads.label_of(reference), **chosen)


def release(reference: str) -> None:
    """Nobody shows this checkpoint any more: its tensors, its model and all that was found of it leave the memory."""
    BUDGET.release(lambda key: reference in references(key))


def references(key: Any) -> Iterator[str]:
    """Every checkpoint that a key speaks of."""
    if isinstance(key, str):
        yield key
    elif isinstance(key, Request):
        yield key.reference
        yield key.source.partition(":")[2]  # an adapter's
    elif isinstance(key, tuple):
        for part in key:
            yield from references(part)
    elif is_dataclass(key):
        for part in fields(key):
            yield from references(getattr(key, part.name))


@keep(COMPUTING, "Building the model")
def model(reference: str, device: str) -> Any:
    """The model in eval mode on a device."""
    return build(checkpoint(reference), device=device)


@keep()
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


@keep(COMPUTING, "Running the model")
def traces(request: Request) -> dict[str, Trace]:
    """One forward pass, kept as factors: a trace a stack. Ask with ``Request.forward``."""
    return stored.stored(request, checkpoint(request.reference)) or _run(request)


def _run(request: Request, **more: str) -> dict[str, Trace]:
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


def _sorted(options: dict[str, Hashable]) -> Options:
    return tuple(sorted(options.items()))


def _reading(request: Request, of: str, name: str, options: Options, compute: Callable[[], Reading]) -> Reading:
    def read_only() -> Reading:
        found = compute()
        found.values.setflags(write=False)
        return found

    return kept(COMPUTING, ("reading", request, of, name, options), read_only)


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


def _key(of: Hashable, function: Callable[..., Any], options: dict[str, Hashable]) -> Hashable:
    """An answer is kept by what it is of, the function's name and its options."""
    return of, f"{function.__module__}.{function.__qualname__}", _sorted(options)


def of_weights(reference: str, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(checkpoint, **options)``, kept, for what needs no forward pass."""
    return kept(COMPUTING, _key(reference, function, options), lambda: function(checkpoint(reference), **options))


def derived(request: Request, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(trace, **options)``, kept, for what is no measure: maps, glyphs."""
    return kept(COMPUTING, _key(request, function, options), lambda: function(trace(request), **options))


def of_model(request: Request, function: Callable[..., Any], **options: Hashable) -> Any:
    """``function(model, trace, **options)``, kept, for what the trace alone does not tell: geodesics, transport."""

    def compute() -> Any:
        return function(model(request.reference, request.device), trace(request), **options)

    return kept(COMPUTING, _key(request, function, options), compute)


def watched(of: Hashable, function: Callable[..., Any], watch: Watch | None = None, **options: Hashable) -> Any:
    """``function(of, tell, **options)``, kept. What it tells of its progress, ``watch`` draws."""
    return kept(COMPUTING, _key(of, function, options), lambda: function(of, tell, **options), watch=watch)


def is_there(of: Hashable, function: Callable[..., Any], **options: Hashable) -> bool:
    """Whether ``watched`` would answer at once."""
    return BUDGET.get(_key(of, function, options), MISSING) is not MISSING


@keep(COMPUTING, "Running the model in float64")
def evidence(request: Request, text: str, tokens: int) -> Evidence:
    """What the claims are checked on: a copy of the model in float64, and its trace. Raises ``ValueError``."""
    return metrics.evidence(checkpoint(request.reference), request, text, tokens)


def finding(of: Hashable, name: str, judge: Callable[[], Finding] | None = None) -> Finding | None:
    """A claim's finding: kept, or else judged now, or else none."""
    found = BUDGET.get(("claim", of, name))
    return found if found or judge is None else kept(COMPUTING, ("claim", of, name), judge, f"Checking {name}")


def devices() -> list[str]:
    """Where a model may run here; ``auto`` is all GPUs together."""
    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return ["cpu", *found, *(["auto"] if len(found) > 1 else [])]
