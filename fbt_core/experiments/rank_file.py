"""A results file of ``python -m fbt_core ranks``, of anybody's: read in a child process and checked."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fbt_core.experiments.parquet_rows import Bounds, read_rows
from fbt_core.experiments.ranks import BLOCK, EMBEDDING, FINAL, NAMES, SINKS, TOKENS
from fbt_core.model.ablation import VARIANTS

TEXTS = ("model", "checkpoint", "variant", "where", "tokens", "sinks", "error")
NUMBERS = ("step", "layer", "count", *NAMES)
EXPECTED = "expected a results file of `python -m fbt_core ranks`"

BOUNDS = Bounds((*TEXTS, *NUMBERS), TEXTS, EXPECTED, bytes=32 << 20, rows=400_000, words=4096, letters=1000)
"""Two thousand checkpoints of thirty layers without ablations, or three hundred with them, come near the rows."""

MOST_LAYERS = 2000
KEY = ["checkpoint", "variant", "tokens", "sinks", "where", "layer"]


def read_rank_file(path: Path) -> pd.DataFrame:
    """The columns ``TEXTS`` and ``NUMBERS``; rows with an ``error`` have no values.

    Raises ``ValueError`` (got, expected) for what is no such file, for words that no row of ours has, for a layer that
    is not a whole number of at most 2,000, and for two rows of one residual.
    """
    frame = pd.DataFrame(read_rows(path, BOUNDS)[0])
    if missing := [name for name in BOUNDS.columns if name not in frame]:
        raise ValueError(f"got a file without the columns {', '.join(missing)}, {EXPECTED}")
    if frame.empty:
        raise ValueError(f"got a file without rows, {EXPECTED}")
    read = frame[frame["error"] == ""]
    known = {"variant": VARIANTS, "where": (EMBEDDING, BLOCK, FINAL), "tokens": TOKENS, "sinks": SINKS}
    for name, words in known.items():
        if odd := sorted(set(read[name]) - set(words)):
            raise ValueError(f"got {odd[0][:40]!r} in the column {name}, expected one of {', '.join(words)}")
    if not ((read["layer"] % 1 == 0) & read["layer"].between(0, MOST_LAYERS)).all():
        raise ValueError(f"got a layer that is not a whole number from 0 to {MOST_LAYERS}, {EXPECTED}")
    if read.duplicated(KEY).any():
        raise ValueError(f"got two rows of one residual, {EXPECTED}")
    return frame
