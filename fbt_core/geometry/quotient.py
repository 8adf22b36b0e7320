"""A metric of the residual stream as a head sees it: the quotient metric under the head's key (or query) projection.

W (d x D, of full row rank) takes a residual to a head's key. A metric g on the residuals gives the keys the metric
(W g^{-1} W^T)^{-1}: the squared length of a key vector is that of the shortest residual vector over it. g = I gives
(W W^T)^{-1} and not I, so vectors are whitened by M^{-1/2}, M = W W^T; in those coordinates g = I + U U^T gives

    I + Uh Uh^T,   Uh = M^{-1/2} W U (I + U^T (I - Pi) U)^{-1/2},   Pi = W^T M^{-1} W,

because by Woodbury W g^{-1} W^T = M - W U (I + U^T U)^{-1} U^T W^T, and once more for its inverse. What of U lies in
the kernel of W can only shrink Uh: a residual vector that the head does not see is free to take the shorter way.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LEAST = 1e-10
"""Eigenvalues of M below this share of the largest count as 0, in float64: the head's keys never point there."""


def head_factors(
    projection: Float[Tensor, "head dim width"], U: Float[Tensor, "token width rank"]
) -> Float[Tensor, "head token dim rank"]:
    """Uh of every head and token. O(head token D d r), in the dtype of ``U``; the d x d and r x r parts in float64."""
    frame = _row_frame(projection).to(U)  # head dim width: M^{-1/2} W, with orthonormal rows
    seen = frame.unsqueeze(1) @ U  # head token dim rank
    gram = (U.mT @ U).double()  # token rank rank
    hidden = gram - (seen.mT @ seen).double()  # U^T (I - Pi) U >= 0
    values, vectors = torch.linalg.eigh(hidden)
    shrink = (vectors * (1 + values.clamp_min(0)).rsqrt().unsqueeze(-2)) @ vectors.mT
    return seen @ shrink.to(U)


def _row_frame(projection: Float[Tensor, "head dim width"]) -> Float[Tensor, "head dim width"]:
    """M^{-1/2} W in float64, M = W W^T; zero in the directions that W does not reach."""
    W = projection.double()
    values, vectors = torch.linalg.eigh(W @ W.mT)
    reached = values > LEAST * values[:, -1:]
    root = torch.where(reached, values, 1.0).rsqrt() * reached
    return (vectors * root.unsqueeze(-2)) @ vectors.mT @ W
