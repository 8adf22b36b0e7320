"""C3: the chain of bounds from the metric's strength to the spectrum of attention, link by link, and its tightness."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from fbt_core.attention.decompose import row_centred
from fbt_core.attention.scores import Factors, attention
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence
from fbt_core.claims.heads import Head
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding

SLACK = 1e-9
"""Relative rounding that a link may show: singular values of a map are right to 1e-15 of 1, and none here is below it
by much where it matters."""

HUGE = float(np.finfo(np.float64).max)
"""The ratio of something to nothing, as a number."""

LINKS = ("max_k |s_k(A_R) − s_k(A_E)|", "‖A_R − A_E‖₂", "½ ‖Δ − row mean‖_F", "L Ū² R² / 2τ")


@dataclass(frozen=True)
class Chain:
    """The four numbers of one head, each at most the next."""

    values: tuple[float, float, float, float]
    tokens: int

    @property
    def worst(self) -> float:
        """The largest ratio of a number to the next; 0 where both are 0 or rounding."""
        floor = 1e-13 * math.sqrt(self.tokens)
        pairs = zip(self.values, self.values[1:], strict=False)
        return max(0.0 if left <= floor else left / right if right > 0 else HUGE for left, right in pairs)

    @property
    def vacuous(self) -> bool:
        """Whether the bound is above √L, which no singular value of a row-stochastic matrix exceeds."""
        return self.values[-1] >= math.sqrt(self.tokens)


def plain(f: Factors) -> Factors:
    """The same q, k and tau with every metric the identity, and the same Omega."""
    return replace(f, metric=f.metric.scaled(0.0), images=None)


def chain(head: Head) -> Chain:
    """Of attention by the Riemannian score and by the one of g = I, both with Omega, under the head's mask."""
    f = head.factors
    with_metric, without = attention(f, "riemannian")[0], attention(plain(f), "riemannian")[0]
    delta = head.score("riemannian") - replace(head, factors=plain(f)).score("riemannian")
    moved = row_centred(delta[None], head.seen)[0]
    first = (torch.linalg.svdvals(with_metric) - torch.linalg.svdvals(without)).abs().max()
    second = torch.linalg.matrix_norm(with_metric - without, ord=2)
    return Chain((float(first), float(second), float(moved.norm() / 2), bound(head)), len(delta))


def bound(head: Head) -> float:
    """L Ubar^2 R^2 / (2 tau): Ubar the largest spectral norm of a U, R the largest distance of a query and key."""
    f = head.factors
    strength = float(torch.linalg.matrix_norm(f.U[0], ord=2).max())
    reach = float(torch.cdist(f.q[0], f.k[0]).masked_fill(~head.seen, 0.0).max())
    return f.q.shape[-2] * strength**2 * reach**2 / (2 * float(f.tau[0]))


def check(evidence: Evidence) -> Finding:
    found = {(head.place, head.head): chain(head) for head in evidence.metric_heads}
    grid = {place: one.worst for place, one in found.items()}
    statistic, chains = max(grid.values()), list(found.values())
    steps = np.array([one.values for one in chains])
    tight = np.median(steps[:, :-1] / np.where(steps[:, 1:] > 0, steps[:, 1:], 1.0), 0)
    whole = float(np.median(steps[:, 0] / np.where(steps[:, 3] > 0, steps[:, 3], 1.0)))
    vacuous, tokens = sum(one.vacuous for one in chains), chains[0].tokens
    return Finding(
        HOLDS if statistic <= 1 + SLACK else FAILS,
        statistic,
        f"Every link holds in {sum(one.worst <= 1 + SLACK for one in chains)} of {len(chains)} heads; the spectrum "
        f"moves by {np.median(steps[:, 0]):.2g} where the bound allows {np.median(steps[:, 3]):.2g} (medians), and the "
        f"bound says nothing, being above √L = {math.sqrt(tokens):.3g}, in {vacuous} heads.",
        "One head in which a number of the chain is above the next by more than rounding.",
        evidence.grid({place: one.values[0] / one.values[3] if one.values[3] else 0.0 for place, one in found.items()}),
        "tightness of the whole chain, first number over last",
        (
            *((f"tightness of link {n}, median", float(value), "") for n, value in enumerate(tight, 1)),
            ("tightness of the whole chain, median", whole, ""),
            *((f"{name}, median", float(value), "") for name, value in zip(LINKS, np.median(steps, 0), strict=True)),
            ("heads in which the bound is above √L", float(vacuous), "heads"),
        ),
        (_chart(steps, tokens),),
        ("A_R and A_E have the same q, k, τ, mask and Ω; they differ by the metric alone.",
         "The last number can be halved: the row-centred Δ lies within an interval (Popoviciu's inequality)."),
    )  # fmt: skip


def _chart(steps: np.ndarray, tokens: int) -> Chart:
    place = np.arange(len(steps), dtype=float)
    floor = np.finfo(np.float64).eps / 100
    lines = tuple(Curve(name, place, np.maximum(steps[:, n], floor), style="points") for n, name in enumerate(LINKS))
    return Chart(
        "The chain of bounds", "head, layers one after another", "value, each at most the next", lines,
        (Mark("y", math.sqrt(tokens), "√L: no singular value is above"),), log_y=True,
        note=f"L = {tokens} tokens, under the model's mask",
    )  # fmt: skip


CLAIM = Claim(
    "C3",
    "The Weyl chain of bounds",
    "Putting metrics in place of the identity moves the singular values of attention by no more than the difference of "
    "the two maps, which is bounded by the difference of the scores, which is bounded by the strength of the metric.",
    r"|s_k(A_R) - s_k(A_E)| \le \lVert A_R - A_E \rVert_2 \le \tfrac12 \lVert \Delta - \bar\Delta \mathbf 1^\top "
    r"\rVert_F \le \frac{L \bar U^2 R^2}{2\tau}",
    "arXiv 2608.01283; Weyl's inequality; the softmax is 1/2-Lipschitz",
    "the largest ratio of a number of the chain to the next, over heads and links; holds if it is at most 1",
    1.0,
    "",
    "a chain of inequalities holds or does not; rounding of 1e-9 is allowed",
    "The bound shows that strong metrics can raise the rank of attention. It is an upper bound: it shows that weak "
    "ones cannot.",
    check,
)
