"""From one watched pass of a transformers model to its traces, one a stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fbt_core.huggingface.blocks import is_cross
from fbt_core.huggingface.layers import Kept, layer_trace
from fbt_core.model.residual_watch import Passage
from fbt_core.trace import LayerTrace, Trace


@dataclass(frozen=True)
class Pass:
    """What one pass left behind."""

    passages: Mapping[str, Sequence[Passage]]  # by stack, in the order in which they ran
    outputs: Mapping[str, Tensor]  # each stack's last hidden state, a batch of one
    logits: Tensor | None  # (token, vocab), of the last stack
    keep: Tensor | None  # which tokens of the input are no padding
    path: Callable[[nn.Module], str]  # of a module inside the model

    def select(self, passage: Passage, cross: bool) -> tuple[Any, Tensor | None]:
        """The attention call and the own map of one block: to its own sequence, or across to the other."""
        calls = [call for call in passage.calls if is_cross(self.path(call.module)) == cross]
        columns = self.outputs["encoder"].shape[1] if cross else passage.before.shape[1]
        maps = [
            found[0]
            for module, found in passage.maps
            if is_cross(self.path(module)) == cross and _is_map(found, passage.before.shape[1], columns)
        ]
        return calls[0] if calls else None, maps[0] if maps else None

    def layers(self, stack: str, cross: bool = False) -> tuple[LayerTrace, ...]:
        """The layers of a stack, numbered as they ran."""
        kept = Kept(columns=self.keep) if cross else Kept(rows=None if stack == "decoder" else self.keep)
        return tuple(
            layer_trace(index, passage, *self.select(passage, cross), kept)
            for index, passage in enumerate(self.passages[stack])
        )


def assemble(
    ran: Pass, ids: Mapping[str, Tensor], labels: Mapping[str, tuple[str, ...]], strength: float, notes: tuple[str, ...]
) -> dict[str, Trace]:
    """The traces: of the one stack, or of encoder, decoder and (rows the decoder's, columns the encoder's) cross."""
    traces = {}
    for stack in ran.passages:
        keep = None if stack == "decoder" else ran.keep
        last = stack == list(ran.passages)[-1]
        normed = _rows(ran.outputs[stack][0], keep)
        logits = None if ran.logits is None or not last else _rows(ran.logits, keep)
        layers = ran.layers(stack)
        traces[stack] = Trace(
            _ids(ids.get(stack), normed, keep), layers, normed, logits, strength, False,
            _rows_of(labels.get(stack, ()), keep), stack=stack, notes=notes + _notes(layers),
        )  # fmt: skip
    if {"encoder", "decoder"} <= set(traces):
        encoder, decoder = traces["encoder"], traces["decoder"]
        layers = ran.layers("decoder", cross=True)
        keys = encoder.tokens or tuple(str(int(token)) for token in encoder.ids)
        traces["cross"] = Trace(
            decoder.ids, layers, decoder.normed, decoder.logits, strength, False, decoder.tokens, keys, "cross",
            notes=notes + _notes(layers),
        )  # fmt: skip
    return traces


def _is_map(found: Tensor, rows: int, columns: int) -> bool:
    """Whether what a module returned is attention of all tokens to all: Longformer's is of a window, for one."""
    if found.shape[-2:] != (rows, columns):
        return False
    sums = found.float().sum(-1)
    return bool((found >= 0).all() and (sums <= 1.01).all())


def _ids(ids: Tensor | None, normed: Tensor, keep: Tensor | None) -> Tensor:
    """The ids of a stack; the patches of an image are numbered."""
    return torch.arange(len(normed), device=normed.device) if ids is None else _rows(ids, keep)


def _rows(x: Tensor, keep: Tensor | None) -> Tensor:
    return x if keep is None else x[keep.to(x.device)]


def _rows_of(labels: tuple[str, ...], keep: Tensor | None) -> tuple[str, ...]:
    if keep is None or len(labels) != len(keep):
        return labels
    return tuple(label for label, kept in zip(labels, keep.tolist(), strict=True) if kept)


def _notes(layers: Sequence[LayerTrace]) -> tuple[str, ...]:
    """What a reader must know of the layers, once each."""
    notes: list[str] = []
    kinds = {layer.kind for layer in layers}
    if len(kinds) > 1:
        counts = {kind: sum(layer.kind == kind for layer in layers) for kind in sorted(kinds)}
        notes.append("layers: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    if bare := [layer for layer in layers if layer.kind == "attention" and layer.factors is None]:
        notes.append(f"queries and keys cannot be had at {len(bare)} of {len(layers)} layers: {bare[0].why}")
    if any(layer.factors is not None and layer.factors.sinks is not None for layer in layers):
        notes.append("rows of attention sum to less than 1: each head's sink takes the rest")
    if any(layer.residual_mid is None for layer in layers):
        notes.append("the residual between attention and feed-forward cannot be told apart at some layers")
    return tuple(notes)
