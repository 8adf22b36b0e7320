"""The methods in one table, and the one way to run them: what cannot be had is replaced by PCA, and said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from fbt_core.cloud.pca import pca
from fbt_core.cloud.points import SCALES, Cloud, Options, known, left_out, scaled
from fbt_core.cloud.umap import aligned_umap, umap, umap_procrustes


@dataclass(frozen=True)
class Method:
    """How positions are made. ``function(points, finite, dims, options)`` never sees a number that is not finite."""

    title: str
    says: str  # what a distance in the picture means, a sentence
    function: Callable[..., Cloud]
    source: str
    by_layer: bool  # whether every layer must have points enough by itself
    most: int  # points up to which it takes seconds to a minute
    slow: bool = True  # compiles at its first use, and deserves a progress bar


CLOUDS: dict[str, Method] = {
    "pca": Method(
        "PCA", "A linear picture: distances along the axes are true to scale, the rest is left out.",
        pca, "Pearson 1901", False, 32_768, slow=False,
    ),
    "umap": Method(
        "UMAP", "Near points are neighbours of the residual stream; far distances and directions mean nothing.",
        umap, "McInnes, Healy & Melville 2018", False, 8_192,
    ),
    "aligned": Method(
        "AlignedUMAP", "Neighbours within a layer are near; a token's way is held short by ties between layers.",
        aligned_umap, "McInnes, Healy & Melville 2018; Dadu et al. 2023", True, 8_192,
    ),
    "procrustes": Method(
        "UMAP + Procrustes", "Neighbours within a layer are near; a way holds what no turn of the layers explains.",
        umap_procrustes, "McInnes, Healy & Melville 2018; Schönemann 1966", True, 8_192,
    ),
}  # fmt: skip


def cloud(
    method: str,
    layers: Float[np.ndarray, "layer token width"],
    dims: int = 2,
    *,
    scale: str = "raw",
    seed: int = 0,
    neighbours: int = 15,
    min_dist: float = 0.1,
    progress: Callable[[float, str], None] | None = None,
) -> Cloud:
    """The points of all layers in one picture of 2 or 3 dimensions, float64.

    Points that are not finite become NaN and are named in a note; where too few are left for UMAP, the answer is the
    PCA, and a note says so. ``progress`` is told a share in [0, 1] and words, and may raise to stop.
    Raises ``ValueError`` for an unknown method or scale and for other dimensions.
    """
    if method not in CLOUDS:
        raise ValueError(f"got method {method!r}, expected one of {', '.join(CLOUDS)}")
    if dims not in (2, 3):
        raise ValueError(f"got {dims} dimensions, expected 2 or 3")
    with np.errstate(invalid="ignore", over="ignore"):
        points = scaled(np.asarray(layers, np.float64), scale)
    finite = known(points)
    points = np.where(finite[..., None], points, 0.0)
    row, notes = CLOUDS[method], left_out(finite)
    why = too_few(points, finite, dims, row.by_layer) if row.slow else ""
    if why:
        row, notes = CLOUDS["pca"], (*notes, f"PCA is drawn instead of {row.title}: {why}")
    found = row.function(points, finite, dims, Options(seed, neighbours, float(min_dist), progress))
    told = () if scale == "raw" else (f"positions: {SCALES[scale]}",)
    return replace(found, notes=(*notes, *told, *found.notes))


def too_few(
    points: Float[np.ndarray, "layer token width"], finite: Bool[np.ndarray, "layer token"], dims: int, by_layer: bool
) -> str:
    """Why UMAP cannot be had, a clause; empty where it can. It needs two different points more than dimensions."""
    least = dims + 2
    groups = [(f"stage {layer}", points[layer][finite[layer]]) for layer in range(len(points))]
    if not by_layer:
        groups = [("the cloud", points[finite])]
    for name, group in groups:
        count = len(np.unique(group, axis=0))
        if count < least:
            return f"{name} has {count} different points, and {dims} dimensions need {least}"
    return ""
