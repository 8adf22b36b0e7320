"""The metric of a model as a function of the residual stream that enters a layer: x -> g(x), its norm inside.

What a function of x is: the model's own MetricNet, an adapter's, and the Fisher metric of its predictions. There are
three readings of a head's metric as one on the residual stream, of which the first is that of item 8, our choice:

- ``block``: vectors restricted to block h of the stream, g = I + U_h(x) U_h(x)^T on it;
- ``key``: the pull-back W^T g W along keys, W = W_K diag(gain of the norm): a key vector a moves x by W^+ a;
- ``whole``: the whole stream with I_D + blockdiag_h(U_h(x) U_h(x)^T): no head is told apart.

Everything is in float64, from copies of the parameters; the ceiling and the strength are inside.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fbt_core.geometry import source_factors
from fbt_core.geometry.fisher_field import fisher_field
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.net_field import double, net_of
from fbt_core.trace import LayerTrace, Trace

READINGS: dict[str, str] = {
    "block": "block h of the residual stream, identified with head h's space (our choice)",
    "key": "the pull-back along the head's keys: a step in key space, taken in the residual stream by the "
    "pseudoinverse of its key projection",
    "whole": "the whole residual stream at once, its metric block-diagonal over heads",
}
"""How vectors of a head's space are vectors of the residual stream."""

FLAT: dict[str, str] = {
    "": "this model has no metric: g is the identity, and its curvature is exactly 0",
    "identity": "the identity metric is the same everywhere: its curvature is exactly 0",
    "causal": "the causal metric is the same everywhere: its curvature is exactly 0",
    "local": "the local metric is made from the tokens that are there: it is no function of a point, so it has no "
    "curvature",
}
"""Why there is no curvature to compute, by the source of the metric."""

ONE_SPACE = ("fisher",)
"""Sources whose metric lives on the residual stream itself: no heads, and one slice a token."""


def field_unavailable(model: Any, trace: Trace, layer: int | None = None) -> str:
    """Why the trace's metric (that of one layer) is no function with a curvature to compute, a sentence; else empty."""
    if trace.rectangular:
        return "cross-attention has no metric: its queries and keys are different tokens"
    source = "" if trace.source == "learned" else trace.source
    if source in FLAT and not (source == "" and trace.has_metric):
        return FLAT[source]
    if source == "adapter" and trace.adapter is None:
        return "the adapter of this trace is not at hand"
    if layer is None:
        return ""
    found = trace.layers[layer]
    if found.factors is None:
        return found.unavailable("riemannian")
    if source == "adapter" and found.index not in trace.adapter.config.layers:
        return f"the adapter has no metric for layer {found.index}"
    return "" if source != "fisher" or found.residual_U is not None else f"layer {found.index} has no metric"


def field_points(trace: Trace, layer: int) -> Float64[Tensor, "token width"]:
    """The residuals that enter a layer, which MetricNet reads: where the tokens are."""
    return double(trace.layers[layer].residual_in)


def field_heads(trace: Trace, reading: str = "block") -> int | None:
    """The number of heads with a metric of their own; None where all of them share one."""
    return None if reading == "whole" or trace.source in ONE_SPACE else trace.heads


def model_field(
    model: Any, trace: Trace, layer: int, head: int, reading: str = "block", token: int = 0
) -> MetricFunction:
    """The metric function of a layer and head. ``layer`` counts the trace's layers.

    With ``whole`` and for the source `fisher` the head means nothing. For `fisher` the slice is spanned by the
    directions in which the metric of ``token`` is largest, as many as its rank, and the points must lie on the slice
    through that token. Raises ``ValueError`` with the reason where there is no such function, and for an unknown
    reading, layer or head.
    """
    if reading not in READINGS:
        raise ValueError(f"got reading {reading!r}, expected one of {', '.join(READINGS)}")
    if not 0 <= layer < len(trace.layers):
        raise ValueError(f"got layer {layer}, expected 0 to {len(trace.layers) - 1}")
    if why := field_unavailable(model, trace, layer):
        raise ValueError(why)
    found = trace.layers[layer]
    if trace.source == "fisher":
        return fisher_field(source_factors.readout_of(model), found, token)
    if not 0 <= head < found.heads:
        raise ValueError(f"got head {head}, expected 0 to {found.heads - 1}")
    net = net_of(model, trace, found)
    width = found.residual_in.shape[1]
    if reading != "key" and net.heads * net.dim != width:
        raise ValueError(
            f"got {net.heads} heads of {net.dim} on a residual stream of {width}: its blocks are no heads' spaces; "
            "take the reading along keys"
        )
    if reading == "whole":
        return MetricFunction.low_rank(lambda x: _block_diagonal(net.all(x)), width, name=f"layer {found.index}")
    if reading == "block":
        eye = torch.eye(width, dtype=torch.float64, device=double(found.residual_in).device)
        inclusion = eye[:, head * net.dim : (head + 1) * net.dim]
    else:
        inclusion = _key_slice(model, trace, found, head)
    name = f"layer {found.index}, head {head}" + (", along keys" if reading == "key" else "")
    return MetricFunction.low_rank(net.one(head), net.dim, inclusion, name)


def _block_diagonal(U: Float[Tensor, "head dim rank"]) -> Float[Tensor, "space all"]:
    heads, dim, rank = U.shape
    eye = torch.eye(heads, dtype=U.dtype, device=U.device)
    return torch.einsum("hir,hg->higr", U, eye).reshape(heads * dim, heads * rank)


def _key_slice(model: Any, trace: Trace, layer: LayerTrace, head: int) -> Float64[Tensor, "width dim"]:
    """W^+ of one head's keys."""
    return torch.linalg.pinv(double(source_factors.projection(model, trace, layer, "key")[head]))
