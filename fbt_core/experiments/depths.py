"""Collapse depth: the first layer whose residual is below 1e-3, by arm and cell of the experiment."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fbt_core.experiments.collapse import COLUMNS
from fbt_core.experiments.intervals import interval

COLLAPSED = -3.0
"""log10 of the Dong residual below which a stack counts as collapsed (rule T2)."""

NOT_PARAMETERS = ("arm", "seed", "layer", "below_floor", *COLUMNS)


def cell_columns(frame: pd.DataFrame) -> list[str]:
    """The parameters that say which cell of the experiment a row is of: all but arm and seed."""
    return [name for name in frame.columns if name not in NOT_PARAMETERS]


def collapse_depths(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a run (cell, arm, seed): ``depth``, ``censored``, and Ubar^2, tau and R of its first layer.

    ``depth`` is the first layer with a Dong residual below 1e-3, layers counted from 1 (the input is 0). A run that
    never comes below it is ``censored``: its depth is then the number of layers + 1, which is a lower bound.
    """
    keys = [*cell_columns(frame), "arm", "seed"]
    run = frame.groupby(keys, dropna=False, sort=False).ngroup()  # a number: keys may be NaN, as steps of the untrained
    last = frame["layer"].groupby(run).max()
    found = frame.loc[frame["log10_residual"] < COLLAPSED, "layer"].groupby(run).min().reindex(last.index)
    table = frame.loc[~run.duplicated(), keys].set_index(last.index)
    table["depth"], table["censored"] = found.fillna(last + 1).astype(float), found.isna()
    first = frame.loc[frame["layer"] == 1].set_index(run[frame["layer"] == 1])
    for name, values in (("ubar_squared", first["norm_U_max"] ** 2), ("tau", first["tau"]), ("R", first["R"])):
        table[name] = values.astype(float).reindex(last.index)
    return table.reset_index(drop=True)


def depth_table(depths: pd.DataFrame) -> pd.DataFrame:
    """Mean collapse depth and its bootstrap interval by cell and arm, with the seeds and how many are censored."""
    keys = [*(name for name in depths.columns if name not in RUN), "arm"]
    rows = []
    for key, group in depths.groupby(keys, dropna=False, sort=False):
        mean, low, high = interval(group["depth"].to_numpy(float))
        counts = {"seeds": len(group), "censored": int(group["censored"].sum())}
        rows.append(dict(zip(keys, key, strict=True)) | {"depth": mean, "low": low, "high": high} | counts)
    return pd.DataFrame(rows, columns=[*keys, "depth", "low", "high", "seeds", "censored"])


RUN = ("arm", "seed", "depth", "censored", "ubar_squared", "tau", "R")


def mostly_censored(group: pd.DataFrame) -> bool:
    """Whether at least half of the runs never collapsed: their mean depth is a lower bound and little more."""
    return bool(np.mean(group["censored"]) >= 0.5)
