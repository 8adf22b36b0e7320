"""``python -m fbt_core curvature``: true curvature of a checkpoint's metric beside its proxy, or of a known case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from fbt_core.commands.arguments import (
    Asked,
    DeviceOption,
    DtypeOption,
    Opened,
    PartOption,
    RankOption,
    SourceOption,
    StackOption,
    StrengthOption,
    checked_device,
    number,
    one_line_errors,
    open_model,
    what_if_of,
    write,
)
from fbt_core.geometry.curvature import sectional
from fbt_core.geometry.manifolds import MANIFOLDS, manifold
from fbt_core.geometry.model_field import READINGS, field_unavailable
from fbt_core.measures import read
from fbt_core.measures.correlation import LEVEL, Correlation, spearman, within_ranks
from fbt_core.measures.geometry import GEOMETRY, read_geometry

COLUMNS = ("omega", "scalar_curvature", "scalar_sampled", "sampling_error", "sectional_min", "sectional_max")
"""Of the printed table; the JSON has all measures of the field."""


def curvature(
    checkpoint: Annotated[
        list[Path] | None, typer.Argument(help="A checkpoint, as for trace; none with --case.")
    ] = None,
    text: Annotated[str, typer.Option(help="The text to read, or @FILE.")] = "",
    case: Annotated[
        str, typer.Option(help=f"Check a known case instead: {' | '.join(MANIFOLDS)}, such as sphere:3:2.0.")
    ] = "",
    reading: Annotated[str, typer.Option(help=" | ".join(READINGS))] = "block",
    planes: Annotated[int, typer.Option(min=2, max=65_536, help="Random planes a token.")] = 64,
    seed: Annotated[int, typer.Option(min=0, max=10**9, help="Of the planes; of the point of a case.")] = 0,
    layer: Annotated[int | None, typer.Option(min=0, help="This layer only.")] = None,
    strength: StrengthOption = 1.0,
    json_to: Annotated[str, typer.Option("--json", help="Write JSON to this file, - for standard output.")] = "",
    source: SourceOption = "",
    rank: RankOption = 4,
    stack: StackOption = "",
    part: PartOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "auto",
) -> None:
    """Print scalar and sectional curvature by layer, head and token, and whether the proxy Omega puts them in order."""
    if case:
        with one_line_errors():
            if checkpoint or text:
                raise ValueError("got a checkpoint or a text beside --case, expected --case alone")
            found = check(case, seed, checked_device(device))
        write(json_to or "-", json.dumps(found) + "\n" if json_to else _case_table(case, found))
        return
    with one_line_errors():
        if not checkpoint or not text:
            raise ValueError("got no checkpoint with --text, and no --case, expected one of the two")
    opened = open_model(checkpoint, text, Asked(device, dtype, strength, part, source, rank, stack))
    with one_line_errors():
        if why := field_unavailable(opened.model, opened.trace):
            raise ValueError(f"{why}; expected a checkpoint with a MetricNet, or --source fisher")
        found = survey(opened, {"reading": reading, "planes": planes, "seed": seed, "layer": layer})
    write(json_to or "-", (json.dumps(found, allow_nan=False) if json_to else _table(found)) + "\n")


def check(case: str, seed: int, device: str = "cpu") -> dict[str, float]:
    """Sectional curvature (Gaussian in 2-D) of a known metric at a seeded point and plane: computed, exact, error.

    The error is relative, and absolute where the exact value is 0.
    """
    known, rng = manifold(case), torch.Generator().manual_seed(seed)
    x, d = known.point(rng).to(device), known.metric.dim
    u, v = torch.randn(2, d, generator=rng, dtype=torch.float64).to(device)
    computed, exact = float(sectional(known.metric, x, u, v)), known.exact(x, u, v)
    return {"computed": computed, "exact": exact, "error": abs(computed - exact) / (abs(exact) or 1.0)}


def survey(opened: Opened, options: dict[str, Any]) -> dict[str, Any]:
    """Every measure of the field and Omega by layer, head and token, and their correlation, as the JSON has it."""
    trace, layer = opened.trace, options["layer"]
    readings = {name: read_geometry(opened.model, trace, name, **options) for name in GEOMETRY}
    values = {name: found.values for name, found in readings.items()}
    of = readings["scalar_curvature"].labels
    omega = read(trace, "omega", layer=layer).values
    shared = len(of["head"]) == 1 and trace.heads > 1
    values = {"omega": omega.sum(1, keepdims=True) if shared else omega} | values
    layers = [
        {
            "layer": int(label),
            "per_token": _tokens(opened.tokens, {name: value[i].mean(0) for name, value in values.items()}),
            "heads": [
                {
                    "head": head,
                    "per_token": _tokens(opened.tokens, {name: value[i, j] for name, value in values.items()}),
                }
                for j, head in enumerate(of["head"])
            ],
            "spearman": _correlation(values["omega"][i : i + 1], values["scalar_curvature"][i : i + 1]),
        }
        for i, label in enumerate(of["layer"])
    ]
    truth = values["scalar_curvature"]
    return {
        "tokens": list(opened.tokens), "what_if": what_if_of(trace), "options": options, "layers": layers,
        "spearman": _correlation(values["omega"], truth),
        "spearman_of_size": _correlation(values["omega"], np.abs(truth)),
        "spearman_within": _correlation(within_ranks(values["omega"]), within_ranks(truth)),
        "notes": list(dict.fromkeys(note for found in readings.values() for note in found.notes)),
    }  # fmt: skip


def _correlation(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Spearman's rho over (layer, head, token). Whole tokens are resampled: their layers and heads hang together."""
    found: Correlation = spearman(x, y, np.broadcast_to(np.arange(x.shape[2]), x.shape))
    return {
        "rho": number(found.rho), "low": number(found.low), "high": number(found.high), "level": LEVEL,
        "pairs": found.n, "tokens": found.groups, "reason": found.reason,
    }  # fmt: skip


