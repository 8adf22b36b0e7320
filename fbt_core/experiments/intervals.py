"""Bootstrap intervals over seeds: percentiles of a statistic over resamples, drawn from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 2000
LEVELS = (2.5, 97.5)
"""Percentiles of a 95 % interval."""


def resamples(count: int, times: int = RESAMPLES) -> Int[np.ndarray, "resample count"]:
    """Which of ``count`` seeds each resample holds: the same for every statistic, so that differences are paired."""
    return np.random.default_rng(0).integers(count, size=(times, count))


def interval(
    values: Float[np.ndarray, " seed"], statistic: Callable[..., np.ndarray] = np.mean
) -> tuple[float, float, float]:
    """The statistic of the values and its 95 % interval; NaN three times for none.

    ``statistic`` takes an axis, as ``np.mean`` and ``np.median`` do. One value gives an interval of no width.
    """
    if not len(values):
        return (np.nan,) * 3
    low, high = np.percentile(statistic(values[resamples(len(values))], axis=1), LEVELS)
    return float(statistic(values, axis=0)), float(low), float(high)


def bands(values: Float[np.ndarray, "seed point"], times: int = RESAMPLES) -> Float[np.ndarray, "3 point"]:
    """Mean over seeds and its 95 % interval at every point, NaN where any seed's value is NaN."""
    low, high = np.percentile(values[resamples(len(values), times)].mean(1), LEVELS, axis=0)
    return np.stack([values.mean(0), low, high])
