"""What stands between the residual stream and the logits: the final norm, the unembedding, and their derivative.

A model is asked through its functions and not through its parameters: libraries keep a norm's gain under many names and
in several forms (one adds 1 to it). Four vectors tell all that a LayerNorm or an RMSNorm is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LARGE, SMALL = 64.0, 2.0**-10
"""Sizes of the probing vectors: an epsilon of 1e-5 is nothing beside the one, and all there is beside the other."""

ROUNDING = 1e-5
"""A scale of the logits that is nearer to 1 is 1."""

LOOSE = 0.02
"""Relative error up to which logits count as linear in the normed residual: rounding to bfloat16 leaves 0.004."""


@dataclass(frozen=True)
class FinalNorm:
    """N(x) = gain * C x / s + shift, s^2 = mean (C x)^2 + epsilon; C takes the mean off, or is the identity.

    ``kind`` is layer (C takes the mean off), rms (it does not) or none (N(x) = x).
    """

    kind: str
    gain: Float[Tensor, " width"]
    shift: Float[Tensor, " width"]
    epsilon: float

    def centre(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """C x."""
        return x - x.mean(-1, keepdim=True) if self.kind == "layer" else x

    def size(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch 1"]:
        """s, which is 1 without a norm."""
        if self.kind == "none":
            return torch.ones_like(x[..., :1])
        return (self.centre(x).square().mean(-1, keepdim=True) + self.epsilon).sqrt()

    def unit(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """C x / s."""
        return self.centre(x) / self.size(x)

    def push(
        self, x: Float[Tensor, "token width"], y: Float[Tensor, "token n width"]
    ) -> Float[Tensor, "token n width"]:
        """N'(x) y for every row of y: N' = diag(gain) (C - u u^T / D) / s, u = C x / s."""
        return self.gain * self._project(x, self.centre(y))

    def pull(
        self, x: Float[Tensor, "token width"], y: Float[Tensor, "token n width"]
    ) -> Float[Tensor, "token n width"]:
        """N'(x)^T y for every row of y."""
        return self._project(x, self.centre(self.gain * y))

    def _project(self, x: Tensor, y: Tensor) -> Tensor:
        if self.kind == "none":
            return y
        unit = self.unit(x).unsqueeze(-2)
        along = (y * unit).sum(-1, keepdim=True) / x.shape[-1]
        return (y - along * unit) / self.size(x).unsqueeze(-2)


@dataclass(frozen=True)
class Readout:
    """logits = link(scale (E u + offset)), E u + offset = E N(x) + bias, u the normed residual less the norm's shift.

    ``link`` is the identity, or c tanh(. / c) with c the ``softcap``.
    """

    unembedding: Float[Tensor, "vocab width"]  # E
    norm: FinalNorm
    offset: Float[Tensor, " vocab"]
    scale: float = 1.0
    softcap: float | None = None

    @cached_property
    def squares(self) -> Float[Tensor, " vocab"]:
        """||C gain e_v||^2 of every row of the unembedding, as the norm's derivative meets it."""
        return self.norm.centre(self.norm.gain * self.unembedding).square().sum(-1)

    def products(self, x: Float[Tensor, "token width"]) -> Float[Tensor, "token vocab"]:
        """E u, what the norm's direction gives each token of the vocabulary."""
        return (self.norm.gain * self.norm.unit(x)) @ self.unembedding.mT

    def logits(self, products: Float[Tensor, "token vocab"]) -> Float[Tensor, "token vocab"]:
        """The logits of those products."""
        plain = torch.add(self.scale * self.offset, products, alpha=self.scale)
        return plain if self.softcap is None else self.softcap * (plain / self.softcap).tanh()

    def slope(self, logits: Float[Tensor, "token vocab"]) -> Float[Tensor, "token vocab"] | float:
        """d logit / d (E u), elementwise; one number where it is the same for all."""
        if self.softcap is None:
            return self.scale
        return self.scale * (1 - (logits / self.softcap).square())


