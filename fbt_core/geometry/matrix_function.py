"""Two functions of a symmetric matrix whose gradient stays finite when eigenvalues coincide.

torch's ``eigh`` divides by differences of eigenvalues in its backward pass; a metric whose U has equal singular values
(or zero columns) would give NaN. The Daleckii-Krein formula needs the divided differences
(f(a) - f(b)) / (a - b), which for these two functions have closed forms without a subtraction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def factorable(matrix: Tensor) -> Tensor:
    """The matrix in float32 at least: no half-precision type has factorisations (LU, QR, Cholesky, eigenvalues)."""
    return matrix.float() if matrix.dtype in (torch.bfloat16, torch.float16) else matrix


Scalar = Callable[[Tensor], Tensor]
Divided = Callable[[Tensor, Tensor], Tensor]


class _SymmetricFunction(torch.autograd.Function):
    """f(K) = V f(l) V^T, with the derivative V (F * (V^T G V)) V^T, F the divided differences of f."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, function: Scalar, divided: Divided) -> Tensor:
        values, vectors = torch.linalg.eigh(factorable(matrix))
        roots = (1 + values.clamp_min(0)).sqrt()  # K is a Gram matrix: below 0 is rounding
        ctx.save_for_backward(roots, vectors)
        ctx.divided = divided
        return ((vectors * function(roots).unsqueeze(-2)) @ vectors.mT).to(matrix)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        roots, vectors = ctx.saved_tensors
        differences = ctx.divided(roots.unsqueeze(-1), roots.unsqueeze(-2))
        symmetric = factorable(grads[0] + grads[0].mT) / 2
        return (vectors @ (differences * (vectors.mT @ symmetric @ vectors)) @ vectors.mT).to(grads[0]), None, None


def root_kernel(gram: Tensor) -> Tensor:
    """f(K) with f(l) = 1 / (1 + s), s = sqrt(1 + l): g^{1/2} = I + U f(K) U^T. Shape (\\*batch, r, r)."""
    return _SymmetricFunction.apply(  # type: ignore[no-any-return]
        gram, lambda s: 1 / (1 + s), lambda s, t: -1 / ((1 + s) * (1 + t) * (s + t))
    )


def inverse_root_kernel(gram: Tensor) -> Tensor:
    """f(K) with f(l) = 1 / (s (1 + s)), s = sqrt(1 + l): g^{-1/2} = I - U f(K) U^T. Shape (\\*batch, r, r)."""
    return _SymmetricFunction.apply(  # type: ignore[no-any-return]
        gram,
        lambda s: 1 / (s * (1 + s)),
        lambda s, t: -(1 + s + t) / ((s + t) * s * t * (1 + s) * (1 + t)),
    )
