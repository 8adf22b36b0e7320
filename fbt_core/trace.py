"""One pass of one sequence through a model, kept as factors: O(tokens x width) a layer, never a map."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import LowRankMetric


@dataclass(frozen=True)
class LayerTrace:
    """What one block computed for one sequence of L tokens: H heads of width d, D = H d.

    ``residual_in`` enters the block, ``residual_mid`` stands after its attention, ``residual_out`` after its
    feed-forward. In a pure stack the last two are equal.
    """

    index: int
    residual_in: Float[Tensor, "token width"]
    residual_mid: Float[Tensor, "token width"]
    residual_out: Float[Tensor, "token width"]
    factors: Factors  # q, k, v, U, tau, omega, ... of every head: all that a score needs
    torsion: tuple[Float[Tensor, "head token dim torsion"], Float[Tensor, "head token dim torsion"]] | None
    score: str  # the score that the model itself used: euclidean | l2 | riemannian | blended

    @property
    def metric(self) -> LowRankMetric:
        """The metrics in head space: U is (head, token, d, r); r = 0 for a model without one."""
        return self.factors.metric

    @property
    def residual_metric(self) -> LowRankMetric:
        """G = I_D + blockdiag_h(U_h U_h^T), one a token: U is (token, D, H r)."""
        return LowRankMetric(self.factors.U.transpose(0, 1)).block_diagonal()


@dataclass(frozen=True)
class Trace:
    """A frozen record of ``model.trace(ids)``; the logits equal those of ``model(ids)``.

    ``normed`` is the residual after the final norm, which is not the same as the last layer's ``residual_out``: a jump
    between the two is the norm's doing.
    """

    ids: Int[Tensor, " token"]
    layers: tuple[LayerTrace, ...]
    normed: Float[Tensor, "token width"]
    logits: Float[Tensor, "token vocab"]
    strength: float  # of the metric; anything but 1 is a what-if
    has_metric: bool
    tokens: tuple[str, ...] = ()  # one label a token, for whoever draws

    @property
    def length(self) -> int:
        """L, the number of tokens."""
        return len(self.ids)

    @property
    def heads(self) -> int:
        """H, the number of heads."""
        return self.layers[0].factors.q.shape[0]
