"""Orthogonal Procrustes alignment: the rotation, translation and size that bring one set of points onto another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Alignment:
    """x -> scale (x - source) rotation + target. Points of a smaller width are read with zeros behind.

    ``residual`` is the share of the target's scatter that is left, ||aligned - target||^2 / ||target - mean||^2: 0 for
    a perfect match; 1 and more for unrelated points, and at most 1 where the size is fitted too.
    """

    rotation: Float[np.ndarray, "width width"]  # orthogonal; a reflection is allowed
    scale: float
    source: Float[np.ndarray, " width"]  # the mean of the points that are moved
    target: Float[np.ndarray, " width"]
    residual: float
    width: int  # of what is returned

    def apply(self, points: Float[np.ndarray, "*batch dim"]) -> Float[np.ndarray, "*batch width"]:
        """The points moved."""
        moved = self.scale * (_padded(points, len(self.source)) - self.source) @ self.rotation + self.target
        return moved[..., : self.width]


def procrustes(
    source: Float[np.ndarray, "point dim"], target: Float[np.ndarray, "other width"], *, scaled: bool = False
) -> Alignment:
    """The best alignment of ``source`` onto ``target``, row by row; its size too if ``scaled``. By one SVD.

    Rows that are not finite in both take no part. Raises ``ValueError`` where the numbers of rows differ or where no
    row is left.
    """
    if len(source) != len(target):
        raise ValueError(f"got {len(source)} and {len(target)} points, expected as many: row i belongs to row i")
    both = np.isfinite(source).all(1) & np.isfinite(target).all(1)
    if not both.any():
        raise ValueError("got no point that is finite in both, expected at least one")
    width = max(source.shape[1], target.shape[1])
    x, y = _padded(source[both], width), _padded(target[both], width)
    from_mean, to_mean = x.mean(0), y.mean(0)
    x, y = x - from_mean, y - to_mean
    left, values, right = np.linalg.svd(x.T @ y)
    size = float((x**2).sum())
    scale = float(values.sum()) / size if scaled and size > 0 else 1.0
    rotation = left @ right
    scatter, gap = float((y**2).sum()), float(((scale * x @ rotation - y) ** 2).sum())
    residual = gap / scatter if scatter > 0 else float(gap > 0)
    return Alignment(rotation, scale, from_mean, to_mean, residual, target.shape[1])


def _padded(points: np.ndarray, width: int) -> np.ndarray:
    """Zeros behind, up to a width. A wider point keeps all its numbers."""
    missing = max(0, width - points.shape[-1])
    return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, missing)])
