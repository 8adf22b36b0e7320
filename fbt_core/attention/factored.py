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
from fbt_core.geometry.matrix_function import factorable
from fbt_core.geometry.metric import DictionaryMetric

WORST_ATOM_CONDITION = 1e3
"""The compact features divide by B's triangular factor: beyond this ratio of its diagonal they would lose digits."""


def dictionary_attention(f: Factors) -> Float[Tensor, "*head token dim"]:
    """Exact attention by the Riemannian score blended with weight ``f.alpha``, for dictionary metrics or none at all.

    Raises ``ValueError`` when the metrics are not a dictionary. Cost over standard attention, in matrix products:
    (2 d + 3 m) / (2 d) with the compact features on the compiled kernel; (d + 3 m + 1) / d on torch's, which want V as
    wide as the features.
    """
    if f.metric.rank and not isinstance(f.metric, DictionaryMetric):
        raise ValueError(f"got metrics of rank {f.metric.rank} of their own, expected a DictionaryMetric or rank 0")
    if fused.serves(f, rank=0):
        return fused.products(f, *parts(f))
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

    Width d + 1 without atoms, d + 3 m + 1 (compact) when B has full column rank, d + 4 m + 1 otherwise.
    """
    queries, keys, column = parts(f)
    column = column.unsqueeze(-1)
    return torch.cat([queries, torch.ones_like(queries[..., :1])], -1), torch.cat([keys, column.to(keys)], -1)


def parts(f: Factors) -> tuple[Tensor, Tensor, Tensor]:
    """The features but the last of each side, which are 1 and what depends on the key alone: (\\*head, token)."""
    q, k = (f.q, f.k) if f.alpha < 1 else _centred(f.q, f.k)  # a common shift changes no distance, and saves digits
    scale = f.alpha / f.tau[:, None, None]
    along = (2 * scale + (1 - f.alpha) * f.dot_scale.to(scale)).to(q)  # what multiplies q . k
    wide = torch.promote_types(k.dtype, torch.float32)  # the column is the one part that need not be in half precision
    column = -scale.to(wide) * k.to(wide).square().sum(-1, keepdim=True) - f.alpha * f.omega.to(wide).unsqueeze(-1)
    if not isinstance(f.metric, DictionaryMetric):
        return along * q, k, column.squeeze(-1)
    w, atoms = f.metric.weights, f.metric.atoms
    a = q @ atoms  # B^T q
    rest, inverse = _split(atoms)
    first, on_b = (q @ (torch.cat([rest, inverse], -1) * along)).split([rest.shape[-1], a.shape[-1]], -1)
    last, b = (k @ torch.cat([rest, atoms], -1)).split([rest.shape[-1], a.shape[-1]], -1)
    wb, half = w * b, -scale / 2
    column = column + half.to(wide) * (wb * b).sum(-1, keepdim=True, dtype=wide)
    scaled, half = a * scale.to(q), half.to(q)
    query = [first, torch.addcmul(on_b, w, scaled), scaled, w * half, a.square() * half]
    return torch.cat(query, -1), torch.cat([last, b, wb, b.square(), w], -1), column.squeeze(-1)


def _centred(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    centre = k.mean(-2, keepdim=True).detach()
    return q - centre, k - centre


def _split(atoms: Float[Tensor, "head dim atom"]) -> tuple[Tensor, Tensor]:
    """(rest, inverse) with x . y = (rest^T x) . (rest^T y) + (inverse^T x) . (B^T y) for all x, y.

    An orthonormal basis of the complement of span B (head, d, d - m), and B (B^T B)^{-1} (head, d, m); where B has not
    full column rank the identity and 0, which is right for any B, and wider. B is completed to a square matrix by fixed
    columns first, because torch differentiates only a square or reduced QR.
    """
    heads, dim, count = atoms.shape
    whole = torch.eye(dim, dtype=atoms.dtype, device=atoms.device).expand(heads, dim, dim), torch.zeros_like(atoms)
    if count > dim:
        return whole
    generator = torch.Generator().manual_seed(0)
    fill = torch.randn(dim, dim - count, generator=generator, dtype=torch.float64).to(atoms)
    q, r = torch.linalg.qr(factorable(torch.cat([atoms, fill.expand(heads, -1, -1)], -1)))
    diagonal = r.detach().diagonal(dim1=-2, dim2=-1).abs()
    if not (diagonal.amax() < WORST_ATOM_CONDITION * diagonal.amin()):
        return whole
    triangle = r[:, :count, :count]
    inverse = torch.linalg.solve_triangular(triangle, q[..., :count].mT, upper=True).mT
    return q[..., count:].to(atoms), inverse.to(atoms)
