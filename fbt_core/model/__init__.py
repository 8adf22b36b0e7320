"""The Fiber Bundle Transformer and its baselines."""

from __future__ import annotations

import torch

from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.config import FiberBundleConfig
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.model.hollow import hollow

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
"""Arithmetic that a model can run in."""

__all__ = ["DTYPES", "FiberBundleConfig", "FiberBundleTransformer", "build"]


def build(checkpoint: Checkpoint, device: str = "cpu", dtype: str = "float32") -> FiberBundleTransformer:
    """The checkpoint's model, for reading: in eval mode, no parameter asks for a gradient.

    Raises ``ValueError`` for a dtype that is not in ``DTYPES``.
    """
    if dtype not in DTYPES:
        raise ValueError(f"got dtype {dtype!r}, expected one of {', '.join(DTYPES)}")
    model = hollow(checkpoint.config)
    model.load_state_dict(dict(checkpoint.tensors), assign=True)
    return model.to(device=device, dtype=DTYPES[dtype]).eval().requires_grad_(False)
