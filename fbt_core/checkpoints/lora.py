"""LoRA adapters: added to their base model, W + s B A, or alone as the factors of their deltas.

Hu et al. 2021: s = alpha / r; rank-stabilised (Kalajdzievski 2023): s = alpha / sqrt(r). A is (r, in), B is (out, r).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from fbt_core.checkpoints import health
from fbt_core.checkpoints.case import Case
from fbt_core.checkpoints.checkpoint import Checkpoint, Origin
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import TensorEntry
from fbt_core.checkpoints.health import few
from fbt_core.checkpoints.inspection import DELTAS, Inspection, counted
from fbt_core.checkpoints.memory import check_fits
from fbt_core.checkpoints.quantisation import refuse_packed
from fbt_core.checkpoints.tensors import FLOATS, bytes_of

CONFIG = "adapter_config.json"
FACTOR = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
FORMAT = "LoRA adapter"
MERGE_BY_HAND = "Merge it where it was trained (`merge_and_unload()` in peft), and open the merged model."


def accepts(case: Case) -> bool:
    """Whether the files are an adapter's."""
    return CONFIG in case.files.paths


def read(case: Case) -> Checkpoint:
    """The base with the adapter merged, or, without a base, the factors alone. Raises ``CheckpointError``."""
    table, pairs = check(case)
    check_fits(sum(map(bytes_of, case.weights.entries.values())))
    tensors, digest = case.weights.read()
    origin = replace(case.origin(digest), format=f"{FORMAT}, {case.weights.format}")
    kept = {name: value for name, value in table.items() if isinstance(value, (str, int, float, bool))}
    if case.base is None:
        factors = {f"{target}.lora_{kind}.weight": tensors[pairs[target][kind]] for target in pairs for kind in "AB"}
        notices = (f"A LoRA adapter alone: the factors of {len(pairs)} deltas, without its base model.",)
        return Checkpoint(None, factors, None, kept, origin, (*notices, *health.notices(factors)))
    return _merged(case.base, table, pairs, tensors, origin)


def check(case: Case) -> tuple[Mapping[str, Any], dict[str, dict[str, str]]]:
    """The adapter's config, and the names of A and B by what they are added to. Raises ``CheckpointError``."""
    table = case.files.json(CONFIG)
    if (kind := table.get("peft_type", "LORA")) != "LORA":
        raise CheckpointError(f"an adapter of the kind {kind!r:.40}", "LORA", MERGE_BY_HAND)
    for flag in (
        "use_dora",
        "use_qalora",
        "lora_bias",
        "megatron_config",
        "eva_config",
        "corda_config",
        "alora_invocation_tokens",
    ):
        if table.get(flag):
            raise CheckpointError(f"a LoRA adapter with {flag}", "a plain one", MERGE_BY_HAND)
    refuse_packed(case.weights.entries)
    pairs: dict[str, dict[str, str]] = {}
    others = []
    for name in case.weights.entries:
        match = FACTOR.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            pairs.setdefault(match[1], {})[match[2]] = name
    if others:
        raise CheckpointError(f"a LoRA adapter with other tensors: {few(others)}", "lora_A and lora_B", MERGE_BY_HAND)
    for target, names in pairs.items():
        _check_pair(target, names, case.weights.entries)
        rank = case.weights.entries[names["A"]].shape[0]
        if (said := _by_pattern(table.get("rank_pattern"), target, table.get("r", rank))) != rank:
            raise CheckpointError(f"{target[:120]!r} of rank {rank}", f"r = {said!r:.40} by {CONFIG}", "Save it again.")
        scaling(table, target, rank)
    return table, pairs


def scaling(table: Mapping[str, Any], target: str, rank: int) -> float:
    """s of one target. Raises ``CheckpointError`` for an alpha that is no number."""
    alpha = _by_pattern(table.get("alpha_pattern"), target, table.get("lora_alpha", rank))
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise CheckpointError(f"a LoRA adapter with lora_alpha = {alpha!r:.40}", "a number", MERGE_BY_HAND)
    return alpha / math.sqrt(rank) if table.get("use_rslora") is True else alpha / rank


