"""Tensors of a PyTorch file as claims on its storages, and their numbers, read by plain file reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.pickle_plan.names import SIZES

ALIGNED = 16  # bytes of the widest dtype
EMPTY = torch.empty(0, dtype=torch.uint8)

Place = tuple[str | int, ...]
"""Keys and indices that lead from the file's outermost object to a container in it; () is that object itself."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor's claim on a storage, checked: it lies within it and claims no more numbers than are stored.

    ``container`` leads to the dict (or list, or module) that holds it under ``name``; in a pickled module the name is
    the dotted one of its state dict. Offset and strides count elements of ``dtype``, which torch calls so.
    """

    container: Place
    name: str
    dtype: str
    storage: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Of its numbers, were they stored one after another."""
        return prod(self.shape) * SIZES[self.dtype]


def read_stored(
    path: Path, storages: Mapping[str, tuple[int, int]], wanted: Iterable[StoredTensor]
) -> dict[str, Tensor]:
    """The tensors by name; ``storages`` gives each one's first byte in the file and its number of bytes.

    Each storage is read once, and only the part that is needed; tensors on one storage share their memory. Raises
    ``CheckpointError`` when the file no longer has those bytes.
    """
    wanted = list(wanted)
    spans: dict[str, list[int]] = {}
    for tensor in wanted:
        first, last = _span(tensor)
        if first < last:
            span = spans.setdefault(tensor.storage, [first, last])
            span[:] = min(span[0], first), max(span[1], last)
    memory: dict[str, tuple[Tensor, int]] = {}
    with path.open("rb") as file:
        for key, (first, last) in spans.items():
            memory[key] = _read(file, storages[key][0] + first, last - first), first
    return {tensor.name: _view(tensor, *memory.get(tensor.storage, (EMPTY, 0))) for tensor in wanted}


def _span(tensor: StoredTensor) -> tuple[int, int]:
    """First byte (aligned for every dtype) and the one behind the last that a tensor needs of its storage."""
    width = SIZES[tensor.dtype]
    if not prod(tensor.shape):
        return 0, 0
    last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.offset * width // ALIGNED * ALIGNED, (last + 1) * width


def _read(file: BufferedIOBase, start: int, count: int) -> Tensor:
    memory = torch.empty(count, dtype=torch.uint8)
    file.seek(start)
    if (got := file.readinto(memory.numpy().data)) != count:
        raise CheckpointError(
            f"a storage cut short: {got} of {count} bytes", "all of them", "Copy or download it again."
        )
    return memory


def _view(tensor: StoredTensor, memory: Tensor, first: int) -> Tensor:
    """The tensor on the memory that holds its storage from byte ``first`` on."""
    dtype = getattr(torch, tensor.dtype)
    width = SIZES[tensor.dtype]
    if not prod(tensor.shape):
        return torch.empty(tensor.shape, dtype=dtype)
    part = memory[tensor.offset * width - first : _span(tensor)[1] - first]
    return part.view(dtype).as_strided(tensor.shape, tensor.stride)
