"""A metric from the tokens themselves: the low-rank part of the covariance of each token's neighbourhood.

The neighbourhood of a token is the token and its k nearest others by Euclidean distance, among all tokens of the
sequence, later ones included: it describes the cloud of points, and a causal model could not compute it as it reads.
With X the neighbourhood less its mean, (k + 1, d), the covariance is X^T X / (k + 1) = V diag(l) V^T, and U = V_r
sqrt(l_r). Distances are then longer along the directions in which the neighbours spread.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

ROWS = 1024
"""Tokens whose distances to all others are in memory at once."""


def local_factors(
    points: Float[Tensor, "token dim"], rank: int, neighbours: int = 16
) -> Float[Tensor, "token dim rank"]:
    """U of every token. O(L^2 d + L k^2 (d + k)); memory O(L k d). ``neighbours`` is cut to L - 1; one token has U = 0.

    Columns beyond what the neighbourhood spans are zero. Of equally near tokens the earlier are taken.
    """
    x = points.detach().float() if points.dtype in (torch.bfloat16, torch.float16) else points.detach()
    around = x[nearest(x, neighbours)]  # token k+1 dim
    around = (around - around.mean(1, keepdim=True)) / around.shape[1] ** 0.5
    _, vectors = torch.linalg.eigh(around @ around.mT)  # of the smaller Gram matrix: the same eigenvalues
    kept = min(rank, around.shape[1], x.shape[1])
    U = around.mT @ vectors.flip(-1)[..., :kept]  # columns of length sqrt(l)
    return torch.nn.functional.pad(U, (0, rank - kept))


def nearest(x: Float[Tensor, "token dim"], neighbours: int) -> Int[Tensor, "token near"]:
    """The token itself, then its nearest others; ties by position."""
    count = min(neighbours, len(x) - 1)
    found = []
    for start in range(0, len(x), ROWS):
        rows = torch.arange(start, min(start + ROWS, len(x)), device=x.device)
        distance = torch.cdist(x[rows], x, compute_mode="donot_use_mm_for_euclid_dist")  # exact zeros for equal points
        distance[torch.arange(len(rows)), rows] = -1.0
        found.append(distance.sort(dim=-1, stable=True).indices[:, : count + 1])
    return torch.cat(found)
