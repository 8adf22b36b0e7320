"""C14: how few columns of U are enough, by truncating them or from twins trained at several ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fbt_core.claims.altered import with_metric
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.table import FAILS, HOLDS, NOT_TESTABLE, Claim, Finding
from fbt_core.claims.truncation import energy, score_ranks, top, tried

THRESHOLD = 0.5
TOLERANCE = 0.01
"""Nats a token that may be lost: a perplexity higher by 1 %."""


def minimal(ranks: list[int], losses: list[float], best: float) -> int:
    """The smallest rank from which on, up to the largest, no loss is above ``best`` by more than ``TOLERANCE``."""
    enough = ranks[-1]
    for rank, loss in sorted(zip(ranks, losses, strict=True), reverse=True):
        if loss - best > TOLERANCE:
            break
        enough = rank
    return enough


def judged(evidence: Evidence) -> Finding:
    """By a sweep's twins where the results of one are given, else by truncating this checkpoint's U."""
    return truncated(evidence) if evidence.options.results is None else of_twins(evidence.options.results)


def truncated(evidence: Evidence) -> Finding:
    """What the loss of this checkpoint needs of U. Nothing is retrained."""
    model = evidence.learned
    rank = model.config.metric_rank
    if rank < 2:
        raise Unavailable(f"a metric of rank {rank} has no columns to leave out")
    ranks, base = tried(rank), evidence.base_losses
    lost = {rank: np.zeros_like(base)}
    for count in ranks[:-1]:
        lost[count] = evidence.losses(with_metric(model, lambda U, count=count: top(U, count))) - base
    means = [float(lost[count].mean()) for count in ranks]
    errors = [_error(lost[count]) for count in ranks]
    enough = minimal(ranks, means, 0.0)
    share = energy(evidence, -(-rank // 2))
    return Finding(
        *_verdict(enough, rank),
        _why(enough, rank, means[0], dict(zip(ranks, means, strict=True))),
        _would_change(enough, rank),
        grid=share,
        grid_title=f"share of tr K in the top {-(-rank // 2)} of {rank} directions",
        numbers=(
            ("smallest number of columns that loses at most 0.01 nats a token", float(enough), "columns"),
            *((f"loss added with the top {count} columns", mean, "nats a token")
              for count, mean in zip(ranks, means, strict=True)),
            ("mean share of tr K in the top half of the directions", float(np.nanmean(share)), ""),
        ),
        charts=(_curve(ranks, means, errors), score_ranks(evidence, ranks)),
        notes=(
            evidence.loss_note,
            "What-if: U cut to its top directions at every token, layer and head, nothing retrained. A twin trained at "
            "a lower rank may need fewer; give the results of a sweep over ranks for that.",
        ),
    )  # fmt: skip


def of_twins(results: Any) -> Finding:
    """From a frame, or rows, with a ``rank`` and a ``loss``; ``seed``, ``stage``, ``arm``, ``accuracy`` count if there.

    Raises ``Unavailable`` where they do not hold trained twins of at least two ranks.
    """
    rows = _trained(results)
    table = rows.groupby("rank")["loss"].agg(["mean", "sem", "count"]).sort_index()
    ranks, means = [int(rank) for rank in table.index], table["mean"].tolist()
    best = min(means)
    enough, rank = minimal(ranks, means, best), ranks[-1]
    numbers = [(f"loss above the best rank's, r = {r}", mean - best, "nats a token")
               for r, mean in zip(ranks, means, strict=True)]  # fmt: skip
    if "accuracy" in rows:
        numbers += [
            (f"accuracy, r = {r}", float(value), "") for r, value in rows.groupby("rank")["accuracy"].mean().items()
        ]
    errors = [float(value) for value in table["sem"].fillna(math.nan)]
    return Finding(
        HOLDS if enough / rank <= THRESHOLD else FAILS,
        enough / rank,
        f"Of twins trained at ranks {', '.join(map(str, ranks))} ({int(table['count'].min())} or more each) the "
        f"smallest within {TOLERANCE} nats of the best is r = {enough}.",
        _would_change(enough, rank),
        numbers=tuple(numbers),
        charts=(_curve(ranks, [mean - best for mean in means], errors, "loss above the best rank's (nats a token)"),),
        notes=("From the sweep's results; the checkpoint that is open plays no part.",),
    )


def _trained(results: Any) -> Any:
    """A frame of one row a twin."""
    import pandas as pd  # not before it is needed: most checks never do

    rows = pd.DataFrame(results)
    if missing := {"rank", "loss"} - set(rows.columns):
        raise Unavailable(f"the results have no column {' and no column '.join(sorted(missing))}")
    for column, kept in (("stage", "trained"), ("arm", "heterogeneous")):
        if column in rows and (rows[column] == kept).any():
            rows = rows[rows[column] == kept]
    rows = rows[np.isfinite(rows["loss"].astype(float)) & (rows["rank"] > 0)]
    if rows["rank"].nunique() < 2:
        raise Unavailable(f"the results hold trained twins of {rows['rank'].nunique()} rank, and two are the least")
    job = [column for column in ("rank", "seed", "strength", "unit", "tied", "transport") if column in rows]
    return rows.drop_duplicates([*job, "loss"])


def _verdict(enough: int, rank: int) -> tuple[str, float]:
    if enough == 0:
        return NOT_TESTABLE, math.nan
    return (HOLDS if enough / rank <= THRESHOLD else FAILS), enough / rank


def _why(enough: int, rank: int, without: float, lost: dict[int, float]) -> str:
    if enough == 0:
        return f"Without a metric the loss changes by {without:+.4f} nats a token: none is needed, so no rank is least."
    before = [count for count in lost if count < enough][-1]
    fewer = f", the top {before} {lost[before]:+.4f}" if before else ""
    return (f"Cut to its top {enough} of {rank} columns, U adds {lost[enough]:+.4f} nats a token{fewer}, and left out "
            f"{without:+.4f}.")  # fmt: skip


def _would_change(enough: int, rank: int) -> str:
    if enough == 0:
        return "A checkpoint or a text whose loss depends on the metric at all."
    if enough / rank <= THRESHOLD:
        return f"A loss that still falls by more than {TOLERANCE} nats beyond half of the columns."
    return f"A loss within {TOLERANCE} nats of the full one at half of the columns."


def _error(change: np.ndarray) -> float:
    return float(change.std(ddof=1) / math.sqrt(len(change))) if len(change) > 1 else math.nan


def _curve(ranks: list[int], means: list[float], errors: list[float], y: str = "loss added (nats a token)") -> Chart:
    x, mean, error = np.array(ranks, float), np.array(means), np.nan_to_num(np.array(errors))
    curve = Curve("mean and standard error over rows", x, mean, mean - error, mean + error)
    return Chart("Loss by rank", "columns of U kept, or rank r", y, (curve,),
                 (Mark("y", TOLERANCE, f"{TOLERANCE} nats"),))  # fmt: skip


CLAIM = Claim(
    id="C14",
    title="A small minimal rank is enough",
    statement="There is a rank r_min, small beside d, from which on a metric of higher rank gains nothing.",
    equation=r"r_{\min} = \min\{k : \mathcal L(U^{(k')}) - \mathcal L(U) \le 0.01\ \forall k' \ge k\}, \qquad "
    r"U^{(k)} = U V_k,\ K = U^\top U = V \Lambda V^\top",
    source="the paper, Conjecture 6.4",
    statistic="r_min / r: the smallest number of top directions of every U_t that loses at most 0.01 nats a token on "
    "held-out rows, over r; with a sweep's results, the smallest trained rank within 0.01 nats of the best over the "
    "largest. Holds at 0.5 or less; where no metric at all loses no more, there is nothing to test.",
    threshold=THRESHOLD,
    unit="of r",
    reason="A plateau is seen only where at least half of the ranks looked at lie on it; 0.01 nats is 1 % of "
    "perplexity.",
    says_paper="Conjectures that a minimal rank exists; no experiment.",
    function=judged,
)
