"""Where a model's numbers lie: on one device, or spread over all GPUs when it is too large for one."""

from __future__ import annotations

from typing import Any

import torch


def placed(module: Any, device: str) -> Any:
    """The module on a device of torch's, or, with ``auto``, on as many GPUs as it needs (on the CPU without one).

    Raises ``ValueError`` where all GPUs together are too small: what does not lie on one would be moved at every pass.
    """
    if device != "auto":
        return module.to(device)
    if not torch.cuda.is_available():
        return module
    from accelerate import dispatch_model, infer_auto_device_map

    memory = {index: torch.cuda.mem_get_info(index)[0] * 9 // 10 for index in range(torch.cuda.device_count())}
    whole = getattr(module, "_no_split_modules", None) or []
    spread = infer_auto_device_map(module, max_memory={**memory}, no_split_module_classes=list(whole))
    if {"cpu", "disk"} & {str(place) for place in spread.values()}:
        size, free = module.get_memory_footprint() / 1e9, sum(memory.values()) / 1e9
        raise ValueError(f"got a model of {size:.1f} GB and {free:.1f} GB of GPU memory, expected enough: use the cpu")
    return dispatch_model(module, device_map=spread)
