"""UMAP (McInnes, Healy & Melville 2018) of all layers at once, of aligned layers, and layer by layer with Procrustes.

The graphs, and each epoch of the descent, are umap-learn's own. The loop over epochs stands here, because it must tell
its progress and be stopped, and because AlignedUMAP compiles its epoch anew at every call. What differs from
umap-learn's classes: neighbours are exact, and the descent starts from the shared principal components instead of a
spectral layout, which fails on few points and forgets the frame that layers share. One thread and fixed seeds: the
same request gives the same picture on the same machine.
"""

from __future__ import annotations

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from fbt_core.cloud.neighbours import nearest
from fbt_core.cloud.pca import pca
from fbt_core.cloud.points import Cloud, Options, spread
from fbt_core.cloud.procrustes import procrustes

EPOCHS = 500
"""umap-learn's own number for so few points."""

ALIGNED_EPOCHS = 200
"""AlignedUMAP's own."""

WINDOW = 3
"""Layers before and after, to which a layer is tied in AlignedUMAP."""

TIE = 1e-2
"""The strength of those ties: AlignedUMAP's own ``alignment_regularisation``."""

TOLD = 10
"""Epochs between two reports of progress."""

COMPILING = "the first UMAP of a server compiles for about 20 seconds"


def umap(
    points: Float[np.ndarray, "layer token width"], finite: Bool[np.ndarray, "layer token"], dims: int, options: Options
) -> Cloud:
    """One UMAP of all layers' points: a token's way through depth is part of the same graph."""
    start = pca(points, finite, dims, options).positions[finite]
    positions, count = _embedding(points[finite], start, options, (0.0, 1.0), "UMAP of all layers")
    return _cloud("umap", spread(positions, finite), options, count)


def umap_procrustes(
    points: Float[np.ndarray, "layer token width"], finite: Bool[np.ndarray, "layer token"], dims: int, options: Options
) -> Cloud:
    """A UMAP of every layer by itself, each turned and moved onto the layer before by the tokens that both have."""
    start = pca(points, finite, dims, options).positions
    positions, residuals, count = np.full(start.shape, np.nan), [], 0
    for layer, known in enumerate(finite):
        share = layer / len(points), (layer + 1) / len(points)
        found, count = _embedding(points[layer, known], start[layer, known], options, share, f"UMAP of stage {layer}")
        positions[layer, known] = found - found.mean(0)
        common = known & finite[layer - 1] if layer else known
        if layer and common.any():
            turn = procrustes(positions[layer, common], positions[layer - 1, common])
            positions[layer] = turn.apply(positions[layer])
            residuals.append(turn.residual)
    told = f"each layer is a UMAP of its own, turned and moved onto the layer before; left over {_shares(residuals)}"
    return _cloud("procrustes", positions, options, count, told)


def aligned_umap(
    points: Float[np.ndarray, "layer token width"], finite: Bool[np.ndarray, "layer token"], dims: int, options: Options
) -> Cloud:
    """AlignedUMAP: a graph a layer, laid out together, each token tied to itself in the ``WINDOW`` layers around.

    A token that is not finite somewhere takes no part anywhere.
    """
    whole = finite.all(0)
    kept = np.broadcast_to(whole, finite.shape)
    start = pca(points, kept, dims, options).positions[:, whole]
    count = bounded(options.neighbours, int(whole.sum()))
    options.tell(0.0, f"AlignedUMAP: neighbours ({COMPILING})")
    graphs = [_graph(layer[whole], count, options.seed) for layer in points]
    found = _descend_together(graphs, start, options)
    told = f"a graph a layer, laid out together; each token is tied to itself in the {WINDOW} layers before and after"
    lost = int(finite.any(0).sum() - whole.sum())
    notes = (f"{lost} tokens that are not finite at every stage are left out of all",) if lost else ()
    return _cloud("aligned", spread(found.reshape(-1, dims), kept.copy()), options, count, told, *notes)


def bounded(neighbours: int, points: int) -> int:
    """As many neighbours as there can be: at least 2, and at most one less than there are points."""
    return max(2, min(neighbours, points - 1))


def _cloud(method: str, positions: np.ndarray, options: Options, count: int, *more: str) -> Cloud:
    """The cloud, and what was done: axes of UMAP have no unit, and distances in it no scale."""
    how = f"UMAP with {count} neighbours, minimum distance {options.min_dist:g}, seed {options.seed}, from a PCA start"
    less = () if count == options.neighbours else (f"{options.neighbours} neighbours were asked for",)
    axes = tuple(f"UMAP {place + 1} (no unit)" for place in range(positions.shape[-1]))
    return Cloud(method, positions, axes, notes=(how, *less, *more))


def _shares(residuals: list[float]) -> str:
    """``3 to 12 % of the scatter``."""
    if not residuals:
        return "nothing: there is one layer"
    return f"{100 * min(residuals):.2g} to {100 * max(residuals):.2g} % of the scatter"


