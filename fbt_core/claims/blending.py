"""C6: the loss over the blending weight alpha, on a model that was trained with one of them."""

from __future__ import annotations

import numpy as np

from fbt_core.claims import altered
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable, paired
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)

MATTERS = 0.01
"""Nats a token, about a hundredth of the perplexity."""

ERRORS = 2.0
"""Standard errors of the mean difference that an effect must exceed besides."""


def check(evidence: Evidence) -> Finding:
    model = evidence.learned
    trained = model.config.alpha
    if trained == 0:
        raise Unavailable("this checkpoint was trained with α = 0: it attends by the Euclidean score")
    weights = sorted({*GRID, trained})
    losses = {
        a: evidence.base_losses if a == trained else evidence.losses(altered.with_alpha(model, a)) for a in weights
    }
    flat = paired(evidence.losses(altered.with_score_metric(model, altered.removed)), losses[trained])
    cost, error = paired(losses[0.0], losses[trained])
    best = min(weights, key=lambda a: losses[a].mean())
    return Finding(
        HOLDS if cost > MATTERS and cost > ERRORS * error else FAILS,
        cost,
        f"With the Euclidean score in place of the trained α = {trained:g} the loss changes by {cost:+.3f} ± "
        f"{error:.3f} nats a token (not retrained), with g = I at the trained α by {flat[0]:+.3f} ± {flat[1]:.3f}; the "
        f"least loss of the grid is at α = {best:g}.",
        f"A difference at or below {MATTERS} nats, or below {ERRORS:g} standard errors." if cost > MATTERS else
        f"A difference above {MATTERS} nats and {ERRORS:g} standard errors.",
        numbers=_numbers(losses, trained, flat),
        charts=(_chart(losses, weights, trained),),
        notes=(*NOTES, evidence.loss_note),
    )  # fmt: skip


NOTES = (
    "Not retrained: every α but the trained one is a what-if that the parameters never met. A loss that rises away "
    "from the trained α shows that the model leans on its score, and not that the score is the better one: for that, "
    "compare twins.",
    "The Euclidean score lacks the metric, Ω and the key norms, at another temperature. What g = I costs in the score "
    "is the part of metric and Ω.",
)


def _numbers(
    losses: dict[float, np.ndarray], trained: float, flat: tuple[float, float]
) -> tuple[tuple[str, float, str], ...]:
    parts = {"α = 0": paired(losses[0.0], losses[trained]), "g = I in the score": flat, "best inner α": _inside(losses)}
    return (
        *((f"loss at α = {a:g}", float(loss.mean()), "nats") for a, loss in losses.items()),
        *((f"{name}, above the {'better end' if 'inner' in name else 'trained α'}", mean, "nats")
          for name, (mean, _) in parts.items()),
        *((f"{name}, standard error", error, "nats") for name, (_, error) in parts.items()),
    )  # fmt: skip


def _inside(losses: dict[float, np.ndarray]) -> tuple[float, float]:
    """The best alpha between the ends against the better end: mean difference and its standard error, nats."""
    inner = min((a for a in losses if 0 < a < 1), key=lambda a: losses[a].mean())
    end = min((0.0, 1.0), key=lambda a: losses[a].mean())
    return paired(losses[inner], losses[end])


def _chart(losses: dict[float, np.ndarray], weights: list[float], trained: float) -> Chart:
    base = losses[trained]
    means = np.array([losses[a].mean() for a in weights])
    errors = np.array([paired(losses[a], base)[1] if a != trained else 0.0 for a in weights])
    return Chart(
        "Loss over the blending weight, not retrained", "α: 0 Euclidean, 1 Riemannian", "loss, nats a token",
        (Curve("loss, with standard errors of the difference from the trained α", np.array(weights), means,
               means - errors, means + errors),),
        (Mark("x", trained, f"trained with α = {trained:g}"),),
        note="what-if: only the marked α was trained",
    )  # fmt: skip


CLAIM = Claim(
    "C6",
    "The trained model leans on the Riemannian score",
    "The blend goes from the Euclidean score (α = 0) to the Riemannian one (α = 1). With the Euclidean score put "
    "back, the model predicts worse.",
    r"s = (1 - \alpha)\, q \cdot k / \sqrt d + \alpha\, s^{\mathrm{Riem}}, \qquad \ell(0) - "
    r"\ell(\alpha_{\mathrm{trained}})",
    "Proposition 6.2 of arXiv 2608.01283; docs/mathematics.md, item 9",
    "loss at α = 0 less that at the trained α, mean over held-out rows; holds if it is above 0.01 nats and above two "
    "of its standard errors, taken over rows",
    MATTERS,
    "nats",
    "a hundredth of a nat is a hundredth of the perplexity; less is of no use, whatever its error",
    "A blend can be chosen that is no worse than either score. That is about trained models, each with its α.",
    check,
)
