"""Weights that are packed into other numbers: recognised and named, never taken for the numbers they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import TensorEntry

COMPANIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bitsandbytes 4-bit", (".quant_state.bitsandbytes__nf4",)),
    ("bitsandbytes 4-bit", (".quant_state.bitsandbytes__fp4",)),
    ("bitsandbytes 4-bit", (".absmax", ".quant_map")),
    ("bitsandbytes int8", (".SCB",)),
    ("GPTQ", (".qweight", ".qzeros", ".scales", ".g_idx")),
    ("AWQ or GPTQ", (".qweight", ".qzeros", ".scales")),
    ("GPTQ or AWQ", (".qweight",)),
    ("MXFP4", ("_blocks", "_scales")),
    ("fp8 with block scales", (".weight_scale_inv",)),
    ("compressed-tensors", (".weight_packed",)),
    ("fp8 or int8 with scales", (".weight_scale",)),
    ("HQQ", (".W_q",)),
)
"""A format and the endings of names that all stand in its files, the most telling first."""

DTYPES: tuple[tuple[str, str], ...] = (("F4", "4-bit float"), ("F6_", "6-bit float"), ("F8_", "fp8"))
"""How the safetensors dtypes of such weights begin, and what people call them."""


def quantisation(entries: Mapping[str, TensorEntry], table: Mapping[str, Any] | None = None) -> str:
    """What the weights are packed as, or "" for ordinary numbers. ``table`` is the ``config.json``, where there is one.

    From names and dtypes alone; a config that says so counts only where the weights do not say otherwise.
    """
    dtypes = sorted({entry.dtype for entry in entries.values()})
    packed = next((name for start, name in DTYPES if any(dtype.startswith(start) for dtype in dtypes)), "")
    packed += f" ({', '.join(d for d in dtypes if d.startswith(('F4', 'F6_', 'F8_')))})" if packed else ""
    by_name = next((name for name, endings in COMPANIONS if _all_end(endings, entries)), "")
    if by_name or packed:
        return ", ".join(filter(None, (by_name, packed)))
    said = table.get("quantization_config") if table else None
    method = said.get("quant_method") if isinstance(said, Mapping) else None
    return f"{method[:40]!r} by its config.json" if isinstance(method, str) and _has_integers(entries) else ""


def refuse_packed(entries: Mapping[str, TensorEntry], table: Mapping[str, Any] | None = None) -> None:
    """Raises ``CheckpointError`` by the format's name: without its kernel the packed numbers mean nothing."""
    if name := quantisation(entries, table):
        raise CheckpointError(
            f"quantised weights: {name}",
            "weights as floating-point numbers",
            "Open the unquantised model, or save it again in bfloat16 (`model.dequantize()` in transformers).",
        )


def _all_end(endings: Iterable[str], entries: Iterable[str]) -> bool:
    return all(any(name.endswith(ending) for name in entries) for ending in endings)


def _has_integers(entries: Mapping[str, TensorEntry]) -> bool:
    return any(entry.dtype in ("U8", "I8", "I32") and len(entry.shape) > 1 for entry in entries.values())
