"""Principal components, shared by all layers: linear, exact, at once; the start of every other method."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from fbt_core.cloud.points import Cloud, Options, spread

DENSE = 1024
"""Up to so many rows or columns the whole spectrum is computed; beyond, the leading components by Lanczos iteration."""

FLAT = 1e-12
"""Of the variance: an axis that holds less is flat."""


def principal(
    points: Float[np.ndarray, "point width"], dims: int
) -> tuple[Float[np.ndarray, "dims width"], Float[np.ndarray, " dims"]]:
    """The leading ``dims`` principal directions as orthonormal rows, and their shares of the variance, descending.

    The largest component of each row is positive. A direction that the points do not have is a row of zeros, share 0.
    """
    centred = points - points.mean(0) if len(points) else points
    total = float((centred**2).sum())
    rows, shares = np.zeros((dims, points.shape[1])), np.zeros(dims)
    if total > 0:
        vectors, squares = _leading(centred, min(dims, *centred.shape))
        good = squares > FLAT * total
        rows[: len(good)][good], shares[: len(good)][good] = vectors[good], squares[good] / total
    peak = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    return np.where(peak < 0, -rows, rows), shares


def _leading(centred: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(count, width) right singular vectors and (count,) squared singular values, descending."""
    if min(centred.shape) > DENSE:
        from scipy.sparse.linalg import svds

        start = np.cos(np.arange(min(centred.shape)))  # fixed, so that the answer is
        _, values, vectors = svds(centred, k=count, v0=start)
        return vectors[::-1], values[::-1] ** 2
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    return vectors[:count], values[:count] ** 2


def pca(
    points: Float[np.ndarray, "layer token width"], finite: Bool[np.ndarray, "layer token"], dims: int, options: Options
) -> Cloud:
    """Positions along the principal directions of all layers' points together, relative to their mean."""
    chosen = points[finite]
    rows, shares = principal(chosen, dims)
    centred = chosen - chosen.mean(0) if len(chosen) else chosen
    axes = tuple(f"PC {place + 1} ({100 * share:.3g} % of the variance)" for place, share in enumerate(shares))
    flat = int((shares == 0).sum())
    notes = (f"these points span fewer than {dims} directions: {flat} of the axes stay at 0",) if flat else ()
    return Cloud("pca", spread(centred @ rows.T, finite), axes, rows, tuple(shares.tolist()), notes)
