"""From a trace to the token matrices that rank and spread are measured on: stage, centring, unit norm, sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from fbt_core.measures.table import Measured
from fbt_core.trace import LayerTrace, Trace

Matrix = Float64[np.ndarray, "token width"]

SINK_FACTOR = 5.0
"""A sink is a token whose norm exceeds this many times the median norm of its layer and stage.

Our choice: the median does not move when a few tokens are huge, which the mean and the spread do.
"""

ROUNDING_FACTOR = 4.0
"""mu below this many machine epsilons of the model's dtype is rounding, not signal."""

FINAL_LABEL = "after final norm"
NO_MIDDLE = "some layers have no residual between attention and feed-forward that can be told apart: nan"
TOKEN_OPTIONS = ("stage", "tokens", "sinks", "final")


@dataclass(frozen=True)
class TokenMatrix:
    """One residual matrix ready to be measured, with the dtype that it was computed in."""

    label: str
    X: Matrix
    dtype: torch.dtype
    notes: tuple[str, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether every entry is a finite number."""
        return bool(np.isfinite(self.X).all())


def centred(X: Matrix) -> Matrix:
    """X minus the mean of its rows. Exactly 0 for equal rows: one row is subtracted before the mean is taken."""
    moved = X - X[:1]
    return moved - moved.mean(0, keepdims=True)


def unit(X: Matrix) -> Matrix:
    """Each row divided by its norm; a zero row stays zero. Scaled by the largest entry first, against overflow."""
    scaled = X / _positive(np.abs(X).max(1, keepdims=True))
    return scaled / _positive(np.linalg.norm(scaled, axis=1, keepdims=True))


def sink_tokens(X: Matrix) -> Bool[np.ndarray, " token"]:
    """Tokens whose norm exceeds ``SINK_FACTOR`` times the median norm; none where a norm is not finite."""
    norms = np.linalg.norm(X, axis=1)
    return norms > SINK_FACTOR * np.median(norms)


def to_numpy(values: Tensor) -> np.ndarray:
    """The one crossing from torch: float64, on the CPU."""
    return values.detach().to("cpu", torch.float64).numpy()


def to_float64(values: Tensor) -> Tensor:
    """float64 without gradient, on the CPU where the device has none (Apple's MPS)."""
    values = values.detach()
    return values.cpu().double() if values.device.type == "mps" else values.double()


def token_labels(trace: Trace) -> tuple[str, ...]:
    """``(i) text``, unique even where tokens repeat; the id stands in where a trace has no texts."""
    texts = trace.tokens or tuple(str(int(i)) for i in trace.ids)
    return tuple(f"({i}) {text}" for i, text in enumerate(texts))


def matrices(trace: Trace, stage: str, tokens: str, sinks: str, final: bool) -> Iterator[TokenMatrix]:
    """One matrix a layer, then, when ``final``, the residual after the final norm.

    Sinks go first, then rows are centred or normalised. The final norm hides norms, so its sinks are those of the
    residual that enters it.
    """
    labels = token_labels(trace)
    for layer in trace.layers:
        residual = _residual(layer, stage)
        if residual is None:
            yield TokenMatrix(str(layer.index), np.full((1, 1), np.nan), layer.residual_out.dtype, (NO_MIDDLE,))
            continue
        raw = TokenMatrix(str(layer.index), to_numpy(residual), residual.dtype)
        yield _prepare(raw, raw.X, tokens, sinks, labels)
    if final:
        entering = to_numpy(trace.layers[-1].residual_out)
        raw = TokenMatrix(FINAL_LABEL, to_numpy(trace.normed), trace.normed.dtype)
        yield _prepare(raw, entering, tokens, sinks, labels)


def by_layer(
    function: Callable[[TokenMatrix], float], trace: Trace, *, stage: str, tokens: str, sinks: str, final: bool
) -> Measured:
    """``function`` of every layer's matrix; NaN, with a note, where the matrix or the value is not finite."""
    values: list[float] = []
    notes: list[str] = []
    for matrix in matrices(trace, stage, tokens, sinks, final):
        notes += [note for note in matrix.notes if note not in notes]
        values.append(function(matrix) if matrix.finite else float("nan"))
        if matrix.finite and np.isnan(values[-1]):
            notes.append(f"layer {matrix.label}: undefined for {matrix.X.shape[0]} tokens, or for zero ones: nan")
    return Measured(np.array(values), tuple(notes))


def _prepare(matrix: TokenMatrix, norms_of: Matrix, tokens: str, sinks: str, labels: tuple[str, ...]) -> TokenMatrix:
    """Leave out sinks, then centre or normalise; notes name what was left out and what cannot be trusted."""
    X, notes = matrix.X, []
    if not matrix.finite:
        return replace(matrix, notes=(f"layer {matrix.label}: {describe_nonfinite(X, labels)}",))
    if sinks == "left out":
        out = sink_tokens(norms_of)
        X = X[~out]
        named = ", ".join(label for label, gone in zip(labels, out, strict=True) if gone)
        notes.append(f"layer {matrix.label}: left out {named or 'no token'}")
    if 0 < (spread := _mu(X)) < ROUNDING_FACTOR * torch.finfo(matrix.dtype).eps:
        notes.append(f"layer {matrix.label}: tokens differ by rounding only (mu = {spread:.1e})")
    X = {"raw": lambda x: x, "centred": centred, "unit": unit}[tokens](X)
    return replace(matrix, X=X, notes=tuple(notes))


def describe_nonfinite(values: np.ndarray, labels: tuple[str, ...]) -> str:
    """How many entries of (token, ...) are not finite, and at which tokens (the first five)."""
    bad = ~np.isfinite(values.reshape(len(values), -1))
    where = [labels[i] for i in np.flatnonzero(bad.any(1))]
    more = f" and {len(where) - 5} more" if len(where) > 5 else ""
    return f"{bad.sum()} non-finite entries, at tokens {', '.join(where[:5])}{more}"


def _residual(layer: LayerTrace, stage: str) -> Tensor | None:
    return {"in": layer.residual_in, "mid": layer.residual_mid, "out": layer.residual_out}[stage]


def _mu(X: Matrix) -> float:
    return float(np.linalg.norm(centred(X)) / _positive(np.linalg.norm(X)))


def _positive(values: np.ndarray | np.floating) -> np.ndarray:
    """0 replaced by 1, for a denominator."""
    return np.where(values > 0, values, 1.0)
