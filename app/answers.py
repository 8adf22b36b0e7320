"""What was found of a trace, a model or a checkpoint, for all sessions: computed in the one line, kept in the budget.

Keys are plain values; what comes back is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from app import metrics
from app.kept import BUDGET, MISSING, keep, kept
from app.line import COMPUTING, tell
from app.loading import checkpoint, model
from app.request import Request
from app.traces import run, trace
from app.turns import Watch
from fbt_core.measures import Reading, read
from fbt_core.measures.geometry import read_geometry

if TYPE_CHECKING:
    from fbt_core.claims import Evidence, Finding  # its fifteen files are for the page that asks for them

Options = tuple[tuple[str, Hashable], ...]


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
        found = run(request.forward, variant=variant)
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
