"""C7: whether the learned metric collapsed, to the identity or to one constant, judged by what the loss loses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.claims import altered
from fbt_core.claims.blending import ERRORS, MATTERS
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, paired
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.measures import read

Factor = Float[Tensor, "batch head token dim rank"]


def shuffled(seed: int) -> altered.Change:
    """Every token takes the metric of a random token of the next row, so that nothing of its own future is told it."""

    def change(U: Factor) -> Factor:
        order = torch.randperm(U.shape[2], generator=torch.Generator().manual_seed(seed)).to(U.device)
        return U.roll(1, 0)[:, :, order]

    return change


def averaged(U: Factor) -> Float[Tensor, "batch head token dim more"]:
    """One metric for all tokens of a head, the mean of A = U U^T over rows and tokens; (batch, head, token, d, d).

    Not the mean of U: U and U Q are the same metric for any rotation Q.
    """
    flat = U.permute(1, 3, 0, 2, 4).flatten(2)  # head dim (batch token rank)
    mean = flat @ flat.mT / (U.shape[0] * U.shape[2])
    values, vectors = torch.linalg.eigh(mean)
    root = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return root[None, :, None].expand(*U.shape[:3], -1, -1)


@dataclass(frozen=True)
class Effect:
    """What a change of the metric costs."""

    name: str
    cost: float  # nats a token, mean over held-out rows
    error: float

    @property
    def counts(self) -> bool:
        """Whether the cost is above both thresholds."""
        return self.cost > MATTERS and self.cost > ERRORS * self.error


def effects(evidence: Evidence) -> tuple[Effect, ...]:
    """The costs of removing, shuffling and averaging the metric."""
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "U = 0": altered.removed,
        "U shuffled over tokens": shuffled(evidence.options.seed),
        "A averaged over tokens": averaged,
    }
    base = evidence.base_losses
    return tuple(
        Effect(name, *paired(evidence.losses(altered.with_metric(evidence.learned, change)), base))
        for name, change in changes.items()
    )


def in_score(evidence: Evidence) -> Effect:
    """What U = 0 costs in the score alone."""
    model = altered.with_score_metric(evidence.learned, altered.removed)
    return Effect("U = 0 in the score alone", *paired(evidence.losses(model), evidence.base_losses))


def variation(U: Float[Tensor, "head token dim rank"]) -> Tensor:
    """The share of the mean ||A_t||_F^2 that is left about the mean of A, a head: 0 for one constant, at most 1."""
    A = U @ U.mT
    whole = A.square().sum((-2, -1)).mean(-1)
    return 1 - A.mean(1).square().sum((-2, -1)) / whole.where(whole > 0, 1.0)


def check(evidence: Evidence) -> Finding:
    found, score = effects(evidence), in_score(evidence)
    gone = [one.name for one in found if not one.counts]
    traces = read(evidence.trace, "trace_k").values
    told = "; ".join(f"{one.name}: {one.cost:+.3f} ± {one.error:.3f}" for one in found)
    return Finding(
        FAILS if gone else HOLDS,
        min(one.cost for one in found),
        f"Change of loss in nats a token (not retrained): {told}; U = 0 in the score alone: {score.cost:+.3f} ± "
        f"{score.error:.3f}. tr K is {np.nanmean(traces):.2f} on average."
        + (f" Not felt: {', '.join(gone)}." if gone else ""),
        f"Each of the three costs above {MATTERS} nats and {ERRORS:g} standard errors." if gone else
        f"One of the three costs at or below {MATTERS} nats or {ERRORS:g} standard errors.",
        np.nanmean(traces, -1),
        "mean tr K over tokens",
        _numbers(evidence, (*found, score), traces),
        (_chart(found), _strengths(traces)),
        ("Everything that reads the metric reads the changed one: the score, Ω, the gate of q and k, and the "
         "preconditioned feed-forward. Nothing was retrained.",
         "Shuffled: the metrics of the next row's tokens, in random order. Averaged: the mean of A = UUᵀ over 8 rows.",
         evidence.loss_note),
    )  # fmt: skip


def _numbers(evidence: Evidence, found: tuple[Effect, ...], traces: np.ndarray) -> tuple[tuple[str, float, str], ...]:
    """The losses, then what the metrics of the traced tokens are like."""
    varied = torch.cat([variation(layer.given.U.double()) for layer in evidence.trace.layers])
    ceiling = (traces >= evidence.learned.config.kappa_max * (1 - 1e-9)).mean()
    return (
        ("loss as trained", float(evidence.base_losses.mean()), "nats"),
        *((f"change of loss, {one.name}", one.cost, "nats") for one in found),
        *((f"standard error, {one.name}", one.error, "nats") for one in found),
        ("tr K, mean", float(traces.mean()), ""),
        ("tr K, spread over tokens (mean over heads)", float(traces.std(-1).mean()), ""),
        ("share of metrics at the ceiling", float(ceiling), ""),
        ("fractional anisotropy of g, mean", float(np.nanmean(read(evidence.trace, "anisotropy").values)), ""),
        ("share of ‖A_t‖² that varies over tokens, mean over heads", float(varied.mean()), ""),
    )


def _chart(found: tuple[Effect, ...]) -> Chart:
    """Bars in the order of the names, which the note tells."""
    place = np.arange(len(found), dtype=float)
    cost, error = np.array([one.cost for one in found]), np.array([one.error for one in found])
    named = "; ".join(f"{n}: {one.name}" for n, one in enumerate(found))
    return Chart(
        "What the loss loses without the metric", "change of the metric", "change of loss, nats a token",
        (Curve("change of loss, with standard errors", place, cost, cost - error, cost + error, "bars"),),
        (Mark("y", MATTERS, f"{MATTERS} nats"),), note=f"{named}. What-ifs: not retrained",
    )  # fmt: skip


def _strengths(traces: np.ndarray) -> Chart:
    layers = np.arange(len(traces), dtype=float)
    flat = traces.reshape(len(traces), -1)
    low, high = np.quantile(flat, (0.05, 0.95), axis=1)
    curve = Curve("median over heads and tokens, 5 % to 95 %", layers, np.median(flat, 1), low, high)
    return Chart("Strength of the metric by layer", "layer", "tr K", (curve,), (Mark("y", 0.0, "identity"),))


CLAIM = Claim(
    "C7",
    "The metric does not collapse",
    "A metric may collapse to the identity, or to one constant that is the same for all tokens. Then the loss does not "
    "feel it when the metric is removed, given to other tokens, or replaced by its mean.",
    r"\min\big\{\ell(U{=}0),\ \ell(U_{\pi(t)}),\ \ell(\bar A)\big\} - \ell(U)",
    "arXiv 2608.01283, which names metric collapse and its regularisers; docs/mathematics.md, items 2 and 10",
    "the least of three changes of loss: U = 0, U shuffled over tokens, A averaged over tokens; holds if each is above "
    "0.01 nats and above two of its standard errors, taken over rows",
    MATTERS,
    "nats",
    "a hundredth of a nat is a hundredth of the perplexity; less is of no use, whatever its error",
    "The regularisers keep the metric from collapsing to the identity.",
    check,
)
