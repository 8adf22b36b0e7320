"""Numbers of stored tensors: one row a tensor, the spectrum of a matrix, the values of one, norms by layer.

Functions of a ``Checkpoint``; what they return is numpy and pandas. Everything is computed in float64, in pieces, and
one tensor at a time: a model of any size needs no second copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.measures.spectra import by_gram
from fbt_core.tokenizer import visible

PIECE = 1 << 22
"""Numbers that are widened to float64 at once."""

QUICK = 3e10
"""Multiplications of a spectrum, about max(m, n) min(m, n)^2, up to which it is computed unasked: seconds."""

WIDEST = 8192
"""The smaller side of a matrix above which there is no spectrum: its Gram matrix alone would take half a gigabyte."""

SMALL = 1024
"""The smaller side up to which singular values come from the matrix itself where its Gram matrix has lost digits."""

DIGITS = 1e-4
"""The share by which any singular value may be off: more than a figure or a table shows."""

DELTA = "Δ "
"""Begins the name of a LoRA adapter's change to a matrix, B A."""

LORA = re.compile(r"(.*)\.lora_(?:A|down)((?:\.[\w-]+)*)$")
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class Spectrum:
    """Singular values (k,) from large to small, of an (m, n) matrix whose entries have the mean square ``power``."""

    values: np.ndarray
    shape: tuple[int, int]
    power: float
    note: str = ""

    @property
    def stable_rank(self) -> float:
        """sum sigma^2 / sigma_1^2, in [1, k]; 0 of a zero matrix."""
        top = self.values[0] ** 2 if len(self.values) else 0.0
        return float((self.values**2).sum() / top) if top else 0.0

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of sigma / sum sigma (Roy & Vetterli 2007), in [1, k]; 0 of a zero matrix."""
        total = self.values.sum()
        if not total:
            return 0.0
        share = self.values[self.values > 0] / total
        return float(np.exp(-(share * np.log(share)).sum()))

    @property
    def edges(self) -> tuple[float, float]:
        """Where the singular values of a random matrix of this size and power begin and end (Marchenko & Pastur)."""
        m, n = self.shape
        return tuple(float(np.sqrt(self.power) * edge) for edge in (abs(m**0.5 - n**0.5), m**0.5 + n**0.5))

    @property
    def beyond(self) -> int:
        """How many exceed that upper edge."""
        return int((self.values > self.edges[1]).sum())

    def random(self) -> np.ndarray:
        """The first k singular values that such a random matrix, of full rank, is expected to have: quantiles."""
        low, high = self.edges
        if not high > low:
            return np.full(len(self.values), high)
        grid = np.linspace(low, high, 4001)
        density = np.sqrt(np.clip((high**2 - grid**2) * (grid**2 - low**2), 0, None)) / np.maximum(grid, high * 1e-9)
        mass = np.cumsum(density) / density.sum()
        count = min(self.shape)
        return np.interp((np.arange(count)[::-1] + 0.5) / count, mass, grid)[: len(self.values)]


def names(checkpoint: Checkpoint) -> list[str]:
    """Every tensor that has values to draw, changes of a LoRA adapter first."""
    ordered = sorted(checkpoint.tensors, key=natural)
    deltas = [DELTA + name for name in ordered if _partner(checkpoint, name)]
    return [*deltas, *(name for name in ordered if checkpoint.tensors[name].numel())]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key: layer 2 before layer 10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part[:9]), part) if part.isdecimal() else (1, 0, part) for part in parts]


def first_choice(checkpoint: Checkpoint) -> str | None:
    """The tensor to show at first: a change of an adapter, else a matrix inside a layer, else any matrix."""
    known = names(checkpoint)
    matrices = [name for name in known if not name.startswith(DELTA) and min(checkpoint.tensors[name].shape, default=0)
                > 1 and checkpoint.tensors[name].ndim > 1]  # fmt: skip
    layered = [name for name in matrices if NUMBER.search(name)]
    deltas = [name for name in known if name.startswith(DELTA)]
    return next(iter([*deltas, *layered, *matrices, *known]), None)


def shape(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    """Of a tensor, or of an adapter's change."""
    if name.startswith(DELTA):
        down, up = _factors(checkpoint, name)
        return (up.shape[0], down.shape[1])
    return tuple(checkpoint.tensors[name].shape)


