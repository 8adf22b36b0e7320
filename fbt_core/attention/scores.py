"""Attention scores on the same factors. To add one: write a function, add a row to ``SCORES``.

Indices: i is a query (row), j a key (column). Every score is (head, row, token), of natural-log units (nats), to be
softmaxed over j. All scores read the gated q and k (item 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from fbt_core.attention.images import images, points, subtract_squares
from fbt_core.geometry.metric import LowRankMetric


@dataclass(frozen=True)
class Factors:
    """Everything that the scores of some heads need. Tensors may be batched, (\\*batch, head, ...).

    Queries and keys are the same tokens, except in cross-attention, whose metrics have rank 0. ``metric`` is that of
    the keys' tokens, after the ceiling and the strength; its rank is 0 in a model without one. Keys and values that
    several heads share (grouped queries) are repeated, one a head.
    """

    q: Float[Tensor, "*head row dim"]  # after every norm and rotation: what the model multiplies
    k: Float[Tensor, "*head token dim"]
    v: Float[Tensor, "*head token value"]
    metric: LowRankMetric
    tau: Float[Tensor, " head"]  # temperature, of squared distance
    omega: Float[Tensor, "*head token"]  # curvature proxy Omega_j = softplus(beta) ||U_j||_F^2, in nats
    alpha: float  # 0 is the Euclidean score, 1 the Riemannian one
    causal: bool
    slopes: Float[Tensor, " head"] | None = None  # ALiBi: - slope |i - j| is added to every score, nats a token
    images: tuple[Tensor, Tensor] | None = None  # of queries and keys, see ``with_images``
    scale: Float[Tensor, " head"] | None = None  # of the dot product; None is 1 / sqrt(d)
    mask: Float[Tensor, "*#head row token"] | None = None  # added to every score, nats; - inf hides. Beside ``causal``
    softcap: float | None = None  # c tanh(s / c), of the model's own dot product only
    sinks: Float[Tensor, " head"] | None = None  # logit of a key that holds nothing, of the own dot product only

    @property
    def U(self) -> Float[Tensor, "*head token dim rank"]:
        """The factors of the metrics g = I + U U^T."""
        return self.metric.U

    def with_images(self) -> Factors:
        """The same factors with what the Riemannian score needs of every token, made once for all tiles to share."""
        if self.images is not None or self.metric.rank == 0:
            return self
        scale = (2 * self.tau).rsqrt()  # half the sum of two squares, over tau
        return replace(self, images=(images(self.U, self.q, scale), images(self.U, self.k, scale)))

    def heads(self, some: slice) -> Factors:
        """The factors of some heads."""
        return replace(
            self,
            q=self.q[..., some, :, :],
            k=self.k[..., some, :, :],
            v=self.v[..., some, :, :],
            metric=self.metric.heads(some),
            tau=self.tau[some],
            omega=self.omega[..., some, :],
            slopes=None if self.slopes is None else self.slopes[some],
            images=None,
            scale=None if self.scale is None else self.scale[some],
            mask=self.mask if self.mask is None or self.mask.dim() == 2 else self.mask[..., some, :, :],
            sinks=None if self.sinks is None else self.sinks[some],
        )

    @property
    def dot_scale(self) -> Float[Tensor, "head 1 1"]:
        """What multiplies q_i . k_j in the dot-product score: the model's own scale, or 1 / sqrt(d)."""
        if self.scale is not None:
            return self.scale[:, None, None]
        return self.tau.new_full((len(self.tau), 1, 1), 1 / math.sqrt(self.q.shape[-1]))

    def select(self, head: int) -> Factors:
        """The factors of one head, its axis kept at length 1."""
        return self.heads(slice(head, head + 1))

    def with_alpha(self, alpha: float) -> Factors:
        """The same factors blended otherwise: a confounded what-if, since alpha is fixed at training (item 9)."""
        return replace(self, alpha=alpha)

    def with_values(self, v: Tensor) -> Factors:
        """The same factors with other values, such as transported ones."""
        return replace(self, v=v)


ScoreFunction = Callable[[Factors, slice, slice], Tensor]


def euclidean(f: Factors, rows: slice, columns: slice) -> Tensor:
    """q_i . k_j / sqrt(d): standard dot-product attention, with the model's own scale and soft cap if it has them."""
    logits = f.q[..., rows, :] @ f.k[..., columns, :].mT * f.dot_scale.to(f.q)
    return logits if f.softcap is None else f.softcap * (logits / f.softcap).tanh()


def l2(f: Factors, rows: slice, columns: slice) -> Tensor:
    """- ||q_i - k_j||^2 / tau: every metric the identity, no curvature bias."""
    return -_squared_distance(f.q[..., rows, :], f.k[..., columns, :]) / _per_head(f.tau)


def riemannian(f: Factors, rows: slice, columns: slice) -> Tensor:
    """Items 4 and 6: - (q_i - k_j)^T (g_i + g_j)/2 (q_i - k_j) / tau - Omega_j.

    One product gives - ||q_i - k_j||^2 / tau - Omega_j, and r more for each side take the metric terms off it: 1 + r
    times standard attention, the product with the values included.
    """
    f = f.with_images()
    tau = f.tau[:, None, None]
    q, k = f.q[..., rows, :], f.k[..., columns, :]
    row, column = -q.square().sum(-1, keepdim=True) / tau, -k.square().sum(-1, keepdim=True) / tau
    column = column - f.omega[..., columns, None]
    left = torch.cat([2 * q / tau, torch.ones_like(row), row], -1)
    score = left @ torch.cat([k, column, torch.ones_like(column)], -1).mT
    if f.images is None:
        return score
    of_queries, of_keys = f.images
    score = subtract_squares(score, of_queries[..., rows, :], points(k))
    return subtract_squares(score, points(q), of_keys[..., columns, :])


