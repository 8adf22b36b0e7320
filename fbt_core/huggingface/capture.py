"""What an attention layer of the transformers library is given, recorded while it runs.

One attention function is registered under the name of this house, and the library's eager mask under the same name:
without the latter the causal mask would silently be lost. The function calls what the model's own file or torch's fused
attention would have done; it only remembers q, k, v and what was done with them. It remembers into a context variable,
so two threads on one model do not mix.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fbt_core.model.watching import current_passage

NAME = "fiberscope"
"""Of the attention function and of the mask function, in the library's tables."""

ROWS_CHECKED = 3
"""Rows of each layer's output that are kept, to be compared with what the recorded factors give."""


@dataclass(frozen=True)
class Mask:
    """What a mask says: whether it is just causal, and else what is added to the scores, in nats, -inf where hidden."""

    causal: bool
    added: Tensor | None


@dataclass(frozen=True)
class Call:
    """One call of an attention function: a batch of one, before keys and values are repeated for shared heads."""

    module: nn.Module
    q: Tensor  # (head, row, dim)
    k: Tensor  # (head or fewer, token, dim)
    v: Tensor
    scale: float
    mask: Mask
    softcap: float | None
    sinks: Tensor | None
    rows: tuple[int, ...]
    output: Tensor  # (row, head, value), of those rows


@dataclass
class Recording:
    """How one forward pass is to run, and what the masks of its layers were, each read once."""

    fused: bool  # whether torch's fused attention may take the place of the model's own
    maps: bool = False  # whether the model's own attention maps are wanted
    keep: Tensor | None = None  # which tokens of the batch of one are no padding
    masks: dict[tuple[int, ...], tuple[tuple[Tensor, ...], Mask]] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)  # each stack's last hidden state

    def mask(self, parts: tuple[Tensor, ...], rows: int, columns: int) -> Mask:
        """What the sum of some masks says; the same object for the same tensors."""
        key = tuple(id(part) for part in parts)
        if key not in self.masks:  # the parts are kept, so that no id is used again
            self.masks[key] = (parts, _read_mask(parts, rows, columns))
        return self.masks[key][1]


_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)
_PLAIN: ContextVar[str] = ContextVar("plain forward", default="")
_LOCK = threading.Lock()


@contextmanager
def recording(record: Recording) -> Iterator[Recording]:
    """Let the attention of this thread be recorded."""
    token = _RECORDING.set(record)
    try:
        yield record
    finally:
        _RECORDING.reset(token)


@contextmanager
def plain(way: str) -> Iterator[None]:
    """Let the attention of this thread be the library's own: ``sdpa`` or ``eager``, its mask included."""
    token = _PLAIN.set(way)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def register() -> None:
    """Enter the two functions into the library's tables. Again does nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    with _LOCK:
        AttentionInterface.register(NAME, _attention)
        AttentionMaskInterface.register(NAME, _mask)


def observe_outputs(owners: Mapping[str, nn.Module]) -> None:
    """Let each stack's last hidden state be recorded; ``owners`` are the models that return them."""

    def hook(stack: str) -> Any:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if (record := _RECORDING.get()) is not None:
                record.outputs[stack] = first(output)

        return keep

    for stack, module in owners.items():
        module.register_forward_hook(hook(stack))


def first(output: Any) -> Tensor:
    """The hidden state of a model's output."""
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "last_hidden_state", None)
    return output[0] if found is None else found


def has_interface(module: nn.Module) -> bool:
    """Whether the file of a module's class attends through the library's table of attention functions."""
    return hasattr(sys.modules[type(module).__module__], "eager_attention_forward")


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    from transformers.masking_utils import eager_mask, sdpa_mask

    return (sdpa_mask if _PLAIN.get() == "sdpa" else eager_mask)(*args, **kwargs)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """What the library calls in place of eager or fused attention; the same arguments, the same result."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    eager = sys.modules[type(module).__module__].eager_attention_forward  # type: ignore[attr-defined]
    record, passage = _RECORDING.get(), current_passage()
    if record is None or passage is None or args or query.shape[0] != 1:
        run = sdpa_attention_forward if _PLAIN.get() == "sdpa" else eager
        return run(module, query, key, value, attention_mask, *args, **kwargs)
    softcap, sinks = kwargs.get("softcap"), kwargs.get("s_aux")
    parts = tuple(part for part in (attention_mask, kwargs.get("position_bias")) if part is not None)
    mask = record.mask(parts, query.shape[2], key.shape[2])
    if record.fused and softcap is None and sinks is None and mask.added is None and not record.maps:
        fused = {name: kwargs[name] for name in ("dropout", "scaling") if name in kwargs}
        result = sdpa_attention_forward(module, query, key, value, None, is_causal=mask.causal, **fused)
    else:
        result = eager(module, query, key, value, attention_mask, **kwargs)
    scaling = kwargs.get("scaling")
    rows = _rows(query.shape[2], record.keep)
    passage.calls.append(
        Call(
            module, query[0], key[0], value[0], query.shape[-1] ** -0.5 if scaling is None else float(scaling), mask,
            softcap, sinks, rows, result[0][0, list(rows)].clone(),
        )
    )  # fmt: skip
    return result


def _rows(length: int, keep: Tensor | None) -> tuple[int, ...]:
    """A few rows to check: first, middle, last of those that are no padding."""
    all_rows = list(range(length)) if keep is None or len(keep) != length else keep.nonzero().flatten().tolist()
    return tuple(sorted({all_rows[i * (len(all_rows) - 1) // (ROWS_CHECKED - 1)] for i in range(ROWS_CHECKED)}))


def _read_mask(parts: tuple[Tensor, ...], rows: int, columns: int) -> Mask:
    """The sum of the library's masks, whose least float means hidden, as (row, token) or (head, row, token)."""
    total: Tensor | None = None
    for part in parts:
        if part.dtype == torch.bool:
            part = torch.zeros(part.shape, device=part.device).masked_fill(~part, float("-inf"))
        part = part.reshape(part.shape[0], *[1] * (4 - part.dim()), *part.shape[1:])  # padding may be (batch, token)
        part = part[0, ..., :columns].expand(-1, rows, -1)
        part = part.masked_fill(part <= torch.finfo(part.dtype).min / 2, float("-inf"))
        total = part if total is None else total + part
    if total is None or not total.any():
        return Mask(False, None)
    total = total[0] if len(total) == 1 else total
    if total.dim() == 2 and rows == columns:
        causal = torch.full_like(total, float("-inf")).triu(1)
        if torch.equal(causal, total):
            return Mask(True, None)
    return Mask(False, total)
