"""The Fisher-Rao metric of the predicted distribution, pulled back to the residual stream: G = J^T (diag p - p p^T) J.

J = d logits / d x goes through the unembedding and the final norm, its derivative included: the logit lens, at any
layer. G(x) v . v is the second-order term of 2 KL(p_x || p_{x+v}). With M = J^T (diag sqrt p - p sqrt p^T), G = M M^T
exactly, and the best rank-r part of G is U U^T with U = M V_r, V_r the top right singular vectors of M. It is found
here as the top eigenvectors of G times the roots of their eigenvalues, which is the same U up to signs.

G is never formed. A product with it costs 4 V D; with the K likeliest tokens in place of all V of them it costs 4 K D,
and what is kept is below G (in the order of positive matrices): a sum of some of its terms, each about the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.geometry.krylov import SPARE, STEPS, leading_factor
from fbt_core.geometry.readout import Readout

LEAST_P = 1e-24
"""Smaller probabilities count as 0: their squares are no normal numbers, and make a processor fifty times slower."""

MOST_NUMBERS = 1 << 24
"""In the largest tensor of a chunk of tokens: 64 MB in float32."""

CACHED_TOKENS = 8
"""Tokens whose rows of the likeliest are gathered at once: a processor's cache holds them while they are iterated."""


@dataclass(frozen=True)
class FisherMetric:
    """Rank-r Fisher metrics of some tokens, in nats^2 over squared units of the residual.

    ``rest`` is lambda_{r+1} / lambda_1 of what was kept, the relative error in spectral norm of cutting at rank r;
    ``kept`` and ``total`` are the traces of G over the kept vocabulary and of all of G, exactly.
    """

    U: Float[Tensor, "token width rank"]
    rest: Float[Tensor, " token"]
    kept: Float[Tensor, " token"]
    total: Float[Tensor, " token"]


