"""Series by depth: a measure of the residual stream at every stage, with bands over tokens and heads or over texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app import answers
from app.figures.lines import Series
from app.request import Request
from fbt_core.experiments.intervals import bands
from fbt_core.measures import MEASURES, Reading
from fbt_core.training.grammar import sample_text

RESIDUAL = [name for name, row in MEASURES.items() if row.axes == ("layer",)]
"""Measures of the residual stream: one number a layer and stage."""

SPREAD = [
    name for name, row in MEASURES.items() if row.axes[0] == "layer" and "term" not in row.axes and len(row.axes) > 1
]
"""Measures with values for heads (and tokens): shown as a mean with a band."""

STAGES = {
    "out": "after each block",
    "in": "before each block",
    "mid": "after its attention",
    "every": "every stage",
}
"""Where the residual stream is read."""

RESAMPLES = 1000


def residual_reading(request: Request, name: str, stage: str, **options: str) -> Reading:
    """The measure at one stage, the entry after the final norm appended."""
    return answers.reading(request, name, stage=stage, final=True, **options)


def residual_values(request: Request, name: str, stage: str, **options: str) -> np.ndarray:
    """(n,) values in the order of ``places``: a layer each, or 2 layers + 1 for every stage, then the final norm."""
    if stage != "every":
        return residual_reading(request, name, stage, **options).values
    before = residual_reading(request, name, "in", **options).values[:-1]
    middle = residual_reading(request, name, "mid", **options).values[:-1]
    after = residual_reading(request, name, "out", **options).values
    return np.concatenate([np.stack([before, middle], 1).ravel(), after[-2:]])


def places(layers: int, stage: str, relative: bool) -> tuple[np.ndarray, tuple[str, ...], np.ndarray | None]:
    """x of every value, its name, and which stand inside a block. ``relative`` depth runs from 0 to 1."""
    if stage == "every":
        x = np.arange(2 * layers + 1) / 2
        names = [f"block {i // 2}, {'after attention' if i % 2 else 'in'}" for i in range(2 * layers)]
        names.append(f"block {layers - 1}, out")
        hollow = np.array([*(np.arange(2 * layers + 1) % 2 == 1), False])
        top = layers
    else:
        x = np.arange(layers, dtype=float)
        names = [f"layer {i}, {STAGES[stage]}" for i in range(layers)]
        hollow, top = None, layers - 1
    if relative:
        x = x / max(top, 1)
    step = (x[1] - x[0]) * (2 if stage == "every" else 1) if len(x) > 1 else 1.0
    step = max(step, (x[-1] - x[0]) / 10)  # so that its tick has room beside that of the last of many layers
    return np.append(x, x[-1] + step), (*names, "after the final norm"), hollow


def residual_series(
    request: Request, label: str, layers: int, name: str, stage: str, relative: bool, **options: str
) -> Series:
    """One checkpoint's line on the text."""
    x, names, hollow = places(layers, stage, relative)
    return Series(label, x, residual_values(request, name, stage, **options), final=True, hollow=hollow, names=names)


def spread_series(reading: Reading, label: str, relative: bool) -> Series:
    """The mean over heads (and tokens) of every layer, in a band from the 10th to the 90th percentile."""
    flat = reading.values.reshape(len(reading.values), -1)
    numbers = reading.labels["layer"]
    x = np.arange(len(flat), dtype=float)
    low, mean, high = (np.full(len(flat), np.nan) for _ in range(3))
    for layer, row in enumerate(flat):
        finite = row[np.isfinite(row)]
        if finite.size:
            low[layer], high[layer] = np.percentile(finite, [10, 90])
            mean[layer] = finite.mean()
    names = tuple(f"layer {number}, mean" for number in numbers)
    return Series(label, x / max(len(x) - 1, 1) if relative else x, mean, low, high, names=names)


def texts(count: int) -> list[str]:
    """Passages of the training grammar by seed 0, 1, ...: the same ones for every checkpoint."""
    return [sample_text(1000 + seed) for seed in range(count)]


def over_texts(request: Request, count: int, name: str, stage: str, **options: str) -> Iterator[np.ndarray]:
    """The values on each sampled passage in turn; the caller moves a progress bar, and may stop between two."""
    for text in texts(count):
        yield residual_values(replace(request, text=text), name, stage, **options)


def bootstrap(rows: np.ndarray) -> np.ndarray:
    """(mean, low, high): mean over texts (first axis) and its 95 % interval."""
    return bands(rows, RESAMPLES)
