"""The Fiber Bundle Transformer and its baselines, and whatever else a checkpoint may hold: ``build`` makes it run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.config import FiberBundleConfig
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.huggingface.placement import one_device, placed
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.model.hollow import hollow

if TYPE_CHECKING:
    from fbt_core.huggingface.model import HuggingFaceModel

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""Arithmetic that a model can run in."""

__all__ = ["DTYPES", "FiberBundleConfig", "FiberBundleTransformer", "build"]


def build(
    checkpoint: Checkpoint, device: str = "cpu", dtype: str = "auto"
) -> FiberBundleTransformer | HuggingFaceModel:
    """The checkpoint's model, for reading: in eval mode, no parameter asks for a gradient.

    ``dtype`` is a key of ``DTYPES`` or ``auto``: float32 for a Fiber Bundle Transformer, and for a model of the
    transformers library the file's own dtype if all its weights share one, else float32. Where no dtype changes, the
    checkpoint's tensors are the model's: there is no second copy.

    ``device`` is one of torch's, or ``auto``: as many GPUs as a model of the library needs, and the CPU without one.
    Traces take ids on any device.

    Raises ``ValueError`` for another dtype, for a checkpoint without a config, and for one of which not every weight is
    there.
    """
    if dtype not in DTYPES and dtype != "auto":
        raise ValueError(f"got dtype {dtype!r}, expected auto or one of {', '.join(DTYPES)}")
    if checkpoint.config is None:
        raise ValueError("got a checkpoint without a config, expected one: there are weights, but no model")
    if isinstance(checkpoint.config, HuggingFaceConfig):
        from fbt_core.huggingface.classes import filled  # the library takes seconds to import
        from fbt_core.huggingface.model import HuggingFaceModel

        chosen = _shared_dtype(checkpoint) if dtype == "auto" else DTYPES[dtype]
        module = placed(filled(checkpoint.config, checkpoint.tensors, chosen), device)
        return HuggingFaceModel(module, checkpoint.config)
    model = hollow(checkpoint.config)
    model.load_state_dict(dict(checkpoint.tensors), assign=True)
    chosen = torch.float32 if dtype == "auto" else DTYPES[dtype]
    return model.to(device=one_device(device), dtype=chosen).eval().requires_grad_(False)


def _shared_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """The dtype of all of the file's floating weights, or float32 where they differ or cannot be computed with."""
    found = {tensor.dtype for tensor in checkpoint.tensors.values() if tensor.is_floating_point()}
    only = found.pop() if len(found) == 1 else torch.float32
    return only if only in DTYPES.values() else torch.float32
