"""MetricNet: from a token's residual to its metric g = I + U U^T, one a head (item 2, the paper's Def. 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric

GELU_SECOND_MOMENT = 0.425
"""E gelu(z)^2 for z ~ N(0, 1), by quadrature; sets the size of the last layer so that ||U||_F^2 starts on target."""


@dataclass(frozen=True)
class MetricField:
    """The metrics of all tokens before and after ceiling and strength; U is (batch, head, token, d, rank)."""

    raw: LowRankMetric
    metric: LowRankMetric


class FullMetricNet(nn.Module):
    """U = Linear(GELU(Linear(h))): D -> D e -> D r outputs, reshaped to (head, d, r).

    On a base model of another make, h may be wider or narrower than D = H d, ``inputs``, and ``hidden`` may be chosen.
    """

    def __init__(self, config: FiberBundleConfig, inputs: int | None = None, hidden: int | None = None) -> None:
        super().__init__()
        self.config = config
        hidden = hidden or config.width * config.metric_expansion
        self.first = nn.Linear(inputs or config.width, hidden)
        self.second = nn.Linear(hidden, config.width * config.rank)

    def initial_std(self) -> float:
        """The standard deviation of ``second.weight`` that gives E ||U||_F^2 = metric_init."""
        c = self.config
        return (c.metric_init / (c.head_width * c.rank * GELU_SECOND_MOMENT * self.second.in_features)) ** 0.5

    def forward(self, h: Float[Tensor, "batch token width"], strength: float) -> MetricField:
        c = self.config
        raw = self.second(F.gelu(self.first(h))).unflatten(-1, (c.heads, c.head_width, c.rank))
        raw = LowRankMetric(raw.transpose(1, 2).contiguous())
        scale = strength * _ceiling(raw.trace, c.kappa_max).sqrt()
        return MetricField(raw, LowRankMetric(raw.U * scale[..., None, None]))


class DictionaryMetricNet(nn.Module):
    """A_t = B diag(w_t) B^T with w_t = softplus(Linear(h)) and B (d, m) shared by all tokens of a head."""

    def __init__(self, config: FiberBundleConfig) -> None:
        super().__init__()
        self.config = config
        self.atoms = nn.Parameter(torch.empty(config.heads, config.head_width, config.atoms))
        self.weigh = nn.Linear(config.width, config.heads * config.atoms)

    def forward(self, h: Float[Tensor, "batch token width"], strength: float) -> MetricField:
        c = self.config
        weights = F.softplus(self.weigh(h)).unflatten(-1, (c.heads, c.atoms)).transpose(1, 2).contiguous()
        raw = DictionaryMetric.of(self.atoms, weights)
        scale = strength**2 * _ceiling(raw.trace, c.kappa_max)
        return MetricField(raw, DictionaryMetric.of(self.atoms, weights * scale.unsqueeze(-1)))


def _ceiling(trace: Tensor, kappa_max: float) -> Tensor:
    """min(1, kappa_max / ||U||_F^2), the factor of U U^T."""
    return kappa_max / trace.clamp_min(kappa_max)


METRIC_NETS: dict[str, type[FullMetricNet] | type[DictionaryMetricNet]] = {
    "full": FullMetricNet,
    "dictionary": DictionaryMetricNet,
}
