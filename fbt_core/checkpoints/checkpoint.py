"""What every format ends as. A model never sees a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fbt_core.config import FiberBundleConfig
from fbt_core.tokenizer import Tokenizer


@dataclass(frozen=True)
class Origin:
    """Where a checkpoint came from. ``name`` is a label to show, never a path to open."""

    name: str
    format: str
    sha256: str  # of the whole file
    bytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A model that was checked: names and shapes of ``tensors`` are those of the config, all values finite."""

    config: FiberBundleConfig
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer
    training: Mapping[str, Any]  # the training record, plain JSON values; empty when there is none
    origin: Origin

    @property
    def parameters(self) -> int:
        """How many numbers the model learned."""
        return sum(tensor.numel() for tensor in self.tensors.values())
