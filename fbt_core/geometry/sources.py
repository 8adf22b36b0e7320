"""Where a metric comes from, for a model that has none. Everything here is a what-if: the model never ran with it.

A source gives the tokens of every attention layer a metric; ``apply`` puts them on a trace, in place of what it had.
q, k, v and the residuals stay those of the model's own pass, tau stays 2 / scale, and Omega is the curvature proxy with
the beta that a Fiber Bundle Transformer starts from. To add a source: write a function, add a row to ``SOURCES``.

`fisher` and `causal` are metrics of the residual stream. A head sees their quotient under its key projection W, gain of
the norm included and the norm's own derivative left out (``quotient``), in coordinates whitened by (W W^T)^{-1/2}. Our
reading puts that factor on the head's own q and k, turned with the layer's rotary position, so that g = I stays the
model's own inner product. `local` is a metric of the keys as they are.

The natural units of these metrics have nothing to do with each other, so U is scaled such that the mean tr K is 1 over
the tokens and heads of a layer (and over the tokens, on the residual stream, before the quotient is taken). The notes
say what it was. ``normalise=False`` keeps the natural units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from fbt_core.geometry import source_factors as factors
from fbt_core.geometry.placing import LayerFactors, Options, Placed, with_metric, with_strength
from fbt_core.trace import Trace

__all__ = ["SOURCES", "Options", "Source", "apply", "with_strength"]

WHAT_IF = "A what-if: the model did not run with this metric."


@dataclass(frozen=True)
class Source:
    """One way to get a metric. ``factors`` prepares what all layers share and returns the function of one layer.

    ``unavailable(model, trace, options=None)`` says in a sentence why the source cannot be had; empty where it can.
    """

    name: str
    title: str
    formula: str  # LaTeX
    source: str
    cost: str  # per layer, unless it says otherwise
    memory: str
    unavailable: Callable[..., str]
    factors: Callable[[Any, Trace, Options], LayerFactors]
    notes: Callable[[dict[int, Placed]], tuple[str, ...]] = lambda placed: ()


def apply(
    model: Any,
    trace: Trace,
    source: str,
    rank: int = 4,
    strength: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
    finished: dict[int, Placed] | None = None,
    **options: Any,
) -> Trace:
    """The trace with the metrics of ``source`` on every attention layer. Deterministic.

    ``options`` are the other fields of ``Options``. ``progress(done, layers)`` is called after each layer; one
    that raises stops the work, and what is in ``finished``, a table that the caller keeps, is not computed again.
    Layers without queries and keys stay as they are, and so do layers for which the source has none: the notes name
    them.
    Raises ``ValueError`` (got, expected) for an unknown source or a strength that is negative or not finite, and with
    the reason where the source cannot be had.
    """
    if source not in SOURCES:
        raise ValueError(f"got source {source!r}, expected one of {', '.join(SOURCES)}")
    if not 0 <= strength < math.inf:
        raise ValueError(f"got strength {strength}, expected a finite number of at least 0")
    chosen, asked = SOURCES[source], Options(rank=rank, **options)
    if why := chosen.unavailable(model, trace, asked):
        raise ValueError(why)
    if source == "learned":
        return replace(trace, source=source)
    placed, left = _place(chosen.factors(model, trace, asked), trace, progress, {} if finished is None else finished)
    if not placed:
        raise ValueError(next(iter(left.values()), "no layer of this model has queries and keys"))
    layers = tuple(
        with_metric(layer, placed[layer.index], asked.normalise) if layer.index in placed else layer
        for layer in trace.layers
    )
    notes = (WHAT_IF, *_scale_notes(placed, asked.normalise), *chosen.notes(placed), *_left_notes(left))
    adapter = asked.adapter if source == "adapter" else None
    bare = replace(
        trace,
        layers=layers,
        source=source,
        has_metric=True,
        notes=(*trace.notes, *notes),
        strength=1.0,
        adapter=adapter,
    )
    return with_strength(bare, strength)


def _place(
    factors: LayerFactors, trace: Trace, progress: Callable[[int, int], None] | None, placed: dict[int, Placed]
) -> tuple[dict[int, Placed], dict[int, str]]:
    """Each layer's metric by its index, in ``placed``, and the reasons of the layers that attend and have none."""
    left = {}
    for done, layer in enumerate(trace.layers, 1):
        if layer.factors is not None and layer.index not in placed:
            try:
                placed[layer.index] = factors(layer)
            except ValueError as reason:
                left[layer.index] = str(reason)
            except torch.linalg.LinAlgError:  # what NaN and infinite weights give
                left[layer.index] = f"the numbers of layer {layer.index} are not finite, or far too large"
        if progress is not None:
            progress(done, len(trace.layers))
    return placed, left


