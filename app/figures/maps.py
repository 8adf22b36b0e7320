"""Attention maps as they are shown: what the canvas component and its Plotly twin draw, and their cells as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from app.figures.colour_scales import COLOURS
from fbt_core.attention.tiles import PooledPair

UNIT = "attention weight, rows sum to 1"
SHORT_UNIT = "attention weight, rows sum to at most 1"
"""Where a sink takes a share of the row, which no key has."""


@dataclass(frozen=True)
class MapPanels:
    """Two maps of one sequence and all that is said about them; the third panel is right minus left.

    The keys are the queries' own tokens, unless ``key_tokens`` says that they are others, as in cross-attention. Maps
    of long texts are ``pooled``: their cells are bins of ``factor`` tokens a side, and everything else stays by token.
    """

    left: np.ndarray  # (L, K) float32, rows are queries; cells j > i are not read when causal; bins where pooled
    right: np.ndarray
    titles: tuple[str, str]
    tokens: tuple[str, ...]  # of the L rows
    causal: bool
    entropy: tuple[np.ndarray, np.ndarray]  # (L,) each, nats
    heading: str = ""  # such as "Layer 2, head 1"
    name: str = "attention"  # of files
    note: str = ""  # a what-if
    colour: str = "sqrt"  # a key of COLOURS
    unit: str = UNIT
    selected: int | None = None
    expected: tuple[tuple[int, int], ...] = ()  # (query, key) pairs that a head should attend to
    expected_name: str = "expected by the grammar"
    positions: tuple[int, ...] = ()  # the token number of each row; 0, 1, ... unless some were chosen
    key_tokens: tuple[str, ...] = ()  # of the K columns, where they are other tokens than the rows
    hidden: np.ndarray | None = None  # (L, K) bool: where a mask lets no attention be, beside the future
    single: bool = False  # there is one map only: the right one is the left one, and is not drawn
    ceiling: float | None = None  # of the colour scale, so that several figures share one
    difference_ceiling: float | None = None
    difference_title: str = ""  # right title minus left title, unless given
    marked: tuple[int, ...] = ()  # rows, and columns where those are the same tokens, with a triangle
    pooled: PooledPair | None = None  # of which ``left``, ``right`` and ``hidden`` are then the cells
    exact: np.ndarray | None = None  # (2, K): the selected row of both maps, where they are pooled
    tiles: str = ""  # where the browser may ask for exact parts and rows; empty where it cannot

    def __post_init__(self) -> None:
        shape = tuple(-(-len(labels) // self.factor) for labels in (self.tokens, self.columns))
        if self.left.shape != shape or self.right.shape != shape:
            raise ValueError(f"got maps of shape {self.left.shape} and {self.right.shape}, expected {shape}")
        if self.causal and self.key_tokens:
            raise ValueError("got a causal map of two kinds of tokens, expected a square one")
        if self.colour not in COLOURS:
            raise ValueError(f"got colour scale {self.colour!r}, expected one of {', '.join(COLOURS)}")

    @property
    def factor(self) -> int:
        """Tokens a cell, each way."""
        return self.pooled.factor if self.pooled else 1

    @property
    def difference(self) -> np.ndarray:
        """Right minus left; where pooled the largest such of each bin, and not one of maxima."""
        return self.pooled.difference if self.pooled else self.right - self.left

    @property
    def shown(self) -> tuple[np.ndarray, ...]:
        """What is drawn beside each other: left, right and difference, or the only map."""
        return (self.left,) if self.single else (self.left, self.right, self.difference)

    @property
    def all_titles(self) -> tuple[str, str, str]:
        """Of the three panels."""
        return (*self.titles, self.difference_title or f"{self.titles[1]} − {self.titles[0]}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The token number of each row."""
        return self.positions or tuple(range(len(self.tokens)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The tokens of the columns."""
        return self.key_tokens or self.tokens

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """The token number of each column."""
        return tuple(range(len(self.key_tokens))) if self.key_tokens else self.numbers

    @property
    def allowed(self) -> np.ndarray:
        """(L, K) bool: False in a causal map's future."""
        seen = np.tri(len(self.left), dtype=bool) if self.causal else np.ones(self.left.shape, dtype=bool)
        return seen if self.hidden is None else seen & ~self.hidden

    @property
    def not_finite(self) -> int:
        """How many allowed cells of the two maps are NaN or infinite."""
        if self.pooled:
            return self.pooled.not_finite
        return int(sum((~np.isfinite(cells[self.allowed])).sum() for cells in (self.left, self.right)))

    def top(self) -> float:
        """The ceiling of the sequential scale: given, or the largest cell of both maps."""
        return self.ceiling or max(_largest(cells, self.allowed) for cells in (self.left, self.right))

    def difference_top(self) -> float:
        """The half-width of the diverging scale, symmetric about 0."""
        return self.difference_ceiling or _largest(self.difference, self.allowed)


def _largest(cells: np.ndarray, allowed: np.ndarray) -> float:
    """The largest finite magnitude of the allowed cells, 1 if that is 0 or there is none."""
    chosen = np.abs(cells[allowed])
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.max()) if chosen.size and chosen.max() > 0 else 1.0


def table(panels: MapPanels) -> pd.DataFrame:
    """The allowed (query, key) cells, one a row: made only when someone downloads it. Of a pooled map its bins."""
    rows, columns = np.nonzero(panels.allowed)
    left, right = panels.left[rows, columns], panels.right[rows, columns]
    both = {panels.titles[1]: right, "difference": panels.difference[rows, columns]} if not panels.single else {}
    tokens, keys = (np.asarray(labels, dtype=object) for labels in (panels.tokens, panels.columns))
    size = panels.factor
    numbers, key_numbers = np.asarray(panels.numbers), np.asarray(panels.key_numbers)
    where: dict[str, Any] = {"query": numbers[size * rows], "key": key_numbers[size * columns]}
    if panels.pooled:
        last = {"query": (rows, len(tokens)), "key": (columns, len(keys))}
        where |= {f"last_{name}": np.minimum(size * (at + 1), count) - 1 for name, (at, count) in last.items()}
    where |= {"query_token": tokens[size * rows], "key_token": keys[size * columns]}
    return pd.DataFrame({**where, panels.titles[0]: left, **both})
