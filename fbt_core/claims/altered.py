"""The same model with something of its metric changed, for losses of what-ifs: nothing here was retrained."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.model.hollow import hollow
from fbt_core.model.metric_net import MetricField

Change = Callable[[Tensor], Tensor]
"""U (batch, head, token, d, r), after the ceiling -> another of the same leading axes."""


class _Changed(nn.Module):
    """A MetricNet whose metrics pass through a change before anything reads them."""

    def __init__(self, net: nn.Module, change: Change) -> None:
        super().__init__()
        self.net, self.change = net, change

    def forward(self, h: Float[Tensor, "batch token width"], strength: float) -> MetricField:
        field = self.net(h, strength)
        return MetricField(field.raw, LowRankMetric(self.change(field.metric.U)))


def with_metric(model: FiberBundleTransformer, change: Change) -> FiberBundleTransformer:
    """A copy in which every layer's U is changed; score, gate, Omega and preconditioning all read the changed one."""
    copy = deepcopy(model)
    blocks: Any = copy.blocks
    for block in blocks:
        block.metric = _Changed(block.metric, change)
    return copy


def with_score_metric(model: FiberBundleTransformer, change: Change) -> FiberBundleTransformer:
    """A copy in which only the score and its Omega read the changed U; gate and preconditioning keep the trained."""
    copy = deepcopy(model)
    blocks: Any = copy.blocks
    for block in blocks:
        block._attend = partial(_attend_changed, block, block._attend, change)
    return copy


def _attend_changed(block: Any, attend: Callable[..., Tensor], change: Change, f: Factors, torsion: Any) -> Tensor:
    metric = LowRankMetric(change(f.U))
    omega = F.softplus(block.curvature)[:, None] * metric.trace if block.config.curvature_bias else f.omega
    return attend(replace(f, metric=metric, omega=omega, images=None), torsion)


def with_alpha(model: FiberBundleTransformer, alpha: float) -> FiberBundleTransformer:
    """The same parameters with another blending weight (item 9), which the model was not trained with."""
    copy = hollow(replace(model.config, alpha=alpha))
    copy.load_state_dict(model.state_dict(), assign=True)
    return copy.eval().requires_grad_(False)


def removed(U: Float[Tensor, "batch head token dim rank"]) -> Float[Tensor, "batch head token dim rank"]:
    """U = 0: every metric the identity."""
    return torch.zeros_like(U)


def row_losses(logits: Float[Tensor, "row token vocab"], ids: Int[Tensor, "row token"]) -> Float[Tensor, " row"]:
    """Mean next-token cross-entropy of each row, nats a token; the first token is given."""
    found = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return found.unflatten(0, (len(ids), -1)).mean(-1)
