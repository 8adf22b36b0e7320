"""What every format ends as. A model never sees a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fbt_core.config import FiberBundleConfig
from fbt_core.huggingface.config import HuggingFaceConfig
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
    """A model that was checked: names and shapes of ``tensors`` are those of the config, every one from the file.

    Without a config there are weights to look at, and no model. Without a tokenizer the model reads no text.
    """

    config: FiberBundleConfig | HuggingFaceConfig | None
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    training: Mapping[str, Any]  # the training record, plain JSON values; empty when there is none
    origin: Origin
    notices: tuple[str, ...] = ()  # what its reader must know: prefixes stripped, rows padded, values not finite ...

    @property
    def parameters(self) -> int:
        """How many numbers the model learned."""
        return sum(tensor.numel() for tensor in self.tensors.values())
