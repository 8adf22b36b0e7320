"""MetricNets as functions of the residual stream in float64: x -> U(x), the norm before them and the ceiling inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fbt_core.geometry.readout import FinalNorm, probed_norm
from fbt_core.trace import LayerTrace, Trace

Factor = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Net:
    """x -> U of some heads: ``heads`` of them, each (dim, rank), as functions of the residual."""

    heads: int
    dim: int
    one: Callable[[int], Factor]  # head -> (x (D,) -> (d, r))
    all: Factor  # x (D,) -> (H, d, r)


def double(values: Tensor) -> Tensor:
    """float64 without gradient, on the CPU where the device has none (Apple's MPS)."""
    values = values.detach()
    return values.cpu().double() if values.device.type == "mps" else values.double()


def net_of(model: Any, trace: Trace, layer: LayerTrace) -> Net:
    """The MetricNet of a layer: an adapter's, or the model's own."""
    from fbt_core.model.adapted import AdapterNets, attention_norm  # a model room, which needs the geometry first

    norm = _norm(attention_norm(model, layer.index, trace.stack), layer.residual_in)
    if trace.source != "adapter":
        return _of_module(model.blocks[layer.index].metric, norm, trace.strength)
    nets: Any = AdapterNets.of(trace.adapter).to(layer.residual_in.device)
    return _of_module(nets.layers[str(layer.index)].metric, norm, trace.strength)


def _norm(module: Any, like: Tensor) -> Factor:
    """The norm before the attention in float64: told by its effect, for a library's may compute in float32 inside."""
    if module is None:
        return lambda x: x
    if isinstance(module, torch.nn.RMSNorm):
        assert module.eps is not None
        gain = double(module.weight)
        found = FinalNorm("rms", gain, torch.zeros_like(gain), module.eps)
    else:
        found = probed_norm(module, like)
    return lambda x: found.gain * found.unit(x) + found.shift


def _of_module(net: Any, norm: Factor, strength: float) -> Net:
    """The functions of a ``FullMetricNet`` or a ``DictionaryMetricNet``, with weights of one head or of all."""
    some = _dictionary if hasattr(net, "atoms") else _full
    c = net.config

    def of(which: slice) -> Factor:
        raw = some(net, norm, which)
        return lambda x: _bounded(raw(x), c.kappa_max, strength)

    def one(head: int) -> Factor:
        found = of(slice(head, head + 1))
        return lambda x: found(x)[0]

    return Net(c.heads, c.head_width, one, of(slice(None)))


def _full(net: Any, norm: Factor, which: slice) -> Factor:
    """x -> U before the ceiling, (head, d, r), of some heads of a ``FullMetricNet``."""
    c = net.config
    first, start = double(net.first.weight), double(net.first.bias)
    second, shift = (
        double(part).unflatten(0, (c.heads, -1))[which].flatten(0, 1) for part in (net.second.weight, net.second.bias)
    )

    def raw(x: Tensor) -> Tensor:
        hidden = F.gelu(F.linear(norm(x), first, start))
        return F.linear(hidden, second, shift).unflatten(-1, (-1, c.head_width, c.rank))

    return raw


def _dictionary(net: Any, norm: Factor, which: slice) -> Factor:
    """The same of a ``DictionaryMetricNet``: U = B diag(sqrt w)."""
    atoms = double(net.atoms)[which]
    weight, bias = (
        double(part).unflatten(0, (net.config.heads, -1))[which].flatten(0, 1)
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
