"""The Levi-Civita connection against finite differences of the dense metric, and a sphere's closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.connection import christoffel, christoffel_low
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.metric import LowRankMetric

STEP = 1e-3


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(space: int, dim: int, rank: int) -> Callable[[Tensor], Tensor]:
    """A smooth x -> U (d, r)."""
    W, V = normal(6, space, seed=1), normal(dim * rank, 6, seed=2)
    return lambda x: (V @ (W @ x).tanh()).reshape(dim, rank)


INCLUSION = normal(5, 4, seed=3)
FIELDS = {
    "square": MetricFunction.low_rank(network(4, 4, 2), 4),
    "slice of a larger space": MetricFunction.low_rank(network(5, 4, 2), 4, INCLUSION),
    "rank above the dimension": MetricFunction.low_rank(network(3, 3, 5), 3),
}


def generic(g: MetricFunction) -> MetricFunction:
    """The same metric without its factor."""
    return MetricFunction(g.dim, g.inner, None, g.inclusion)


def point(g: MetricFunction, seed: int = 4) -> Tensor:
    return normal(g.dim if g.inclusion is None else len(g.inclusion), seed=seed)


def change_of_metric(g: MetricFunction, x: Tensor) -> np.ndarray:
    """d_k g_ij at [k, i, j], by differences of the fourth order along the slice, of the plain matrix I + U U^T."""
    assert g.factor is not None
    factor, found = g.factor, []
    for row in torch.eye(g.dim, dtype=torch.float64):
        step = STEP * (row if g.inclusion is None else g.inclusion @ row)
        values = [np.asarray(factor(x + n * step)) for n in (-2, -1, 1, 2)]
        far_back, back, on, far_on = (U @ U.T for U in values)
        found.append((far_back - 8 * back + 8 * on - far_on) / (12 * STEP))
    return np.stack(found)


@pytest.mark.parametrize("g", FIELDS.values(), ids=FIELDS.keys())
@pytest.mark.parametrize("low_rank", [True, False])
def test_christoffel_symbols_are_those_of_finite_differences(g: MetricFunction, low_rank: bool) -> None:
    x, used = point(g), g if low_rank else generic(g)
    dg = change_of_metric(g, x)
    d = g.dim
    low = np.zeros((d, d, d))
    for i in range(d):
        for j in range(d):
            for k in range(d):
                low[i, j, k] = (dg[i, j, k] + dg[j, i, k] - dg[k, i, j]) / 2
    U = np.asarray(g.factor(x)) if g.factor is not None else None
    assert U is not None
    up = np.einsum("ijk,kl->ijl", low, np.linalg.inv(np.eye(d) + U @ U.T))
    a, b = normal(d, seed=5), normal(d, seed=6)
    assert np.abs(np.einsum("ijk,i,j->k", low, a, b)).max() > 0.1
    np.testing.assert_allclose(christoffel_low(used, x, a, b), np.einsum("ijk,i,j->k", low, a, b), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(christoffel(used, x, a, b), np.einsum("ijk,i,j->k", up, a, b), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("g", FIELDS.values(), ids=FIELDS.keys())
@pytest.mark.parametrize("low_rank", [True, False])
def test_a_metric_function_is_its_matrix(g: MetricFunction, low_rank: bool) -> None:
    x, used = point(g), g if low_rank else generic(g)
    assert g.factor is not None
    metric = LowRankMetric(g.factor(x))
    a, b = normal(g.dim, seed=5), normal(g.dim, seed=6)
    exact = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(used.dense(x), metric.dense(), **exact)
    torch.testing.assert_close(used.inner(x, a, b), a @ metric.dense() @ b, **exact)
    torch.testing.assert_close(used.lower(x, a), metric.dense() @ a, **exact)
    torch.testing.assert_close(used.raise_(x, a), torch.linalg.solve(metric.dense(), a), **exact)
    torch.testing.assert_close(used.logdet(x), torch.logdet(metric.dense()), **exact)
    torch.testing.assert_close(used.restrict(used.embed(a)) @ b, used.embed(a) @ used.embed(b), **exact)


def test_the_connection_is_symmetric_and_bilinear() -> None:
    g = FIELDS["slice of a larger space"]
    x, a, b, c = point(g), normal(4, seed=5), normal(4, seed=6), normal(4, seed=7)
    torch.testing.assert_close(christoffel(g, x, a, b), christoffel(g, x, b, a), rtol=1e-12, atol=1e-12)
    both = christoffel(g, x, a, 2 * b - 3 * c)
    torch.testing.assert_close(both, 2 * christoffel(g, x, a, b) - 3 * christoffel(g, x, a, c), rtol=1e-11, atol=1e-11)


def test_the_connection_of_a_sphere() -> None:
    """Conformal g = f^2 I: Gamma(a, b) = (a.w) b + (b.w) a - (a.b) w with w = grad log f = -2 x / (R^2 + |x|^2)."""
    radius = 2.0
    g = MetricFunction(3, lambda x, a, b: 4 * radius**4 / (radius**2 + x @ x).square() * (a @ b))
    x, a, b = normal(7, 3, seed=1), normal(7, 3, seed=2), normal(7, 3, seed=3)
    found = vmap(lambda x, a, b: christoffel(g, x, a, b))(x, a, b)
    for n in range(7):
        w = -2 * x[n] / (radius**2 + x[n] @ x[n])
        exact = (a[n] @ w) * b[n] + (b[n] @ w) * a[n] - (a[n] @ b[n]) * w
        torch.testing.assert_close(found[n], exact, rtol=1e-13, atol=1e-13)


def test_what_is_not_positive_definite_is_nan_and_no_error() -> None:
    g = MetricFunction(2, lambda x, a, b: a[0] * b[0] - a[1] * b[1])
    x = a = normal(2)
    assert g.raise_(x, a).isnan().all() and g.logdet(x).isnan() and christoffel(g, x, a, a).isnan().all()
