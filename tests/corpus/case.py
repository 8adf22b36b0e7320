"""One row of the corpus: how to write a file, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

CANARY = "CANARY"
"""The name of the file beside the corpus that every evil file would create if it were obeyed."""

FOREIGN = "fiberscope_corpus_foreign"
"""A module that lies beside the corpus. Importing it creates the canary, and no file may cause that."""


@dataclass(frozen=True)
class Case:
    """One file or folder. ``says`` are patterns, case ignored, that must all be found in what people are told:
    in the error of a file that is refused, in format and notices of one that loads.
    """

    kind: int  # of the 30 in the list at the head of the package
    write: Callable[[Path], object]
    loads: bool
    says: tuple[str, ...]
    tensors: Callable[[], Mapping[str, Tensor]] | None = None  # what must be read, to the last bit
    same_as: str | None = None  # or the folder whose model.safetensors holds what must be read
    part: str | None = None  # which state dict to choose
    inspects: bool | None = None  # whether `inspect` is content, where that is not whether it loads
    loose: bool = False  # a folder that stands for several files picked in one go
    seconds: float = 1.0  # of the processor, the most that reading may take


def loads(kind: int, write: Callable[[Path], object], *says: str, **more: object) -> Case:
    """A file that must load."""
    return Case(kind, write, True, says, **more)  # type: ignore[arg-type]


def refused(kind: int, write: Callable[[Path], object], *says: str, **more: object) -> Case:
    """A file that must be refused."""
    return Case(kind, write, False, says, **more)  # type: ignore[arg-type]


def state(seed: int = 0) -> dict[str, Tensor]:
    """A small state dict, the same at each call."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"first.weight": (6, 4), "first.bias": (6,), "second.weight": (3, 6), "second.bias": (3,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def canary(path: Path) -> Path:
    """Where a file at ``path`` leaves its mark: in the corpus folder itself."""
    return path.parent / CANARY


def touching(path: Path) -> str:
    """The shell command of an evil file."""
    return f"touch '{canary(path)}'"


def foreign_source(folder: Path) -> str:
    """A module that creates the canary when it is imported."""
    return f"from pathlib import Path\n\nPath({str(folder / CANARY)!r}).touch()\n"


def content(data: bytes) -> Callable[[Path], object]:
    """A writer of these bytes."""
    return lambda path: path.write_bytes(data)
