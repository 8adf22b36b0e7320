"""What is asked of a side, and the claims' findings on it, kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from app import answers, claims_results
from app.request import Request
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.claims import CLAIMS, Claim, Finding, attempt
from fbt_core.claims.evidence import Evidence, Options
from fbt_core.claims.table import NOT_TESTABLE

BY_RESULTS = "C14"
"""The claim that a sweep's results decide."""


@dataclass(frozen=True)
class Asked:
    """One side's question: all that its findings depend on, the sweep's results apart."""

    request: Request
    text: str
    tokens: int

    @property
    def evidence(self) -> Evidence:
        """What the claims look at, cached. Raises ``ValueError`` or ``CheckpointError`` where there is none."""
        return answers.evidence(self.request, self.text, self.tokens)


def findings(asked: Asked) -> dict[str, Finding]:
    """What was found so far, by claim."""
    digest = claims_results.held().digest
    found = {name: answers.finding(asked, key_of(name, digest)) for name in CLAIMS}
    return {name: one for name, one in found.items() if one is not None}


def check(asked: Asked, name: str) -> Finding:
    """One claim on one side, kept. Stopped, it leaves nothing behind."""
    results = claims_results.held()
    rows = results.rows if name == BY_RESULTS else None
    found = answers.finding(asked, key_of(name, results.digest), lambda: judged(asked, CLAIMS[name], rows))
    answers.evidence.weigh(asked.request, asked.text, asked.tokens)  # it keeps what several claims share
    assert found is not None
    return found


def judged(asked: Asked, claim: Claim, results: Any) -> Finding:
    """Why there is no evidence is a finding as well: the same for every claim."""
    try:
        evidence = asked.evidence
    except (ValueError, CheckpointError) as fault:
        return Finding(NOT_TESTABLE, math.nan, f"{fault}.", "A checkpoint that can be run on a text.")
    if results is not None:
        evidence = replace(evidence, options=Options(asked.tokens, results=results))
    return attempt(claim, evidence)


def key_of(name: str, digest: str) -> str:
    """By what a finding is kept: the claim, and the results where those decide it."""
    return f"{name} {digest}" if name == BY_RESULTS and digest else name