def homogeneous(f: Factors, rows: slice, columns: slice) -> Tensor:
    """- (q_i - k_j)^T (I + mean_t A_t) (q_i - k_j) / tau: one metric for all tokens, the sequence's mean; no Omega."""
    U = f.U.transpose(-3, -2).flatten(-2)  # *head dim (token rank)
    mean = U @ U.mT / f.U.shape[-3]
    q, k = f.q[..., rows, :], f.k[..., columns, :]
    extra = ((q @ mean) * q).sum(-1)[..., :, None] + ((k @ mean) * k).sum(-1)[..., None, :] - 2 * (q @ mean) @ k.mT
    return -(_squared_distance(q, k) + extra) / _per_head(f.tau)


def blended(f: Factors, rows: slice, columns: slice) -> Tensor:
    """Item 9: (1 - alpha) q_i . k_j / sqrt(d) + alpha s_Riem, alpha that of the factors."""
    return (1 - f.alpha) * euclidean(f, rows, columns) + f.alpha * riemannian(f, rows, columns)


@dataclass(frozen=True)
class Score:
    """One way to score a query against a key."""

    name: str
    title: str
    formula: str  # LaTeX
    function: ScoreFunction
    reads_metric: bool


SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        Score("euclidean", "Euclidean", r"q_i \cdot k_j / \sqrt{d}", euclidean, False),
        Score("l2", "L2", r"-\lVert q_i - k_j \rVert^2 / \tau", l2, False),
        Score("riemannian", "Riemannian",
              r"-(q_i - k_j)^\top \tfrac12 (g_i + g_j) (q_i - k_j) / \tau - \Omega_j", riemannian, True),
        Score("blended", "Blended",
              r"(1 - \alpha)\, q_i \cdot k_j / \sqrt{d} + \alpha\, s^{\mathrm{Riem}}_{ij}", blended, True),
        Score("homogeneous", "Homogeneous",
              r"-(q_i - k_j)^\top (I + \bar A) (q_i - k_j) / \tau", homogeneous, True),
    )
}  # fmt: skip


def bias(f: Factors, rows: slice, columns: slice) -> Tensor | None:
    """What is added to any score before the softmax: ALiBi, the mask, and - inf above the diagonal of a causal model.

    ``None`` where there is nothing to add. Shape (head, row, column), or (row, column) where heads do not differ.
    """
    if f.slopes is None and not f.causal:
        return None if f.mask is None else f.mask[..., rows, columns]
    i = torch.arange(rows.start, rows.stop, device=f.q.device)[:, None]
    j = torch.arange(columns.start, columns.stop, device=f.q.device)[None, :]
    total = f.q.new_zeros(len(i), j.shape[1])
    if f.slopes is not None:
        total = total - _per_head(f.slopes) * (i - j).abs()
    if f.mask is not None:
        total = total + f.mask[..., rows, columns]
    return total.masked_fill(j > i, float("-inf")) if f.causal else total


def allowed(f: Factors, rows: slice | None = None) -> Bool[Tensor, "row column"]:
    """Which keys the queries ``rows`` (default all) of one head may attend to."""
    rows = rows or slice(0, f.q.shape[-2])
    columns = slice(0, f.k.shape[-2])
    extra = bias(f, rows, columns)
    if extra is None:
        return torch.ones(rows.stop - rows.start, columns.stop, dtype=torch.bool, device=f.q.device)
    return extra.reshape(-1, *extra.shape[-2:])[0] > float("-inf")


def attention(
    f: Factors, score: str, rows: slice | None = None, columns: slice | None = None
) -> Float[Tensor, "*head row column"]:
    """Softmax over the keys ``columns`` (default all) of the score ``score`` for the queries ``rows`` (default all).

    Of all keys, those that no row may see because they come after the last one are 0 without being computed.

    Each row sums to 1, or to less where the model's own dot product has a sink: what the sink takes is attention that
    goes nowhere. Memory O(rows L r); ask for one head (``Factors.select``), and for a part of the rows when L is large.
    Raises ``KeyError`` for a score that is not in ``SCORES``.
    """
    rows, keys = rows or slice(0, f.q.shape[-2]), f.k.shape[-2]
    if columns is None and f.causal and rows.stop < keys:
        return F.pad(attention(f, score, rows, slice(0, rows.stop)), (0, keys - rows.stop))
    columns = columns or slice(0, keys)
    logits = SCORES[score].function(f, rows, columns)
    extra = bias(f, rows, columns)
    logits = logits if extra is None else logits + extra
    if score != "euclidean" or f.sinks is None:
        return logits.softmax(-1)
    sink = _per_head(f.sinks).to(logits).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sink], -1).softmax(-1)[..., :-1]


def _squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """||q_i - k_j||^2 by three products, clamped at 0 where rounding would make it negative."""
    norms = q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]
    return (norms - 2 * q @ k.mT).clamp_min(0)


def _per_head(value: Tensor) -> Tensor:
    return value[:, None, None]
