"""The state of an unfinished training, so that a killed run goes on exactly where it was.

One safetensors file beside the checkpoint: weights and AdamW's moments as tensors, the rest as JSON in the metadata.
No random state is kept, because every step's data depend on (seed, step) alone. Reading it executes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from fbt_core.checkpoints import CheckpointError
from fbt_core.checkpoints.native import write_atomically

VERSION = 1
REMEDY = "Add --restart to begin again, or name another folder with --out."


def write_state(path: Path, model: nn.Module, optimizer: Optimizer, plan: dict[str, Any], journal: dict) -> None:
    """Store weights, moments, the plan they belong to and the journal of the steps so far."""
    tensors = {f"model.{name}": value for name, value in _weights(model).items()}
    for name, moments in _moments(model, optimizer).items():
        tensors |= {f"optimizer.{key}.{name}": value for key, value in moments.items()}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    head = {"version": VERSION, "plan": plan, "journal": journal}
    write_atomically(path, save(tensors, {"training_state": json.dumps(head)}))


def read_state(path: Path, model: nn.Module, optimizer: Optimizer, plan: dict[str, Any]) -> dict[str, Any]:
    """Fill ``model`` and ``optimizer`` from ``path`` and return the journal.

    Raises ``CheckpointError`` when the file is damaged or belongs to another plan.
    """
    head, tensors = _open(path)
    if head.get("version") != VERSION:
        raise CheckpointError(f"a training state of version {head.get('version')!r}", f"version {VERSION}", REMEDY)
    if differing := sorted(key for key in plan.keys() | head["plan"].keys() if plan.get(key) != head["plan"].get(key)):
        raise CheckpointError(
            f"a half-trained state in {path.name} whose plan differs in {', '.join(differing)}",
            "the plan that was asked for now",
            REMEDY,
        )
    _fill(path, model, optimizer, tensors)
    return head["journal"]


def _open(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            head = json.loads((file.metadata() or {})["training_state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, KeyError, ValueError, OSError) as fault:
        raise CheckpointError(f"a damaged file {path.name}", "a training state", REMEDY) from fault
    return head, tensors


def _fill(path: Path, model: nn.Module, optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    try:
        with torch.no_grad():
            for name, value in _weights(model).items():
                value.copy_(tensors.pop(f"model.{name}"))
            for name, parameter in model.named_parameters():
                keys = [key for key in tensors if key.startswith("optimizer.") and key.split(".", 2)[2] == name]
                moments = {key.split(".", 2)[1]: tensors.pop(key).to(parameter.device) for key in keys}
                if moments:
                    optimizer.state[parameter] = moments
    except (KeyError, RuntimeError) as fault:
        raise CheckpointError(
            f"a training state {path.name} of another model", "the model's tensors", REMEDY
        ) from fault
    if tensors:
        raise CheckpointError(f"{len(tensors)} tensors too many in {path.name}", "the model's tensors", REMEDY)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters (tied ones once) and buffers."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _moments(model: nn.Module, optimizer: Optimizer) -> dict[str, dict[str, Tensor]]:
    return {name: optimizer.state[p] for name, p in model.named_parameters() if p in optimizer.state}
