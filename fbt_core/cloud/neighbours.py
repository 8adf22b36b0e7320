"""Exact nearest neighbours, tile by tile."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

TILE = 1024


def nearest(
    points: Float[np.ndarray, "point width"], count: int
) -> tuple[Int[np.ndarray, "point count"], Float[np.ndarray, "point count"]]:
    """Indices and Euclidean distances of the ``count`` nearest points, each point itself first, at distance 0.

    Raises ``ValueError`` unless 1 <= count <= number of points.
    """
    if not 1 <= count <= len(points):
        raise ValueError(f"got {count} neighbours of {len(points)} points, expected 1 to {len(points)}")
    x = torch.from_numpy(np.ascontiguousarray(points, np.float64))
    x = x - x.mean(0)  # the product form of a distance loses digits far from 0
    indices, distances = [], []
    for start in range(0, len(x), TILE):
        rows = torch.arange(start, min(start + TILE, len(x)))
        apart = torch.cdist(x[rows], x)
        apart[rows - start, rows] = -1.0
        found = apart.topk(count, largest=False).indices
        indices.append(found)
        distances.append((x[found] - x[rows, None]).norm(dim=-1))  # exact, so that equal points are at 0
    return torch.cat(indices).numpy(), torch.cat(distances).numpy()
