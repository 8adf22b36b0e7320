"""The exponent of the collapse, in high precision: with l the log of the Dong residual, is each step thrice the last?

    exponent at layer n = (l_n - l_{n-1}) / (l_{n-1} - l_{n-2})

A residual that is cubed from layer to layer reaches the rounding of float64 two layers after 1e-2, so the layers below
that are computed with mpmath. The ratio of logs themselves would be biased: residual -> C residual^3 shifts l by ln C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from fbt_core.experiments.arms import ARMS
from fbt_core.experiments.profile import Step, of_tokens, walk
from fbt_core.experiments.stack import PureLayer, PureStack, Shape, first_tokens, spectral_norms, squared_radius

EXPONENT_ARMS = ("dot", "identity", "homogeneous", "heterogeneous", "positional")

DIGITS = 640
"""Decimal digits: enough for three exponents near 3, also from 1e-6 down to 1e-486."""

BASIN = -2.0
"""log10 of the residual from which exponents are read, as fixed before."""

FIRST_LAYERS, PRECISE_LAYERS = 40, 9
"""At most: layers in float64 until the basin, and layers in high precision after it."""

Array = np.ndarray
"""Of mpmath numbers, dtype object."""


def exponents(
    arms: Sequence[str] = EXPONENT_ARMS, seeds: Sequence[int] = (0, 1, 2), ties: Sequence[bool] = (False, True), *,
    length: int = 16, width: int = 4, rank: int = 2, strength: float = 10.0, unit: str = "tau/L", held: str = "first",
) -> pd.DataFrame:  # fmt: skip
    """Rows of arm, tied, seed, layer, log10_residual and exponent (NaN where three layers from 1e-2 are not there).

    About a second a run. ``held = "layer"`` with a unit of tau/R^2 lets the metric grow as tied tokens come together,
    which Theorem A's bounded M excludes. Raises ``KeyError`` for an unknown arm, and ``ValueError`` for a matched
    one. There is no transport and no mask here.
    """
    rows: list[dict[str, Any]] = []
    for name in arms:
        if ARMS[name].temperature == "matched":
            raise ValueError(f"got arm {name!r}, expected one whose temperature is its own")
        for tied in ties:
            shape = Shape(length, width, rank, FIRST_LAYERS + PRECISE_LAYERS, strength, unit, tied, held)
            for seed in seeds:
                logs = residuals(PureStack(shape, ARMS[name], seed), first_tokens(shape, seed))
                base = {"arm": name, "tied": tied, "seed": seed}
                for number, (log, exponent) in enumerate(zip(logs, estimates(logs), strict=True)):
                    rows.append(base | {"layer": number, "log10_residual": log, "exponent": exponent})
    return pd.DataFrame(rows)


def estimates(logs: Sequence[float]) -> list[float]:
    """The exponent at each layer, from it and the two before, all below 1e-2; NaN elsewhere."""
    found = [math.nan] * len(logs)
    for n in range(2, len(logs)):
        a, b, c = logs[n - 2 : n + 1]
        if a < BASIN and b != a:
            found[n] = (c - b) / (b - a)
    return found


def residuals(stack: PureStack, x: torch.Tensor) -> list[float]:
    """log10 of the Dong residual of the input and of every layer, until high precision runs out or the layers end."""
    logs, radius, number = [of_tokens(x)["log10_residual"]], None, 0
    for step in walk(stack, x):
        if logs[-1] < BASIN or number == FIRST_LAYERS:
            break
        radius = radius or _held_radius(step)
        x, number = step.out, number + 1
        logs.append(of_tokens(x)["log10_residual"])
    if logs[-1] >= BASIN:
        return logs
    import mpmath

    with mpmath.workdps(DIGITS):
        X = _precise(x[0])
        logs[-1] = log10_dong(X)
        for layer in list(stack.layers)[number : number + PRECISE_LAYERS]:
            X = precise_layer(layer, X, radius)
            found = log10_dong(X)
            if found < 20 - DIGITS:  # rounding
                break
            logs.append(found)
            if 2 * found < 20 - DIGITS:  # the next one would be, at any exponent from 2 on
                break
    return logs


def precise_layer(layer: PureLayer, X: Array, radius: float | None = None) -> Array:
    """One layer's tokens, (token, width), in the precision that mpmath is set to; without transport and mask.

    ``radius`` is R^2 of the first layer where that is held. The same formulas as in ``stack`` and ``scores``, written
    from differences, so that what near tokens have in common cancels before anything is squared.
    """
    import mpmath

    mp, s, arm = mpmath.mp, layer.shape, layer.arm
    weight = {name: _precise(value) for name, value in layer.state_dict().items() if name != "order"}
    q, v = X @ weight["query.weight"].T, X @ weight["value.weight"].T
    k = q if s.tied else X @ weight["key.weight"].T
    if arm.score == "euclidean":
        return _softmax(q @ k.T / mp.sqrt(s.width)) @ v
    q, k = (_unit(y) * mp.sqrt(mp.mpf(s.width) / 2) for y in (q, k))
    e = q[:, None] - k[None]
    squares = (e * e).sum(-1)
    tau, omega = mp.mpf(s.width), mp.mpf(0)
    if arm.metric != "none" and s.strength > 0:
        U = _direction(layer, weight, X)
        wanted = s.strength * (tau / s.length if s.unit == "tau/L" else tau / (radius or squares.max()))
        U = U * (mp.sqrt(wanted) / float(spectral_norms(torch.tensor(U.astype(float))).max()))
        images = [(e[..., None] * side).sum(-2) for side in (U[:, None], U[None])]
        squares = squares + sum((image * image).sum(-1) for image in images) / 2
        omega = s.omega * (U * U).sum((-2, -1))
    return _softmax(-squares / tau - omega) @ v


def log10_dong(X: Array) -> float:
    """log10 of the Dong residual of a matrix of mpmath numbers; minus infinity for equal tokens."""
    import mpmath

    def size(Y: Array) -> Any:
        return abs(Y).sum(0).max() * abs(Y).sum(1).max()

    moved = X - X[:1]  # exactly 0 for equal tokens
    spread = size(moved - moved.sum(0) / len(X))
    return float(mpmath.log10(spread / size(X)) / 2) if spread > 0 else -math.inf


def _direction(layer: PureLayer, weight: dict[str, Array], X: Array) -> Array:
    """U_t before its strength is set, (token, width, rank), as ``PureLayer.direction``."""
    import mpmath

    if "U" in weight:
        return np.broadcast_to(weight["U"], (len(X), *weight["U"].shape[1:]))
    gelu = np.frompyfunc(lambda z: z * (1 + mpmath.erf(z / mpmath.sqrt(2))) / 2, 1, 1)
    h = _unit(X) * mpmath.sqrt(X.shape[1])
    hidden = gelu(h @ weight["metric.first.weight"].T + weight["metric.first.bias"])
    U = hidden @ weight["metric.second.weight"].T + weight["metric.second.bias"]
    U = U.reshape(len(X), layer.shape.width, layer.shape.rank)
    return U[layer.order.numpy()] if layer.arm.metric == "shuffled" else U


def _held_radius(step: Step) -> float | None:
    """R^2 of the first layer, where it is held for all."""
    if step.layer.shape.held == "layer":
        return None
    with torch.no_grad():
        return float(squared_radius(*step.layer.queries_and_keys(step.x)))


def _unit(x: Array) -> Array:
    import mpmath

    return x / np.frompyfunc(mpmath.sqrt, 1, 1)((x * x).sum(-1, keepdims=True))


def _softmax(logits: Array) -> Array:
    import mpmath

    weights = np.frompyfunc(mpmath.exp, 1, 1)(logits)
    return weights / weights.sum(-1, keepdims=True)


def _precise(values: torch.Tensor) -> Array:
    """The same numbers, exactly."""
    import mpmath

    return np.frompyfunc(mpmath.mpf, 1, 1)(values.detach().numpy().astype(object))
