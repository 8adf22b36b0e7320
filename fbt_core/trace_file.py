"""A trace as a ``.safetensors`` file: its tensors by their place in the trace, all else as JSON in the metadata.

Reading executes and imports nothing that the file names: it may name the types of ``TYPES``, and their fields.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fbt_core.attention.scores import Factors
from fbt_core.checkpoints.native import write_atomically
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric
from fbt_core.trace import LayerTrace, Trace

TYPES = {kind.__name__: kind for kind in (Trace, LayerTrace, Factors, LowRankMetric, DictionaryMetric)}

Plain = str | int | float | bool | None


def save_trace(path: Path, trace: Trace, of: dict[str, Plain]) -> None:
    """Write a trace, whole or not at all. ``of`` says what it is a trace of, for ``read_of``.

    Raises ``ValueError`` for a trace that holds what a file cannot, such as an adapter, and ``OSError`` when the folder
    cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    plan = _taken(trace, "trace", tensors)
    metadata = {"plan": json.dumps(plan), "of": json.dumps(of)}
    write_atomically(path, save(tensors, metadata=metadata))


def read_of(path: Path) -> dict[str, Plain]:
    """What a file is a trace of, from its header alone. Raises ``OSError``, ``SafetensorError`` for what is no such
    file or is cut short, and ``KeyError`` or ``TypeError`` for one of another kind."""
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["of"])


def load_trace(path: Path) -> Trace:
    """The trace of a file, on the CPU. Raises ``ValueError`` for a plan that is none of ours, and as ``read_of``."""
    with safe_open(path, "pt") as file:
        trace = _given(json.loads(file.metadata()["plan"]), file)
    if not isinstance(trace, Trace):
        raise ValueError(f"got a file of a {type(trace).__name__}, expected a trace: write it with save_trace")
    return trace


def _taken(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON, its tensors put into ``tensors`` by their place; two places may share one tensor's memory."""
    if isinstance(value, Tensor):
        tensors[place] = value.detach().cpu().clone().contiguous()
        return {"tensor": place}
    if isinstance(value, tuple):
        return {"tuple": [_taken(item, f"{place}.{index}", tensors) for index, item in enumerate(value)]}
    if is_dataclass(value) and type(value).__name__ in TYPES:
        found = {one.name: _taken(getattr(value, one.name), f"{place}.{one.name}", tensors) for one in fields(value)}
        return {"type": type(value).__name__, "fields": found}
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(f"got a {type(value).__name__} at {place}, expected tensors, numbers and words: leave it out")


def _given(plan: Any, file: Any) -> Any:
    """The value of a plan."""
    if not isinstance(plan, dict):
        return plan
    match plan:
        case {"tensor": str(place)}:
            return file.get_tensor(place)
        case {"tuple": list(items)}:
            return tuple(_given(item, file) for item in items)
        case {"type": str(name), "fields": dict(found)} if name in TYPES:
            return TYPES[name](**{field: _given(item, file) for field, item in found.items()})
    raise ValueError(f"got {str(plan)[:80]!r} in the plan of a trace, expected one of {', '.join(TYPES)}")