def readout(model: Any, softcap: float | None = None) -> Readout:
    """The readout of a model, in float32 or float64. ``softcap`` is that of its final logits.

    Raises ``ValueError`` with the reason for a model without an unembedding, and for one whose logits are no linear
    function of the normed residual, or whose norm is neither a LayerNorm nor an RMSNorm.
    """
    lens, final_norm, unembedding = _parts(model)
    probe, dtype = _probe(unembedding.shape[1], unembedding)
    norm = probed_norm(final_norm, unembedding[0])
    up, down = (_unlinked(row, softcap) for row in _called(lens, probe, LARGE, -LARGE))
    E = unembedding.detach().to(dtype)
    odd = (norm.gain * norm.unit(LARGE * probe.to(dtype)[None])) @ E.mT
    scale = float((up - down) @ odd[0] / (2 * odd.square().sum()).clamp_min(1e-30))
    scale = 1.0 if abs(scale - 1) < ROUNDING else scale
    error = float(((up - down) / 2 - scale * odd[0]).norm() / (odd.norm() * abs(scale)).clamp_min(1e-30))
    if not error < LOOSE:
        raise ValueError("the logits of this model are no linear function of its normed residual")
    return Readout(E, norm, (up + down) / (2 * scale), scale, softcap)


def _parts(model: Any) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], Tensor]:
    """(residual -> logits, residual -> normed, E) of either kind of model."""
    unembedding = getattr(model, "unembedding", None)
    if hasattr(model, "lens"):
        if unembedding is None:
            raise ValueError("this model has no unembedding: it predicts no token")
        return model.lens, model.final_norm, unembedding
    weight = model.embedding.weight if unembedding is None else unembedding.weight
    return lambda x: model.final_norm(x) @ weight.mT, model.final_norm, weight


def probed_norm(norm: Callable[[Tensor], Tensor], like: Float[Tensor, "*batch width"]) -> FinalNorm:
    """What a norm of residuals like these is, told by what it does: in float32, or in float64 where ``like`` is.

    Up, down, a smaller and a shifted probe together tell kind, gain, shift and epsilon. Raises ``ValueError`` for what
    is neither a LayerNorm nor an RMSNorm.
    """
    probe, dtype = _probe(like.shape[-1], like)
    up, down, half, small = _called(norm, probe, LARGE, -LARGE, LARGE / 2, SMALL)
    (shifted,) = norm((LARGE * (probe + 1))[None]).detach().to(dtype)
    shift = (up + down) / 2
    scale_free = torch.allclose(half, up, rtol=1e-2, atol=1e-4)
    same = torch.allclose(shifted, up, rtol=1e-2, atol=1e-4 + 1e-2 * float(up.abs().mean()))
    kind = "none" if not scale_free else "layer" if same else "rms"
    bare = FinalNorm(kind, torch.ones_like(shift), torch.zeros_like(shift), 0.0)
    large, tiny = (bare.unit(size * probe.to(dtype)) for size in (LARGE, SMALL))
    gain = (up - down) / (2 * large)
    if kind == "none":
        if not torch.allclose(gain, torch.full_like(gain, 1.0), rtol=1e-2):
            raise ValueError("a norm of this model is neither a LayerNorm nor an RMSNorm")
        return FinalNorm(kind, torch.ones_like(gain), torch.zeros_like(shift), 0.0)
    ratio = ((small - shift) * gain * tiny).sum() / (gain * tiny).square().sum()  # sqrt(m / (m + epsilon))
    mean_square = bare.size(SMALL * probe.to(dtype)).square()
    epsilon = float((mean_square * (ratio.clamp_min(1e-6) ** -2 - 1)).clamp_min(0))
    own = float(bare.size(LARGE * probe.to(dtype)).square())
    return FinalNorm(kind, gain * (1 + epsilon / own) ** 0.5, shift, epsilon)  # the large probe felt it a little


def _probe(width: int, like: Tensor) -> tuple[Tensor, torch.dtype]:
    """+1, -1, +1, ... in the model's own dtype, and the dtype to compute in."""
    probe = torch.ones(width, dtype=like.dtype, device=like.device)
    probe[1::2] = -1
    return probe, torch.float64 if like.dtype == torch.float64 else torch.float32


def _called(function: Callable[[Tensor], Tensor], probe: Tensor, *sizes: float) -> list[Tensor]:
    """What a function of the model makes of the probe at some sizes."""
    found = function(torch.stack([size * probe for size in sizes])).detach()
    return list(found.to(_probe(len(probe), probe)[1]))


def _unlinked(logits: Tensor, softcap: float | None) -> Tensor:
    if softcap is None:
        return logits
    return softcap * torch.atanh((logits / softcap).clamp(-0.999, 0.999))
