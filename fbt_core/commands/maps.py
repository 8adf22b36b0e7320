"""``python -m fbt_core maps``: one attention map with all its digits, and the factors that give it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from fbt_core.attention.scores import SCORES, Factors
from fbt_core.commands.arguments import (
    Asked,
    CheckpointArgument,
    DeviceOption,
    DtypeOption,
    PartOption,
    RankOption,
    SourceOption,
    StackOption,
    StrengthOption,
    TextOption,
    one_line_errors,
    open_model,
    write,
)
from fbt_core.trace import LayerTrace, Trace


def maps(
    checkpoint: CheckpointArgument,
    text: TextOption,
    layer: Annotated[int, typer.Option(min=0, help="Counts from 0.")] = 0,
    head: Annotated[int, typer.Option(min=0, help="Counts from 0.")] = 0,
    score: Annotated[str, typer.Option(help=" | ".join(SCORES))] = "riemannian",
    alpha: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of blended; default: the checkpoint's own.")
    ] = None,
    strength: StrengthOption = 1.0,
    csv: Annotated[str, typer.Option(help="Write the matrix to this file, - for standard output.")] = "-",
    factors: Annotated[Path | None, typer.Option(help="Write q, k, U, tau, omega, alpha, causal to this .npz.")] = None,
    source: SourceOption = "",
    rank: RankOption = 4,
    stack: StackOption = "",
    part: PartOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "auto",
) -> None:
    """Print the attention matrix of one head under a score: row i is query i, column j is key j, each row sums to 1."""
    opened = open_model(checkpoint, text, Asked(device, dtype, strength, part, source, rank, stack))
    with one_line_errors():
        chosen = _one_head(opened.trace, layer, head, score, alpha)
        if factors is not None:
            save_factors(factors, chosen.given)
        matrix = chosen.attention(0, score).double().cpu().numpy()
    write(csv, "\n".join(",".join(format(value, ".17g") for value in row) for row in matrix) + "\n")


def _one_head(trace: Trace, layer: int, head: int, score: str, alpha: float | None) -> LayerTrace:
    """The layer with one head, or a ``ValueError`` that says what there is."""
    if score not in SCORES:
        raise ValueError(f"got --score {score!r}, expected one of {', '.join(SCORES)}")
    if alpha is not None and score != "blended":
        raise ValueError(f"got --alpha with --score {score}, expected it with blended only")
    if layer >= len(trace.layers):
        raise ValueError(f"got --layer {layer}, expected 0 to {len(trace.layers) - 1}")
    found = trace.layers[layer]
    if missing := found.unavailable(score):
        raise ValueError(missing)
    if head >= found.heads:
        raise ValueError(f"got --head {head}, expected 0 to {found.heads - 1}")
    one = found.select(head)
    return one if alpha is None else replace(one, factors=one.given.with_alpha(alpha))


def save_factors(path: Path, f: Factors) -> None:
    """One head's q (L, d), k (L, d), U (L, d, r), tau, omega (L,), alpha, causal; what else the model has of its own.

    That is ``slope`` (ALiBi: - slope |i - j| is added), ``scale`` (of the dot product, in place of 1 / sqrt(d)),
    ``mask`` (added to every score), ``softcap`` and ``sink`` (of its own dot product). A score of ``SCORES`` with
    these, softmaxed over the allowed keys, is the matrix.
    """
    arrays = {"q": f.q[0], "k": f.k[0], "U": f.U[0], "tau": f.tau[0], "omega": f.omega[0]}
    own = {"slope": f.slopes, "scale": f.scale, "sink": f.sinks}
    arrays |= {name: value[0] for name, value in own.items() if value is not None}
    if f.mask is not None:
        arrays["mask"] = f.mask.reshape(-1, *f.mask.shape[-2:])[0]
    if f.softcap is not None:
        arrays["softcap"] = torch.tensor(f.softcap)
    with path.open("wb") as file:  # an open file keeps the name as given: savez would add .npz to another suffix
        plain = {name: _numpy(value) for name, value in arrays.items()}
        np.savez(file, alpha=f.alpha, causal=f.causal, **plain)  # pyright: ignore[reportArgumentType]


def _numpy(value: Tensor) -> np.ndarray:
    """NumPy has no bfloat16: it goes as float32, which holds it exactly."""
    return (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
