"""The one costly piece of the Riemannian score, one rank at a time: memory flat in r, and a hand-written gradient."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def image_distance(
    U: Float[Tensor, "*head row dim rank"], x: Float[Tensor, "*head row dim"], y: Float[Tensor, "*head column dim"]
) -> Float[Tensor, "*head row column"]:
    """||U_i^T (x_i - y_j)||^2 for all pairs: squared distances between the r-dimensional images under each row's U.

    r products of rows x d by d x columns, forward; twice as many again backward. Once differentiable.
    """
    dtype = torch.promote_types(U.dtype, x.dtype)  # under autocast they may differ
    return _ImageDistance.apply(U.to(dtype), x.to(dtype), y.to(dtype))  # type: ignore[no-any-return]


class _ImageDistance(torch.autograd.Function):
    """Only the inputs are kept: the backward pass computes each rank's differences again, a quarter of its work."""

    @staticmethod
    def forward(ctx: Any, U: Tensor, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(U, x, y)
        total = x.new_zeros(*x.shape[:-1], y.shape[-2])
        for u in U.unbind(-1):
            difference = _difference(u, x, y)
            total.addcmul_(difference, difference)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        U, x, y = ctx.saved_tensors
        twice = 2 * grads[0]
        grad_u, grad_x, grad_y = torch.empty_like(U), torch.zeros_like(x), torch.zeros_like(y)
        for index, u in enumerate(U.unbind(-1)):
            pull = _difference(u, x, y).mul_(twice)
            own = pull.sum(-1, keepdim=True)
            grad_u[..., index] = pull @ y - x * own
            grad_x -= u * own
            grad_y += pull.mT @ u
        return grad_u, grad_x, grad_y


def _difference(u: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """u_i . (y_j - x_i) for all pairs, (row, column)."""
    return (u @ y.mT).sub_((u * x).sum(-1, keepdim=True))
