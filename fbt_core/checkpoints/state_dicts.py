"""Which part of a training checkpoint is the model: found by what it holds, chosen by the user if there are several."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import TensorEntry
from fbt_core.checkpoints.health import few
from fbt_core.checkpoints.pickles import PicklePlan, Place, StoredTensor, plan, read_tensors
from fbt_core.checkpoints.tensors import DTYPES
from fbt_core.checkpoints.weights import Weights, merged, together

OUTERMOST = "outermost"
"""How the state dict is called that is the file's outermost object itself."""

MOMENTS = {
    "step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "acc_delta", "grad_avg", "sum",
    "exp_inf", "ax", "mu", "eta", "prev", "step_size", "exp_avg_sq_row", "exp_avg_sq_col", "state1", "state2",
}  # fmt: skip
"""What torch's optimizers (and two others) keep for each weight."""

TRAINING = re.compile(r".*(optim|adam|sgd|sched|scaler|rng|random|grad|callback|sampler|loss).*", re.IGNORECASE)
"""Keys of a training checkpoint below which no weights stand."""

NAMES = {str(dtype).removeprefix("torch."): name for name, dtype in DTYPES.items()}
"""From torch's name of a dtype to that of the safetensors format."""

MOST_VALUES = 200


class SeveralParts(CheckpointError):
    """A file with several state dicts of which none was named. ``parts`` are their names."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self.parts = parts
        named = ", ".join(repr(part[:80]) for part in parts[:20])
        super().__init__(f"a file with {len(parts)} state dicts", "a choice of one", f"Choose one of {named}.")


def state_dicts(found: PicklePlan) -> dict[str, Place]:
    """The places that hold weights, by name. Never an optimizer's moments, nor a random generator's state."""
    places = {
        place: tensors for place, tensors in found.containers().items() if _is_state_dict(place, tensors)
    }  # fmt: skip
    return {".".join(map(str, place)) or OUTERMOST: place for place in places}


def chosen(found: PicklePlan, part: str | None) -> tuple[str, Place]:
    """The named state dict, or the only one. Raises ``CheckpointError``; where there are several, ``SeveralParts``."""
    parts = state_dicts(found)
    if part is not None and part not in parts:
        raise CheckpointError(f"the part {part[:80]!r}", f"one of {few(parts, 20)}", "Choose another part.")
    if not parts:
        raise CheckpointError(
            f"a PyTorch file without weights ({len(found.tensors)} tensors of other kinds)", "a state dict",
            "Save the model's state_dict() with torch.save or, better, as safetensors.",
        )  # fmt: skip
    if part is None and len(parts) > 1:
        raise SeveralParts(tuple(parts))
    name = part or next(iter(parts))
    _check_readable(found, parts[name])
    return name, parts[name]


def pytorch_weights(paths: Mapping[str, Path], index: Mapping[str, str] | None, part: str | None) -> Weights:
    """The weights of a PyTorch file, or of all shards of one checkpoint. Raises ``CheckpointError``."""
    plans = {name: plan(path) for name, path in paths.items()}
    picked = {name: chosen(found, part if len(paths) == 1 else None) for name, found in plans.items()}
    shards = {name: entries_of(plans[name].containers()[place]) for name, (_, place) in picked.items()}
    first = next(iter(plans.values()))
    parts = tuple(state_dicts(first)) if len(plans) == 1 else ()
    ignored = tuple(dict.fromkeys(name for found in plans.values() for name in found.ignored))
    many = f" in {len(paths)} shards" if len(paths) > 1 else f" ({first.form})"
    places = {name: place for name, (_, place) in picked.items()}
    return Weights(
        f"PyTorch{many}", merged(shards, index), sum(path.stat().st_size for path in paths.values()),
        lambda: _read(paths, plans, places), notices=_notices(next(iter(picked.values()))[0], parts, ignored),
        parts=parts if len(parts) > 1 else (), ignored=ignored, training=_values(first) if len(plans) == 1 else {},
    )  # fmt: skip


def entries_of(tensors: Mapping[str, StoredTensor]) -> dict[str, TensorEntry]:
    """The claims of a pickle as entries of a header; their places count bytes from 0, for their sizes alone."""
    if odd := [tensor for tensor in tensors.values() if tensor.dtype not in NAMES]:
        got = f"{odd[0].name[:80]!r} of dtype {odd[0].dtype}"
        raise CheckpointError(got, f"one of {', '.join(NAMES)}", "Save the weights as bfloat16 or float32.")
    return {name: TensorEntry(NAMES[t.dtype], tuple(t.shape), 0, t.bytes) for name, t in tensors.items()}


def _is_state_dict(place: Place, tensors: Mapping[str, StoredTensor]) -> bool:
    """Weights have names of their own and are floating-point arrays, or the packed integers that stand for such."""
    if any(isinstance(key, str) and TRAINING.fullmatch(key) for key in place) or {*tensors} <= MOMENTS:
        return False
    floats = [tensor for tensor in tensors.values() if "float" in tensor.dtype and len(tensor.shape) > 0]
    if not place and len(floats) < 2 and all(TRAINING.fullmatch(tensor.name) for tensor in floats):
        return False
    return bool(floats)


def _check_readable(found: PicklePlan, place: Place) -> None:
    lost = {name: why for (container, name), why in found.unreadable.items() if container == place}
    if lost:
        name, why = next(iter(lost.items()))
        raise CheckpointError(
            f"{len(lost)} tensors that cannot be read, such as {name[:80]!r}: {why[:120]}", "plain tensors",
            "Save the model's state_dict() with torch.save or, better, as safetensors.",
        )  # fmt: skip


def _notices(name: str, parts: tuple[str, ...], ignored: tuple[str, ...]) -> tuple[str, ...]:
    notices = []
    if len(parts) > 1:
        notices.append(f"The part {name[:80]!r} of {few(parts, 8)}.")
    elif name != OUTERMOST:
        notices.append(f"The weights are the part {name[:80]!r} of a training checkpoint.")
    if ignored:
        notices.append(f"Left as they are, never made into objects: {few(ignored, 8)}.")
    return tuple(notices)


def _values(found: PicklePlan) -> dict[str, Any]:
    """Plain values beside the weights, such as epoch and learning rate, by their dotted place."""
    kept = {}
    for place, value in found.values.items():
        is_plain = isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
        if is_plain and len(kept) < MOST_VALUES:
            kept[".".join(map(str, place))[:200]] = value[:200] if isinstance(value, str) else value
    return kept


def _read(
    paths: Mapping[str, Path], plans: Mapping[str, PicklePlan], places: Mapping[str, Place]
) -> tuple[dict[str, Tensor], str]:
    found, digests = {}, {}
    for name, path in paths.items():
        found.update(read_tensors(path, plans[name], places[name]))
        with path.open("rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found, together(digests)