def table(checkpoint: Checkpoint) -> pd.DataFrame:
    """One row a tensor, by name and number: name, shape, dtype, numbers, norm, rms, min, max, remarks.

    ``norm`` is Frobenius's, over finite values; ``remarks`` counts NaN and infinities and names zero and constant ones.
    """
    rows = [_row(name, checkpoint.tensors[name]) for name in sorted(checkpoint.tensors, key=natural)]
    return pd.DataFrame(rows, columns=["name", "shape", "dtype", "numbers", "norm", "rms", "min", "max", "remarks"])


def _row(name: str, tensor: Tensor) -> dict[str, object]:
    total, low, high, nans, infinite = 0.0, np.inf, -np.inf, 0, 0
    for piece in _pieces(tensor):
        good = _finite(piece)
        nan = int(piece.isnan().sum())
        nans, infinite = nans + nan, infinite + piece.numel() - good.numel() - nan
        if good.numel():
            total += float(good.square().sum())
            low, high = min(low, float(good.min())), max(high, float(good.max()))
    count = tensor.numel()
    finite = count - nans - infinite
    said = [f"{nans:,} NaN" if nans else "", f"{infinite:,} infinite" if infinite else "", *_remarks(tensor, low, high)]
    return {
        "name": visible_name(name), "shape": " × ".join(map(str, tensor.shape)) or "scalar",
        "dtype": str(tensor.dtype).removeprefix("torch."), "numbers": count, "norm": total**0.5,
        "rms": (total / finite) ** 0.5 if finite else np.nan, "min": low if finite else np.nan,
        "max": high if finite else np.nan, "remarks": ", ".join(filter(None, said)),
    }  # fmt: skip


def _remarks(tensor: Tensor, low: float, high: float) -> Iterator[str]:
    if not tensor.numel():
        yield "empty"
    elif low == high and tensor.numel() > 1:
        yield "all zero" if low == 0 else "constant"
    if not tensor.is_floating_point():
        yield "integers: perhaps packed or quantised"
    elif tensor.dtype.itemsize == 1:
        yield "8-bit floats"


def spectrum(checkpoint: Checkpoint, name: str) -> Spectrum:
    """Singular values of a tensor as a matrix: what lies beyond the first axis is one axis.

    Raises ``CheckpointError`` for what has none: fewer than two axes, values that are not finite, a side too large.
    """
    if name.startswith(DELTA):
        down, up = (_wide(factor) for factor in _factors(checkpoint, name))
        values = torch.linalg.svdvals(torch.linalg.qr(up).R @ torch.linalg.qr(down.T).R.T)
        size = (up.shape[0], down.shape[1])
        note = f"B A of rank {down.shape[0]}, without the adapter's scale"
        return Spectrum(values.numpy(), size, float(values.square().sum()) / prod(size), note)
    tensor = checkpoint.tensors[name]
    if tensor.ndim < 2 or not tensor.numel() or min(tensor.shape[0], prod(tensor.shape[1:])) < 1:
        raise CheckpointError(f"a tensor of shape {tuple(tensor.shape)}", "a matrix", "Choose a tensor with two axes.")
    small = min(tensor.shape[0], prod(tensor.shape[1:]))
    if small > WIDEST:
        raise CheckpointError(f"a smaller side of {small:,}", f"at most {WIDEST:,}", "Look at its values instead.")
    matrix = _wide(tensor.reshape(tensor.shape[0], -1))
    if not bool(torch.isfinite(matrix).all()):
        raise CheckpointError("values that are not finite", "finite values", "The table says how many there are.")
    matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    exact = small <= SMALL and matrix.shape[0] <= 4 * SMALL
    values, note = _values(matrix, exact)
    size = (tensor.shape[0], prod(tensor.shape[1:]))
    return Spectrum(values, size, float(matrix.square().mean()), note)