def delta(
    a: Float[Tensor, "rank in"], b: Float[Tensor, "out rank"], scale: float, transposed: bool
) -> Float[Tensor, "rows columns"]:
    """s B A in float32; (in, out) for a layer that keeps its weight so, as GPT-2's do."""
    dense = scale * (b.float() @ a.float())
    return dense.T if transposed else dense


def _merged(
    base: Checkpoint, table: Mapping[str, Any], pairs: Mapping[str, Mapping[str, str]],
    tensors: Mapping[str, Tensor], origin: Origin,
) -> Checkpoint:  # fmt: skip
    if base.config is None:
        raise CheckpointError("a base that is weights alone", "a model", "Choose the base with its config.json.")
    changed = dict(base.tensors)
    for target, names in pairs.items():
        a, b = tensors[names["A"]], tensors[names["B"]]
        own = _target(target, changed)
        change = delta(a, b, scaling(table, target, a.shape[0]), table.get("fan_in_fan_out") is True)
        if change.shape != changed[own].shape:
            raise CheckpointError(
                f"a delta of shape {tuple(change.shape)} for {own!r} of shape {tuple(changed[own].shape)}", "equal",
                "Choose the base that the adapter was trained on.",
            )  # fmt: skip
        changed[own] = (changed[own].float() + change).to(changed[own].dtype)
    notice = f"The LoRA adapter {origin.name[:80]!r} is merged into {len(pairs)} weights of {base.origin.name[:80]!r}."
    name = f"{base.origin.name} + {origin.name}"
    notices = (*base.notices, notice, *(n for n in health.notices(changed) if n not in base.notices))
    return replace(base, tensors=changed, origin=replace(origin, name=name), notices=notices)


def _target(target: str, tensors: Mapping[str, Tensor]) -> str:
    """The one weight of the base that a target names, with or without the base's own prefix."""
    wanted = f"{target}.weight"
    found = [name for name in tensors if name == wanted] or [
        name for name in tensors if name.endswith(f".{wanted}") or wanted.endswith(f".{name}")
    ]
    if len(found) != 1:
        raise CheckpointError(
            f"a LoRA adapter for {wanted[:120]!r}, of which the base has {len(found)}", "one",
            "Choose the base that the adapter was trained on.",
        )  # fmt: skip
    return found[0]


def _check_pair(target: str, names: Mapping[str, str], entries: Mapping[str, TensorEntry]) -> None:
    if len(names) < 2:
        raise CheckpointError(f"{target[:120]!r} with lora_{next(iter(names))} alone", "A and B", "Save it again.")
    a, b = entries[names["A"]], entries[names["B"]]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1] or not a.shape[0]:
        raise CheckpointError(
            f"{target[:120]!r} with A of shape {a.shape} and B of shape {b.shape}",
            "(r, in) and (out, r)",
            MERGE_BY_HAND,
        )
    if odd := [entry.dtype for entry in (a, b) if entry.dtype not in FLOATS]:
        raise CheckpointError(f"{target[:120]!r} of dtype {odd[0]}", f"one of {', '.join(FLOATS)}", "Save it again.")


def _by_pattern(patterns: Any, target: str, usual: Any) -> Any:
    """The value of the first name in a table that is the target or ends it, else the usual one."""
    for name, value in patterns.items() if isinstance(patterns, dict) else ():
        if not re.fullmatch(r"[\w.^$*-]{1,200}", name) or set(name) & set("^$*"):
            raise CheckpointError(f"a LoRA adapter with a pattern {name[:60]!r}", "plain names", MERGE_BY_HAND)
        if target == name or target.endswith(f".{name}"):
            return value
    return usual


def look(found: Inspection, case: Case) -> Inspection:
    """What can be told without reading a tensor. Raises ``CheckpointError`` as ``read`` would."""
    table, pairs = check(case)
    base = repr(str(table.get("base_model_name_or_path", "")))[:120]
    message = counted(found, f"LoRA adapter of {len(pairs)} deltas, made on {base}")
    return replace(found, format=f"{FORMAT}, {found.format}", message=message, architecture=FORMAT, can=DELTAS)
