"""The metric of a model as a function of the residual stream that enters a layer: x -> g(x), its norm inside.

What a function of x is: the model's own MetricNet, an adapter's, and the Fisher metric of its predictions. There are
three readings of a head's metric as one on the residual stream, of which the first is that of item 8, our choice:

- ``block``: vectors restricted to block h of the stream, g = I + U_h(x) U_h(x)^T on it;
- ``key``: the pull-back W^T g W along keys, W = W_K diag(gain of the norm): a key vector a moves x by W^+ a;
- ``whole``: the whole stream with I_D + blockdiag_h(U_h(x) U_h(x)^T): no head is told apart.

Everything is in float64, from copies of the parameters; the ceiling and the strength are inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from fbt_core.geometry.fisher_field import fisher_field
from fbt_core.geometry.function import MetricFunction
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

Factor = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Net:
    """x -> U of some heads: ``heads`` of them, each (dim, rank), as functions of the residual."""

    heads: int
    dim: int
    one: Callable[[int], Factor]  # head -> (x (D,) -> (d, r))
    all: Factor  # x (D,) -> (H, d, r)


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
    return _double(trace.layers[layer].residual_in)


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
        return fisher_field(model, found, token)
    if not 0 <= head < found.heads:
        raise ValueError(f"got head {head}, expected 0 to {found.heads - 1}")
    net = _net(model, trace, found)
    width = found.residual_in.shape[1]
    if reading != "key" and net.heads * net.dim != width:
        raise ValueError(
            f"got {net.heads} heads of {net.dim} on a residual stream of {width}: its blocks are no heads' spaces; "
            "take the reading along keys"
        )
    if reading == "whole":
        return MetricFunction.low_rank(lambda x: _block_diagonal(net.all(x)), width, name=f"layer {found.index}")
    if reading == "block":
        eye = torch.eye(width, dtype=torch.float64, device=_double(found.residual_in).device)
        inclusion = eye[:, head * net.dim : (head + 1) * net.dim]
    else:
        inclusion = _key_slice(model, trace, found, head)
    name = f"layer {found.index}, head {head}" + (", along keys" if reading == "key" else "")
    return MetricFunction.low_rank(net.one(head), net.dim, inclusion, name)


def _double(values: Tensor) -> Tensor:
    """float64 without gradient, on the CPU where the device has none (Apple's MPS)."""
    values = values.detach()
    return values.cpu().double() if values.device.type == "mps" else values.double()


def _block_diagonal(U: Float[Tensor, "head dim rank"]) -> Float[Tensor, "space all"]:
    heads, dim, rank = U.shape
    eye = torch.eye(heads, dtype=U.dtype, device=U.device)
    return torch.einsum("hir,hg->higr", U, eye).reshape(heads * dim, heads * rank)


def _key_slice(model: Any, trace: Trace, layer: LayerTrace, head: int) -> Float64[Tensor, "width dim"]:
    """W^+ of one head's keys."""
    from fbt_core.geometry.source_factors import projection

    return torch.linalg.pinv(_double(projection(model, trace, layer, "key")[head]))


def _net(model: Any, trace: Trace, layer: LayerTrace) -> _Net:
    """The MetricNet of a layer: an adapter's, or the model's own."""
    from fbt_core.model.adapted import AdapterNets, attention_norm  # a model room, which needs the geometry first

    norm = _norm(attention_norm(model, layer.index, trace.stack), layer.residual_in)
    if trace.source != "adapter":
        return _of_module(model.blocks[layer.index].metric, norm, trace.strength)
    nets: Any = AdapterNets.of(trace.adapter).to(layer.residual_in.device)
    return _of_module(nets.layers[str(layer.index)].metric, norm, trace.strength)


def _norm(module: Any, like: Tensor) -> Factor:
    """The norm before the attention in float64: told by its effect, for a library's may compute in float32 inside."""
    from fbt_core.geometry.readout import FinalNorm, probed_norm

    if module is None:
        return lambda x: x
    if isinstance(module, torch.nn.RMSNorm):
        assert module.eps is not None
        gain = _double(module.weight)
        found = FinalNorm("rms", gain, torch.zeros_like(gain), module.eps)
    else:
        found = probed_norm(module, like)
    return lambda x: found.gain * found.unit(x) + found.shift


def _of_module(net: Any, norm: Factor, strength: float) -> _Net:
    """The functions of a ``FullMetricNet`` or a ``DictionaryMetricNet``, with weights of one head or of all."""
    some = _dictionary if hasattr(net, "atoms") else _full
    c = net.config

    def of(which: slice) -> Factor:
        raw = some(net, norm, which)
        return lambda x: _bounded(raw(x), c.kappa_max, strength)

    def one(head: int) -> Factor:
        found = of(slice(head, head + 1))
        return lambda x: found(x)[0]

    return _Net(c.heads, c.head_width, one, of(slice(None)))


def _full(net: Any, norm: Factor, which: slice) -> Factor:
    """x -> U before the ceiling, (head, d, r), of some heads of a ``FullMetricNet``."""
    c = net.config
    first, start = _double(net.first.weight), _double(net.first.bias)
    second, shift = (
        _double(part).unflatten(0, (c.heads, -1))[which].flatten(0, 1) for part in (net.second.weight, net.second.bias)
    )

    def raw(x: Tensor) -> Tensor:
        hidden = F.gelu(F.linear(norm(x), first, start))
        return F.linear(hidden, second, shift).unflatten(-1, (-1, c.head_width, c.rank))

    return raw


def _dictionary(net: Any, norm: Factor, which: slice) -> Factor:
    """The same of a ``DictionaryMetricNet``: U = B diag(sqrt w)."""
    atoms = _double(net.atoms)[which]
    weight, bias = (
        _double(part).unflatten(0, (net.config.heads, -1))[which].flatten(0, 1)
        for part in (net.weigh.weight, net.weigh.bias)
    )

    def raw(x: Tensor) -> Tensor:
        root = F.softplus(F.linear(norm(x), weight, bias)).sqrt().unflatten(-1, (len(atoms), -1))
        return atoms * root.unsqueeze(-2)

    return raw


def _bounded(U: Float[Tensor, "head dim rank"], kappa_max: float, strength: float) -> Float[Tensor, "head dim rank"]:
    """U under its ceiling (item 2), times the strength. On the ceiling's edge the field has a kink."""
    size = U.square().sum((-2, -1), keepdim=True)
    return U * (strength * (kappa_max / size.clamp_min(kappa_max)).sqrt())