def _tokens(texts: tuple[str, ...], values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """One table a token. A value that is not a number is null."""
    return [
        {"token": i, "text": text} | {name: number(value[i]) for name, value in values.items()}
        for i, text in enumerate(texts)
    ]


def _case_table(case: str, found: dict[str, float]) -> str:
    kind = "relative" if found["exact"] else "absolute"
    return (
        f"{'case':9}{case}\n{'computed':9}{found['computed']:.17g}\n{'exact':9}{found['exact']:.17g}\n"
        f"{'error':9}{found['error']:.1e} ({kind})\n"
    )


def _table(found: dict[str, Any]) -> str:
    """A line a layer and token, means over heads; then the correlations."""
    widths = [max(len(name), 12) for name in COLUMNS]
    heading = "  ".join(f"{name:>{width}}" for name, width in zip(COLUMNS, widths, strict=True))
    lines = [f"{len(found['tokens'])} tokens, means over heads", "", f"{'layer':>5} {'token':>5}  {heading}  text"]
    for layer in found["layers"]:
        for row in layer["per_token"]:
            cells = "  ".join(f"{_cell(row[name]):>{width}}" for name, width in zip(COLUMNS, widths, strict=True))
            lines.append(f"{layer['layer']:>5} {row['token']:>5}  {cells}  {row['text']!r}")
    lines += [
        "",
        "Spearman's rho over layers, heads and tokens, and its "
        f"{LEVEL} % interval over {found['spearman']['tokens']} tokens:",
        f"  omega and scalar_curvature            {_said(found['spearman'])}",
        f"  omega and the size of it              {_said(found['spearman_of_size'])}",
        f"  both ranked within a layer and head   {_said(found['spearman_within'])}",
        "",
        "scalar_sampled is d (d - 1) times the mean over random planes, sampling_error its standard error.",
        *filter(None, [found["what_if"], *found["notes"]]),
    ]
    return "\n".join(lines)


def _said(found: dict[str, Any]) -> str:
    if found["rho"] is None:
        return f"none: {found['reason']}"
    ends = f"{found['low']:+.3f} to {found['high']:+.3f}" if found["low"] is not None else f"none: {found['reason']}"
    return f"{found['rho']:+.3f}  ({ends}; {found['pairs']} pairs)"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
