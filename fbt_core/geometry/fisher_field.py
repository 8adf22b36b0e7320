"""The Fisher metric of a model's predictions as a function of the residual, on a slice through one token.

G(x) = I + c J^T (diag p - p p^T) J with J the derivative of the logits, the final norm inside, over the whole
vocabulary and exactly; c is what the source scaled its metric by. On the slice x_0 + E y the logits are a function of
E^T (x - x_0) alone: what the vocabulary gives is V x m numbers, worked out once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.readout import Readout
from fbt_core.trace import LayerTrace

LEAST_P = 1e-24
"""Smaller probabilities count as 0: they are no normal numbers once squared, and slow a processor fiftyfold."""


def fisher_field(model: Any, layer: LayerTrace, token: int) -> MetricFunction:
    """The metric on the slice through ``token`` along the directions in which the source's metric is largest there.

    As many directions as the source's rank; c makes the first of them as long as the source has it.
    """
    from fbt_core.geometry.source_factors import readout_of

    assert layer.residual_U is not None
    U, x = layer.residual_U[token].double(), layer.residual_in[token].double()
    if not (U.isfinite().all() and x.isfinite().all() and bool((U != 0).any())):
        raise ValueError(f"token {token} of layer {layer.index} has no Fisher metric: it vanishes, or is not finite")
    E, lengths, _ = torch.linalg.svd(U, full_matrices=False)
    moved = _slice_covariance(readout_of(model), x, E)
    zero = torch.zeros_like(E[0])
    top = torch.zeros_like(zero)
    top[0] = 1.0
    scale = lengths[0].square() / moved(zero, top, top)

    def inner(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return a @ b + scale * moved(E.mT @ (y - x), a, b)

    return MetricFunction(E.shape[1], inner, None, E, f"layer {layer.index}, Fisher metric at token {token}")


def _slice_covariance(
    readout: Readout, x: Float64[Tensor, " width"], E: Float64[Tensor, "width dim"]
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(y, a, b) -> the covariance, under p at x + E y, of the logits' derivatives along E a and E b."""
    norm, unembedding = readout.norm, readout.unembedding.double()
    gain, offset = norm.gain.double(), readout.offset.double()
    centred, across = norm.centre(x), norm.centre(E.mT).mT
    here, moves = unembedding @ (gain * centred), unembedding @ (gain[:, None] * across)  # V, V m
    square, linear, width = centred @ centred, across.mT @ centred, len(x)
    gram = across.mT @ across

    def size(y: Tensor) -> tuple[Tensor, Tensor]:
        """s of the norm, and its derivative."""
        if norm.kind == "none":
            return torch.ones_like(y.sum()), torch.zeros_like(y)
        s = ((square + 2 * linear @ y + y @ gram @ y) / width + norm.epsilon).sqrt()
        return s, (linear + gram @ y) / (width * s)

    def covariance(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        s, slope = size(y)
        products = (here + moves @ y) / s
        logits = readout.scale * (products + offset)
        steep: Tensor | float = readout.scale
        if readout.softcap is not None:
            capped = (logits / readout.softcap).tanh()
            logits, steep = readout.softcap * capped, readout.scale * (1 - capped.square())
        p = logits.softmax(-1)
        p = torch.where(p < LEAST_P, 0.0, p)
        along = [steep * (moves @ v - products * (slope @ v)) / s for v in (a, b)]
        da, db = (d - p @ d for d in along)
        return (p * da) @ db

    return covariance
