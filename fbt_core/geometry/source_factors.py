"""What each source computes, layer by layer, and why it cannot be had for some models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.geometry.causal import causal_factor
from fbt_core.geometry.fisher import fisher_metric
from fbt_core.geometry.local import local_factors
from fbt_core.geometry.placing import LayerFactors, Options, Placed, mean_one, mean_trace
from fbt_core.geometry.quotient import head_factors
from fbt_core.geometry.readout import Readout, readout
from fbt_core.trace import LayerTrace, Trace


def _on_residual(
    model: Any, trace: Trace, options: Options, residual: Callable[[LayerTrace], tuple[Tensor, dict[str, float]]]
) -> LayerFactors:
    """A metric of the residual stream, as every head sees it."""

    def factors(layer: LayerTrace) -> Placed:
        W = projection(model, trace, layer, options.projection)
        U, readings = residual(layer)
        head = head_factors(W.to(U), mean_one(U) if options.normalise else U)
        head = head.expand(-1, trace.length, -1, -1)
        if hasattr(model, "rotate"):
            head = model.rotate(layer.index, head, layer.rotary, trace.stack)
        return Placed(head, U.expand(trace.length, -1, -1), readings=readings | {"natural": mean_trace(U)})

    return factors


def projection(model: Any, trace: Trace, layer: LayerTrace, which: str) -> Float[Tensor, "head dim width"]:
    """W from the normalised residual to a head's keys (or queries), the norm's gain included."""
    if which not in ("key", "query"):
        raise ValueError(f"got projection {which!r}, expected key or query")
    if hasattr(model, "projection"):
        return model.projection(layer.index, which, trace.stack).detach()
    block = model.blocks[layer.index]
    linear = block.query if which == "query" or model.config.tied_qk else block.key
    gain = block.attention_norm.weight if block.normalise else 1.0
    return (linear.weight * gain).detach().unflatten(0, (layer.heads, -1))


def identity(model: Any, trace: Trace, options: Options) -> LayerFactors:
    return lambda layer: Placed(layer.given.k[..., None][..., :0], layer.residual_in[..., None][..., :0])


def fisher(model: Any, trace: Trace, options: Options) -> LayerFactors:
    read = readout_of(model)

    def residual(layer: LayerTrace) -> tuple[Tensor, dict[str, float]]:
        found = fisher_metric(read, layer.residual_in, options.rank, options.vocabulary)
        kept = float(found.kept.double().sum() / found.total.double().sum().clamp_min(1e-300))
        weight = found.total.double() / found.total.double().sum().clamp_min(1e-300)
        return found.U, {"kept": min(kept, 1.0), "rest": float((found.rest.double() * weight).sum())}

    return _on_residual(model, trace, options, residual)


def causal(model: Any, trace: Trace, options: Options) -> LayerFactors:
    U = causal_factor(readout_of(model), options.rank)[None]
    return _on_residual(model, trace, options, lambda layer: (U, {}))


def local(model: Any, trace: Trace, options: Options) -> LayerFactors:
    def factors(layer: LayerTrace) -> Placed:
        heads: list[Tensor] = []
        for index, keys in enumerate(layer.given.k):
            repeated = index > 0 and torch.equal(keys, layer.given.k[index - 1])  # a shared head, worked out already
            heads.append(heads[-1] if repeated else local_factors(keys, options.rank, options.neighbours))
        U = torch.stack(heads)
        residual = local_factors(layer.residual_in, options.rank, options.neighbours)
        return Placed(U, residual, readings={"natural": mean_trace(U)})

    return factors


def adapter(model: Any, trace: Trace, options: Options) -> LayerFactors:
    from fbt_core.model.adapted import adapter_metrics  # a model room, which needs the geometry to be there first

    assert options.adapter is not None
    metrics = adapter_metrics(model, options.adapter, trace)

    def factors(layer: LayerTrace) -> Placed:
        if layer.index not in metrics:
            raise ValueError(f"the adapter has no metric for layer {layer.index}")
        metric, beta = metrics[layer.index]
        return Placed(metric.U, beta=beta, readings={"natural": mean_trace(metric.U)}, fixed=True)

    return factors


def readout_of(model: Any) -> Readout:
    settings = getattr(getattr(model, "module", None), "config", None)
    return readout(model, getattr(settings, "final_logit_softcapping", None))


def has_keys(model: Any, trace: Trace, options: Options | None = None) -> str:
    if trace.rectangular:
        return "cross-attention has no metric: its queries and keys are different tokens"
    if all(layer.factors is None for layer in trace.layers):
        return "no layer of this model has queries and keys to put a metric on"
    return ""


def predicts(model: Any, trace: Trace, options: Options | None = None) -> str:
    """Why there is no pull-back from predictions to this trace's residuals."""
    if why := has_keys(model, trace, options):
        return why
    if trace.stack == "encoder":
        return "the encoder's residual stream is not what this model's unembedding reads: look at the decoder"
    try:
        readout_of(model)
    except ValueError as reason:
        return str(reason)
    return ""


def is_learned(model: Any, trace: Trace, options: Options | None = None) -> str:
    if getattr(model.config, "has_metric", False) and not trace.source:
        return ""
    return "this model has no MetricNet of its own: nothing was learned"


def has_adapter(model: Any, trace: Trace, options: Options | None = None) -> str:
    if options is None or options.adapter is None:
        return "no adapter was given: train one with `python -m fbt_core adapt`"
    return has_keys(model, trace, options)
