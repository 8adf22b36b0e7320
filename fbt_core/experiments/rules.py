"""The rules T1 to T4, fixed before the experiment was run: what its rows say, and no taste.

``judge`` applies them. Each is a file of its own: ``rule_exponent`` (T1), ``rule_depth`` (T2, T3), ``rule_kink`` (T4).
"""

from __future__ import annotations

import pandas as pd

from fbt_core.experiments.depths import collapse_depths
from fbt_core.experiments.rule_depth import collapse_depth, conjecture
from fbt_core.experiments.rule_exponent import exponent
from fbt_core.experiments.rule_kink import kink
from fbt_core.experiments.ruling import Ruling

NEEDED = ("arm", "seed", "layer", "stage", "unit", "strength", "tied", "transport", "length", "width", "layers",
    "log10_residual", "effective_rank", "norm_U_max", "tau", "R")  # fmt: skip
"""Columns without which the rules cannot be applied."""


def judge(frame: pd.DataFrame, exponents: pd.DataFrame | None = None) -> tuple[Ruling, ...]:
    """T1 to T4 on the rows of a sweep, and on those of the exponents, if there are any.

    Raises ``ValueError`` where a column is missing.
    """
    if missing := [name for name in NEEDED if name not in frame.columns]:
        raise ValueError(f"got rows without {', '.join(missing)}, expected those of the collapse experiment")
    depths = collapse_depths(frame)
    return exponent(exponents), collapse_depth(depths), conjecture(frame, depths), kink(depths)
