"""Exponents in high precision: the layer against float64's, the estimator against sequences that are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fbt_core.experiments.arms import ARMS
from fbt_core.experiments.exponents import EXPONENT_ARMS, estimates, exponents, log10_dong, precise_layer, residuals
from fbt_core.experiments.profile import walk
from fbt_core.experiments.stack import PureStack, Shape, first_tokens
from fbt_core.measures.spread import dong_residual

mpmath = pytest.importorskip("mpmath")

SHAPE = Shape(length=6, width=3, rank=2, layers=2, strength=5.0, unit="tau/R^2", tied=False, omega=0.2)


def precise(values: torch.Tensor) -> np.ndarray:
    return np.array([[mpmath.mpf(value) for value in row] for row in values.tolist()])


@pytest.mark.parametrize("shape", (SHAPE, replace(SHAPE, tied=True, unit="tau/L"), replace(SHAPE, held="first")))
@pytest.mark.parametrize("name", (*EXPONENT_ARMS, "shuffled"))
def test_a_precise_layer_is_the_layer(name: str, shape: Shape) -> None:
    stack, x = PureStack(shape, ARMS[name], 2), first_tokens(shape, 2)
    steps = walk(stack, x)
    q, k = (y[0].detach() for y in steps[0].layer.queries_and_keys(x))
    radius = float(torch.cdist(q, k).max() ** 2) if shape.held == "first" else None
    with mpmath.workdps(30):
        for step in steps:
            found = precise_layer(step.layer, precise(step.x[0]), radius)
            np.testing.assert_allclose(found.astype(float), step.out[0].detach().numpy(), atol=1e-13)


def test_the_residual_in_high_precision() -> None:
    X = np.random.default_rng(0).standard_normal((7, 3))
    with mpmath.workdps(300):
        Y = np.array([[mpmath.mpf(value) for value in row] for row in X])
        assert log10_dong(Y) == pytest.approx(math.log10(dong_residual(X)))
        middle = Y.sum(0) / 7
        tiny = (Y - middle) * mpmath.mpf(10) ** -200
        expected = log10_dong(middle + tiny * mpmath.mpf(10) ** 190) - 190
        assert log10_dong(middle + tiny) == pytest.approx(expected, abs=1e-6)
        assert log10_dong(middle + 0 * tiny) == -math.inf


@pytest.mark.parametrize("power", (1.0, 2.0, 3.0))
def test_the_estimator_is_blind_to_a_constant(power: float) -> None:
    """residual -> 7 residual^power: the ratio of logs would be off, the ratio of their steps is not."""
    logs = [-0.4, -2.5]
    for _ in range(4):
        logs.append(power * logs[-1] + math.log10(0.07))
    found = estimates(logs)
    assert all(math.isnan(one) for one in found[:3])  # from the third below 1e-2 on
    assert found[3:] == pytest.approx([power] * 3)
    assert logs[3] / logs[2] != pytest.approx(power, abs=0.05)
    assert all(math.isnan(one) for one in estimates([-1.0, -1.5, -1.9, -1.99]))


def test_exponents_of_the_arms() -> None:
    """Content: 3. A metric of the position: 2, or 3 where tied tokens leave it nothing at first order."""
    rows = exponents(("homogeneous", "heterogeneous", "positional"), seeds=(0,), length=9, width=3, strength=4.0)
    found = rows.dropna().groupby(["arm", "tied"])["exponent"].agg(["median", "size"])
    for (arm, tied), (median, size) in found.iterrows():
        assert size >= 3 and median == pytest.approx(2 if arm == "positional" and not tied else 3, abs=0.15)
    assert len(found) == 6
    assert list(rows.columns) == ["arm", "tied", "seed", "layer", "log10_residual", "exponent"]


def test_a_metric_that_grows_as_tokens_meet_is_not_doubly_exponential() -> None:
    """tau / R^2 of each layer, tied: M diam^2 stays as it is, and Theorem A promises nothing."""
    options = {"arms": ("homogeneous",), "seeds": (0,), "ties": (True,), "length": 9, "width": 3, "unit": "tau/R^2"}
    held = exponents(**options, strength=4.0)["log10_residual"]
    grown = exponents(**options, strength=4.0, held="layer")["log10_residual"]
    assert held.min() < -100 and grown.min() > -30


def test_arms_without_a_temperature_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match="got arm 'matched'"):
        exponents(("matched",))


def test_a_stack_that_stays_out_of_the_basin_has_no_exponent() -> None:
    shape = replace(SHAPE, layers=3, strength=3000.0, tied=True)
    logs = residuals(PureStack(shape, ARMS["homogeneous"], 0), first_tokens(shape, 0))
    assert len(logs) == 4 and min(logs) > -2 and all(math.isnan(one) for one in estimates(logs))
