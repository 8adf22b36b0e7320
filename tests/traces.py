"""Traces made of random numbers: any shape, any option, no model. For measures and figures under test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.trace import LayerTrace, Trace


def random_trace(
    length: int = 7, layers: int = 3, heads: int = 2, dim: int = 4, rank: int = 2, *, causal: bool = True,
    torsion: int = 1, alibi: bool = False, alpha: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64,
    score: str = "riemannian",
) -> Trace:  # fmt: skip
    """A trace of independent normal factors: D = heads dim, 11 words, tokens repeated on purpose."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def layer(index: int) -> LayerTrace:
        U = normal(heads, length, dim, rank) / 2
        factors = Factors(
            q=normal(heads, length, dim), k=normal(heads, length, dim), v=normal(heads, length, dim),
            metric=LowRankMetric(U), tau=2 + normal(heads).abs(), omega=0.1 * U.square().sum((-2, -1)),
            alpha=alpha, causal=causal, slopes=0.1 + normal(heads).abs() if alibi else None,
        )  # fmt: skip
        pair = (normal(heads, length, dim, torsion), normal(heads, length, dim, torsion)) if torsion else None
        width = heads * dim
        return LayerTrace(
            index, normal(length, width) + 1, normal(length, width) + 1, normal(length, width) + 1, factors, pair, score
        )

    ids = torch.arange(length) % 4
    return Trace(
        ids=ids, layers=tuple(layer(i) for i in range(layers)), normed=normal(length, heads * dim),
        logits=normal(length, 11), strength=1.0, has_metric=rank > 0,
        tokens=tuple(("the", "sea", "<b>", "a,b")[int(i)] for i in ids),
    )  # fmt: skip


def with_residual(trace: Trace, residual: torch.Tensor) -> Trace:
    """The same trace with one residual matrix at every layer and stage, and after the final norm."""
    layers = tuple(
        replace(layer, residual_in=residual, residual_mid=residual, residual_out=residual) for layer in trace.layers
    )
    return replace(trace, layers=layers, normed=residual)


def with_factors(trace: Trace, **tensors: torch.Tensor) -> Trace:
    """The same trace with some of every layer's factors replaced; ``U`` stands for the metric."""
    parts: dict[str, Any] = {name: tensor for name, tensor in tensors.items() if name != "U"}
    if "U" in tensors:
        parts["metric"] = LowRankMetric(tensors["U"])
    layers = tuple(replace(layer, factors=replace(layer.factors, **parts)) for layer in trace.layers)
    return replace(trace, layers=layers)


def permuted(trace: Trace, order: torch.Tensor) -> Trace:
    """The same trace with its tokens in another order (meaningful where nothing is causal)."""

    def moved(layer: LayerTrace) -> LayerTrace:
        f = layer.factors
        parts = {name: getattr(f, name)[:, order] for name in ("q", "k", "v", "omega")}
        factors = replace(f, **parts, metric=LowRankMetric(f.U[:, order]))
        torsion = None if layer.torsion is None else (layer.torsion[0][:, order], layer.torsion[1][:, order])
        residuals = {name: getattr(layer, name)[order] for name in ("residual_in", "residual_mid", "residual_out")}
        return replace(layer, factors=factors, torsion=torsion, **residuals)

    tokens = tuple(trace.tokens[i] for i in order)
    layers = tuple(moved(layer) for layer in trace.layers)
    return replace(trace, ids=trace.ids[order], tokens=tokens, layers=layers, normed=trace.normed[order])
