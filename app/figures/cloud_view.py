"""What a figure of a cloud is made of, and the table behind it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

LABELLED = 48
"""Tokens up to which their labels stand in the picture."""

GLYPH = {2: 0.045, 3: 0.06}
"""Of the picture's size: the median radius of the unit ball of g = I, by dimensions."""


@dataclass(frozen=True)
class CloudView:
    """All that is drawn of one cloud. ``tokens`` are raw and untrusted.

    ``values`` colours: numbers over ``limits`` where there are no ``names``, else places in ``names``.
    """

    positions: np.ndarray  # (stage, token, dims), NaN where left out
    stages: tuple[str, ...]  # such as "enters block 3"
    axes: tuple[str, ...]
    tokens: tuple[str, ...]
    values: np.ndarray  # (stage, token)
    value_title: str  # with its unit
    title: str
    description: str
    limits: tuple[float, float] = (0.0, 1.0)
    names: tuple[str, ...] = ()  # of categories
    origin: tuple[str, ...] = ()  # of each token: which text, which checkpoint; empty where there is one
    index: tuple[int, ...] = ()  # of each token in its own text
    marked: tuple[int, ...] = ()  # places among the tokens
    selected: int = -1
    labels: bool = True
    ways: str = "all"  # trajectories drawn: all, marked, none
    glyphs: np.ndarray | None = None  # (stage, token, dims, dims) semi-axes of g, as columns
    plain: np.ndarray | None = None  # of g = I
    stage: int = 0
    narrow: bool = False  # one of two figures beside each other
    note: str | None = None
    name: str = "cloud"
    facts: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def dims(self) -> int:
        """2 or 3."""
        return self.positions.shape[-1]

    @property
    def box(self) -> np.ndarray:
        """(2, dims): the least and largest coordinates of all stages, with some room; never empty."""
        flat = self.positions.reshape(-1, self.dims)
        flat = flat[np.isfinite(flat).all(1)]
        if not len(flat):
            return np.array([[-1.0] * self.dims, [1.0] * self.dims])
        low, high = flat.min(0), flat.max(0)
        size = float((high - low).max()) or 1.0
        room = np.maximum(0.06 * (high - low), 0.03 * size)
        return np.array([low - room, high + room])

    @property
    def glyph_scale(self) -> float:
        """By what the semi-axes are multiplied: one number for all stages, so that sizes can be compared."""
        if self.plain is None:
            return 1.0
        radii = np.linalg.norm(self.plain, axis=-2).max(-1)
        radii = radii[np.isfinite(radii) & (radii > 0)]
        low, high = self.box
        return GLYPH[self.dims] * float((high - low).max()) / float(np.median(radii)) if radii.size else 1.0


def table(view: CloudView) -> pd.DataFrame:
    """One row a stage and token: where it stands, what colours it, and what the picture was made with."""
    stage, token = (grid.ravel() for grid in np.indices(view.positions.shape[:2]))
    texts = np.asarray(view.tokens, dtype=object)
    index = np.asarray(view.index if view.index else range(len(view.tokens)))
    values = view.values.ravel()
    colour = [view.names[int(value)] for value in values] if view.names else values
    columns: dict[str, object] = {
        "stage": stage, "where": np.asarray(view.stages, dtype=object)[stage], "token": index[token],
        "text": texts[token],
    }  # fmt: skip
    if view.origin:
        columns["of"] = np.asarray(view.origin, dtype=object)[token]
    columns |= {name: view.positions.reshape(-1, view.dims)[:, place] for place, name in enumerate("xyz"[: view.dims])}
    columns |= {view.value_title: colour, "marked": np.isin(token, view.marked)}
    if view.glyphs is not None:
        sizes = np.linalg.norm(view.glyphs, axis=-2).reshape(-1, view.dims)
        full = np.full((len(stage), view.dims), np.nan)
        full[token < view.glyphs.shape[1]] = sizes
        columns |= {f"semi_axis{place + 1}": full[:, place] for place in range(view.dims)}
    return pd.DataFrame({**columns, **view.facts})
