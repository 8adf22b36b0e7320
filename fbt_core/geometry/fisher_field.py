"""The Fisher metric of a model's predictions as a function of the residual, on a slice through one token.

G(x) = I + c J^T (diag p - p p^T) J with J the derivative of the logits, the final norm inside, over the whole
vocabulary and exactly; c is what the source scaled its metric by. On the slice x_0 + E y the logits are a function of
E^T (x - x_0) alone: what the vocabulary gives is V x m numbers, worked out once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.readout import Readout
from fbt_core.trace import LayerTrace

LEAST_P = 1e-24
"""Smaller probabilities count as 0: they are no normal numbers once squared, and slow a processor fiftyfold."""


ROWS = 8192
"""Of the unembedding that are put in float64 at a time."""


def fisher_field(readout: Readout, layer: LayerTrace, token: int) -> MetricFunction:
    """The metric on the slice through ``token`` along the directions in which the source's metric is largest there.

    As many directions as the source's rank; c makes the first of them as long as the source has it.
    """
    assert layer.residual_U is not None
    U, x = layer.residual_U[token].double(), layer.residual_in[token].double()
    if not (U.isfinite().all() and x.isfinite().all() and bool((U != 0).any())):
        raise ValueError(f"token {token} of layer {layer.index} has no Fisher metric: it vanishes, or is not finite")
    E, lengths, _ = torch.linalg.svd(U, full_matrices=False)
    moved = _slice_covariance(readout, x, E)
    eye = torch.eye(E.shape[1], dtype=x.dtype, device=x.device)
    scale = lengths[0].square() / moved(torch.zeros_like(E[0]))[0, 0]

    def matrix(y: Tensor) -> Tensor:
        return eye + scale * moved(E.mT @ (y - x))

    def inner(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return a @ matrix(y) @ b

    name = f"layer {layer.index}, Fisher metric at token {token}"
    return MetricFunction(E.shape[1], inner, None, E, name, matrix)


def _slice_covariance(
    readout: Readout, x: Float64[Tensor, " width"], E: Float64[Tensor, "width dim"]
) -> Callable[[Tensor], Tensor]:
    """y -> the covariance (d, d), under p at x + E y, of the logits' derivatives along the columns of E."""
    norm = readout.norm
    gain, offset = norm.gain.double(), readout.offset.double()
    centred, across = norm.centre(x), norm.centre(E.mT).mT
    seen = gain[:, None] * torch.cat([centred[:, None], across], 1)
    products = torch.cat([rows.double() @ seen for rows in readout.unembedding.split(ROWS)])
    here, moves = products[:, 0], products[:, 1:]  # V, V d
    square, linear, width = centred @ centred, across.mT @ centred, len(x)
    gram = across.mT @ across

    def size(y: Tensor) -> tuple[Tensor, Tensor]:
        """s of the norm, and its derivative."""
        if norm.kind == "none":
            return torch.ones_like(y.sum()), torch.zeros_like(y)
        s = ((square + 2 * linear @ y + y @ gram @ y) / width + norm.epsilon).sqrt()
        return s, (linear + gram @ y) / (width * s)

    def covariance(y: Tensor) -> Tensor:
        s, slope = size(y)
        products = (here + moves @ y) / s
        logits = readout.scale * (products + offset)
        steep: Tensor | float = readout.scale
        if readout.softcap is not None:
            capped = (logits / readout.softcap).tanh()
            logits, steep = readout.softcap * capped, (readout.scale * (1 - capped.square())).unsqueeze(-1)
        p = logits.softmax(-1)
        p = torch.where(p < LEAST_P, 0.0, p)
        along = steep * (moves - products.unsqueeze(-1) * slope) / s
        along = along - p @ along
        return (p.unsqueeze(-1) * along).mT @ along

    return covariance
