"""``python -m fbt_core maps``: one attention map with all its digits, and the factors that give it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from fbt_core.attention.scores import SCORES, Factors, attention
from fbt_core.commands.arguments import (
    DeviceOption,
    DtypeOption,
    StrengthOption,
    TextOption,
    one_line_errors,
    open_model,
    write,
)
from fbt_core.trace import Trace


def maps(
    checkpoint: Annotated[Path, typer.Argument(help="A Fiberscope checkpoint.")],
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
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "float32",
) -> None:
    """Print the attention matrix of one head under a score: row i is query i, column j is key j, each row sums to 1."""
    opened = open_model(checkpoint, text, device, dtype, strength)
    with one_line_errors():
        chosen = _factors(opened.trace, layer, head, score, alpha)
        if factors is not None:
            save_factors(factors, chosen)
    matrix = attention(chosen, score)[0].double().cpu().numpy()
    write(csv, "\n".join(",".join(format(value, ".17g") for value in row) for row in matrix) + "\n")


def _factors(trace: Trace, layer: int, head: int, score: str, alpha: float | None) -> Factors:
    """One head's factors, or a ``ValueError`` that says what there is."""
    if score not in SCORES:
        raise ValueError(f"got --score {score!r}, expected one of {', '.join(SCORES)}")
    if alpha is not None and score != "blended":
        raise ValueError(f"got --alpha with --score {score}, expected it with blended only")
    if layer >= len(trace.layers):
        raise ValueError(f"got --layer {layer}, expected 0 to {len(trace.layers) - 1}")
    if head >= trace.heads:
        raise ValueError(f"got --head {head}, expected 0 to {trace.heads - 1}")
    chosen = trace.layers[layer].given.select(head)
    return chosen if alpha is None else chosen.with_alpha(alpha)


def save_factors(path: Path, f: Factors) -> None:
    """One head's q (L, d), k (L, d), U (L, d, r), tau, omega (L,), alpha, causal; ``slope`` where there is ALiBi.

    A score of ``SCORES``, plus - slope |i - j| where there is one, softmaxed over the allowed keys, is the matrix.
    """
    arrays = {"q": f.q[0], "k": f.k[0], "U": f.U[0], "tau": f.tau[0], "omega": f.omega[0]}
    if f.slopes is not None:
        arrays["slope"] = f.slopes[0]
    with path.open("wb") as file:  # an open file keeps the name as given: savez would add .npz to another suffix
        plain = {name: _numpy(value) for name, value in arrays.items()}
        np.savez(file, alpha=f.alpha, causal=f.causal, **plain)  # pyright: ignore[reportArgumentType]


def _numpy(value: Tensor) -> np.ndarray:
    """NumPy has no bfloat16: it goes as float32, which holds it exactly."""
    return (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
