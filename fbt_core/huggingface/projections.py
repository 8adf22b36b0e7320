"""The linear maps inside an attention layer of the transformers library: from a residual to keys and queries."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fbt_core.model.residual_watch import Passage

NAMES: dict[str, tuple[str, ...]] = {
    "query": ("q_proj", "query", "q", "q_lin", "query_proj"),
    "key": ("k_proj", "key", "k", "k_lin", "key_proj"),
}
"""What the projection is called where it has a layer of its own."""

STACKED, BY_HEAD = ("c_attn", "Wqkv", "qkv_proj", "qkv", "in_proj"), ("query_key_value",)
"""Layers that make queries, keys and values at once: one after the other, or head by head."""

PARTS = {"query": 0, "key": 1}

NORMS_AFTER = ("q_norm", "k_norm", "query_norm", "key_norm", "q_layernorm", "k_layernorm", "qk_norm")


@dataclass(frozen=True)
class Site:
    """Where one layer's parts are: its attention, the norms before and after, the numbers of heads and their width."""

    block: nn.Module
    attention: nn.Module | None
    norm: nn.Module | None  # before the attention; None where it reads the residual itself
    final_norm: nn.Module | None  # after the last layer
    heads: int
    shared: int  # heads of keys and values
    width: int

    @classmethod
    def of(cls, passage: Passage) -> Site:
        """The parts that ran in a passage; its first attention where there are two."""
        call = passage.calls[0] if passage.calls else None
        sizes = (len(call.q), len(call.k), call.q.shape[-1]) if call else (0, 0, 0)
        attention = call.module if call else None
        return cls(passage.block, attention, passage.attention_norm, passage.final_norm, *sizes)


def projection(site: Site, which: str) -> Float[Tensor, "head dim width"]:
    """W of keys or queries before their rotation, one a head, times the gain of the norm before it.

    So k = W (x - mean) / size + bias for a residual x, and W itself is what acts on a direction of the normalised
    residual. Shared heads are repeated. Raises ``ValueError`` with the reason where no such matrix is to be had.
    """
    if which not in NAMES:
        raise ValueError(f"got {which!r}, expected one of {', '.join(NAMES)}")
    attention = site.attention
    if attention is None:
        raise ValueError("got a layer whose queries and keys cannot be read, expected attention")
    if any(getattr(attention, name, None) is not None for name in NORMS_AFTER):
        raise ValueError(f"got a layer that normalises its {which} after the projection: no one matrix gives it")
    weight = _weight(site, which)
    per_head = weight.unflatten(0, (-1, site.width))
    gain = 1.0 if site.norm is None else _gain(site.norm, weight.shape[1])
    return (per_head * gain).repeat_interleave(site.heads // len(per_head), dim=0)


def _weight(site: Site, which: str) -> Tensor:
    """The (out, in) matrix of one projection."""
    attention, expected = site.attention, site.width * (site.heads if which == "query" else site.shared)
    for name in NAMES[which]:
        if isinstance(layer := getattr(attention, name, None), nn.Module) and hasattr(layer, "weight"):
            if (weight := _upright(layer)).shape[0] == expected:
                return weight
    queries, keys = site.heads * site.width, site.shared * site.width
    for name in (*STACKED, *BY_HEAD):
        if not isinstance(layer := getattr(attention, name, None), nn.Module) or not hasattr(layer, "weight"):
            continue
        if (weight := _upright(layer)).shape[0] != queries + 2 * keys:
            continue
        if name in STACKED:
            return weight.split([queries, keys, keys])[PARTS[which]]
        if site.heads == site.shared:
            return weight.unflatten(0, (site.heads, 3, site.width))[:, PARTS[which]].flatten(0, 1)
    raise ValueError(f"got {type(attention).__name__}, in which no one matrix makes the {which}")


def _upright(layer: Any) -> Tensor:
    """The weight as (out, in); GPT-2's kind of layer keeps it the other way."""
    return layer.weight.T if type(layer).__name__ == "Conv1D" else layer.weight


def _gain(norm: Any, width: int) -> Tensor:
    """What a norm multiplies each coordinate by, after it made the size 1.

    Read off +1, -1, +1, ... and its negative, which have mean 0 and size 1 already, so that it is the same for every
    kind of norm, a bias or not, a weight stored as itself or as its difference from 1.
    """
    weight = next(norm.parameters(), torch.empty(0))
    signs = torch.ones(1, width, dtype=weight.dtype, device=weight.device)
    signs[:, 1::2] = -1
    return ((norm(signs) - norm(-signs)) / 2 * signs)[0].detach()


def rotate(
    site: Site, x: Float[Tensor, "head token dim rank"], rotary: tuple[Tensor, Tensor] | None
) -> Float[Tensor, "head token dim rank"]:
    """The columns of ``x`` turned as the layer turns keys, by the library's own function.

    Raises ``ValueError`` where the layer turns keys in a way that was not seen.
    """
    attention = site.attention
    if rotary is None:
        hidden = [name for name, _ in attention.named_modules() if "rotary" in name] if attention is not None else []
        if hidden or getattr(attention, "rotary_dim", None):
            raise ValueError(f"got {type(attention).__name__}, which turns its keys out of sight")
        return x
    code: Any = sys.modules[type(attention).__module__]
    interleaved = getattr(getattr(attention, "config", None), "rope_interleave", False)
    function = getattr(code, "apply_rotary_pos_emb_interleave" if interleaved else "apply_rotary_pos_emb", None)
    if function is None:
        raise ValueError(f"got {type(attention).__name__}, which turns its keys in a way of its own")
    columns = x.permute(3, 0, 1, 2)  # a batch of one a column
    cos, sin = (part[None].to(x.dtype) for part in rotary)
    turned = getattr(attention, "qk_rope_head_dim", None)
    size = turned or (2 * cos.shape[-1] if _half(code) else cos.shape[-1])
    at = slice(x.shape[2] - size, None) if turned else slice(0, size)
    part = columns[..., at]
    done = function(part, part, cos, sin)[1]
    before, after = columns[..., : at.start], columns[..., size:] if not turned else columns[..., :0]
    return torch.cat([before, done, after], -1).permute(1, 2, 3, 0)


def _half(code: Any) -> bool:
    """Whether the file's rotation reads each angle once, for both of its coordinates."""
    return hasattr(code, "_apply_rotary_emb")
