"""Every head at once: how far two scores lead each apart, and the atlas of all their maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from app.attention_choice import Choice
from app.attention_words import note
from app.figures.atlas import HeadAtlas
from app.figures.maps import UNIT
from app.side import Side
from app.view import View
from fbt_core.attention.views import all_heads, matched_variation
from fbt_core.measures import Reading

BINS = ((14, 144, 48), (14, 10**6, 32), (32, 10**6, 24), (10**6, 10**6, 16))
"""Cells a side of an atlas tile in a model of up to so many layers and heads: all tiles shall stand on the page."""


def atlases(view: View, choice: Choice, tile: str) -> list[HeadAtlas]:
    """The atlas of every side, on one scale."""
    several = [atlas(side, choice, tile) for side in view.sides]
    top = max(one.top() for one in several)
    return [replace(one, ceiling=top) for one in several]


def variation(side: Side, choice: Choice) -> np.ndarray:
    """(layer, head, token): total variation between the two scores, row by row; NaN where there is no such head.

    One score with itself has none.
    """
    if choice.single:
        return np.zeros((side.layers, side.heads, len(side.tokens)))
    options = choice.given | {"score_a": choice.left, "score_b": choice.right}
    if not choice.matched:
        return side.by_layer("total_variation", **options).values

    def one(layer: int) -> np.ndarray:
        return side.derived(matched_variation, layer=layer, **options)

    return _stacked(side.each_layer("total variation, entropies matched", one))


def entropies(side: Side, choice: Choice) -> np.ndarray:
    """(layer, head, token): entropy of the rows of the left score, in nats."""
    return side.by_layer("entropy", score=choice.left, **choice.given).values


def variation_table(side: Side, choice: Choice) -> Reading | pd.DataFrame:
    """What the atlas's CSV holds."""
    if not choice.matched:
        return side.by_layer("total_variation", score_a=choice.left, score_b=choice.right, **choice.given)
    values = variation(side, choice)
    layer, head, token = np.indices(values.shape).reshape(3, -1)
    return pd.DataFrame({
        "measure": "total_variation", "layer": layer, "head": head, "token": token, "score_a": choice.left,
        "score_b": choice.right, "entropies": "matched", "value": values.ravel(),
    })  # fmt: skip


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Arrays (head, ...) of layers as one, NaN where a layer has fewer heads."""
    sizes = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    whole = np.full((len(parts), *sizes), np.nan, parts[0].dtype)
    for layer, part in enumerate(parts):
        whole[(layer, *map(slice, part.shape))] = part
    return whole


def atlas(side: Side, choice: Choice, tile: str) -> HeadAtlas:
    """Every head of a side: a score's maps, their difference, or the mean total variation as one colour a head.

    Only layers that have attention by the scores stand in it, under their true numbers.
    """
    scores = {"left": (choice.left,), "right": (choice.right,)}.get(tile, (choice.left, choice.right))
    layers = tuple(
        number for number, block in enumerate(side.trace.layers)
        if block.heads and not any(block.unavailable(score) for score in (choice.left, choice.right))
    )  # fmt: skip
    means, measured = variation(side, choice)[list(layers)].mean(-1), "mean total variation"
    if choice.single:
        means, measured = entropies(side, choice)[list(layers)].mean(-1), "mean row entropy (nats)"
    names = (choice.title(side, choice.left), choice.title(side, choice.right))
    shared = {
        "causal": side.causal, "readings": means, "readings_name": measured, "colour": choice.colour,
        "chosen": (side.layer, side.head), "name": f"heads-{side.name}", "layers": layers,
        "heads": tuple(side.trace.layers[number].heads for number in layers),
    }  # fmt: skip
    if tile == "variation":
        cells = means.astype(np.float32)[..., None, None]
        title = f"{side.title} · total variation, {names[0]} against {names[1]}"
        why = note(side, choice, choice.left, choice.right) or ""
        shown = shared | {"colour": "linear", "causal": False, "note": why}
        return HeadAtlas(cells, title=title, unit="mean over rows, 0 to 1", **shown)
    cells = _atlas_cells(side, choice, scores, layers)
    title = choice.title(side, scores[0]) if len(scores) == 1 else f"{names[1]} − {names[0]}"
    return HeadAtlas(
        cells, title=f"{side.title} · {title}", unit=UNIT if len(scores) == 1 else "difference",
        diverging=len(scores) > 1, note=note(side, choice, *scores) or "", **shared,
    )  # fmt: skip


def bins(layers: int, heads: int) -> int:
    """Cells a side of a tile, for so many layers and heads of all layers."""
    return next(cells for most, many, cells in BINS if layers <= most and heads <= many)


def _atlas_cells(side: Side, choice: Choice, scores: tuple[str, ...], layers: tuple[int, ...]) -> np.ndarray:
    """(layer, head, bin, column) of the given layers."""
    options = choice.given | ({"other": scores[1]} if len(scores) > 1 else {})
    options |= {"match": match} if (match := choice.match(scores[0])) else {}
    options |= {"score": scores[0], "bins": bins(side.layers, side.layers * side.heads)}

    def one(layer: int) -> np.ndarray | None:
        return side.derived(all_heads, layer=layer, **options) if layer in layers else None

    return _stacked([cells for cells in side.each_layer("maps", one) if cells is not None])
