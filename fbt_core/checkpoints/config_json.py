"""A ``config.json`` from anywhere: what of it may be used, within which sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.huggingface.classes import known
from fbt_core.huggingface.config import NAMES

DROPPED = re.compile(
    r"_.*|auto_map|attn_implementation|experts_implementation|quantization_config|compression_config|custom_pipelines"
    r"|backbone(_config|_kwargs)?|use_(timm|pretrained)_backbone|timm_.*|kernel_config|fusion_config|adapters?"
    r"|transformers_(weights|version)|base_model_(tp|pp|ep)_plan|distributed_config|torch_dtype|dtype|trust_remote_code"
)
"""Entries of a ``config.json``, at any depth, that name code, kernels or places, or that the tensors say themselves."""

DEEP = re.compile(r"(.*_)?(n_?layers?|layers|depths?|blocks|num_blocks)")
WIDE = re.compile(r"(.*_)?(heads?|experts|groups)")
MOST_LAYERS, MOST_HEADS, MOST_VOCABULARY, MOST_CONTEXT = 1024, 65_536, 1 << 24, 1 << 27
MOST_NUMBER = 1 << 31
MOST_DEPTH = 16
SIZES = frozenset(name for names in NAMES.values() for name in names) | {"num_key_value_heads", "decoder_layers"}
TRAIN_AGAIN = "Use the config.json that belongs to these weights, or save model and config together."


def clean(table: Mapping[str, Any]) -> dict[str, Any]:
    """A ``config.json`` without entries that a file has no business with.

    Raises ``CheckpointError`` for sizes that are no whole numbers or beyond sense, and for nesting without end.
    """
    return {key: _checked(key, value, 1) for key, value in table.items() if not DROPPED.fullmatch(key)}


def _checked(key: str, value: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise CheckpointError("a config.json nested too deeply", f"at most {MOST_DEPTH} levels", TRAIN_AGAIN)
    if isinstance(value, dict):
        kept = {str(name): inner for name, inner in value.items() if not DROPPED.fullmatch(str(name))}
        return {name: _checked(name, inner, depth + 1) for name, inner in kept.items()}
    if isinstance(value, list):
        return [_checked(key, inner, depth + 1) for inner in value]
    if value is not None and key in SIZES and not _is_whole(value):
        raise CheckpointError(f"a config.json with {key} = {value!r:.60}", "a whole number", TRAIN_AGAIN)
    if isinstance(value, int) and abs(value) > (most := _most(key)):  # True and False are 1 and 0
        raise CheckpointError(f"a config.json with {key[:60]!r} = {value}", f"at most {most}", TRAIN_AGAIN)
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _most(key: str) -> int:
    if DEEP.fullmatch(key):
        return MOST_LAYERS
    if WIDE.fullmatch(key):
        return MOST_HEADS
    if key in NAMES["vocab_size"]:
        return MOST_VOCABULARY
    return MOST_CONTEXT if key in NAMES["context"] else MOST_NUMBER


def is_known(table: Mapping[str, Any]) -> bool:
    """Whether the library has a class for the ``model_type`` that reads text or images."""
    model_type = table.get("model_type")
    return isinstance(model_type, str) and bool({*known(model_type)} - {"plain"})


def layers_of(table: Mapping[str, Any]) -> int:
    """How many layers it claims, which tensors must then be there for."""
    inner = table.get("text_config")
    sizes = inner if isinstance(inner, Mapping) else table
    return max((value for name in NAMES["layers"] if isinstance(value := sizes.get(name), int)), default=0)
