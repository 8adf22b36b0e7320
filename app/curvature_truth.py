"""Proxy against truth: which curvatures the proxy is held against, as points, and how far their orders agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.curvature import Curved
from app.figures.curvature import Points, Rho
from fbt_core.measures.correlation import Correlation, spearman, within_ranks


@dataclass(frozen=True)
class Truth:
    """A curvature that the proxy may be held against. ``values`` makes it of the parts of ``Curved``."""

    title: str
    symbol: str  # LaTeX
    values: Callable[[dict[str, np.ndarray]], np.ndarray]
    signed: bool = True
    sampled: bool = False  # has the scalar curvature's standard error


def extreme(parts: dict[str, np.ndarray]) -> np.ndarray:
    """The sectional curvature of largest size, its sign kept."""
    most, least = parts["sectional_max"], parts["sectional_min"]
    return np.where(np.abs(most) >= np.abs(least), most, least)


TRUTHS: dict[str, Truth] = {
    "scalar": Truth("Scalar curvature", "S", lambda parts: parts["scalar_curvature"], sampled=True),
    "size": Truth(
        "Size of scalar curvature", "|S|", lambda parts: np.abs(parts["scalar_curvature"]), signed=False, sampled=True
    ),
    "largest": Truth("Largest sectional curvature", r"\max K", lambda parts: parts["sectional_max"]),
    "smallest": Truth("Smallest sectional curvature", r"\min K", lambda parts: parts["sectional_min"]),
    "extreme": Truth("Extreme sectional, size", r"\max |K|", lambda parts: np.abs(extreme(parts)), signed=False),
}
"""Curvatures to hold the proxy against."""


def points(found: Curved, truth: Truth, marked: tuple[int, ...] = ()) -> Points:
    """What the scatter shows; ``marked`` tokens have a ring."""
    values = truth.values(found.parts)
    error = found.parts["scalar_error"] if truth.sampled and not found.exact else np.zeros_like(values)
    return Points(found.parts["omega"], values, error, found.layers, found.heads, found.side.tokens, marked)


def rho(found: Curved, truth: Truth) -> Rho:
    """Rank correlations of the proxy with a truth. Tokens are resampled whole: their layers and heads hang together."""
    x, y = found.parts["omega"], truth.values(found.parts)
    return Rho(truth.title, *_correlated(x.tobytes(), y.tobytes(), x.shape))


@lru_cache(maxsize=128)
def _correlated(x: bytes, y: bytes, shape: tuple[int, ...]) -> tuple[Correlation, Correlation]:
    """Of float64 numbers, over all points and within a layer and head: a page asks again at every run of its script."""
    proxy, curvature = (np.frombuffer(numbers, dtype=np.float64).reshape(shape) for numbers in (x, y))
    tokens = np.broadcast_to(np.arange(shape[2]), shape)
    return spearman(proxy, curvature, tokens), within(proxy, curvature, tokens)


def within(x: np.ndarray, y: np.ndarray, tokens: np.ndarray) -> Correlation:
    """The rank correlation of the ranks that tokens have within their own layer and head: differences between layers
    and heads, which could make one on their own, are gone."""
    good = np.isfinite(x) & np.isfinite(y)
    return spearman(within_ranks(np.where(good, x, np.nan)), within_ranks(np.where(good, y, np.nan)), tokens)
