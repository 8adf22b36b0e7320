"""The metric of every token, layer and head in one number each. All from r x r Gram matrices, in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.torsion import torsion_norm
from fbt_core.measures.table import Measure, Measured
from fbt_core.measures.tokens import describe_nonfinite, to_float64, to_numpy, token_labels
from fbt_core.trace import LayerTrace, Trace

Factor = Float64[Tensor, "head token dim rank"]
PerToken = Float64[Tensor, "head token"]


def trace_k(U: Factor) -> PerToken:
    """tr K = ||U||_F^2 >= 0, K = U^T U: the strength of the metric beyond the identity."""
    return LowRankMetric(U).trace


def logdet_g(U: Factor) -> PerToken:
    """log det g = log det(I + K) >= 0, in nats: how much the metric swells volume, squared."""
    # eigenvalues, where LowRankMetric.logdet takes Cholesky: a checkpoint may hold any U, and 1 + K may round to K
    return torch.linalg.eigvalsh(LowRankMetric(U).gram).clamp_min(0).log1p().sum(-1)


def anisotropy(U: Factor) -> PerToken:
    """Fractional anisotropy of the d eigenvalues l of g, in [0, 1]; 0 for the identity and when d = 1.

    With t = tr K and G the smaller Gram matrix of U (m x m), ||l - mean l||^2 = ||G - t/m I||^2 + t^2 (1/m - 1/d): a
    sum of squares, so nothing cancels near isotropy.
    """
    d, r = U.shape[-2:]
    m = min(d, r)
    if m == 0 or d == 1:
        return U.new_zeros(U.shape[:-2])
    gram = U.mT @ U if r <= d else U @ U.mT
    t = LowRankMetric(U).trace
    deviator = gram - (t / m)[..., None, None] * torch.eye(m, dtype=U.dtype, device=U.device)
    variance = deviator.square().sum((-2, -1)) + t.square() * (1 / m - 1 / d)
    total = d + 2 * t + gram.square().sum((-2, -1))
    return (d / (d - 1) * variance / total).sqrt().clamp_max(1)


def _omega(omega: PerToken) -> PerToken:
    return omega


def _metric(layer: LayerTrace) -> tuple[Tensor, ...]:
    return (layer.given.U,)


def _curvature(layer: LayerTrace) -> tuple[Tensor, ...]:
    return (layer.given.omega,)


def _torsion(layer: LayerTrace) -> tuple[Tensor, ...]:
    """(L, R), of width 0 where the model has no TorsionNet: its torsion is then 0."""
    empty = layer.given.U[..., :0]
    return layer.torsion or (empty, empty)


def _each_token(
    factors: Callable[[LayerTrace], tuple[Tensor, ...]], function: Callable[..., Tensor], trace: Trace
) -> Measured:
    """``function`` of the factors of every token and head; NaN where those are not finite, each place named, and where
    a layer has none."""
    values, notes = np.full((len(trace.layers), trace.heads, trace.length), np.nan), []
    if trace.rectangular:
        return Measured(values, ("cross-attention has no metric: its queries and keys are different tokens",))
    for place, layer in enumerate(trace.layers):
        if layer.factors is None:
            notes.append(layer.unavailable("riemannian"))
            continue
        parts = [to_float64(part) for part in factors(layer)]
        bad = torch.stack([~_size(part).isfinite() for part in parts]).any(0)
        kept = [part.masked_fill(bad.reshape(*bad.shape, *[1] * (part.dim() - 2)), 0.0) for part in parts]
        values[place, : layer.heads] = to_numpy(function(*kept).masked_fill(bad, float("nan")))
        if bad.any():
            entries = torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)
            notes.append(f"layer {layer.index}: {describe_nonfinite(to_numpy(entries), token_labels(trace))}")
    if not trace.has_metric:
        notes.append("this model has no metric: g is the identity")
    return Measured(values, tuple(notes))


def _each_torsion(trace: Trace) -> Measured:
    """The torsion norm, 0 with a note in a model without a TorsionNet."""
    found = _each_token(_torsion, torsion_norm, trace)
    absent = all(layer.torsion is None for layer in trace.layers)
    return Measured(found.values, ("this model has no torsion: T = 0",) if absent else found.notes)


def _size(values: Tensor) -> PerToken:
    """Sum of squares over all axes but head and token: not finite where an entry is not, or where squares overflow."""
    return values.square().unsqueeze(-1).flatten(2).sum(-1)


_AXES = ("layer", "head", "token")
_PICK = ("layer", "head")

ROWS = (
    Measure(
        "trace_k", r"\operatorname{tr} K", "Metric trace", _AXES, "", "[0, inf)",
        r"\operatorname{tr} U^\top U = \lVert U \rVert_F^2", "docs/mathematics.md, items 2 and 10",
        partial(_each_token, _metric, trace_k), _PICK,
    ),
    Measure(
        "logdet_g", r"\ln \det g", "Log volume of the metric", _AXES, "nats", "[0, inf)",
        r"\ln \det (I_d + U U^\top) = \ln \det (I_r + U^\top U)", "docs/mathematics.md, item 8",
        partial(_each_token, _metric, logdet_g), _PICK,
    ),
    Measure(
        "anisotropy", r"\operatorname{FA}_d", "Fractional anisotropy", _AXES, "", "[0, 1]",
        r"\sqrt{\tfrac{d}{d-1}}\; \lVert \lambda - \bar\lambda \rVert / \lVert \lambda \rVert,"
        r"\quad \lambda = \operatorname{eig} g", "Basser & Pierpaoli 1996, in d dimensions",
        partial(_each_token, _metric, anisotropy), _PICK,
    ),
    Measure(
        "omega", r"\Omega", "Curvature proxy", _AXES, "nats", "[0, inf)",
        r"\operatorname{softplus}(\beta_h)\, \lVert U \rVert_F^2",
        "docs/mathematics.md, item 6: a bias on column j, not a curvature", partial(_each_token, _curvature, _omega),
        _PICK,
    ),
    Measure(
        "torsion_norm", r"\lVert T \rVert_F", "Torsion proxy", _AXES, "", "[0, inf)",
        r"\lVert L R^\top - R L^\top \rVert_F", "docs/mathematics.md, item 7", _each_torsion, _PICK,
    ),
)  # fmt: skip
"""The rows of this room."""