def fisher_metric(
    readout: Readout, x: Float[Tensor, "token width"], rank: int = 4, vocabulary: int | None = None, seed: int = 0
) -> FisherMetric:
    """The metrics at the residuals ``x``. ``vocabulary`` is K, None for all V tokens: exact, and V / K times slower.

    Cost per token about 4 V D + 4 K D (rank + 2) 5; memory bounded by chunks of tokens. Deterministic.
    """
    x = x.detach().to(readout.unembedding)
    count = len(readout.unembedding)
    some = None if vocabulary is None or vocabulary >= count else vocabulary
    widest = count * (rank + SPARE) * (STEPS + 1) if some is None else max(count, some * x.shape[1])
    tokens = max(1, MOST_NUMBERS // widest)
    parts = [_chunk(readout, part, rank, some, seed) for part in x.split(tokens)]
    return FisherMetric(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _chunk(
    readout: Readout, x: Tensor, rank: int, vocabulary: int | None, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of ``FisherMetric`` for a few tokens.

    Rows of J are taken relative to that of the likeliest token: where its p is nearly 1, all of G is in what the others
    differ from it by, and sums that hold it would cancel to rounding.
    """
    products = readout.products(x)
    logits = readout.logits(products)
    slope = readout.slope(logits)
    p = F.threshold(logits.softmax(-1), LEAST_P, 0.0, inplace=True)
    best, chosen = p.topk(vocabulary or 1)  # sorted: the likeliest comes first
    top, others = chosen[:, :1], p.scatter_(-1, chosen[:, :1], 0.0)
    reference = _times(readout.unembedding[chosen[:, 0]], _at(slope, top))
    mean = _times(others, slope) @ readout.unembedding - others.sum(-1, keepdim=True) * reference

    reference_pulled, mean_pulled = (readout.norm.pull(x, y.unsqueeze(1))[:, 0] for y in (reference, mean))
    peak = reference_pulled.square().sum(-1)

    def trace(others: Tensor, slope: Tensor | float, part: Tensor, chosen: Tensor | None = None) -> Tensor:
        of, size = products, readout.squares
        if chosen is not None:
            of, size = products.gather(-1, chosen), size[chosen]
        squares = _weighted_squares(readout, x, _times(_times(others, slope), slope), of, size)
        return _trace(others.sum(-1), best[:, 0], squares, peak, reference_pulled, mean_pulled, part).clamp_min(0)

    total = trace(others, slope, mean_pulled)
    if vocabulary is None:
        root = _Root(readout, x, readout.unembedding, others.scatter(-1, top, best), slope, top, reference, mean)
        return (*leading_factor(root.left, root.right, x, rank, seed), total, total)
    slope, found = _at(slope, chosen), []
    for some in torch.arange(len(x), device=x.device).split(CACHED_TOKENS):
        p, steep = best[some], slope[some] if isinstance(slope, Tensor) else slope
        rows, first = readout.unembedding[chosen[some]], torch.zeros_like(top[some])
        root = _Root(readout, x[some], rows, p, steep, first, reference[some], mean[some])
        found.append((*leading_factor(root.left, root.right, x[some], rank, seed), root.share()))
    U, rest, part = (torch.cat(column) for column in zip(*found, strict=True))
    rest_of_best = torch.cat([torch.zeros_like(best[:, :1]), best[:, 1:]], -1)
    kept = trace(rest_of_best, slope, readout.norm.pull(x, part[:, None])[:, 0], chosen)
    return U, rest, kept, total


def _times(x: Tensor, slope: Tensor | float) -> Tensor:
    """x times the slopes, without a pass over x where all are 1."""
    return x if isinstance(slope, float) and slope == 1.0 else x * slope


def _at(slope: Tensor | float, chosen: Tensor) -> Tensor | float:
    return slope.gather(-1, chosen) if isinstance(slope, Tensor) else slope


@dataclass(frozen=True)
class _Root:
    """M^T and M of some tokens, for rows of the whole vocabulary or of each token's likeliest."""

    readout: Readout
    x: Float[Tensor, "token width"]
    rows: Float[Tensor, "vocab width"] | Float[Tensor, "token vocab width"]
    p: Float[Tensor, "token vocab"]
    slope: Float[Tensor, "token vocab"] | float
    top: Int[Tensor, "token 1"]  # where the likeliest stands
    reference: Float[Tensor, "token width"]  # its row
    mean: Float[Tensor, "token width"]  # the mean row, relative to that

    def left(self, y: Float[Tensor, "token n width"]) -> Float[Tensor, "token n vocab"]:
        """M^T y: sqrt(p_v) (J_v - mean J) . y."""
        y = self.readout.norm.push(self.x, y)
        z = self._sloped(y @ self.rows.mT)
        z -= z.gather(-1, self._places(z)) + y @ self.mean.unsqueeze(-1)
        return z.mul_(self.p.sqrt().unsqueeze(1))

    def right(self, z: Float[Tensor, "token n vocab"]) -> Float[Tensor, "token n width"]:
        """M z."""
        z = z * self.p.sqrt().unsqueeze(1)
        whole = z.sum(-1, keepdim=True)
        z.scatter_(-1, self._places(z), 0.0)
        y = torch.addcmul(
            -whole * self.mean.unsqueeze(1), z.sum(-1, keepdim=True), self.reference.unsqueeze(1), value=-1
        )
        return self.readout.norm.pull(self.x, y + self._sloped(z) @ self.rows)

    def share(self) -> Float[Tensor, "token width"]:
        """What these rows have in ``mean``, before the norm's derivative."""
        others = self.p.scatter(-1, self.top, 0.0)
        return (self._sloped(others[:, None]) @ self.rows)[:, 0] - others.sum(-1, keepdim=True) * self.reference

    def _sloped(self, z: Tensor) -> Tensor:
        return _times(z, self.slope[:, None] if isinstance(self.slope, Tensor) else self.slope)

    def _places(self, z: Tensor) -> Tensor:
        return self.top.unsqueeze(1).expand(-1, z.shape[1], 1)


def _trace(
    others: Tensor, best: Tensor, squares: Tensor, peak: Tensor, reference: Tensor, mean: Tensor, part: Tensor
) -> Float[Tensor, " token"]:
    """sum_v p_v ||J_v - mean J||^2 over some v, every term of it as small as the p of all but the likeliest.

    ``best`` is the likeliest's p and ``others`` that of the rest of the v; ``squares`` is sum p_v ||J_v||^2 over those,
    ``peak`` ||J_top||^2 and ``reference`` J_top; ``mean`` is the mean of all J_v - J_top, and ``part`` what the v have
    in it.
    """
    spread = squares - 2 * (reference * part).sum(-1) - others * peak
    return spread - 2 * (mean * part).sum(-1) + (others + best) * mean.square().sum(-1)


def _weighted_squares(readout: Readout, x: Tensor, weight: Tensor, products: Tensor, norms: Tensor) -> Tensor:
    """sum_v weight_v ||N'(x)^T e_v||^2, from e_v's product with the normed residual and the size of c = C (gain e_v).

    With u = C x / s each is (||c||^2 - (2 - ||u||^2 / D) (c . u)^2 / D) / s^2.
    """
    sizes = weight @ norms if norms.ndim == 1 else (weight * norms).sum(-1)
    if readout.norm.kind == "none":
        return sizes
    width = x.shape[1]
    shrink = (2 - readout.norm.unit(x).square().sum(-1) / width) / width
    along = torch.linalg.vecdot(weight * products, products)
    return (sizes - shrink * along) / readout.norm.size(x).squeeze(-1).square()
