"""C2: g^{-1} x and log det g at low rank (Woodbury, the determinant lemma) are those of the dense metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence
from fbt_core.claims.heads import Head
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.geometry.metric import LowRankMetric

EPS = float(torch.finfo(torch.float64).eps)

WORST = 10.0
"""In units of d ε cond(g). A backward stable solve loses a small multiple of it; a wrong formula, millions."""


@dataclass(frozen=True)
class Errors:
    """One head's largest errors over its tokens, relative to the dense result."""

    solve: float
    logdet: float
    unit: float  # d eps max cond(g)
    single: float  # of the solve in float32, the arithmetic that models run in

    @property
    def worst(self) -> float:
        """The larger of the two, in units of d ε cond(g)."""
        return max(self.solve, self.logdet) / self.unit


def errors(head: Head) -> Errors:
    """Against LU of the dense metric and the sum of logs of its eigenvalues, on the head's own keys and queries."""
    f = head.factors
    dense = f.metric.dense()
    values = torch.linalg.eigvalsh(dense)
    vectors = (f.q, f.k)
    expected = [torch.linalg.solve(dense, x.unsqueeze(-1)).squeeze(-1) for x in vectors]
    solved = max(_relative(f.metric.solve(x), y) for x, y in zip(vectors, expected, strict=True))
    exact = values.log().sum(-1)
    logdet = float(((f.metric.logdet() - exact).abs() / exact.abs().clamp_min(1)).max())
    single = LowRankMetric(f.U.float())
    rough = max(_relative(single.solve(x.float()).double(), y) for x, y in zip(vectors, expected, strict=True))
    condition = float((values[..., -1] / values[..., 0]).max())
    return Errors(solved, logdet, f.q.shape[-1] * EPS * condition, rough)


def _relative(found: Tensor, expected: Float64[Tensor, "head token dim"]) -> float:
    """The largest ||found - expected|| / ||expected|| over tokens."""
    size = expected.norm(dim=-1)
    return float(((found - expected).norm(dim=-1) / size.where(size > 0, 1.0)).max())


def check(evidence: Evidence) -> Finding:
    found = {(head.place, head.head): errors(head) for head in evidence.metric_heads}
    grid = {place: one.worst for place, one in found.items()}
    statistic, parts = max(grid.values()), list(found.values())
    solve, logdet, single = (max(getattr(one, name) for one in parts) for name in ("solve", "logdet", "single"))
    pairs = evidence.trace.length * len(found)
    return Finding(
        HOLDS if statistic <= WORST else FAILS,
        statistic,
        f"Over {pairs:,} metrics the largest relative error is {solve:.1e} in g⁻¹x and {logdet:.1e} in log det g, "
        f"at most {statistic:.2g} times d ε cond(g).",
        f"An error above {WORST:g} d ε cond(g), that is above {WORST * max(one.unit for one in parts):.1e} here.",
        evidence.grid(grid),
        "largest error, in units of d ε cond(g)",
        (
            ("largest relative error of g⁻¹x", solve, ""),
            ("largest relative error of log det g", logdet, "of max(1, log det g)"),
            ("largest relative error of g⁻¹x in float32", single, ""),
            ("largest condition number of "
             "g", max(one.unit for one in parts) / EPS / evidence.heads[0].factors.q.shape[-1],
             ""),
        ),
        (_chart(parts),),
        ("Dense: LU of I + UUᵀ, and the logarithms of its eigenvalues. The vectors are the head's own q and k.",),
    )  # fmt: skip


def _chart(parts: list[Errors]) -> Chart:
    place = np.arange(len(parts), dtype=float)
    lines = [
        Curve(name, place, np.maximum([getattr(one, key) for one in parts], EPS / 100), style="points")
        for name, key in (("solve", "solve"), ("log det", "logdet"), ("solve in float32", "single"))
    ]
    return Chart(
        "Low rank against dense", "head, layers one after another", "largest relative error", tuple(lines),
        (Mark("y", WORST * max(one.unit for one in parts), "bound: 10 d ε cond(g)"),), log_y=True,
        note="float64, where not said otherwise",
    )  # fmt: skip


CLAIM = Claim(
    "C2",
    "Woodbury and the determinant lemma are exact",
    "The metric of width d is inverted, and its volume found, by matrices of its rank r alone.",
    r"(I_d + UU^\top)^{-1} x = x - U (I_r + U^\top U)^{-1} U^\top x, \qquad "
    r"\ln\det(I_d + UU^\top) = \ln\det(I_r + U^\top U)",
    "Woodbury 1950 and Sylvester's determinant identity; docs/mathematics.md, item 8",
    "the largest relative error over heads and tokens, in units of d ε cond(g); holds if it is at most 10",
    WORST,
    "d ε cond(g)",
    "no method does better than a small multiple of it in float64, and a wrong formula is off by far more",
    "Exact, at a cost of O(d r + r^3).",
    check,
)
