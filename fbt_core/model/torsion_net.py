"""TorsionNet: from a token's residual to the skew form T = L R^T - R L^T, one a head (item 7)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from fbt_core.config import FiberBundleConfig


class TorsionNet(nn.Module):
    """Linear(D, H d 2 r'), its outputs the columns of L and R. A proxy: no connection's torsion is computed."""

    def __init__(self, config: FiberBundleConfig) -> None:
        super().__init__()
        self.config = config
        self.out = nn.Linear(config.width, config.heads * config.head_width * 2 * config.torsion_rank)

    def forward(self, h: Float[Tensor, "batch token width"]) -> tuple[Tensor, Tensor]:
        """L and R, each (batch, head, token, d, r')."""
        c = self.config
        both = self.out(h).unflatten(-1, (c.heads, c.head_width, 2, c.torsion_rank)).transpose(1, 2)
        return both[..., 0, :], both[..., 1, :]
