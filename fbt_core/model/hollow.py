"""A model without numbers: names and shapes only, for a checkpoint's tensors to be checked against and put into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fbt_core.config import FiberBundleConfig
from fbt_core.model.fiber_bundle import FiberBundleTransformer


class Unset(TorchFunctionMode):
    """Leave out ``torch.nn.init``: on the meta device a random fill loads all of TorchDynamo, 1.8 CPU seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def hollow(config: FiberBundleConfig) -> FiberBundleTransformer:
    """The config's model on the meta device: no memory, no values."""
    with torch.device("meta"), Unset():
        return FiberBundleTransformer(config)
