"""The causal inner product (Park et al. 2024, arXiv 2311.03658), as a metric of the residual stream.

The paper's inner product of unembedding vectors is Cov(gamma)^{-1}, gamma a row of the unembedding drawn uniformly from
the vocabulary (its Theorem 3.3 leaves a diagonal D open; D = I is the paper's own choice). Its dual acts on hidden
states: Cov(gamma). That is the Fisher metric of the logits at uniform p, so it is the homogeneous control of `fisher`:
the same for every token, and for every layer.
"""

from __future__ import annotations

import torch
from jaxtyping import Float

from fbt_core.geometry.readout import Readout

ROWS = 1 << 14
"""Of the unembedding at a time."""


def causal_factor(readout: Readout, rank: int) -> Float[torch.Tensor, "width rank"]:
    """U with U U^T the best rank-r part of Cov(gamma), gamma through the linear part of the final norm: its gain, and
    the mean taken off where it is a LayerNorm. What the norm does with the token's own size is left out, else the
    metric would not be homogeneous.

    O(V D^2 + D^3) once, whatever the number of tokens; memory D^2. Columns beyond D are zero.
    """
    E, norm = readout.unembedding, readout.norm
    mean = E.mean(0)
    covariance = torch.zeros(E.shape[1], E.shape[1], dtype=torch.float64, device=E.device)
    for rows in E.split(ROWS):
        moved = norm.centre(norm.gain * (rows - mean)) * readout.scale
        covariance += (moved.mT @ moved).double()
    values, vectors = torch.linalg.eigh(covariance / len(E))
    kept = min(rank, len(values))
    U = vectors.flip(-1)[:, :kept] * values.flip(-1)[:kept].clamp_min(0).sqrt()
    return torch.nn.functional.pad(U, (0, rank - kept)).to(E)
