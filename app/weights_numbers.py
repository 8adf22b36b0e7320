"""Numbers of stored tensors: a row each, norms by layer, and the values of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from torch import Tensor

from app.weights import DELTA, NUMBER, factors, finite_of, in_pieces, natural, visible_name, widened
from fbt_core.checkpoints import Checkpoint


def table(checkpoint: Checkpoint) -> pd.DataFrame:
    """One row a tensor, by name and number: name, shape, dtype, numbers, norm, rms, min, max, remarks.

    ``norm`` is Frobenius's, over finite values; ``remarks`` counts NaN and infinities and names zero and constant ones.
    """
    rows = [_row(name, checkpoint.tensors[name]) for name in sorted(checkpoint.tensors, key=natural)]
    return pd.DataFrame(rows, columns=["name", "shape", "dtype", "numbers", "norm", "rms", "min", "max", "remarks"])


def _row(name: str, tensor: Tensor) -> dict[str, object]:
    total, low, high, nans, infinite = 0.0, np.inf, -np.inf, 0, 0
    for piece in in_pieces(tensor):
        good = finite_of(piece)
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


def histogram(checkpoint: Checkpoint, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts (bins,) and edges (bins + 1,) of the finite values of a tensor, or of an adapter's change.

    As many bins as the root of the number of values, from 11 to 121.
    """
    if name.startswith(DELTA):
        down, up = (widened(factor) for factor in factors(checkpoint, name))
        tensor = up[:4096] @ down[:, :4096]
    else:
        tensor = checkpoint.tensors[name]
    pieces = [finite_of(piece) for piece in in_pieces(tensor)]
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
