"""What each term of the Riemannian score does (Eq. 28 of the paper). Exact: the terms add up to the score.

    s_ij = - ||q_i||^2/tau + (2/tau) q_i.k_j - ||k_j||^2/tau - ||U_i^T e||^2/(2 tau) - ||U_j^T e||^2/(2 tau) - Omega_j

with e = q_i - k_j. The difference from the Euclidean score, s_R - s_E, is the same with (2/tau - 1/sqrt d) q_i.k_j in
the second place. The weight alpha of a blended model and the ALiBi bias are no part of either.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from fbt_core.attention.images import points, subtract_squares
from fbt_core.attention.scores import Factors, allowed


@dataclass(frozen=True)
class Term:
    """One summand of the score."""

    name: str
    title: str
    formula: str  # LaTeX


TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term("query_norm", "Query norm", r"-\lVert q_i \rVert^2 / \tau"),
        Term("bilinear", "Bilinear", r"\tfrac{2}{\tau}\, q_i \cdot k_j"),
        Term("key_norm", "Key norm", r"-\lVert k_j \rVert^2 / \tau"),
        Term("metric_i", "Query's metric", r"-\lVert U_i^\top (q_i - k_j) \rVert^2 / 2\tau"),
        Term("metric_j", "Key's metric", r"-\lVert U_j^\top (q_i - k_j) \rVert^2 / 2\tau"),
        Term("curvature_bias", "Curvature bias", r"-\Omega_j"),
    )
}
"""The terms, in this order. The first is constant along a row, so the softmax does not see it."""

ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Row-centred scores below this share of the largest term are rounding: nothing is left to explain."""


def score_terms(
    f: Factors, rows: slice | None = None, of: str = "riemannian"
) -> dict[str, Float[Tensor, "row column"]]:
    """Every term of one head's score, for the queries ``rows`` (default all) and every key, without a mask.

    ``f`` holds one head (``Factors.select``). ``of`` is riemannian for s_R, difference for s_R - s_E; the terms sum to
    it exactly, in nats. Memory O(rows L). Raises ``ValueError`` for more than one head or another ``of``.
    """
    if f.q.shape[0] != 1 or f.q.dim() != 3:
        raise ValueError(f"got factors of shape {tuple(f.q.shape)}, expected one head: use Factors.select")
    if of not in ("riemannian", "difference"):
        raise ValueError(f"got of = {of!r}, expected riemannian or difference")
    rows = rows or slice(0, f.q.shape[-2])
    q, k, tau = f.q[0, rows], f.k[0], f.tau[0]
    scale = 2 / tau - (f.dot_scale[0, 0, 0].to(tau) if of == "difference" else 0)
    flat = q.new_zeros(len(q), len(k))
    own, other = _metric_terms(f, rows)
    return {
        "query_norm": flat - q.square().sum(-1)[:, None] / tau,
        "bilinear": scale * q @ k.mT,
        "key_norm": flat - k.square().sum(-1)[None, :] / tau,
        "metric_i": own,
        "metric_j": other,
        "curvature_bias": flat - f.omega[0][None, :],
    }


def score_shares(f: Factors, of: str = "riemannian", tile: int = 64) -> Float64[Tensor, " term"]:
    """The share of each term in the row-centred variance of one head's score; they sum to 1. Order of ``TERMS``.

    Each row is centred over the keys that it may attend to, because a constant along a row cancels in the softmax. A
    covariance between two terms is split evenly: share_t = cov(term_t, total) / var(total). So a share is negative
    where a term works against the rest, and above 1 where the rest works against it. NaN where the total does not vary
    along any row. One tile of rows in memory.
    """
    together = torch.zeros(len(TERMS), dtype=torch.float64, device=f.q.device)
    largest = torch.zeros((), dtype=torch.float64, device=f.q.device)
    length = f.q.shape[-2]
    f = f.with_images()  # once, not a tile
    for start in range(0, length, tile):
        rows = slice(start, min(start + tile, length))
        terms = torch.stack(list(score_terms(f, rows, of).values())).double()
        seen = allowed(f, rows)
        moved = row_centred(terms, seen)
        together += (moved * moved.sum(0)).sum((1, 2))
        largest = torch.maximum(largest, terms.masked_fill(~seen, 0.0).abs().max())
    variance = together.sum()
    pairs = int(allowed(f).sum())
    constant = variance <= pairs * (ROUNDING * largest) ** 2
    return torch.where(constant, torch.full_like(together, float("nan")), together / variance)


def _metric_terms(f: Factors, rows: slice) -> tuple[Float[Tensor, "row column"], Float[Tensor, "row column"]]:
    """- ||U_i^T (q_i - k_j)||^2 / (2 tau) and the same with U_j: the query's own metric, and the key's."""
    f = f.with_images()
    q, k = f.q[0, rows], f.k[0]
    own, other = q.new_zeros(2, len(q), len(k))
    if f.images is None:
        return own, other
    of_queries, of_keys = (side[0] for side in f.images)
    return subtract_squares(own, of_queries[:, rows], points(k)), subtract_squares(other, points(q), of_keys)


def row_centred(
    terms: Float64[Tensor, "term row column"], seen: Bool[Tensor, "row column"]
) -> Float64[Tensor, "term row column"]:
    """Terms minus their mean over each row's allowed keys; 0 at the others."""
    kept = terms.masked_fill(~seen, 0.0)
    means = kept.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return (kept - means).masked_fill(~seen, 0.0)
