"""The stored tensors of a checkpoint: their names in order, changes of an adapter among them, and how they are read.

Everything is computed in float64, in pieces, and one tensor at a time: a model of any size needs no second copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from fbt_core.checkpoints import Checkpoint
from fbt_core.tokenizer import visible

PIECE = 1 << 22
"""Numbers that are widened to float64 at once."""

DELTA = "Δ "
"""Begins the name of a LoRA adapter's change to a matrix, B A."""

LORA = re.compile(r"(.*)\.lora_(?:A|down)((?:\.[\w-]+)*)$")
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def names(checkpoint: Checkpoint) -> list[str]:
    """Every tensor that has values to draw, changes of a LoRA adapter first."""
    ordered = sorted(checkpoint.tensors, key=natural)
    deltas = [DELTA + name for name in ordered if _partner(checkpoint, name)]
    return [*deltas, *(name for name in ordered if checkpoint.tensors[name].numel())]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key: layer 2 before layer 10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part[:9]), part) if part.isdecimal() else (1, 0, part) for part in parts]


def first_choice(checkpoint: Checkpoint) -> str | None:
    """The tensor to show at first: a change of an adapter, else a matrix inside a layer, else any matrix."""
    known = names(checkpoint)
    matrices = [name for name in known if not name.startswith(DELTA) and min(checkpoint.tensors[name].shape, default=0)
                > 1 and checkpoint.tensors[name].ndim > 1]  # fmt: skip
    layered = [name for name in matrices if NUMBER.search(name)]
    deltas = [name for name in known if name.startswith(DELTA)]
    return next(iter([*deltas, *layered, *matrices, *known]), None)


def shape(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    """Of a tensor, or of an adapter's change."""
    if name.startswith(DELTA):
        down, up = factors(checkpoint, name)
        return (up.shape[0], down.shape[1])
    return tuple(checkpoint.tensors[name].shape)


def visible_name(name: str) -> str:
    """A tensor's name with control and direction characters made visible, cut to a readable length."""
    delta = name.startswith(DELTA)
    if delta and (match := LORA.fullmatch(name.removeprefix(DELTA))):
        name = match[1]
    return DELTA * delta + "".join(map(visible, name[:300])) + ("…" if len(name) > 300 else "")


def in_pieces(tensor: Tensor) -> Iterator[Tensor]:
    """All numbers of a tensor in float64, ``PIECE`` at a time."""
    for piece in tensor.detach().reshape(-1).split(PIECE):
        yield widened(piece)


def finite_of(piece: Tensor) -> Tensor:
    """The finite values; the piece itself where all are, since picking is what takes the time."""
    finite = torch.isfinite(piece)
    return piece if bool(finite.all()) else piece[finite]


def widened(tensor: Tensor) -> Tensor:
    """In float64 on the CPU. 8-bit floats go through float32, which all of them have a way to."""
    return tensor.detach().to("cpu").to(torch.float32 if tensor.dtype.itemsize == 1 else tensor.dtype).double()


def _partner(checkpoint: Checkpoint, name: str) -> str | None:
    """The B of a LoRA adapter's A."""
    if not LORA.fullmatch(name) or checkpoint.tensors[name].ndim != 2:
        return None
    other = name.replace(".lora_A", ".lora_B").replace(".lora_down", ".lora_up")
    found = checkpoint.tensors.get(other)
    matches = found is not None and found.ndim == 2 and found.shape[1] == checkpoint.tensors[name].shape[0]
    return other if matches else None


def factors(checkpoint: Checkpoint, name: str) -> tuple[Tensor, Tensor]:
    """(A, B) of a change's name."""
    down = name.removeprefix(DELTA)
    other = _partner(checkpoint, down)
    assert other is not None, "names() lists changes with both factors only"
    return checkpoint.tensors[down], checkpoint.tensors[other]
