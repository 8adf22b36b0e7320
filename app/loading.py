"""Checkpoints and models, read and built once for all sessions, and kept in the budget. Nobody writes to them."""

from __future__ import annotations

from typing import Any

import torch

from app import uploads
from app.kept import BUDGET, keep
from app.line import COMPUTING, READING
from app.request import references
from fbt_core import checkpoints
from fbt_core.checkpoints import Checkpoint, load
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.model import build


@keep(READING, "Reading the checkpoint")
def checkpoint(reference: str) -> Checkpoint:
    """The checkpoint of a reference, of which a file may hold several. Raises ``CheckpointError``."""
    asked = uploads.parsed(reference)
    chosen: dict[str, Any] = {}
    if asked.part:
        chosen["part"] = _part(reference, asked.part)
    if asked.base:
        chosen["base"] = checkpoint(asked.base)
    return load(uploads.path_of(reference), name=uploads.label_of(reference), **chosen)


def _part(reference: str, part: str) -> str:
    """A state dict's name, which a reference that cannot hold it gives as ``~`` and its number."""
    if not part.startswith("~"):
        return part
    asked = uploads.parsed(reference)
    parts, number = inspection(f"{asked.kind}:{asked.name}").parts, part[1:]
    if not number.isdecimal() or int(number) >= len(parts):
        raise CheckpointError(f"state dict number {number!r}", f"one of {len(parts)}", "Choose the checkpoint again.")
    return str(parts[int(number)])


@keep()
def inspection(reference: str) -> Any:
    """What the headers say of a file. Raises nothing for a bad one, and ``CheckpointError`` where there is none."""
    asked = uploads.parsed(reference)
    chosen = {"part": _part(reference, asked.part)} if asked.part else {}
    return checkpoints.inspect(uploads.path_of(reference), name=uploads.label_of(reference), **chosen)


def release(reference: str) -> None:
    """Nobody shows this checkpoint any more: its tensors, its model and all that was found of it leave the memory."""
    BUDGET.release(lambda key: reference in references(key))


@keep(COMPUTING, "Building the model")
def model(reference: str, device: str) -> Any:
    """The model in eval mode on a device."""
    return build(checkpoint(reference), device=device)


def devices() -> list[str]:
    """Where a model may run here; ``auto`` is all GPUs together."""
    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return ["cpu", *found, *(["auto"] if len(found) > 1 else [])]
