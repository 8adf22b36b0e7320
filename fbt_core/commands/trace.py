"""``python -m fbt_core trace``: every layer's geometry on one text, as a table or as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer

from fbt_core.commands.arguments import (
    Asked,
    CheckpointArgument,
    DeviceOption,
    DtypeOption,
    Opened,
    PartOption,
    RankOption,
    SourceOption,
    StackOption,
    StrengthOption,
    TextOption,
    number,
    open_model,
    what_if_of,
    write,
)
from fbt_core.measures import read
from fbt_core.trace import Trace

OF_RESIDUAL = ("effective_rank", "dong_residual")  # of the raw residual after the block
OF_METRIC = ("trace_k", "logdet_g", "anisotropy", "omega", "torsion_norm")  # means over tokens and heads
OF_HEAD: dict[str, tuple[str, dict[str, str]]] = {
    "tv_euclidean_riemannian": ("total_variation", {"score_a": "euclidean", "score_b": "riemannian"}),
    "entropy_euclidean": ("entropy", {"score": "euclidean"}),
    "entropy_riemannian": ("entropy", {"score": "riemannian"}),
}
"""Means over rows; each a measure with its options."""


def trace(
    checkpoint: CheckpointArgument,
    text: TextOption,
    strength: StrengthOption = 1.0,
    per_token: Annotated[bool, typer.Option(help="Add the values behind every mean (JSON only).")] = False,
    json_to: Annotated[str, typer.Option("--json", help="Write JSON to this file, - for standard output.")] = "",
    source: SourceOption = "",
    rank: RankOption = 4,
    stack: StackOption = "",
    part: PartOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "auto",
) -> None:
    """Trace a text through a checkpoint and print the geometry of every layer."""
    opened = open_model(checkpoint, text, Asked(device, dtype, strength, part, source, rank, stack))
    layers = _layers(opened.trace, per_token)
    if json_to:
        table: dict[str, Any] = {"tokens": list(opened.tokens), "layers": layers}
        if what_if := what_if_of(opened.trace):
            table["what_if"] = what_if
        write(json_to, json.dumps(table, allow_nan=False) + "\n")
        return
    write("-", _table(opened, layers) + "\n")


def _layers(trace: Trace, per_token: bool) -> list[dict[str, Any]]:
    """One table a layer. A value that is not a number (an undefined mean) is null."""
    residual = {name: read(trace, name).values for name in OF_RESIDUAL}
    metric = {name: read(trace, name).values for name in OF_METRIC}
    heads = {key: read(trace, name, **options).values for key, (name, options) in OF_HEAD.items()}
    rows = []
    for layer in trace.layers:
        i = layer.index
        row: dict[str, Any] = {"layer": i}
        if layer.kind != "attention":
            row["kind"] = layer.kind
        row |= {name: number(values[i]) for name, values in residual.items()}
        row |= {name: _mean(values[i, : layer.heads]) for name, values in metric.items()}
        row["heads"] = [
            {"head": h} | {key: number(values[i, h].mean()) for key, values in heads.items()}
            for h in range(layer.heads)
        ]
        if per_token:
            row["per_token"] = {name: _numbers(values[i, : layer.heads]) for name, values in (metric | heads).items()}
        rows.append(row)
    return rows


def _mean(values: np.ndarray) -> float | None:
    return number(values.mean()) if values.size else None


def _numbers(values: np.ndarray) -> list[list[float | None]]:
    return [[number(value) for value in head] for head in values]


def _table(opened: Opened, layers: list[dict[str, Any]]) -> str:
    """A line a layer, then a line a head."""
    names = (*OF_RESIDUAL, *OF_METRIC)
    lines = [f"{len(opened.tokens)} tokens: {' '.join(opened.tokens)}", "", _line("layer", names)]
    lines += [_line(row["layer"], [row[name] for name in names]) for row in layers]
    lines += ["", _line("head", list(OF_HEAD))]
    lines += [_line(f"{row['layer']}.{h['head']}", [h[key] for key in OF_HEAD]) for row in layers for h in row["heads"]]
    lines += ["", "entropies in nats, means over rows; effective_rank and dong_residual of the raw residual after the"]
    lines += ["block; all others means over tokens and heads. Every symbol: docs/measures.md."]
    lines += filter(None, [what_if_of(opened.trace), *opened.trace.notes])
    return "\n".join(lines)


def _line(first: object, values: Any) -> str:
    cells = ["-" if value is None else value if isinstance(value, str) else f"{value:.5g}" for value in values]
    widths = (max(len(cell), 15) for cell in cells)
    return f"{first!s:>6}" + "".join(f"{cell:>{width + 1}}" for cell, width in zip(cells, widths, strict=True))