def _scale_notes(placed: dict[int, Placed], normalise: bool) -> tuple[str, ...]:
    """What the natural units were."""
    found = {index: p.readings["natural"] for index, p in placed.items() if "natural" in p.readings}
    if not found:
        return ()
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    span = f"{found[most]:.3g} at layer {most}" + (f" to {found[least]:.3g} at layer {least}" if least != most else "")
    scaled = normalise and not any(p.fixed for p in placed.values())
    done = "Scaled to mean tr K = 1 in every layer; in natural units it is" if scaled else "Mean tr K:"
    return (f"{done} {span}.",)


def _fisher_notes(placed: dict[int, Placed]) -> tuple[str, ...]:
    kept = {index: p.readings["kept"] for index, p in placed.items()}
    rest = {index: p.readings["rest"] for index, p in placed.items()}
    least, worst = min(kept, key=kept.__getitem__), max(rest, key=rest.__getitem__)
    mean = sum(kept.values()) / len(kept)
    return (
        f"The likeliest tokens captured {mean:.1%} of tr G on average; least {kept[least]:.1%} at layer {least}.",
        f"Cut at this rank, the spectral error is {sum(rest.values()) / len(rest):.1%} of the largest eigenvalue on "
        f"average; most {rest[worst]:.1%} at layer {worst}.",
    )


def _left_notes(left: dict[int, str]) -> tuple[str, ...]:
    if not left:
        return ()
    index, reason = next(iter(left.items()))
    more = f" (and {len(left) - 1} more layers)" if len(left) > 1 else ""
    return (f"No metric at layer {index}{more}: {reason}.",)


def _adapter_notes(placed: dict[int, Placed]) -> tuple[str, ...]:
    return ("The adapter's metrics stand on the base's own forward pass, in which the adapter did not run.",)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "identity", "Identity", r"g = I", "the null: no metric", "none", "none", factors.has_keys, factors.identity,
        ),
        Source(
            "learned", "Learned", r"g = I + U U^\top,\; U = \mathrm{MetricNet}(h)",
            "docs/mathematics.md, item 2: the model's own", "none", "none", factors.is_learned, factors.identity,
        ),
        Source(
            "fisher", "Fisher",
            r"G = J^\top (\operatorname{diag} p - p p^\top) J,\quad J = \partial\,\mathrm{logits}/\partial x",
            "Fisher-Rao through the logit lens; rank r by block Krylov (arXiv 1504.05477)",
            "L (4 V D + 20 K D (r + 2)) for K of V tokens: 2 to 3 s for L = 512, V = 49,152, D = 576 on one core",
            "64 MB a chunk of tokens, and the unembedding in float32", factors.predicts, factors.fisher, _fisher_notes,
        ),
        Source(
            "causal", "Causal inner product",
            r"G = \operatorname{Cov}(\gamma),\; \gamma \text{ a row of the unembedding}",
            "Park et al. 2024, arXiv 2311.03658: its dual, which acts on hidden states; the same for every token",
            "2 V D^2 + D^3 once", "D^2", factors.predicts, factors.causal,
        ),
        Source(
            "local", "Local covariance",
            r"A_t = \text{rank-}r \text{ part of } \operatorname{Cov}(k_t \text{ and its nearest keys})",
            "docs/mathematics.md, Sources: the cloud of keys around each token, later tokens included",
            "H L^2 d", "H L k d", factors.has_keys, factors.local,
        ),
        Source(
            "adapter", "Adapter", r"U = \mathrm{MetricNet}(h) \text{ trained on the frozen base}",
            "python -m fbt_core adapt", "L D (D' + d r H)", "that of the adapter", factors.has_adapter, factors.adapter,
            _adapter_notes,
        ),
    )
}  # fmt: skip
