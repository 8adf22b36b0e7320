"""T4: has the collapse depth a kink where the paper has its threshold, at Ubar^2 = tau / L?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from fbt_core.experiments.depths import mostly_censored
from fbt_core.experiments.intervals import LEVELS, resamples
from fbt_core.experiments.ruling import NOT_TESTABLE, Ruling

RULE = (
    "A kink of l* at Ubar^2 = tau/L is claimed only if its 95 % interval holds tau/L at two lengths L a factor 4 apart "
    "and excludes tau/R^2. The kink is the corner of the best fit of l* by two lines that meet, against log Ubar^2."
)

STRENGTHS = 5
"""Different ones that are needed at a length: two lines that meet have four parameters."""

SEEDS = 5
"""That must have all strengths: a bootstrap of fewer says little."""

FACTOR = 4
GRID = 161
"""Places at which a corner is tried, even in the logarithm."""

SAME = ("stage", "tied", "transport", "width", "rank", "held")
"""What two lengths that are compared have in common."""


def kink(depths: pd.DataFrame) -> Ruling:
    """T4 on the heterogeneous arm at initialisation."""
    title = "Is there a transition at Ubar² = τ/L?"
    chosen = depths[
        (depths["arm"] == "heterogeneous") & (depths["strength"] > 0) & (depths["transport"] == "none")
        & (depths["stage"] == "initial") & (depths["ubar_squared"] > 0)
    ]  # fmt: skip
    if "held" in chosen:  # with tied weights and its layer's own R, Ubar grows by depth: those have no one strength
        chosen = chosen[~(chosen["tied"] & (chosen["held"] == "layer") & (chosen["unit"] == "tau/R^2"))]
    keys = [name for name in SAME if name in chosen]
    rows = [_case(cell, group) for cell, group in _groups(chosen, [*keys, "length"])]
    if not rows:
        return Ruling("T4", title, RULE, NOT_TESTABLE, "There are no untrained runs of the heterogeneous arm.")
    table = pd.DataFrame(rows)
    pairs = [pair for _, group in table.groupby(keys, dropna=False, sort=False) for pair in _pairs(group)]
    if not pairs:
        least = f"{STRENGTHS} strengths at which most of at least {SEEDS} seeds collapse"
        why = f"No two lengths a factor {FACTOR} apart have {least}."
        return Ruling("T4", title, RULE, NOT_TESTABLE, why, table=table)
    claimed = [pair for pair in pairs if all(one["says"] == "yes" for one in pair)]
    verdict = "a kink at tau/L" if claimed else "no kink at tau/L"
    shown = (claimed or pairs)[0]
    told = "; ".join(
        f"L = {one['length']}: {one['kink']:.3g} [{one['low']:.3g}, {one['high']:.3g}] tau/L, where tau/R² is "
        f"{one['inverse_radius']:.3g}" for one in shown
    )  # fmt: skip
    why = f"{len(claimed)} of {len(pairs)} pairs of lengths meet the rule. {told}."
    return Ruling("T4", title, RULE, verdict, why, {"pairs": float(len(pairs)), "claimed": float(len(claimed))}, table)


def _groups(frame: pd.DataFrame, keys: list[str]) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    return [(dict(zip(keys, k, strict=True)), g) for k, g in frame.groupby(keys, dropna=False, sort=False)]


def _pairs(group: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Any two testable lengths at least a factor 4 apart."""
    rows = group[group["says"] != NOT_TESTABLE].sort_values("length").to_dict("records")
    return [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :] if b["length"] >= FACTOR * a["length"]]


def _case(cell: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    """One length: the corner in units of tau/L, its interval over seeds, and where tau/R^2 stands in that unit."""
    held = [one for _, one in group.groupby(["unit", "strength"], sort=False) if not mostly_censored(one)]
    case = cell | {"strengths": len(held), "kink": np.nan, "low": np.nan, "high": np.nan}
    if len(held) < STRENGTHS:
        return case | {"says": NOT_TESTABLE, "why": f"{len(held)} strengths at which most runs collapse"}
    kept = pd.concat(held)
    wide = kept.pivot_table(index="seed", columns=["unit", "strength"], values="depth").dropna()
    if len(wide) < SEEDS:
        return case | {"says": NOT_TESTABLE, "why": f"{len(wide)} seeds have all strengths"}
    scale = kept["tau"].median() / cell["length"]
    middle = kept.groupby(["unit", "strength"])["ubar_squared"].median().reindex(wide.columns)
    x = np.log10(middle.to_numpy(float) / scale)
    place, low, high = 10.0 ** corner(x, wide.to_numpy(float))
    radius = kept["tau"].median() / kept["R"].median() ** 2 / scale
    says = "yes" if low <= 1 <= high and not low <= radius <= high else "no"
    return case | {
        "seeds": len(wide), "kink": place, "low": low, "high": high, "inverse_radius": radius, "says": says, "why": "",
    }  # fmt: skip


def corner(x: Float[np.ndarray, " strength"], depths: Float[np.ndarray, "seed strength"]) -> Float[np.ndarray, " 3"]:
    """Where the two lines of the best fit of the mean depth meet, and the 95 % interval of that over seeds.

    Least squares over corners on a grid that leaves at least two strengths on either side.
    """
    ordered = np.sort(x)
    places = np.linspace(ordered[1], ordered[-2], GRID)
    means = np.concatenate([depths.mean(0)[None], depths[resamples(len(depths))].mean(1)])
    errors = np.stack([_error(x, means, place) for place in places])
    found = places[errors.argmin(0)]
    low, high = np.percentile(found[1:], LEVELS)
    half = (places[1] - places[0]) / 2  # a corner is known no better than the grid
    return np.array([found[0], low - half, high + half])


def _error(x: np.ndarray, y: np.ndarray, place: float) -> Float[np.ndarray, " fit"]:
    """Squared error of the best two lines that meet at ``place``, for each row of ``y``."""
    basis = np.stack([np.ones_like(x), x, np.maximum(x - place, 0)], 1)
    q, _ = np.linalg.qr(basis)
    return ((y - y @ q @ q.T) ** 2).sum(1)
