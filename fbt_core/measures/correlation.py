"""Do two quantities put things in the same order? Spearman's rho, and how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

RESAMPLES = 1000

LEVEL = 95
"""Percent of the resampled rho that the interval holds."""

MOST_NUMBERS = 1 << 22
"""In an array of resamples times pairs: 32 MB."""

STEADY = 1e-12
"""Values whose range is below this share of their size differ by rounding: they have no order."""


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho in [-1, 1] of ``n`` pairs in ``groups`` independent groups, and its bootstrap interval.

    rho is nan where there is no order to compare, low and high where they cannot be told: ``reason`` says why.
    """

    rho: float
    low: float
    high: float
    n: int
    groups: int
    reason: str = ""


def spearman(x: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None, seed: int = 0) -> Correlation:
    """Spearman's rho between x and y, of any one shape, tied values given their mean rank; nan pairs are left out.

    The interval is that of percentiles over ``RESAMPLES`` bootstrap resamples. ``groups``, of the same shape, says
    which pairs hang together, such as those of one token in every layer: whole groups are then drawn, since drawing
    pairs would make the interval too narrow. Deterministic. Cost O(RESAMPLES n).
    Raises ``ValueError`` for unequal shapes.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    groups = np.arange(x.size).reshape(x.shape) if groups is None else np.asarray(groups)
    if not x.shape == y.shape == groups.shape:
        raise ValueError(f"got shapes {x.shape}, {y.shape} and groups {groups.shape}, expected one shape")
    good = np.isfinite(x) & np.isfinite(y)
    x, y = x[good], y[good]
    names, members = np.unique(groups[good], return_inverse=True)
    n, count, nan = len(x), len(names), float("nan")
    if why := _unordered(x, y):
        return Correlation(nan, nan, nan, n, count, why)
    rho = float(_rho(x, y, np.ones((1, n)))[0])
    if count < 3:
        return Correlation(
            rho, nan, nan, n, count, f"an interval needs at least 3 independent groups, there are {count}"
        )
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    parts = np.array_split(drawn, -(-RESAMPLES * n // MOST_NUMBERS))
    resampled = np.concatenate([_rho(x, y, times[:, members].astype(np.float64)) for times in parts])
    edge = (100 - LEVEL) / 2
    low, high = np.nanpercentile(resampled, [edge, 100 - edge])  # nan: a resample in which all are equal
    return Correlation(rho, float(low), float(high), n, count)


def within_ranks(values: np.ndarray) -> np.ndarray:
    """Each value's mean rank among the finite ones of its last axis, from -1 to 1: what is left of an order when rows,
    such as heads, are no longer told apart by their size. nan stays nan; a row of equal values gives 0."""
    flat = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
    found = np.full(flat.shape, np.nan)
    for row, ranked in zip(flat, found, strict=True):
        good = np.isfinite(row)
        ranked[good] = 2 * _centred_ranks(row[good], np.ones((1, good.sum())))[0] / max(good.sum() - 1, 1)
    return found.reshape(values.shape)


def _unordered(x: np.ndarray, y: np.ndarray) -> str:
    """Why there is no order to compare; empty where there is."""
    if len(x) < 3:
        return f"an order needs at least 3 pairs, there are {len(x)}"
    flat = [name for name, values in (("first", x), ("second", y)) if np.ptp(values) <= STEADY * np.abs(values).max()]
    return f"the {' and the '.join(flat)} quantity is the same everywhere" if flat else ""


def _rho(
    x: Float64[np.ndarray, " pair"], y: Float64[np.ndarray, " pair"], times: Float64[np.ndarray, "resample pair"]
) -> Float64[np.ndarray, " resample"]:
    """Rho of each resample, in which pair p stands ``times[:, p]`` times; nan where all are equal."""
    a, b = _centred_ranks(x, times), _centred_ranks(y, times)
    spread = np.sqrt((times * a * a).sum(1) * (times * b * b).sum(1))
    together = (times * a * b).sum(1)
    return np.where(spread > 0, np.clip(together / np.where(spread > 0, spread, 1.0), -1, 1), np.nan)


def _centred_ranks(
    values: Float64[np.ndarray, " pair"], times: Float64[np.ndarray, "resample pair"]
) -> Float64[np.ndarray, "resample pair"]:
    """Mean rank of each value in its resample, minus the mean of all ranks. Values are sorted once for all of them."""
    if not values.size:
        return times
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(times[:, order], axis=1)[:, np.cumsum(sizes) - 1]  # of each distinct value, how many stand there
    before = np.concatenate([np.zeros((len(times), 1)), up_to[:, :-1]], axis=1)
    ranks = (before + up_to + 1) / 2
    return ranks[:, places] - (times.sum(1, keepdims=True) + 1) / 2
