"""T2 and T3: how deep does a stack go before it collapses, and do heterogeneous metrics go deeper?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fbt_core.experiments.depths import cell_columns, depth_table, mostly_censored
from fbt_core.experiments.intervals import interval, resamples
from fbt_core.experiments.ruling import NOT_TESTABLE, Ruling, title_of, words

HETEROGENEOUS = "heterogeneous"
MATCHED = ("matched", "matched_dot")
"""The entropy-matched arms; where both were run, both must be beaten."""

CONTROLS = ("homogeneous", *MATCHED, "identity", "free")
"""Arms without a metric that differs between tokens: the best of them is the control of the trained effective rank."""

LAYERS, SEEDS, TIMES = 2.0, 10, 1.5
"""By how many layers, over how many seeds, and by what factor of effective rank the heterogeneous arm must win."""

DEPTH_RULE = "The collapse depth l* is the first layer whose Dong residual is below 1e-3."

RULE = (
    "The conjecture is supported only if the heterogeneous arm beats both the homogeneous and the entropy-matched arm "
    "in l* by at least 2 layers with disjoint bootstrap 95 % intervals over at least 10 seeds, or its trained "
    "effective rank at the last layer is more than 1.5 times the best control's."
)


def collapse_depth(depths: pd.DataFrame) -> Ruling:
    """T2: a measurement, with intervals."""
    table = depth_table(depths)
    title = "At what depth do the stacks collapse?"
    if table.empty:
        return Ruling("T2", title, DEPTH_RULE, NOT_TESTABLE, "There are no runs.")
    runs, open_ = len(depths), int(depths["censored"].sum())
    held = depths.loc[~depths["censored"], "depth"]
    range_ = f"between layers {held.min():g} and {held.max():g}" if len(held) else "at no layer"
    why = f"{runs - open_} of {runs} runs collapse, {range_}; {open_} are not collapsed at their last layer."
    numbers = {"runs": float(runs), "not collapsed": float(open_)}
    return Ruling("T2", title, DEPTH_RULE, "measured", why, numbers, table)


def conjecture(frame: pd.DataFrame, depths: pd.DataFrame) -> Ruling:
    """T3. One case that meets the rule supports the conjecture.

    It is not supported only when both ways of supporting it were open and none was taken: at least one cell whose
    depths could be compared, at least one whose trained ranks could be. Judged without transport; strength 0 is no
    metric.
    """
    title = "Do heterogeneous metrics prevent rank collapse?"
    main = (frame["transport"] == "none") & (frame["strength"] > 0)
    deep = (depths["transport"] == "none") & (depths["strength"] > 0)
    table = pd.DataFrame(_depth_cases(depths[deep]) + _rank_cases(frame[main & (frame["stage"] == "trained")]))
    if table.empty:
        return Ruling("T3", title, RULE, NOT_TESTABLE, "There are no runs with a metric and without transport.")
    counts = {(by, says): int(((table["by"] == by) & (table["says"] == says)).sum()) for by in BY for says in SAYS}
    if any(counts[by, "yes"] for by in BY):
        verdict = "supported"
    elif all(counts[by, "no"] for by in BY):
        verdict = "not supported"
    else:
        verdict = NOT_TESTABLE
    told = [_told(table, by, counts) for by in BY]
    numbers = {f"{by}: {says}": float(counts[by, says]) for by in BY for says in SAYS}
    return Ruling("T3", title, RULE, verdict, " ".join(told), numbers, table)


BY = ("collapse depth", "trained effective rank")
SAYS = ("yes", "no", NOT_TESTABLE)


def _told(table: pd.DataFrame, by: str, counts: dict[tuple[str, str], int]) -> str:
    """One half of the rule in a sentence, with its best case."""
    cases = table[table["by"] == by]
    decided = cases[cases["says"] != NOT_TESTABLE]
    if decided.empty:
        reason = f": {cases['why'].iloc[0]}" if len(cases) else " was run"
        return f"By {by}, no cell can be tested{reason}." if len(cases) else f"By {by}, no cell{reason}."
    best = decided.loc[decided["advantage"].idxmax()]
    amount = f"{best['advantage']:+.2f} layers" if by == BY[0] else f"{best['advantage']:.2f} times"
    half = decided[decided["half"] & (decided["says"] == "no")] if by == BY[0] else decided.iloc[:0]
    only = f" In {len(half)} it beats the entropy-matched arms and not the homogeneous one." if len(half) else ""
    return (
        f"By {by}, {counts[by, 'yes']} of {len(decided)} cells meet the rule ({counts[by, NOT_TESTABLE]} more cannot "
        f"be tested); the best is {amount} the best control, {title_of(best['control'])} ({best['cell']}).{only}"
    )


def _cells(frame: pd.DataFrame, columns: list[str]) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    groups = frame.groupby(columns, dropna=False, sort=False)
    return [(dict(zip(columns, key, strict=True)), group) for key, group in groups]


def _depth_cases(depths: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [name for name in cell_columns(depths) if name not in ("depth", "censored", "ubar_squared")]
    return [_depth_case(cell, group) for cell, group in _cells(depths, columns)]


def _depth_case(cell: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    """One cell: the heterogeneous arm against each arm that it must beat, on the seeds that all of them have."""
    case = {"by": BY[0], "cell": words(cell)} | cell
    names = set(group["arm"])
    if not {HETEROGENEOUS, "homogeneous"} <= names or not names & set(MATCHED):
        return _untested(case, "it lacks the heterogeneous, the homogeneous or an entropy-matched arm")
    rivals = [name for name in ("homogeneous", *MATCHED) if name in names]
    wide = (
        group[group["arm"].isin([HETEROGENEOUS, *rivals])].pivot(index="seed", columns="arm", values="depth").dropna()
    )
    if len(wide) < SEEDS:
        return _untested(case, f"{len(wide)} seeds have all arms, of which {SEEDS} are needed") | {"seeds": len(wide)}
    own = interval(wide[HETEROGENEOUS].to_numpy(float))
    compared = {name: interval(wide[name].to_numpy(float)) for name in rivals}
    control = max(compared, key=lambda name: compared[name][0])
    won = {name: own[0] - other[0] >= LAYERS and own[1] > other[2] for name, other in compared.items()}
    case |= {
        "seeds": len(wide), "own": own[0], "own_low": own[1], "own_high": own[2], "control": control,
        "best": compared[control][0], "best_low": compared[control][1], "best_high": compared[control][2],
        "advantage": own[0] - compared[control][0], "half": all(won[name] for name in rivals if name in MATCHED),
    }  # fmt: skip
    if all(won.values()):
        return case | {"says": "yes", "why": ""}
    if mostly_censored(group[group["arm"] == HETEROGENEOUS]):
        why = "most of its runs do not collapse within the layers that were run: how much deeper it goes is not known"
        return case | {"says": NOT_TESTABLE, "why": why}
    return case | {"says": "no", "why": ""}


def _rank_cases(trained: pd.DataFrame) -> list[dict[str, Any]]:
    last = trained[trained["layer"] == trained["layers"]]
    return [_rank_case(cell, group) for cell, group in _cells(last, cell_columns(last))] if len(last) else []


def _rank_case(cell: dict[str, Any], group: pd.DataFrame) -> dict[str, Any]:
    """One trained cell: effective rank at the last layer, mean over seeds, as a multiple of the best control's."""
    case = {"by": BY[1], "cell": words(cell)} | cell
    wide = group.pivot(index="seed", columns="arm", values="effective_rank")
    controls = [name for name in CONTROLS if name in wide]
    if HETEROGENEOUS not in wide or "homogeneous" not in controls or not set(controls) & set(MATCHED):
        return _untested(case, "it lacks the heterogeneous, the homogeneous or an entropy-matched arm")
    wide = wide[[HETEROGENEOUS, *controls]].dropna()
    if wide.empty:
        return _untested(case, "no seed has all arms")
    values = wide.to_numpy(float)
    drawn = values[resamples(len(values))].mean(1)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1:].max(1), (2.5, 97.5))
    means = wide.mean()
    control = str(means[controls].idxmax())
    advantage = float(means[HETEROGENEOUS] / means[control])
    says, why = "yes" if advantage > TIMES else "no", ""
    if says == "no" and TIMES * means[control] >= cell["width"]:
        says, why = NOT_TESTABLE, f"no rank is {TIMES} times the best control's: the width is {cell['width']}"
    return case | {
        "seeds": len(wide), "own": float(means[HETEROGENEOUS]), "control": control, "best": float(means[control]),
        "advantage": advantage, "advantage_low": float(low), "advantage_high": float(high),
        "says": says, "why": why,
    }  # fmt: skip


def _untested(case: dict[str, Any], why: str) -> dict[str, Any]:
    return case | {"says": NOT_TESTABLE, "why": why, "advantage": np.nan, "control": "", "half": False}
