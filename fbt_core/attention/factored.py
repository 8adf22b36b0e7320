"""Scores that are plain dot products of per-token features, on ``F.scaled_dot_product_attention``.

With A_t = B diag(w_t) B^T (a dictionary of m rank-one atoms), every term of the Riemannian score is an inner product
of something of the query with something of the key, plus a row term that the softmax cancels. So the fused kernels of
standard attention compute it exactly. m = 0 is L2 attention. Our own compiled kernel does it without a wider V.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention import fused
from fbt_core.attention.scores import Factors, bias
from fbt_core.geometry.metric import DictionaryMetric

WORST_ATOM_CONDITION = 1e3
"""The compact features divide by B's triangular factor: beyond this ratio of its diagonal they would lose digits."""


def dictionary_attention(f: Factors) -> Float[Tensor, "*head token dim"]:
    """Exact attention by the Riemannian score blended with weight ``f.alpha``, for dictionary metrics or none at all.

    Raises ``ValueError`` when the metrics are not a dictionary. Cost over standard attention, in matrix products:
    (2 d + 3 m) / (2 d) with the compact features on the compiled kernel, (2 d + 4 m) / (2 d) in half precision;
    (d + 3 m + 1) / d on torch's, which want V as wide as the features.
    """
    if f.metric.rank and not isinstance(f.metric, DictionaryMetric):
        raise ValueError(f"got metrics of rank {f.metric.rank} of their own, expected a DictionaryMetric or rank 0")
    if fused.serves(f, rank=0):
        return fused.products(f, *parts(f, compiled=True))
    queries, keys = features(f)
    width, dim = queries.shape[-1], f.v.shape[-1]
    values = F.pad(f.v, (0, width - dim))  # unequal widths would fall off the fast path
    return _fused(f, queries, keys, values, 1.0)[..., :dim]


def euclidean_attention(f: Factors) -> Float[Tensor, "*head token dim"]:
    """Standard scaled dot-product attention on the gated q and k. No soft cap and no sinks: see ``attend``."""
    q = f.q if f.scale is None else f.q * f.dot_scale.to(f.q)  # scales may differ from head to head
    return _fused(f, q, f.k, f.v, None if f.scale is None else 1.0)


def _fused(f: Factors, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
    """The fused kernel, with a mask only where ``is_causal`` does not say it all."""
    if f.slopes is None and f.mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=f.causal, scale=scale)
    mask = bias(f, slice(0, q.shape[-2]), slice(0, k.shape[-2]))
    assert mask is not None  # there are slopes or a mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q), scale=scale)


def features(f: Factors) -> tuple[Float[Tensor, "*head token feature"], Float[Tensor, "*head token feature"]]:
    """(F, H) with F_i . H_j = s_ij up to a term of the row, s the score of ``dictionary_attention``.

    Width d + 1 without atoms, d + 3 m + 1 (compact) when B has full column rank, d + 4 m + 1 otherwise and in half
    precision: there B's inverse would cost digits, and more time than the wider product.
    """
    queries, keys, column, along = parts(f)
    queries, column = along.to(queries)[:, None, None] * queries, column.unsqueeze(-1)
    return torch.cat([queries, torch.ones_like(queries[..., :1])], -1), torch.cat([keys, column.to(keys)], -1)


def parts(f: Factors, compiled: bool = False) -> tuple[Tensor, Tensor, Tensor, Float[Tensor, " head"]]:
    """The features but the last of each side, (\\*head, token, f); what depends on the key alone; what scales products.

    s_ij = along queries_i . keys_j + column_j, up to a term of the row. The last two are in float32 at least.
    ``compiled`` lets the kernel make them where it can.
    """
    wide = torch.promote_types(f.k.dtype, torch.float32)
    tau = f.tau.to(wide)
    along, share = 2 * f.alpha / tau + (1 - f.alpha) * f.dot_scale.to(wide).flatten(), f.alpha / tau
    omega, centred = f.alpha * f.omega.to(wide), f.alpha == 1  # a shift changes no distance, but a dot product
    metric = f.metric if isinstance(f.metric, DictionaryMetric) else None
    if metric is None:
        q, k = fused.about_keys_mean(f.q, f.k) if centred else (f.q, f.k)
        return q, k, -share[:, None] * fused.norms(k, wide) - omega, along
    atoms = metric.atoms * (f.alpha**0.5 * (tau * along).rsqrt())[:, None, None]
    make = fused.compiled_features if compiled else fused.dictionary_features
    bases = None if f.k.dtype.itemsize < wide.itemsize else _bases(atoms)
    queries, keys, column = make(f.q, f.k, metric.weights, atoms, along, share, centred, bases)
    return queries, keys, column - omega, along


def _bases(atoms: Float[Tensor, "head dim atom"]) -> tuple[Tensor, Tensor] | None:
    """(rest, inverse) with x . y = (rest^T x) . (rest^T y) + (inverse^T x) . (B^T y) for all x, y.

    An orthonormal basis of the complement of span B (head, d, d - m), and B (B^T B)^{-1} (head, d, m); ``None`` where B
    has not full column rank. B is completed to a square matrix by fixed columns first, because torch differentiates
    only a square or reduced QR.
    """
    _, dim, count = atoms.shape
    if count > dim:
        return None
    generator = torch.Generator().manual_seed(0)
    fill = torch.randn(dim, dim - count, generator=generator, dtype=torch.float64).to(atoms)
    fill = fill * atoms.detach().norm(dim=(-2, -1), keepdim=True) / (dim * count) ** 0.5  # of the size of the atoms
    q, r = torch.linalg.qr(torch.cat([atoms, fill], -1))
    diagonal = r.detach().diagonal(dim1=-2, dim2=-1).abs()
    if not (diagonal.amax() < WORST_ATOM_CONDITION * diagonal.amin()):
        return None
    triangle = r[:, :count, :count]
    return q[..., count:], torch.linalg.solve_triangular(triangle, q[..., :count].mT, upper=True).mT
