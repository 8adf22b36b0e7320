"""The Riemannian logit taken apart into what a fused kernel reads: products of tokens, and what each token brings.

    l_ij = dot q_i.k_j + column_j - square ( ||U_i^T k_j - u_i||^2 + ||U_j^T q_i - w_j||^2 ) - slope |i - j|

u_i = U_i^T q_i and w_j = U_j^T k_j are each token's own images. The term of the query's norm is left out: the softmax
cancels it. All of it costs O(L d r) and is plain torch, so that a kernel gives the gradients of these tensors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from fbt_core.attention.scores import Factors

ALPHAS = {"euclidean": 0.0, "l2": 1.0, "riemannian": 1.0}
"""The weight of the distance in scores that have it fixed; ``blended`` reads its factors' own."""


@dataclass(frozen=True)
class Expanded:
    """What the logit is made of. ``U`` is the metric of a token both as a query and as a key."""

    q: Float[Tensor, "*head row dim"]  # centred, in the factors' dtype
    k: Float[Tensor, "*head token dim"]
    v: Float[Tensor, "*head token value"]
    U: Float[Tensor, "*head token dim rank"]  # rank 0 where the score reads no metric
    column: Float[Tensor, "*head token"]  # nats; from here on in float32 at least
    dot: Float[Tensor, " head"]
    square: Float[Tensor, " head"]
    slope: Float[Tensor, " head"] | None  # ALiBi, nats a token
    causal: bool


def expandable(f: Factors, score: str) -> bool:
    """Whether the logit has this form: a score of pairs alone, no mask but the causal one, no soft cap and no sinks."""
    return score in (*ALPHAS, "blended") and f.softcap is None and f.sinks is None and f.mask is None


def plain_autograd(f: Factors) -> bool:
    """Whether a kernel with a backward pass of its own, for q, k, v and U alone, does all that is asked for.

    A program that watches torch's operations (to count them, say) would not see a kernel's; torch.func and forward
    differentiation want rules of their own; slopes have no gradient there.
    """
    watched = torch._C._len_torch_dispatch_stack() > 0
    reverse = torch._C._functorch.maybe_current_level() is None and forward_ad._current_level < 0
    return reverse and not watched and (f.slopes is None or not f.slopes.requires_grad)


def expanded(f: Factors, score: str) -> Expanded:
    """The parts of ``score``, differentiable in q, k, v, U, tau and omega. Raises ``ValueError`` for another form.

    q and k are moved by the keys' mean, which no distance feels; what the dot product feels of it goes into ``column``.
    Digits are saved so where tokens lie far from the origin and close together, most of all in bfloat16.
    """
    if not expandable(f, score):
        raise ValueError(f"got score {score!r} of these factors, expected one without mask, soft cap, sinks: stream it")
    alpha = ALPHAS.get(score, f.alpha)
    metric = score in ("riemannian", "blended") and alpha > 0
    wide = torch.promote_types(f.q.dtype, torch.float32)
    centre = f.k.to(wide).mean(-2, keepdim=True).detach() if alpha else torch.zeros_like(f.k[..., :1, :], dtype=wide)
    q, k = (f.q.to(wide) - centre).to(f.q), (f.k.to(wide) - centre).to(f.k)
    tau, scale = f.tau.to(wide), f.dot_scale.to(wide).flatten()
    column = -alpha / tau[:, None] * k.to(wide).square().sum(-1)
    if alpha < 1:
        column = column + (1 - alpha) * scale[:, None] * (k.to(wide) @ centre.mT).squeeze(-1)
    if metric:
        column = column - alpha * f.omega.to(wide)
    U = f.U if metric else f.U[..., :0]
    dot = 2 * alpha / tau + (1 - alpha) * scale
    return Expanded(q, k, f.v, U, column, dot, alpha / (2 * tau), f.slopes, f.causal)


def own_images(
    U: Float[Tensor, "*head token dim rank"], x: Float[Tensor, "*head any dim"]
) -> Float[Tensor, "*head any rank"]:
    """u or w: U_t^T x_t of every token, in float32 at least, as the products are that a kernel subtracts it from."""
    wide = torch.promote_types(x.dtype, torch.float32)
    if U.shape[-1] == 0:  # in cross-attention queries and keys are other tokens
        return x.new_zeros(*x.shape[:-1], 0, dtype=wide)
    return (x.to(wide).unsqueeze(-2) @ U.to(wide)).squeeze(-2)
