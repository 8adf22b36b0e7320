"""What a cloud is made of: the residual stream at every stage, brought to one scale, and what is left out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from fbt_core.trace import Trace

SCALES = {
    "unit": "each token at norm 1",
    "layer": "each layer at mean 0, root mean square 1",
    "raw": "as they are",
}
"""How positions of different layers, whose norms grow with depth, are brought together."""

NAMED = 8
"""Of the points that are left out, so many are named."""


@dataclass(frozen=True)
class Cloud:
    """Positions of tokens at several stages in one frame; NaN where a token was left out, which ``notes`` tell."""

    method: str  # a key of CLOUDS: what was drawn in the end
    positions: Float[np.ndarray, "layer token dims"]
    axes: tuple[str, ...]  # what each axis is, its unit or share in brackets
    directions: Float[np.ndarray, "dims width"] | None = None  # orthonormal rows, where the picture is linear
    share: tuple[float, ...] = ()  # of the variance along each axis, where that is defined
    notes: tuple[str, ...] = ()

    @property
    def dims(self) -> int:
        """2 or 3."""
        return self.positions.shape[-1]


@dataclass(frozen=True)
class Options:
    """What UMAP is told besides its points."""

    seed: int = 0
    neighbours: int = 15  # the point itself among them, as UMAP counts
    min_dist: float = 0.1
    progress: Callable[[float, str], None] | None = None  # told a share in [0, 1] and words; may raise to stop

    def tell(self, share: float, words: str) -> None:
        """Report progress, if anyone listens."""
        if self.progress is not None:
            self.progress(share, words)


def stages(trace: Trace, tokens: Sequence[int] | None = None) -> Float[np.ndarray, "layer token width"]:
    """The residual stream where it enters each of n blocks and where it leaves the last: n + 1 stages, float64.

    ``tokens`` picks some of them. Raises ``ValueError`` where layers differ in width or in tokens.
    """
    found = [layer.residual_in for layer in trace.layers] + [layer.residual_out for layer in trace.layers[-1:]]
    shapes = sorted({tuple(one.shape) for one in found})
    if len(shapes) != 1:
        raise ValueError(f"got layers of (token, width) {shapes}, expected one shape: they share no space")
    picked = [one if tokens is None else one[list(tokens)] for one in found]
    return torch.stack([one.detach().to("cpu", torch.float64) for one in picked]).numpy()


def known(layers: Float[np.ndarray, "layer token width"]) -> Bool[np.ndarray, "layer token"]:
    """Which points have only finite numbers."""
    return np.isfinite(layers).all(-1)


def scaled(
    layers: Float[np.ndarray, "layer token width"], scale: str = "raw"
) -> Float[np.ndarray, "layer token width"]:
    """The points on a scale of ``SCALES``; what is not finite stays so, and a point at 0 stays at 0.

    Raises ``ValueError`` for an unknown scale.
    """
    if scale not in SCALES:
        raise ValueError(f"got scale {scale!r}, expected one of {', '.join(SCALES)}")
    if scale == "raw":
        return layers
    if scale == "unit":
        norms = np.linalg.norm(layers, axis=-1, keepdims=True)
        return layers / np.where(norms > 0, norms, 1.0)
    centre, size = _layer_size(layers)
    return (layers - centre) / size


def derivative(
    layers: Float[np.ndarray, "layer token width"],
    jacobian: Float[np.ndarray, "layer token dims width"],
    scale: str = "raw",
) -> Float[np.ndarray, "layer token dims width"]:
    """``jacobian`` of the picture by scaled points, made one by the residual stream itself: the chain rule.

    A layer's mean and size are held fixed: one token's move changes them little.
    """
    if scale == "raw":
        return jacobian
    if scale == "layer":
        return jacobian / _layer_size(layers)[1][..., None]
    norms = np.linalg.norm(layers, axis=-1, keepdims=True)
    norms = np.where(norms > 0, norms, 1.0)
    unit = (layers / norms)[..., None, :]
    return (jacobian - (jacobian * unit).sum(-1, keepdims=True) * unit) / norms[..., None]


def _layer_size(layers: Float[np.ndarray, "layer token width"]) -> tuple[np.ndarray, np.ndarray]:
    """(layer, 1, width) means and (layer, 1, 1) root mean squares of the finite points; 0 and 1 for none."""
    finite = known(layers)[..., None]
    count = np.maximum(finite.sum(1, keepdims=True), 1)
    centre = np.where(finite, layers, 0.0).sum(1, keepdims=True) / count
    squares = np.where(finite, layers - centre, 0.0) ** 2
    size = np.sqrt(squares.sum((1, 2), keepdims=True) / count)
    return centre, np.where(size > 0, size, 1.0)


def left_out(finite: Bool[np.ndarray, "layer token"]) -> tuple[str, ...]:
    """A note that names the points with numbers that are not finite; none where there are none."""
    missing = np.argwhere(~finite)
    if not len(missing):
        return ()
    told = ", ".join(f"token {token} at stage {stage}" for stage, token in missing[:NAMED].tolist())
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return (f"left out, because not finite: {told}{more}",)


def spread(
    values: Float[np.ndarray, "point dims"], finite: Bool[np.ndarray, "layer token"]
) -> Float[np.ndarray, "layer token dims"]:
    """The values of the finite points at their places, NaN elsewhere."""
    full = np.full((*finite.shape, values.shape[-1]), np.nan)
    full[finite] = values
    return full
