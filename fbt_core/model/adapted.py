"""MetricNets on a frozen base model: the same forward pass, with its attention by the blended score of item 9.

The base is a causal language model of the transformers library, or a Euclidean baseline of our own. Its q, k, v, mask
and scale are used as they are; tau = 2 / scale, so that with g = I the score continues the base's own dot product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fbt_core.attention import Factors, attend
from fbt_core.checkpoints.adapter import Adapter, AdapterConfig
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.model.initialise import initialise
from fbt_core.model.metric_net import FullMetricNet
from fbt_core.trace import Trace


class _Layer(nn.Module):
    """What one layer of the base is given: a MetricNet, and beta of Omega a head."""

    def __init__(self, shape: FiberBundleConfig, config: AdapterConfig) -> None:
        super().__init__()
        self.metric = FullMetricNet(shape, config.inputs, config.hidden)
        self.curvature = nn.Parameter(torch.empty(config.heads))


class AdapterNets(nn.Module):
    """One MetricNet a layer. Parameters start from (seed, name), as those of a ``FiberBundleTransformer`` do."""

    def __init__(self, config: AdapterConfig, seed: int = 0) -> None:
        super().__init__()
        self.adapter = config
        self.config = FiberBundleConfig(
            vocab_size=1, width=config.heads * config.head_width, heads=config.heads, rank=config.rank,
            metric_init=config.metric_init, kappa_max=config.kappa_max, kappa_min=0.0,
        )  # fmt: skip
        self.layers = nn.ModuleDict({str(i): _Layer(self.config, config) for i in config.layers})
        initialise(self, seed)

    @classmethod
    def of(cls, adapter: Adapter) -> AdapterNets:
        """The nets of a file, for reading."""
        nets = cls(adapter.config)
        nets.load_state_dict(dict(adapter.tensors))
        return nets.eval().requires_grad_(False)

    def metric(self, layer: int, h: Float[Tensor, "batch token width"]) -> LowRankMetric:
        """The metrics of a layer's tokens, after the ceiling; h is what its attention reads, the norm applied."""
        net: Any = self.layers[str(layer)]
        return net.metric(h.to(net.curvature.dtype), 1.0).metric

    def beta(self, layer: int) -> Float[Tensor, " head"]:
        """beta of Omega = softplus(beta) tr K."""
        net: Any = self.layers[str(layer)]
        return net.curvature

    def bend(self, layer: int, h: Float[Tensor, "batch token width"], f: Factors) -> Factors:
        """The base's factors (batch, head, token, ...) with the metric, Omega and alpha of the adapter."""
        metric = self.metric(layer, h)
        omega = F.softplus(self.beta(layer))[:, None] * metric.trace
        return replace(f, metric=LowRankMetric(metric.U.to(f.q)), omega=omega.to(f.q), alpha=self.adapter.alpha)


@dataclass(frozen=True)
class Base:
    """What an adapter needs to know of a frozen base. ``logits`` runs it on (batch, token) ids, adapted or not."""

    layers: tuple[int, ...]
    heads: int
    head_width: int
    inputs: int
    logits: Callable[[Tensor, AdapterNets | None], Tensor]


def base_of(model: Any) -> Base:
    """The base that a built model makes.

    Raises ``ValueError`` with the reason where an adapter cannot be trained on it: an encoder, a model that predicts no
    next token, one that has a metric, one whose attention cannot be replaced.
    """
    if isinstance(model, FiberBundleTransformer):
        return _own_base(model)
    config = model.config
    if len(config.stacks) > 1 or config.input != "text" or not config.causal:
        raise ValueError("got a model whose tokens see later ones, expected a causal language model: an adapter learns "
                         "from predicting the next token")  # fmt: skip
    if model.unembedding is None:
        raise ValueError("got a model without an unembedding, expected a language model: it predicts no next token")
    from fbt_core.huggingface.adapted import library_base

    return library_base(model)


def adapter_metrics(
    model: Any, adapter: Adapter, trace: Trace
) -> dict[int, tuple[LowRankMetric, Float[Tensor, " head"]]]:
    """The metrics (head, token, d, r) and beta of an adapter's layers, on the base's own residuals in a trace.

    Raises ``ValueError`` where the trace is not of a model of the adapter's shape.
    """
    nets, found = AdapterNets.of(adapter).to(trace.layers[0].residual_in.device), {}
    for layer in trace.layers:
        if layer.factors is None or layer.index not in adapter.config.layers:
            continue
        c, (heads, _, dim) = adapter.config, layer.factors.k.shape
        width = layer.residual_in.shape[1]
        if (heads, dim, width) != (c.heads, c.head_width, c.inputs):
            got, expected = f"{heads} heads of {dim} on {width}", f"{c.heads} of {c.head_width} on {c.inputs}"
            raise ValueError(f"got a base of {got}, expected {expected}: this adapter is another model's")
        with torch.no_grad():
            norm = attention_norm(model, layer.index, trace.stack)
            h = layer.residual_in if norm is None else norm(layer.residual_in)
            metric = nets.metric(layer.index, h[None])
        found[layer.index] = (metric.sequence(0), nets.beta(layer.index))
    return found


def attention_norm(model: Any, layer: int, stack: str) -> Any:
    """The module that normalises before a layer's attention; None where there is none."""
    if isinstance(model, FiberBundleTransformer):
        block: Any = model.blocks[layer]
        return block.attention_norm if block.normalise else None
    return model._sites(stack)[layer].norm


def _own_base(model: FiberBundleTransformer) -> Base:
    c = model.config
    if c.own_score != "euclidean" or c.has_metric or not c.causal or c.pure_stack or c.torsion_rank:
        raise ValueError("got a Fiber Bundle Transformer with a geometry of its own (or an encoder), expected a causal "
                         "Euclidean baseline")  # fmt: skip

    def logits(ids: Int[Tensor, "batch token"], nets: AdapterNets | None) -> Tensor:
        if nets is None:
            return model(ids)
        with _bent_blocks(model, nets):
            return model(ids)

    return Base(tuple(range(c.layers)), c.heads, c.head_width, c.width, logits)


@contextmanager
def _bent_blocks(model: FiberBundleTransformer, nets: AdapterNets) -> Iterator[None]:
    """Let each block's attention be the adapter's. Not for a model that another thread is reading."""

    def bent(index: int, block: Any) -> None:
        read: list[Tensor] = []
        hooks.append(block.attention_norm.register_forward_hook(lambda module, args, output: read.append(output)))
        block._attend = lambda f, torsion: attend(nets.bend(index, read.pop(), f), "blended")

    hooks: list[Any] = []
    try:
        for index, block in enumerate(model.blocks):
            bent(index, block)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for block in model.blocks:
            vars(block).pop("_attend", None)
