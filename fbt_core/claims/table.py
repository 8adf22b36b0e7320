"""What a claim is and what comes of it on one checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fbt_core.claims.chart import Chart
from fbt_core.claims.evidence import Evidence, Unavailable

HOLDS, FAILS, NOT_TESTABLE = "holds", "fails", "not testable"
VERDICTS = (HOLDS, FAILS, NOT_TESTABLE)


@dataclass(frozen=True)
class Finding:
    """What a claim's check found on one checkpoint and text."""

    verdict: str  # of VERDICTS
    statistic: float  # in the claim's unit; NaN where there is none
    why: str  # one sentence with the numbers
    would_change: str  # what would have changed the verdict
    grid: np.ndarray | None = None  # (layer, head) of the statistic, or of what it is made from
    grid_title: str = ""
    numbers: tuple[tuple[str, float, str], ...] = ()  # name, value, unit
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"got the verdict {self.verdict!r}, expected one of {', '.join(VERDICTS)}")
        if self.verdict != NOT_TESTABLE and not math.isfinite(self.statistic):
            raise ValueError(f"got the verdict {self.verdict!r} on {self.statistic}, expected a finite statistic")


@dataclass(frozen=True)
class Claim:
    """One claim about a Fiber Bundle Transformer, and how it is checked.

    ``function`` gives the finding; it raises ``Unavailable`` with the reason where the checkpoint cannot be tested.
    """

    id: str
    title: str
    statement: str  # plain words
    equation: str  # LaTeX, without dollar signs
    source: str
    statistic: str  # what is measured, and the rule that makes a verdict of it, in words
    threshold: float
    unit: str  # of the statistic and the threshold; "" for a pure number
    reason: str  # why that threshold
    says_paper: str  # what the paper says, or that it says nothing
    function: Callable[[Evidence], Finding]


def judge(claim: Claim, evidence: Evidence) -> Finding:
    """The finding of a claim; "not testable" with the reason where the evidence does not allow the check."""
    try:
        return claim.function(evidence)
    except Unavailable as reason:
        why = f"{reason}."
    except (np.linalg.LinAlgError, torch.linalg.LinAlgError):
        why = "The numbers are not finite, or so large that no decomposition converges."
    remedy = "A checkpoint and a text on which it can be tested."
    return Finding(NOT_TESTABLE, math.nan, why[0].upper() + why[1:], remedy)


def attempt(claim: Claim, evidence: Evidence) -> Finding:
    """``judge``, for one claim among others: numbers that overflow, and whatever else fails in it, fail in it alone."""
    try:
        return judge(claim, evidence)
    except (ArithmeticError, RuntimeError, ValueError) as fault:
        why = f"The check could not be computed: {' '.join(str(fault).split())[:400]}."
        return Finding(NOT_TESTABLE, math.nan, why, "Numbers that are finite.")