def cost(checkpoint: Checkpoint, name: str) -> float:
    """Multiplications that its spectrum takes, about."""
    if name.startswith(DELTA):
        return 0.0
    size = shape(checkpoint, name)
    if len(size) < 2:
        return 0.0
    sides = sorted((size[0], prod(size[1:])))
    return float(sides[0]) ** 2 * sides[1]


def histogram(checkpoint: Checkpoint, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts (bins,) and edges (bins + 1,) of the finite values of a tensor, or of an adapter's change.

    As many bins as the root of the number of values, from 11 to 121.
    """
    if name.startswith(DELTA):
        down, up = (_wide(factor) for factor in _factors(checkpoint, name))
        tensor = up[:4096] @ down[:, :4096]
    else:
        tensor = checkpoint.tensors[name]
    pieces = [_finite(piece) for piece in _pieces(tensor)]
    pieces = [piece for piece in pieces if piece.numel()]
    if not pieces:
        return np.zeros(0), np.zeros(1)
    low, high = min(float(piece.min()) for piece in pieces), max(float(piece.max()) for piece in pieces)
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = min(max(int(sum(piece.numel() for piece in pieces) ** 0.5) | 1, 11), 121)
    counts = sum(np.histogram(piece.numpy(), bins, (low, high))[0] for piece in pieces)
    return np.asarray(counts), np.linspace(low, high, bins + 1)


def by_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """Of ``table``'s rows, those of names with a layer's number: pattern, layer, rms, norm, numbers."""
    found = []
    for row in rows.to_dict("records"):
        if match := NUMBER.search(str(row["name"])):
            name = str(row["name"])
            pattern = f"{name[: match.start()]}#{name[match.end() :]}"
            numbers = {key: row[key] for key in ("rms", "norm", "numbers")}
            found.append({"pattern": pattern, "layer": int(match[0][:9]), **numbers})
    return pd.DataFrame(found, columns=["pattern", "layer", "rms", "norm", "numbers"])


def visible_name(name: str) -> str:
    """A tensor's name with control and direction characters made visible, cut to a readable length."""
    delta = name.startswith(DELTA)
    if delta and (match := LORA.fullmatch(name.removeprefix(DELTA))):
        name = match[1]
    return DELTA * delta + "".join(map(visible, name[:300])) + ("…" if len(name) > 300 else "")


def _values(matrix: Float[Tensor, "m n"], exact: bool) -> tuple[np.ndarray, str]:
    """Singular values and a note: by W^T W where that leaves each its ``DIGITS``, else from W itself if ``exact``."""
    values, off = by_gram(matrix.numpy())
    if (off <= DIGITS * values).all():
        return values, ""
    if exact:
        return torch.linalg.svdvals(matrix).numpy(), ""
    return values, "from W^T W: below 1e-8 of the largest they are rounding"


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    for piece in tensor.detach().reshape(-1).split(PIECE):
        yield _wide(piece)


def _finite(piece: Tensor) -> Tensor:
    """The finite values; the piece itself where all are, since picking is what takes the time."""
    finite = torch.isfinite(piece)
    return piece if bool(finite.all()) else piece[finite]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").to(torch.float32 if tensor.dtype.itemsize == 1 else tensor.dtype).double()


def _partner(checkpoint: Checkpoint, name: str) -> str | None:
    """The B of a LoRA adapter's A."""
    if not LORA.fullmatch(name) or checkpoint.tensors[name].ndim != 2:
        return None
    other = name.replace(".lora_A", ".lora_B").replace(".lora_down", ".lora_up")
    found = checkpoint.tensors.get(other)
    matches = found is not None and found.ndim == 2 and found.shape[1] == checkpoint.tensors[name].shape[0]
    return other if matches else None


def _factors(checkpoint: Checkpoint, name: str) -> tuple[Tensor, Tensor]:
    """(A, B) of a change's name."""
    down = name.removeprefix(DELTA)
    other = _partner(checkpoint, down)
    assert other is not None, "names() lists changes with both factors only"
    return checkpoint.tensors[down], checkpoint.tensors[other]