@cache
def _library() -> SimpleNamespace:
    """umap-learn and numba, imported at the first use: that takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a package that only its parametric variant needs
        import numba
        from umap import aligned_umap as aligned
        from umap import layouts, umap_

    together = numba.njit(layouts._optimize_layout_aligned_euclidean_single_epoch, fastmath=True)
    alone = layouts._get_optimize_layout_euclidean_single_epoch_fn(False)
    return SimpleNamespace(numba=numba, umap=umap_, aligned=aligned, alone=alone, together=together)


def _graph(points: Float[np.ndarray, "point width"], count: int, seed: int) -> Any:
    """The fuzzy simplicial set of the points: a sparse symmetric matrix of memberships, float32."""
    indices, distances = nearest(points, count)
    random = np.random.RandomState(seed)
    found, _, _ = _library().umap.fuzzy_simplicial_set(
        points, count, random, "euclidean", knn_indices=indices.astype(np.int32), knn_dists=distances.astype(np.float32)
    )
    return found


def _embedding(
    points: np.ndarray, start: np.ndarray, options: Options, share: tuple[float, float], what: str
) -> tuple[np.ndarray, int]:
    """UMAP's positions of the points, and how many neighbours there were. ``share``: where the progress stands."""
    count = bounded(options.neighbours, len(points))
    options.tell(share[0], f"{what}: neighbours ({COMPILING})")
    return _descend(_graph(points, count, options.seed), start, options, share, what), count


def _start(positions: np.ndarray, seed: int) -> np.ndarray:
    """Positions in a box of side 10, as umap-learn begins, equal points a little apart: they would never part."""
    span = np.ptp(positions, 0)
    noise = np.random.RandomState(seed).normal(scale=1e-3, size=positions.shape)
    return (10 * (positions - positions.min(0)) / np.where(span > 0, span, 1.0) + noise).astype(np.float32, order="C")


def _descend(graph: Any, start: np.ndarray, options: Options, share: tuple[float, float], what: str) -> np.ndarray:
    """umap-learn's ``optimize_layout_euclidean``, epoch by epoch."""
    library = _library()
    edges = graph.tocoo()
    edges.sum_duplicates()
    edges.data[edges.data < edges.data.max() / EPOCHS] = 0.0
    edges.eliminate_zeros()
    a, b = library.umap.find_ab_params(1.0, options.min_dist)
    every = library.umap.make_epochs_per_sample(edges.data, EPOCHS)
    negative = every / 5.0
    next_sample, next_negative = every.copy(), negative.copy()
    layout = _start(start, options.seed)
    limits = np.iinfo(np.int32)
    random = np.random.RandomState(options.seed).randint(limits.min + 1, limits.max - 1, 3).astype(np.int64)
    states = np.full((len(layout), 3), random) + layout[:, 0].astype(np.float64).view(np.int64).reshape(-1, 1)
    none, alpha = np.zeros(1, np.float32), 1.0
    for epoch in range(EPOCHS):
        library.alone(
            layout, layout, edges.row, edges.col, len(layout), every, a, b, states, 1.0, layout.shape[1], True, alpha,
            negative, next_negative, next_sample, epoch, False, none, none, 0, 0, 0, 0, none, none, 0,
        )  # fmt: skip
        alpha = 1.0 - epoch / EPOCHS
        if epoch % TOLD == 0:
            done = share[0] + (share[1] - share[0]) * epoch / EPOCHS
            options.tell(done, f"{what}: epoch {epoch} of {EPOCHS}")
    return layout.astype(np.float64)


def _descend_together(graphs: list[Any], start: np.ndarray, options: Options) -> np.ndarray:
    """umap-learn's ``optimize_layout_aligned_euclidean``, epoch by epoch: (layer, token, dims)."""
    library = _library()
    numba = library.numba
    relations = _ties(*start.shape[:2])
    edges = [graph.tocoo() for graph in graphs]
    every = [library.umap.make_epochs_per_sample(one.data, ALIGNED_EPOCHS) for one in edges]
    lists = [
        [graph.indptr for graph in graphs], [graph.indices for graph in graphs],
        [one.row for one in edges], [one.col for one in edges],
    ]  # fmt: skip
    indptr, indices, heads, tails = (numba.typed.List(one) for one in lists)
    weights = library.aligned.build_neighborhood_similarities(indptr, indices, relations)
    whole = _start(start.reshape(-1, start.shape[-1]), options.seed).reshape(start.shape)  # one box for all layers
    layouts = numba.typed.List([np.ascontiguousarray(one) for one in whole])
    negative = [(one.astype(np.float32) / 5.0).astype(np.float32) for one in every]
    samples = [
        numba.typed.List(one)
        for one in (every, negative, [one.copy() for one in negative], [one.astype(np.float32) for one in every])
    ]
    a, b = library.umap.find_ab_params(1.0, options.min_dist)
    limits = np.iinfo(np.int32)
    random = np.random.RandomState(options.seed).randint(limits.min + 1, limits.max - 1, 3).astype(np.int64)
    alpha = 1.0
    for epoch in range(ALIGNED_EPOCHS):
        library.together(
            layouts, layouts, heads, tails, samples[0], a, b, weights, relations, random, 1.0, TIE, start.shape[-1],
            True, alpha, *samples[1:], epoch,
        )  # fmt: skip
        alpha = 1.0 - epoch / ALIGNED_EPOCHS
        if epoch % TOLD == 0:
            options.tell(epoch / ALIGNED_EPOCHS, f"AlignedUMAP: epoch {epoch} of {ALIGNED_EPOCHS}")
    return np.stack([np.asarray(one) for one in layouts]).astype(np.float64)


def _ties(layers: int, tokens: int) -> np.ndarray:
    """(layer, offset, token) int32: the token that stands for it ``offset - WINDOW`` layers on, itself; -1 for none.

    umap-learn's own ``expand_relations`` leaves the last layer but one untied to the last.
    """
    relations = np.full((layers, 2 * WINDOW + 1, tokens), -1, np.int32)
    for layer in range(layers):
        for offset in range(-WINDOW, WINDOW + 1):
            if offset and 0 <= layer + offset < layers:
                relations[layer, offset + WINDOW] = np.arange(tokens)
    return relations
