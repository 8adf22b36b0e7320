"""C5: what the Riemannian score changes against the Euclidean one, term by term (Eq. 28), and how much is metric."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.decompose import TERMS, row_centred, score_shares, score_terms
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.heads import Head
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding

METRIC = ("metric_i", "metric_j")
ARTEFACTS = ("query_norm", "bilinear", "key_norm")
"""Terms that are there with g = I too: norms, and the temperature's mismatch (2/tau - 1/sqrt d)."""

OMEGA = ("curvature_bias",)

EXACT = 1e-12
"""Largest |sum of terms - (s_R - s_E)| relative to the largest term: a few hundred roundings."""


@dataclass(frozen=True)
class Split:
    """One head: shares of the terms in the row-centred variance of s_R - s_E, and the error of their sum."""

    shares: Float64[np.ndarray, " term"]  # covariances split evenly; sum to 1
    metric_alone: float  # var(metric terms) / var(total)
    rest_alone: float  # var(all other terms) / var(total)
    error: float

    def share(self, names: tuple[str, ...]) -> float:
        """Of several terms."""
        return float(sum(self.shares[list(TERMS).index(name)] for name in names))

    @property
    def lead(self) -> float:
        """The metric's share less the artefacts'."""
        return self.share(METRIC) - self.share(ARTEFACTS)


def split(head: Head) -> Split:
    """Of a head's scores without mask and bias; rows centred over the keys that they may see."""
    f = replace(head.factors, softcap=None)
    terms = score_terms(f, of="difference")
    difference = head.score("riemannian") - f.q[0] @ f.k[0].mT * f.dot_scale[0, 0, 0].to(f.q)
    size = max(float(term.abs().max()) for term in terms.values())
    error = float((torch.stack(list(terms.values())).sum(0) - difference).abs().max()) / size if size else 0.0
    of_metric = torch.stack([terms[name] for name in METRIC]).sum(0)
    moved = row_centred(torch.stack([of_metric, difference - of_metric, difference]), head.seen)
    metric, rest, total = (_square(part) for part in moved)
    return Split(score_shares(f, "difference").cpu().numpy(), metric / total if total else float("nan"),
                 rest / total if total else float("nan"), error)  # fmt: skip


def _square(part: Tensor) -> float:
    return float(part.square().sum())


def check(evidence: Evidence) -> Finding:
    every = {(head.place, head.head): split(head) for head in evidence.metric_heads}
    found = {place: one for place, one in every.items() if np.isfinite(one.shares).all()}
    if not found:
        raise Unavailable("the two scores differ in no head by more than rounding")
    parts = list(found.values())
    lead, error = float(np.median([one.lead for one in parts])), max(one.error for one in every.values())
    metric, artefacts, omega = (_median(parts, names) for names in (METRIC, ARTEFACTS, OMEGA))
    confounded, left = sum(one.lead <= 0 for one in parts), len(every) - len(parts)
    return Finding(
        HOLDS if lead > 0 and error <= EXACT else FAILS,
        lead,
        f"The metric's terms make {metric:.1%} of what the Riemannian score changes, norms and temperature "
        f"{artefacts:.1%}, the curvature bias {omega:.1%} (medians over heads); {confounded} of {len(parts)} heads are "
        f"confounded, and the terms add up to the difference within {error:.1e} of the largest.",
        "A metric's share above that of norms and temperature in the median head." if lead <= 0 else
        "A metric's share at or below that of norms and temperature in the median head, or terms that do not add up.",
        evidence.grid({place: one.share(METRIC) for place, one in found.items()}),
        "the metric's share of the row-centred variance of s_R − s_E",
        (("error of the sum of terms, largest", error, "of the largest term"), *_numbers(parts)),
        (_chart(parts),),
        (*NOTES, *((f"{left} heads in which nothing differs are left out.",) if left else ())),
    )  # fmt: skip


NOTES = (
    "Rows are centred over the keys that they may see, for the softmax does not see a row's constant. A covariance "
    "between two terms is split evenly; so a share may be negative or above 1.",
    "Ω is counted apart: it is the paper's, but a bias on a key and no metric.",
)


def _median(parts: list[Split], names: tuple[str, ...]) -> float:
    return float(np.median([one.share(names) for one in parts]))


def _numbers(parts: list[Split]) -> tuple[tuple[str, float, str], ...]:
    """With the variances of two groups alone, another split of their covariance can be had."""
    alone, rest = (float(np.median([getattr(one, name) for one in parts])) for name in ("metric_alone", "rest_alone"))
    return (
        *((f"share of {term.title.lower()}, median", _median(parts, (name,)), "") for name, term in TERMS.items()),
        ("share of the metric, median", _median(parts, METRIC), ""),
        ("share of norms and temperature, median", _median(parts, ARTEFACTS), ""),
        ("variance of the metric's terms alone, median", alone, "of total"),
        ("variance of all other terms alone, median", rest, "of total"),
        ("heads that are confounded", float(sum(one.lead <= 0 for one in parts)), "heads"),
    )


def _chart(parts: list[Split]) -> Chart:
    place = np.arange(len(parts), dtype=float)
    groups = (("metric", METRIC), ("norms and temperature", ARTEFACTS), ("curvature bias", OMEGA))
    curves = tuple(
        Curve(name, place, np.array([one.share(names) for one in parts]), style="points") for name, names in groups
    )
    return Chart(
        "What the Riemannian score changes", "head, layers one after another", "share of row-centred variance", curves,
        (Mark("y", 0.0, "nothing"),), note="of s_R - s_E; covariances split evenly; shares of a head sum to 1",
    )  # fmt: skip


CLAIM = Claim(
    "C5",
    "What the score changes is the metric's doing",
    "Against the Euclidean score the Riemannian one brings norms, another temperature, the metric and a bias. The sum "
    "is exact. Only where the metric's part is the larger one can a difference between the two be laid to geometry.",
    r"s^R_{ij} - s^E_{ij} = -\tfrac{\lVert q_i \rVert^2}{\tau} - \tfrac{\lVert k_j \rVert^2}{\tau} + \big(\tfrac2\tau "
    r"- \tfrac1{\sqrt d}\big) q_i \cdot k_j - \tfrac{\lVert U_i^\top e \rVert^2 + \lVert U_j^\top e \rVert^2}{2\tau} - "
    r"\Omega_j,\quad e = q_i - k_j",
    "Eq. 28 of arXiv 2608.01283",
    "the metric's share of the row-centred variance of s_R - s_E less that of norms and temperature, the median over "
    "heads; holds if it is above 0 and the terms add up to within 1e-12; below 0 the comparison is confounded",
    0.0,
    "of the variance",
    "at 0 the metric changes attention as much as what is no geometry does",
    "The difference is decomposed exactly, and the metric's term is what sets the two apart.",
    check,
)
