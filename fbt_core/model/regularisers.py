"""The three regularisers of the metric field (item 10). The paper names them; their forms are ours."""

from __future__ import annotations

import torch
from torch import Tensor

from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.metric import LowRankMetric

DIVERSITY_EPSILON = 1e-6
"""Added to ||A_t||_F^2: without it the cosine has no gradient at U = 0."""


def anti_flatness(raw: LowRankMetric, kappa_min: float, kappa_max: float) -> Tensor:
    """mean relu(kappa_min - tr K)^2 + relu(tr K - kappa_max)^2, on U before the ceiling (after it the last is 0)."""
    trace = raw.trace
    return ((kappa_min - trace).relu().square() + (trace - kappa_max).relu().square()).mean()


def diversity(raw: LowRankMetric, norms: Tensor | None = None) -> Tensor:
    """mean over pairs s, t of distinct tokens of cos(A_s, A_t) = ||U_s^T U_t||_F^2 / (||K_s|| ||K_t||), in [0, 1].

    The sum over all pairs is ||sum_t A_t / ||A_t|| ||^2: linear in L and never a pairwise tensor. ``norms`` is
    ||A_t||_F^2 where the caller has it.
    """
    norms = raw.overlap(raw) if norms is None else norms
    length = norms.shape[-1]
    if length < 2:
        return norms.new_zeros(())
    padded = norms + DIVERSITY_EPSILON
    total = raw.total_overlap(padded.rsqrt())
    return ((total - (norms / padded).sum(-1)) / (length * (length - 1))).mean()


def smoothness(raw: LowRankMetric, norms: Tensor | None = None) -> Tensor:
    """mean ||A_{t+1} - A_t||_F^2 = ||A_t||^2 + ||A_{t+1}||^2 - 2 <A_t, A_{t+1}>, through r x r Grams."""
    norms = raw.overlap(raw) if norms is None else norms
    if norms.shape[-1] < 2:
        return norms.new_zeros(())
    across = raw[:-1].overlap(raw[1:])
    return (norms[..., 1:] + norms[..., :-1] - 2 * across).mean()


def regulariser(raws: list[LowRankMetric], config: FiberBundleConfig) -> Tensor:
    """The weighted sum of the three, averaged over layers; 0 for a model without a metric."""
    if not raws:
        return torch.zeros(())
    return torch.stack([_of_layer(raw, config) for raw in raws]).mean()


def _of_layer(raw: LowRankMetric, c: FiberBundleConfig) -> Tensor:
    norms = raw.overlap(raw)
    flat = c.anti_flatness * anti_flatness(raw, c.kappa_min, c.kappa_max)
    return flat + c.diversity * diversity(raw, norms) + c.smoothness * smoothness(raw, norms)
