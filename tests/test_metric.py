"""``LowRankMetric`` and ``DictionaryMetric`` against dense linear algebra, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric
from fbt_core.geometry.transport import cayley

EXACT = {"rtol": 1e-11, "atol": 1e-11}


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def full(d: int, r: int) -> LowRankMetric:
    return LowRankMetric(normal(2, 5, d, r))


def dictionary(d: int, m: int) -> DictionaryMetric:
    return DictionaryMetric.of(normal(2, d, m), torch.rand(2, 5, m, dtype=torch.float64))


def repeated(d: int, r: int) -> LowRankMetric:
    """All singular values of U equal: where a naive eigendecomposition has no gradient."""
    return LowRankMetric(torch.linalg.qr(normal(2, 5, d, min(r, d)))[0] * 1.5)


METRICS = {
    "full": full(6, 3),
    "wide": full(3, 5),
    "rank 0": full(4, 0),
    "zero": LowRankMetric(torch.zeros(2, 5, 4, 2).double()),
    "dictionary": dictionary(6, 4),
    "overcomplete": dictionary(4, 7),
    "repeated": repeated(6, 3),
    "one dim": full(1, 1),
}


@pytest.fixture(params=METRICS.values(), ids=METRICS.keys())
def metric(request: pytest.FixtureRequest) -> LowRankMetric:
    return request.param


def test_operations_are_those_of_the_dense_matrix(metric: LowRankMetric) -> None:
    g, x, y = metric.dense(), normal(2, 5, metric.dim), normal(2, 5, metric.dim)
    values, vectors = torch.linalg.eigh(g)
    root = vectors @ torch.diag_embed(values.sqrt()) @ vectors.mT

    def dense(matrix: Tensor, vector: Tensor) -> Tensor:
        return (matrix @ vector.unsqueeze(-1)).squeeze(-1)

    torch.testing.assert_close(metric.apply(x), dense(g, x), **EXACT)
    torch.testing.assert_close(metric.push(x), dense(g, x) - x, **EXACT)
    torch.testing.assert_close(metric.solve(x), torch.linalg.solve(g, x), **EXACT)
    torch.testing.assert_close(metric.inner(x, y), torch.einsum("...i,...ij,...j->...", x, g, y), **EXACT)
    torch.testing.assert_close(metric.quadratic(x), torch.einsum("...i,...ij,...j->...", x, g, x), **EXACT)
    torch.testing.assert_close(
        metric.distance(x, y), torch.einsum("...i,...ij,...j->...", x - y, g, x - y).sqrt(), **EXACT
    )
    torch.testing.assert_close(metric.root(x), dense(root, x), **EXACT)
    torch.testing.assert_close(metric.inverse_root(x), torch.linalg.solve(root, x), **EXACT)


def test_spectra_are_those_of_the_dense_matrix(metric: LowRankMetric) -> None:
    g = metric.dense()
    values = torch.linalg.eigvalsh(g).flip(-1)
    torch.testing.assert_close(metric.logdet(), torch.linalg.slogdet(g)[1], **EXACT)
    torch.testing.assert_close(metric.eigenvalues(), values, **EXACT)
    torch.testing.assert_close(metric.semi_axes(), values.rsqrt(), **EXACT)
    torch.testing.assert_close(metric.semi_axes(dual=True), values.sqrt(), **EXACT)
    torch.testing.assert_close(metric.trace, g.diagonal(dim1=-2, dim2=-1).sum(-1) - metric.dim, **EXACT)


def test_frame_diagonalises(metric: LowRankMetric) -> None:
    values, vectors = metric.frame()
    torch.testing.assert_close(metric.dense() @ vectors, vectors * values.unsqueeze(-2), **EXACT)
    torch.testing.assert_close(
        vectors.mT @ vectors, torch.eye(vectors.shape[-1]).double().expand(2, 5, -1, -1), **EXACT
    )


def test_overlaps_are_inner_products_of_the_dense_parts(metric: LowRankMetric) -> None:
    A = metric.dense() - torch.eye(metric.dim).double()
    pairwise = torch.einsum("hsij,htij->hst", A, A)
    weight = torch.rand(2, 5, dtype=torch.float64)
    torch.testing.assert_close(metric[:-1].overlap(metric[1:]), pairwise.diagonal(1, -2, -1), **EXACT)
    expected = torch.einsum("hs,ht,hst->h", weight, weight, pairwise)
    torch.testing.assert_close(metric.total_overlap(weight), expected, **EXACT)


@pytest.mark.parametrize("strength", [0.0, 0.5, 2.0])
def test_strength_multiplies_U(metric: LowRankMetric, strength: float) -> None:
    extra = metric.dense() - torch.eye(metric.dim).double()
    torch.testing.assert_close(metric.scaled(strength).dense(), torch.eye(metric.dim).double() + strength**2 * extra)


def test_block_diagonal_is_the_direct_sum() -> None:
    metric = LowRankMetric(normal(5, 2, 4, 3))
    blocks = torch.stack([torch.block_diag(*token) for token in metric.dense()])
    torch.testing.assert_close(metric.block_diagonal().dense(), blocks, **EXACT)


def test_roots_differentiate_where_eigenvalues_coincide() -> None:
    U = repeated(4, 2).U[0, :2].clone().requires_grad_()
    x = normal(2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda U, x: LowRankMetric(U).root(x), (U, x))
    assert torch.autograd.gradcheck(lambda U, x: LowRankMetric(U).inverse_root(x), (U, x))
    assert torch.autograd.gradcheck(lambda U, x: LowRankMetric(U).solve(x), (U, x))


def test_cayley_is_the_dense_rotation() -> None:
    left, right, v = normal(3, 5, 2), normal(3, 5, 2), normal(3, 5)
    T = left @ right.mT - right @ left.mT
    eye = torch.eye(5).double()
    C = torch.linalg.solve(eye - T / 2, eye + T / 2)
    torch.testing.assert_close(cayley(left, right, v), (C @ v.unsqueeze(-1)).squeeze(-1), **EXACT)
    torch.testing.assert_close(cayley(left, right, v, inverse=True), (C.mT @ v.unsqueeze(-1)).squeeze(-1), **EXACT)
    torch.testing.assert_close(C.mT @ C, eye.expand(3, 5, 5), **EXACT)
    torch.testing.assert_close(torch.linalg.det(C), torch.ones(3).double(), **EXACT)
    assert torch.autograd.gradcheck(cayley, tuple(t.requires_grad_() for t in (left, right, v)))
