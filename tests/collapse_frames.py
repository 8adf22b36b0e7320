"""Rows of the collapse experiment with a known answer, made without running it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fbt_core.experiments.collapse import COLUMNS

CELL: dict[str, Any] = {
    "stage": "initial", "unit": "tau/L", "strength": 1.0, "tied": False, "transport": "none", "held": "layer",
    "length": 64, "width": 8, "rank": 4, "layers": 20,
}  # fmt: skip
ARMS = ("heterogeneous", "homogeneous", "matched", "matched_dot")


def frame(
    depth: Callable[[str, int, dict[str, Any]], float],
    cells: list[dict[str, Any]] | None = None,
    arms: tuple[str, ...] = ARMS,
    seeds: int = 10,
    rank: Callable[[str, int], float] = lambda arm, seed: 1.0,
) -> pd.DataFrame:
    """Runs whose residual first falls below 1e-3 at layer ``depth(arm, seed, cell)``, or never if that is beyond the
    last; ``rank`` is the effective rank at every layer. Ubar^2, tau and R are those of the cell, R^2 = 2 d."""
    rows = []
    for cell in [CELL | changes for changes in cells or [{}]]:
        tau = float(cell["width"])
        unit = tau / cell["length"] if cell["unit"] == "tau/L" else tau / (2 * cell["width"])
        for arm in arms:
            for seed in range(seeds):
                end = depth(arm, seed, cell)
                for layer in range(cell["layers"] + 1):
                    numbers = dict.fromkeys(COLUMNS, float("nan")) | {
                        "log10_residual": -3.01 * layer / end if end else -4.0, "effective_rank": rank(arm, seed),
                        "effective_rank_centred": 2.0, "entropy": 30.0 + 2 * layer, "mu": 0.5, "dobrushin": 0.1,
                    }  # fmt: skip
                    if layer:
                        numbers |= {
                            "tau": tau, "R": (2 * tau) ** 0.5, "norm_U_max": (cell["strength"] * unit) ** 0.5,
                            "M": 1.0, "self_attention": 0.02,
                        }  # fmt: skip
                    if cell["stage"] == "trained" and layer == cell["layers"]:
                        numbers |= {"accuracy": 0.5, "loss": 1.2, "chance": 0.0625}
                    rows.append({**cell, "arm": arm, "seed": seed, "layer": layer, "below_floor": False} | numbers)
    return pd.DataFrame(rows)


def decay(arm: str, tied: bool, exponent: float, seeds: int = 3, layers: int = 6, noise: float = 0.0) -> pd.DataFrame:
    """log10 residuals that obey l_{n+1} = exponent l_n + constant: the ratio of logs is biased, the rule's is not."""
    random, rows = np.random.default_rng(0), []
    for seed in range(seeds):
        log = -2.5
        for layer in range(layers):
            rows.append({"arm": arm, "tied": tied, "seed": seed, "layer": layer, "log10_residual": log})
            log = exponent * log + 0.7 + noise * random.normal()
    return pd.DataFrame(rows)
