"""FiberTransport: rotations C(T) of the values, T = L R^T - R L^T skew of rank 2 r' (item 7).

C_i^T C_j moves a vector from token j to token i. It depends on i and j through one rotation each, so it is pure gauge:
around any loop of tokens the rotations cancel, and the holonomy is the identity.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.geometry.matrix_function import factorable


def cayley(
    left: Float[Tensor, "*batch dim torsion"],
    right: Float[Tensor, "*batch dim torsion"],
    v: Float[Tensor, "*batch dim"],
    inverse: bool = False,
) -> Float[Tensor, "*batch dim"]:
    """C(T) v with C(T) = (I - T/2)^{-1} (I + T/2) in SO(d), T = L R^T - R L^T; ``inverse`` gives C(T)^T v.

    With A = [L, -R] and B = [R, L], T = A B^T, and Woodbury gives C(T) v = v + A (I - B^T A / 2)^{-1} B^T v: a solve
    of size 2 r', never d. C(T)^T = C(-T).
    """
    if inverse:
        left = -left
    a = torch.cat([left, -right], -1)
    b = torch.cat([right, left], -1)
    small = torch.eye(a.shape[-1], dtype=v.dtype, device=v.device) - b.mT @ a / 2
    inner = torch.linalg.solve(factorable(small), factorable(b.mT @ v.unsqueeze(-1)))
    return v + (a @ inner.to(v)).squeeze(-1)
