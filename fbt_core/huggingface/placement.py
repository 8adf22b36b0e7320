"""Where a model's numbers lie: on one device, or spread over all GPUs when it is too large for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor


def one_device(device: str) -> str:
    """The device by a name of torch's: ``auto`` is the first GPU, or the CPU without one."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def placed(module: Any, device: str) -> Any:
    """The module on a device of torch's, or, with ``auto``, on as many GPUs as it needs (on the CPU without one).

    Raises ``ValueError`` where all GPUs together are too small: what does not lie on one would be moved at every pass.
    """
    if device != "auto" or not torch.cuda.is_available():
        return module.to(one_device(device))
    from accelerate import dispatch_model, infer_auto_device_map

    memory = {index: torch.cuda.mem_get_info(index)[0] * 9 // 10 for index in range(torch.cuda.device_count())}
    whole = getattr(module, "_no_split_modules", None) or []
    spread = infer_auto_device_map(module, max_memory={**memory}, no_split_module_classes=list(whole))
    if {"cpu", "disk"} & {str(place) for place in spread.values()}:
        size, free = module.get_memory_footprint() / 1e9, sum(memory.values()) / 1e9
        raise ValueError(f"got a model of {size:.1f} GB and {free:.1f} GB of GPU memory, expected enough: use the cpu")
    return dispatch_model(module, device_map=spread)


def is_spread(module: Any) -> bool:
    """Whether the numbers of a module lie on several devices."""
    return len(set(getattr(module, "hf_device_map", {}).values())) > 1


def gathered(traces: Mapping[str, Any], module: Any) -> dict[str, Any]:
    """Traces of a module that is spread, all on the device of its head: what is computed of them needs one place, and
    only the head's weights are too large to come to it."""
    head = module.get_output_embeddings() or module.get_input_embeddings()
    return {stack: moved(trace, head.weight.device) for stack, trace in traces.items()}


def moved(value: Any, device: Any) -> Any:
    """A tree of frozen dataclasses and tuples with every tensor on one device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(moved(part, device) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: moved(getattr(value, field.name), device) for field in fields(value)})
    return value
