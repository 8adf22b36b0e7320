"""Rank and spread by depth of one checkpoint, and of Dong's ablations of it: what a sweep over checkpoints runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fbt_core.checkpoints import CheckpointError, load
from fbt_core.measures.rank import (
    Spectrum,
    default_eps,
    effective_rank,
    numerical_rank,
    participation_ratio,
    spectrum,
    stable_rank,
)
from fbt_core.measures.spread import dong_residual, mean_cosine, mu
from fbt_core.measures.tokens import FINAL_LABEL, Matrix, TokenMatrix, matrices
from fbt_core.model import build
from fbt_core.trace import Trace

OF_SPECTRUM: dict[str, Callable[[Spectrum, float], float]] = {
    "effective_rank": lambda s, eps: effective_rank(s),
    "stable_rank": lambda s, eps: stable_rank(s),
    "participation_ratio": lambda s, eps: participation_ratio(s),
    "numerical_rank": numerical_rank,
}
"""Ranks by their name in ``MEASURES``: functions of singular values, which are taken once for all, and of eps."""

OF_MATRIX: dict[str, Callable[[Matrix], float]] = {
    "dong_residual": dong_residual, "mu": mu, "mean_cosine": mean_cosine,
}  # fmt: skip
"""Spreads by their name in ``MEASURES``."""

NAMES = (*OF_SPECTRUM, *OF_MATRIX)
TOKENS, SINKS = ("raw", "centred", "unit"), ("kept", "left out")
"""How the tokens are taken, which every row says: options of the measures, by the same names."""

EMBEDDING, BLOCK, FINAL = "embedding", "block", FINAL_LABEL
"""``where`` a row's residual stands. ``layer`` counts the blocks passed: 0 for the embedding, n after the n-th."""

CHARACTERS_A_TOKEN = 200
"""A job carries this many characters of the text for every token that is read: no tokenizer makes longer ones on the
average, and a long text need not travel."""

LONGEST_ERROR = 400


def run(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one checkpoint: model, checkpoint, sha256, step, variant, where, layer, tokens, sinks, count (of
    tokens measured), left_out (as sinks), width, the measures of ``NAMES`` and error.

    ``parameters``: path, model, checkpoint, step (or None), variants (keys of ``ablation.VARIANTS``), text, length
    (of tokens that are read), device and dtype. A checkpoint that cannot be used, and a variant that it does not have,
    is one row with a sentence in ``error`` and no values.
    """
    named = {"model": parameters["model"], "checkpoint": parameters["checkpoint"], "sha256": ""}
    named["step"] = _number(parameters["step"])
    try:
        checkpoint = load(Path(parameters["path"]))
        named["sha256"] = checkpoint.origin.sha256
        if parameters["step"] is None and "steps" in checkpoint.training:
            named["step"] = _number(checkpoint.training["steps"])
        model = build(checkpoint, parameters["device"], parameters["dtype"])
        if checkpoint.tokenizer is None:
            raise ValueError("got a model that reads no text, expected one that does")
        ids = torch.tensor(checkpoint.tokenizer.encode(parameters["text"]).ids[: parameters["length"]])
    except Exception as fault:  # of whatever kind: it is this checkpoint's, and the others go on
        return [named | _failed("", fault)]
    rows = []
    for variant in parameters["variants"]:
        try:
            found = model.traces(ids, variant=variant)
            trace = found["decoder"] if "decoder" in found else next(iter(found.values()))
            rows += [named | {"variant": variant} | row | {"error": ""} for row in of_trace(trace)]
        except Exception as fault:
            rows.append(named | _failed(variant, fault))
    return rows


def of_trace(trace: Trace) -> Iterator[dict[str, Any]]:
    """A row a residual matrix of the trace and way to take its tokens, the values as ``read`` gives them."""
    eps = default_eps(trace)
    for tokens in TOKENS:
        whole: list[dict[str, Any]] = []
        for sinks in SINKS:
            for place, (where, layer, matrix) in enumerate(_matrices(trace, tokens, sinks)):
                row = {"where": where, "layer": layer, "tokens": tokens, "sinks": sinks, "count": len(matrix.X)}
                left_out = whole[place]["count"] - len(matrix.X) if sinks == "left out" else 0
                row |= {"left_out": left_out, "width": matrix.X.shape[1]}
                if sinks == "left out" and not left_out:  # there was no sink: the same matrix
                    row |= {name: whole[place][name] for name in NAMES}
                else:
                    row |= _values(matrix, eps)
                if sinks == "kept":
                    whole.append(row)
                yield row


def _matrices(trace: Trace, tokens: str, sinks: str) -> Iterator[tuple[str, int, TokenMatrix]]:
    """(where, layer, matrix): the embedding, after each block, after the final norm."""
    first = replace(trace, layers=trace.layers[:1])
    yield from ((EMBEDDING, 0, matrix) for matrix in matrices(first, "in", tokens, sinks, False))
    depth = len(trace.layers)
    for passed, matrix in enumerate(matrices(trace, "out", tokens, sinks, True), 1):
        yield (BLOCK if passed <= depth else FINAL), min(passed, depth), matrix


def _values(matrix: TokenMatrix, eps: float) -> dict[str, float]:
    if not matrix.finite:
        return dict.fromkeys(NAMES, math.nan)
    s = spectrum(matrix.X, eps)
    ranks = {name: function(s, eps) for name, function in OF_SPECTRUM.items()}
    return ranks | {name: function(matrix.X) for name, function in OF_MATRIX.items()}


def _failed(variant: str, fault: Exception) -> dict[str, Any]:
    """The columns of a row without values. An error that is no sentence of ours begins with its kind."""
    words = " ".join(str(fault).split())
    ours = words and isinstance(fault, (CheckpointError, ValueError, OSError))
    told = words if ours else f"{type(fault).__name__}: {words}"
    place = {"variant": variant, "where": "", "layer": math.nan, "tokens": "", "sinks": ""}
    missing = dict.fromkeys(("count", "left_out", "width", *NAMES), math.nan)
    return place | missing | {"error": told[:LONGEST_ERROR]}


def _number(value: Any) -> float:
    """A step as a float, NaN for none: one kind of column, whatever is known."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    return float(value) if whole else math.nan
