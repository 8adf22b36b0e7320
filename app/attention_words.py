"""What the attention page says of a score: its equation, and every reason why its map is not what the model ran."""

from __future__ import annotations

from app.attention_choice import Choice
from app.side import Side
from fbt_core.attention.scores import SCORES

HOW = {
    "head": "",
    "mean": r" Shown is the mean over heads, $\bar A = \frac1H \sum_h A_h$.",
    "rollout": r" Shown is the rollout $\hat A_l \cdots \hat A_0$ of $\hat A = \frac12 (\bar A + I)$ "
    "(Abnar & Zuidema 2020): an accounting of paths, not a measurement.",
}


def note(side: Side, choice: Choice, *scores: str) -> str | None:
    """Every reason why these maps are not what the model ran."""
    notes = [side.what_if_score(*scores)]
    if not side.has_metric and any(SCORES[score].reads_metric for score in scores):
        notes.append("without a metric the Riemannian score is L2")
    if choice.match(choice.left) and choice.left in scores:
        notes.append(f"{choice.title(side, choice.left)} at the temperature of equal mean row entropy, head by head")
    config = side.checkpoint.config
    if (
        "blended" in scores
        and choice.alpha is not None
        and config.has_metric
        and abs(choice.alpha - config.alpha) > 1e-9
    ):
        notes.append(f"what-if: alpha {choice.alpha:g}, trained at {config.alpha:g}")
    return "; ".join(text for text in notes if text) or None


def place(side: Side, choice: Choice) -> str:
    """Which map of the model it is."""
    where = {"head": f"layer {side.layer}, head {side.head}", "mean": f"layer {side.layer}, mean over heads"}
    return where.get(choice.view, f"rollout through layers 0 to {side.layer}")


def missing_scores(side: Side) -> str:
    """Why only the model's own attention is offered; empty where every score can be had."""
    why = side.block.unavailable("riemannian")
    return f"Only {side.score_title(side.score)} attention can be shown here: {why}." if why else ""


def between(choice: Choice) -> str:
    """What else than the metric stands between two scores, a sentence; empty where nothing does."""
    if {choice.left, choice.right} != {"euclidean", "riemannian"}:
        return ""
    return (
        r" Between these two stands the key's norm, $-\lVert k_j \rVert^2 / \tau$, as well as the metric: "
        "against L2, the same score with $g = I$, the metric stands alone."
    )


def formula(side: Side, score: str) -> str:
    """The score's equation; of a model of the library, with what it adds to its dot product."""
    factors = side.block.factors
    if not side.foreign or score != side.score:
        return SCORES[score].formula
    if factors is None:
        return r"\text{what the model computes}"
    dot = r"c\, q_i \cdot k_j" if factors.softcap is None else r"b \tanh(c\, q_i \cdot k_j / b)"
    values = "" if factors.scale is None else rf",\ c = {float(factors.scale[side.head]):.4g}"
    values += "" if factors.softcap is None else rf",\ b = {factors.softcap:g}"
    finite = factors.mask is not None and bool((factors.mask.isfinite() & (factors.mask != 0)).any())
    return dot + (" + m_{ij}" if finite else "") + values
