"""One layer: geodesic attention, value transport, preconditioned feed-forward. Training and tracing both run it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fbt_core.attention import Factors, attend
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.transport import cayley
from fbt_core.model.metric_net import METRIC_NETS, MetricField
from fbt_core.model.torsion_net import TorsionNet

Residual = Float[Tensor, "batch token width"]


@dataclass(frozen=True)
class BlockRecord:
    """What a block leaves for whoever asks: a training step (``raw``, for the regularisers) or a trace (the rest)."""

    middle: Residual
    factors: Factors
    torsion: tuple[Tensor, Tensor] | None
    raw: LowRankMetric | None


class FiberBlock(nn.Module):
    """x -> x + attention(RMSNorm(x)) -> x + g^{-1} FFN(RMSNorm(x)); in a pure stack x -> A x W_V W_O only."""

    def __init__(self, config: FiberBundleConfig) -> None:
        super().__init__()
        c = self.config = config
        self.normalise = not c.pure_stack or c.norm == "rms"
        if self.normalise:
            self.attention_norm = nn.RMSNorm(c.width, eps=1e-6)
        self.query = nn.Linear(c.width, c.width, bias=False)
        if not c.tied_qk:
            self.key = nn.Linear(c.width, c.width, bias=False)
        self.value = nn.Linear(c.width, c.width, bias=False)
        self.output = nn.Linear(c.width, c.width, bias=False)
        if c.score != "euclidean":
            self.log_tau = nn.Parameter(torch.empty(c.heads))
        if c.has_metric:
            self.metric = METRIC_NETS[c.metric_family](c)
            if c.gate:
                self.gate = nn.Parameter(torch.empty(c.heads))
            if c.curvature_bias:
                self.curvature = nn.Parameter(torch.empty(c.heads))
        if c.torsion_rank:
            self.torsion = TorsionNet(c)
        if not c.pure_stack:
            self.feed_forward_norm = nn.RMSNorm(c.width, eps=1e-6)
            self.expand = nn.Linear(c.width, c.feed_forward)
            self.contract = nn.Linear(c.feed_forward, c.width)
            if c.residual == "rezero":
                self.attention_gain = nn.Parameter(torch.empty(()))
                self.feed_forward_gain = nn.Parameter(torch.empty(()))

    def forward(self, x: Residual, slopes: Tensor | None, strength: float = 1.0) -> tuple[Residual, BlockRecord]:
        """The residual after the block, and the record of how it came about."""
        c = self.config
        h = self.attention_norm(x) if self.normalise else x
        field = self.metric(h, strength) if c.has_metric else None
        factors = self._factors(h, field, slopes)
        torsion = self.torsion(h) if c.torsion_rank else None
        update = self.output(self._attend(factors, torsion).transpose(1, 2).flatten(2))
        if c.pure_stack:
            x = middle = update
        else:
            rezero = c.residual == "rezero"
            x = middle = x + (self.attention_gain * update if rezero else update)
            update = self._feed_forward(x, factors)
            x = x + (self.feed_forward_gain * update if rezero else update)
        return x, BlockRecord(middle, factors, torsion, None if field is None else field.raw)

    def _factors(self, h: Residual, field: MetricField | None, slopes: Tensor | None) -> Factors:
        """Items 3, 5 and 6: gated q and k, temperature, curvature bias."""
        c = self.config
        q, k, v = (self._heads(p(h)) for p in (self.query, self.query if c.tied_qk else self.key, self.value))
        metric = LowRankMetric(q.new_zeros(*q.shape, 0)) if field is None else field.metric
        if field is not None and c.gate:
            gamma = self.gate.sigmoid()[:, None, None]
            q, k = (x + gamma * metric.push(x) for x in (q, k))
        if c.qk_norm:
            q, k = (F.normalize(x, dim=-1) * (c.head_width / 2) ** 0.5 for x in (q, k))
        tau = q.new_full((c.heads,), 2 * c.head_width**0.5) if c.score == "euclidean" else self.log_tau.exp()
        bent = c.has_metric and c.curvature_bias
        omega = F.softplus(self.curvature)[:, None] * metric.trace if bent else q.new_zeros(q.shape[:-1])
        alpha = {"euclidean": 0.0, "l2": 1.0}.get(c.score, c.alpha)
        return Factors(q, k, v, metric, tau, omega, alpha, c.causal, slopes)

    def _attend(self, f: Factors, torsion: tuple[Tensor, Tensor] | None) -> Tensor:
        """Item 7: y_i = C_i^T sum_j a_ij C_j v_j, optionally between g_j^{1/2} and g_i^{-1/2}."""
        c = self.config
        if torsion is None or c.transport == "none":
            return attend(f, c.own_score)
        v = f.metric.root(f.v) if c.metric_compatible else f.v
        out = attend(f.with_values(cayley(*torsion, v)), c.own_score)
        if c.transport == "frame":
            out = cayley(*torsion, out, inverse=True)
        return f.metric.inverse_root(out) if c.metric_compatible else out

    def _feed_forward(self, x: Residual, f: Factors) -> Residual:
        """Item 8: each head's block of the update is multiplied by that head's g^{-1}."""
        update = self.contract(F.gelu(self.expand(self.feed_forward_norm(x))))
        if not (self.config.has_metric and self.config.precondition):
            return update
        return f.metric.solve(self._heads(update)).transpose(1, 2).flatten(2)

    def _heads(self, x: Residual) -> Float[Tensor, "batch head token dim"]:
        return x.unflatten(-1, (self.config.heads, self.config.head_width)).transpose(1, 2)
