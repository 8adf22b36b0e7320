"""What is wrong with the numbers of tensors that are otherwise in order: a sentence each, and the tensors' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

CHUNK = 1 << 22  # values looked at in one go: the mask of a large embedding would cost a quarter of it


def notices(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Sentences about values that are NaN or infinite, and about matrices of one value alone; () if all is well."""
    sick, zero, constant = {}, [], []
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
            continue
        low, high = (float(value) for value in torch.aminmax(tensor))
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            sick[name] = count_not_finite(tensor)
        elif low == high and tensor.ndim > 1 and tensor.numel() > 1:
            (zero if low == 0 else constant).append(name)
    found = []
    if total := sum(sick.values()):
        found.append(f"{total} values are NaN or infinite, in {few(sick)}.")
    if zero:
        found.append(f"Only zeros in {few(zero)}.")
    if constant:
        found.append(f"One value alone in {few(constant)}.")
    return tuple(found)


def count_not_finite(tensor: Tensor) -> int:
    """How many values of a tensor are NaN or infinite."""
    return sum(int((~piece.isfinite()).sum()) for piece in tensor.reshape(-1).split(CHUNK))


def few(names: Iterable[str], most: int = 3) -> str:
    """Names for a sentence: quoted, cut short, and how many more there are."""
    names = list(names)
    shown = ", ".join(repr(name[:80]) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
