"""The costly part of the Riemannian score, one rank at a time: memory flat in r, and a hand-written gradient.

The metric terms are squared distances between images: ||U_i^T (q_i - k_j)||^2 = sum_r (u_ir . (k_j - q_i))^2. With
u_ir and its own -u_ir . q_i side by side, and a 1 behind every k_j, each difference is one entry of one matrix product.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def images(
    U: Float[Tensor, "*head token dim rank"], x: Float[Tensor, "*head token dim"], scale: Float[Tensor, " head"]
) -> Float[Tensor, "*head rank token more"]:
    """scale (u_r, -u_r . x) of every token and rank, d + 1 wide: its product with (y, 1) is scale u_r . (y - x)."""
    columns = U.movedim(-1, -3)
    own = -(columns * x.unsqueeze(-3)).sum(-1, keepdim=True)
    return torch.cat([columns, own], -1) * scale[:, None, None, None]


def points(x: Float[Tensor, "*head token dim"]) -> Float[Tensor, "*head 1 token more"]:
    """(x, 1), d + 1 wide, with an axis for the rank."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1).unsqueeze(-3)


def subtract_squares(
    score: Float[Tensor, "*head row column"],
    left: Float[Tensor, "*head left row more"],
    right: Float[Tensor, "*head right column more"],
) -> Float[Tensor, "*head row column"]:
    """``score`` minus sum_r (left_r right_r^T)^2, written over ``score``. One side may have a single rank, for all.

    r products of rows x (d + 1) by (d + 1) x columns; thrice as many backward, where each is computed again, not kept.
    Once differentiable.
    """
    return _SubtractSquares.apply(score, left, right)  # type: ignore[no-any-return]


class _SubtractSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.mark_dirty(score)
        for a, b in _ranks(left, right):
            product = a @ b.mT
            score.addcmul_(product, product, value=-1)
        return score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right = ctx.saved_tensors
        twice = -2 * grads[0]
        grad_left, grad_right = torch.zeros_like(left), torch.zeros_like(right)
        pairs = zip(_ranks(left, right), _ranks(grad_left, grad_right), strict=True)
        for (a, b), (grad_a, grad_b) in pairs:
            pull = (a @ b.mT).mul_(twice)
            grad_a += pull @ b
            grad_b += pull.mT @ a
        return grads[0], grad_left, grad_right


def _ranks(left: Tensor, right: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The two sides rank by rank, as views."""
    count = max(left.shape[-3], right.shape[-3])
    return [
        (left.select(-3, min(r, left.shape[-3] - 1)), right.select(-3, min(r, right.shape[-3] - 1)))
        for r in range(count)
    ]
