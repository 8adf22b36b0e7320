"""T1: is the collapse doubly exponential?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fbt_core.experiments.arms import ARMS
from fbt_core.experiments.intervals import interval
from fbt_core.experiments.ruling import NOT_TESTABLE, Ruling

BASIN = -2.0
"""log10 of the residual below which exponents are read."""

CONTENT, POSITIONAL = (2.7, 3.3), (1.8, 2.3)
"""Where the median must lie; Theorem A's exponents are 3 and 2."""

RULE = (
    "With l the log residual, the exponent is (l_{n+2} − l_{n+1}) / (l_{n+1} − l_n), from residuals below 1e-2 in high "
    "precision. An arm collapses doubly exponentially if the median lies in [2.7, 3.3] (content scores) or [1.8, 2.3] "
    "(positional metric, untied)."
)

COLUMNS = ("arm", "tied", "seeds", "exponents", "median", "low", "high", "from", "to", "says")


def exponent(exponents: pd.DataFrame | None) -> Ruling:
    """T1 on rows with arm, tied, seed, layer and log10_residual."""
    title = "Is the collapse doubly exponential?"
    if exponents is None or exponents.empty:
        return Ruling("T1", title, RULE, NOT_TESTABLE, "There are no residuals in high precision.")
    table = exponent_table(exponents)
    judged = table[table["says"].isin(["yes", "no"])]
    if judged.empty:
        why = "No run has three layers in a row whose first residual is below 1e-2."
        return Ruling("T1", title, RULE, NOT_TESTABLE, why, table=table)
    yes = int((judged["says"] == "yes").sum())
    verdict = {len(judged): "doubly exponential", 0: "not doubly exponential"}.get(yes, "some arms only")
    told = "; ".join(
        f"{kind} {group['median'].min():.3f} to {group['median'].max():.3f}"
        for kind, group in judged.groupby(
            judged["from"].map({CONTENT[0]: "content", POSITIONAL[0]: "positional, untied"})
        )
    )
    numbers = {"arms": float(len(judged)), "doubly exponential": float(yes)}
    return Ruling(
        "T1",
        title,
        RULE,
        verdict,
        f"{yes} of {len(judged)} cases (arm, tied or not). Median exponents: {told}.",
        numbers,
        table,
    )


def exponent_table(exponents: pd.DataFrame) -> pd.DataFrame:
    """One row an arm, tied or not: the median exponent, its interval over seeds, its band, and what that says."""
    rows = []
    for key, group in exponents.groupby(["arm", "tied"], sort=False):
        arm, tied = str(key[0]), bool(key[1])
        seeds = [triples(run) for _, run in group.groupby(["seed"])]
        pooled, low, high = _median(seeds)
        band = expected(arm, tied)
        says = "no exponent" if np.isnan(pooled) else "no band was fixed" if band is None else None
        if says is None and band is not None:
            says = "yes" if band[0] <= pooled <= band[1] else "no"
        ends = band or (np.nan, np.nan)
        count = sum(map(len, seeds))
        rows.append((arm, tied, len(seeds), count, pooled, low, high, *ends, says))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def triples(run: pd.DataFrame) -> np.ndarray:
    """The exponents of one run, from every three layers in a row of which the first has a residual below 1e-2."""
    ordered = run.sort_values("layer")
    layers, logs = ordered["layer"].to_numpy(), ordered["log10_residual"].to_numpy(float)
    steps, next_to = np.diff(logs), np.diff(layers) == 1
    good = (logs[:-2] < BASIN) & next_to[:-1] & next_to[1:] & np.isfinite(logs[2:]) & (steps[:-1] != 0)
    return steps[1:][good] / steps[:-1][good]


def expected(arm: str, tied: bool) -> tuple[float, float] | None:
    """The band of an arm; None where none was fixed before: a positional metric with tied weights, shuffled metrics."""
    metric = ARMS[arm].metric if arm in ARMS else "content"
    if metric == "position":
        return None if tied else POSITIONAL
    return None if metric == "shuffled" else CONTENT


def _median(seeds: list[np.ndarray]) -> tuple[float, float, float]:
    """Of all exponents together; the interval is that of the median of the seeds' own medians."""
    held = [one for one in seeds if len(one)]
    if not held:
        return (np.nan,) * 3
    _, low, high = interval(np.array([np.median(one) for one in held]), np.median)
    return float(np.median(np.concatenate(held))), low, high
