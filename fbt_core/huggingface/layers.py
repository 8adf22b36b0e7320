"""From what was captured of a pass to the house's own record of a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fbt_core.attention.scores import Factors, attention
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.huggingface.blocks import kind_of
from fbt_core.huggingface.capture import Call, Mask
from fbt_core.model.residual_watch import Passage
from fbt_core.trace import LayerTrace

TOLERANCES: dict[torch.dtype, float] = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2}
"""How far a layer's output may lie from what its factors give, of its largest value; 0.1 for bfloat16.

That of float64 leaves room for softmaxes that the library takes in float32 whatever the model is in."""


@dataclass(frozen=True)
class Kept:
    """Which tokens are no padding: rows of the sequence, and columns where keys are another sequence."""

    rows: Tensor | None = None
    columns: Tensor | None = None


def layer_trace(index: int, passage: Passage, call: Call | None, maps: Tensor | None, kept: Kept) -> LayerTrace:
    """One layer's record. ``call`` is the attention to show; ``maps`` stand in where there is none."""
    assert passage.after is not None
    if passage.before.shape[0] != 1:
        raise ValueError(f"got blocks that run over {tuple(passage.before.shape)}, expected (1, token, width)")
    factors, why = None, ""
    kind = "attention" if call is not None else _kind(passage)
    if call is not None:
        factors = _factors(call, kept)
        why = _disagreement(index, call, factors, kept)
    elif kind == "attention":
        why = f"layer {index} computes its attention where its queries and keys cannot be read"
        why += ": its own maps are shown" if maps is not None else ", and it returns no maps of all tokens"
    else:
        why = f"layer {index} has no attention: it is a {kind} layer"
    middle = passage.middle if passage.seen else None
    before, middle, after = (
        None if x is None else _rows(x.reshape(passage.before.shape)[0].flatten(1), kept.rows)
        for x in (passage.before, middle, passage.after)
    )
    assert before is not None and after is not None
    return LayerTrace(
        index, before, middle, after, None if why else factors, None, "euclidean", kind,
        _kept_map(maps, kept) if why else None, why, _rotary(passage, kept),
    )  # fmt: skip


def _factors(call: Call, kept: Kept) -> Factors:
    """The model's dot product as factors: tau = 2 / scale, so that the metric's score at g = I continues it."""
    columns = kept.rows if kept.columns is None else kept.columns
    q = _rows(call.q, kept.rows, 1)
    k, v = (_repeat(_rows(x, columns, 1), len(q)) for x in (call.k, call.v))
    mask = call.mask if kept.rows is None and kept.columns is None else _kept_mask(call.mask, kept)
    scale = torch.full((len(q),), call.scale, dtype=torch.promote_types(q.dtype, torch.float32), device=q.device)
    return Factors(
        q, k, v, LowRankMetric(k.new_zeros(*k.shape, 0)), 2 / scale, k.new_zeros(k.shape[:-1]), 0.0, mask.causal,
        scale=scale, mask=mask.added, softcap=call.softcap, sinks=call.sinks,
    )  # fmt: skip


def _repeat(x: Tensor, heads: int) -> Tensor:
    """Shared keys or values, one a head."""
    return x if len(x) == heads else x.repeat_interleave(heads // len(x), dim=0)


def _disagreement(index: int, call: Call, f: Factors, kept: Kept) -> str:
    """A reason if the factors do not give back a few rows of the layer's own output, else empty."""
    if not call.output.isfinite().all():
        return f"the attention of layer {index} gives numbers that are not finite"
    f, theirs = _widened(f), call.output.to(torch.promote_types(call.output.dtype, torch.float32))
    rows = [attention(f, "euclidean", slice(row, row + 1)) @ f.v for row in _places(call.rows, kept.rows)]
    ours = torch.cat(rows, 1).transpose(0, 1)
    apart = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(torch.finfo(theirs.dtype).tiny))
    if apart <= TOLERANCES.get(call.output.dtype, 0.1):
        return ""
    return (
        f"the attention of layer {index} is not what its queries, keys, values and mask give: it differs by "
        f"{apart:.1g} of its largest value"
    )


def _widened(f: Factors) -> Factors:
    """The factors in float32 at least."""
    if f.q.dtype in (torch.float32, torch.float64):
        return f
    wide = {name: getattr(f, name).float() for name in ("q", "k", "v", "omega")}
    return replace(f, **wide, metric=LowRankMetric(f.U.float()), mask=None if f.mask is None else f.mask.float())


def _places(rows: tuple[int, ...], keep: Tensor | None) -> list[int]:
    """Where the checked rows stand among those that are kept."""
    return list(rows) if keep is None else [int(keep[:row].sum()) for row in rows]


def _kind(passage: Passage) -> str:
    kinds = [kind_of(module) for module in passage.mixers]
    return "attention" if "attention" in kinds else next(iter(kinds), "feed-forward")


def _rows(x: Tensor, keep: Tensor | None, axis: int = 0) -> Tensor:
    return x if keep is None or len(keep) != x.shape[axis] else x.index_select(axis, keep.nonzero().flatten())


def _kept_mask(mask: Mask, kept: Kept) -> Mask:
    """The mask among the tokens that are no padding: what hid only the padding hides nothing."""
    if mask.added is None:
        return mask
    columns = kept.rows if kept.columns is None else kept.columns
    added = _rows(_rows(mask.added, kept.rows, mask.added.dim() - 2), columns, mask.added.dim() - 1)
    if not added.any():
        return Mask(False, None)
    causal = torch.full_like(added, float("-inf")).triu(1)
    return Mask(True, None) if added.dim() == 2 and torch.equal(added, causal) else Mask(False, added)


def _kept_map(maps: Tensor | None, kept: Kept) -> Tensor | None:
    columns = kept.rows if kept.columns is None else kept.columns
    return None if maps is None else _rows(_rows(maps, kept.rows, 1), columns, 2)


def _rotary(passage: Passage, kept: Kept) -> tuple[Tensor, Tensor] | None:
    if passage.rotary is None:
        return None
    cos, sin = (_rows(part.reshape(part.shape[-2:]), kept.rows) for part in passage.rotary)
    return cos, sin
