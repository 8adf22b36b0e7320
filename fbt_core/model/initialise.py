"""Initial values: each parameter's own generator, seeded by (seed, name), so that twins start alike."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn

from fbt_core.config import FiberBundleConfig
from fbt_core.model.metric_net import FullMetricNet

TORSION_STD = 0.1
"""Of the entries of L and R for a normalised input: the rotations start small, and not at the stationary point 0."""


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Fill every parameter of a ``FiberBundleTransformer``; on the meta device there is nothing to fill."""
    config: FiberBundleConfig = model.config  # type: ignore[assignment]
    metric_std = {
        f"{name}.second.weight": module.initial_std()
        for name, module in model.named_modules()
        if isinstance(module, FullMetricNet)
    }
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            continue
        constant = _constant(name, config)
        if constant is not None:
            parameter.fill_(constant)
            continue
        if name == "position.weight":
            parameter.copy_(sinusoids(*parameter.shape) * config.width**-0.5)
            continue
        std = metric_std.get(name) or _std(name, parameter, config)
        parameter.copy_(torch.randn(parameter.shape, generator=named_generator(seed, name)) * std)


def named_generator(seed: int, name: str) -> torch.Generator:
    """The generator of one name: what it draws does not depend on what else is drawn."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _constant(name: str, c: FiberBundleConfig) -> float | None:
    """The parameters that start at a number: scalars with a meaning, gains, biases."""
    *_, owner, kind = ("", *name.split("."))
    if owner == "weigh" and kind == "bias":  # dictionary: E sum_a w_a ||b_a||^2 = metric_init with unit atoms
        # w = softplus(bias + z) is nearly exp(bias + z) while small, and E exp(z) = exp(1/2) for z ~ N(0, 1)
        return math.log(math.expm1(max(c.metric_init, 1e-6) / c.atoms)) - 0.5
    by_kind = {
        "log_tau": math.log(2 * math.sqrt(c.head_width)),  # item 5: then 2 q.k / tau = q.k / sqrt(d)
        "gate": c.gate_init,
        "curvature": c.curvature_init,
        "attention_gain": 0.0,  # ReZero (Bachlechner et al. 2020, arXiv 2003.04887)
        "feed_forward_gain": 0.0,
        "bias": 0.0,
    }
    if owner.endswith("norm") and kind == "weight":
        return 1.0
    return by_kind.get(kind)


def _std(name: str, parameter: Tensor, c: FiberBundleConfig) -> float:
    """1 / sqrt(fan-in), less for what writes into the residual stream of a deep model."""
    *_, owner, kind = ("", *name.split("."))
    if kind == "atoms":
        return c.head_width**-0.5  # unit-norm atoms on average
    if owner == "torsion" or name.endswith("torsion.out.weight"):
        return TORSION_STD * c.width**-0.5
    if owner in ("output", "contract") and not c.pure_stack and c.residual == "plain":
        return parameter.shape[1] ** -0.5 * (2 * c.layers) ** -0.5
    return parameter.shape[-1] ** -0.5


def sinusoids(length: int, width: int) -> Tensor:
    """Vaswani et al. 2017 (arXiv 1706.03762), section 3.5, as (length, width), each entry in [-1, 1].

    Learned positions start here: a fixed offset is then a rotation from the first step on, at every distance, where
    independent random rows would have to learn each position by itself.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    column = torch.arange(width)
    angle = position / 10_000 ** ((column // 2 * 2).double() / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())
