"""The arms of the collapse experiment: one stack, the same weights, and another metric in each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """What one arm attends by. All arms of one job share X_0, W_Q, W_K and W_V."""

    name: str
    title: str
    says: str
    score: str  # a row of ``fbt_core.attention.scores.SCORES``
    metric: str  # where U_t comes from: content | shuffled | position | one | none
    temperature: str = "fixed"  # fixed at tau = d | matched to the heterogeneous arm, layer by layer | trained
    normalised: bool = True  # QK-norm: ||q||^2 = ||k||^2 = d / 2
    stages: tuple[str, ...] = (
        "initial",
        "trained",
    )  # where a sweep can have it; ``exponents`` takes any but the matched

    @property
    def content(self) -> bool:
        """Whether a score is a function of the two tokens' contents alone, as Theorem A asks."""
        return self.metric not in ("shuffled", "position")


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("heterogeneous", "Heterogeneous", "U_t = MetricNet(x_t): a metric for each token, from its content",
            "riemannian", "content"),
        Arm("homogeneous", "Homogeneous", "one U for all tokens of a layer, with the spectral norm of the largest U_t",
            "riemannian", "one"),
        Arm("shuffled", "Shuffled", "the U_t of the heterogeneous arm, each given to another token",
            "riemannian", "shuffled"),
        Arm("positional", "Positional", "a U for each position, which does not depend on the content",
            "riemannian", "position"),
        Arm("identity", "g = I, same τ", "no metric, at the temperature of the others: as sharp as it happens to be",
            "l2", "none"),
        Arm("matched", "g = I, matched", "no metric; τ of each layer gives the heterogeneous arm's mean exp-entropy",
            "l2", "none", "matched"),
        Arm("matched_dot", "Dot product, matched",
            "q · k without QK-norm (with it this would be the arm above), its scale matched likewise",
            "euclidean", "none", "matched", normalised=False),
        Arm("matched_homogeneous", "Homogeneous, matched",
            "the homogeneous arm, which is sharper for the same ||U||, with its scores scaled to the same exp-entropy",
            "riemannian", "one", "matched", stages=("initial",)),
        Arm("free", "g = I, τ trained", "no metric; each layer's τ is trained, from where the matched arm has it",
            "l2", "none", "trained", stages=("trained",)),
        Arm("free_heterogeneous", "Heterogeneous, τ trained",
            "the heterogeneous arm with each layer's τ trained, which sharpens metric and distance alike",
            "riemannian", "content", "trained", stages=("trained",)),
        Arm("dot", "Dot product", "q · k / √d without QK-norm: standard attention, as sharp as it happens to be",
            "euclidean", "none", normalised=False, stages=("exponents",)),
    )
}  # fmt: skip
"""Every arm. ``identity``, the free ones and ``dot`` stand beside those of the plan, for reference and as controls."""

REFERENCE = "heterogeneous"
"""Whose exp-entropy the matched arms have."""
