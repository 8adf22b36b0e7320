"""Ellipsoids against dense float64 linear algebra: every g is formed here, and nowhere in the code under test."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fbt_core.attention.scores import Factors
from fbt_core.geometry.drawn_space import (
    BASES,
    SPACES,
    Basis,
    Stage,
    basis,
    centred,
    principal_metric_directions,
    shared_pca,
    stage,
)
from fbt_core.geometry.ellipsoid import SHAPES, ellipsoid_field, trace_field
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.trace import LayerTrace, Trace


def make_trace(tokens: int = 9, heads: int = 2, dim: int = 5, rank: int = 4, layers: int = 3, seed: int = 0) -> Trace:
    """A trace of random factors: no model is needed to draw one."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def layer(index: int) -> LayerTrace:
        q, k, v = (normal(heads, tokens, dim) * (1 + index) for _ in range(3))
        metric = LowRankMetric(0.6 * normal(heads, tokens, dim, rank))
        factors = Factors(q, k, v, metric, torch.ones(heads).double(), torch.zeros(heads, tokens).double(), 1.0, True)
        residual = normal(tokens, heads * dim)
        return LayerTrace(index, residual, residual, residual, factors, None, "riemannian")

    zeros = torch.zeros(tokens, heads * dim)
    names = tuple(f"t{i}" for i in range(tokens))
    return Trace(torch.arange(tokens), tuple(layer(i) for i in range(layers)), zeros, zeros, 1.0, rank > 0, names)


def random_basis(width: int, seed: int = 1) -> Basis:
    q, _ = torch.linalg.qr(torch.randn(width, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    return Basis(q.mT, "random", ("a", "b", "c"))


def dense_block(U: torch.Tensor, token: int) -> np.ndarray:
    """g of one token, the direct sum of its blocks, by a loop."""
    parts = [np.eye(U.shape[2]) + U[b, token].numpy() @ U[b, token].numpy().T for b in range(U.shape[0])]
    size = sum(len(part) for part in parts)
    g = np.zeros((size, size))
    at = 0
    for part in parts:
        g[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return g


def form_of(axes: np.ndarray) -> np.ndarray:
    """The matrix F of the ellipsoid {y: y^T F y <= 1} that has these columns for semi-axes."""
    return np.linalg.inv(axes @ axes.T)


def drawn_form(g: np.ndarray, P: np.ndarray, shape: str, dual: bool) -> np.ndarray:
    g = np.linalg.inv(g) if dual else g
    return P @ g @ P.T if shape == "slice" else np.linalg.inv(P @ np.linalg.inv(g) @ P.T)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("shape", ["slice", "shadow"])
@pytest.mark.parametrize("dual", [False, True])
def test_exact_shapes_are_the_dense_forms(space: str, shape: str, dual: bool) -> None:
    trace = make_trace()
    layer, chosen = trace.layers[1], SPACES[space]
    blocks = chosen.blocks(layer, 1)
    along = random_basis(chosen.positions(layer, 1).shape[1])
    field = ellipsoid_field(chosen.positions(layer, 1), LowRankMetric(blocks), along, shape, dual)
    P = along.directions.numpy()
    for token in range(trace.length):
        expected = drawn_form(dense_block(blocks, token), P, shape, dual)
        np.testing.assert_allclose(form_of(field.axes[token]), expected, atol=1e-11)
        lengths = np.linalg.norm(field.axes[token], axis=0)
        np.testing.assert_allclose(lengths, field.eigenvalues[token] ** (0.5 if dual else -0.5), rtol=1e-12)
        assert (np.diff(field.eigenvalues[token]) <= 1e-12).all()


def test_two_ways_to_give_the_residual_metric_agree() -> None:
    layer = make_trace().layers[0]
    along = random_basis(10)
    blocks = ellipsoid_field(layer.residual_in, LowRankMetric(layer.factors.U), along, "shadow")
    whole = ellipsoid_field(layer.residual_in, layer.residual_metric, along, "shadow")
    np.testing.assert_allclose(blocks.eigenvalues, whole.eigenvalues, rtol=1e-12)


@pytest.mark.parametrize("space", ["keys", "residual"])
@pytest.mark.parametrize("dual", [False, True])
def test_metric_frame_has_the_three_largest_eigenvalues(space: str, dual: bool) -> None:
    trace = make_trace()
    blocks = SPACES[space].blocks(trace.layers[0], 1)
    field = trace_field(trace, 0, space, 1, dual=dual)
    for token in range(trace.length):
        dense = np.linalg.eigvalsh(dense_block(blocks, token))[::-1][:3]
        np.testing.assert_allclose(field.eigenvalues[token], dense, rtol=1e-12)
        axes = field.axes[token] / np.linalg.norm(field.axes[token], axis=0)
        np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)


def test_metric_frame_turns_as_the_projected_eigenvectors() -> None:
    """Rank one: the one axis that is not 1 must lie along P u."""
    u = torch.randn(4, 6, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    along = random_basis(6)
    field = ellipsoid_field(torch.zeros(4, 6), LowRankMetric(u), along)
    for token in range(4):
        projected = along.directions.numpy() @ u[token, :, 0].numpy()
        unit = projected / np.linalg.norm(projected)
        first = field.axes[token][:, 0] / np.linalg.norm(field.axes[token][:, 0])
        assert abs(unit @ first) == pytest.approx(1, abs=1e-12)
        assert field.in_view[token] == pytest.approx(
            (projected @ projected) / float(u[token].square().sum()), rel=1e-12
        )
        np.testing.assert_allclose(field.eigenvalues[token, 1:], 1)


def test_metric_frame_ignores_the_sign_and_choice_of_eigenvectors() -> None:
    """U and U R with R orthogonal are one metric; equal eigenvalues leave the eigenvectors free."""
    U = torch.linalg.qr(torch.randn(6, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)).Q
    R = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)).Q
    U = U * torch.tensor([2.0, 2.0, 0.5], dtype=torch.float64)
    pair = torch.stack([U, U @ R])
    field = ellipsoid_field(torch.zeros(2, 6), LowRankMetric(pair), random_basis(6))
    np.testing.assert_allclose(form_of(field.axes[0]), form_of(field.axes[1]), atol=1e-10)


@pytest.mark.parametrize("dual", [False, True])
def test_slice_lies_inside_shadow(dual: bool) -> None:
    trace = make_trace(rank=3, dim=8)
    cut = trace_field(trace, 0, "keys", 0, "slice", dual)
    shadow = trace_field(trace, 0, "keys", 0, "shadow", dual)
    for token in range(trace.length):
        gap = form_of(cut.axes[token]) - form_of(shadow.axes[token])  # the smaller ball has the larger form
        assert np.linalg.eigvalsh(gap).min() > -1e-12
        assert np.linalg.eigvalsh(gap).max() > 1e-3  # and they are not the same ball


def test_boundary_points_are_where_the_definition_says() -> None:
    """A point of the slice's boundary, lifted by P^T, has g-length 1; one of the shadow's is P v for a v with that."""
    trace = make_trace(dim=6)
    layer = trace.layers[0]
    along = random_basis(6)
    P = along.directions.numpy()
    sphere = np.random.default_rng(0).normal(size=(3, 50))
    sphere /= np.linalg.norm(sphere, axis=0)
    for shape in ("slice", "shadow"):
        field = ellipsoid_field(layer.factors.k[0], LowRankMetric(layer.factors.U[0]), along, shape)
        for token in range(trace.length):
            g = dense_block(layer.factors.U[:1], token)
            y = field.axes[token] @ sphere
            lift = P.T @ y
            if shape == "shadow":  # the preimage of least g-length: v = g^{-1} P^T (P g^{-1} P^T)^{-1} y
                inverse = np.linalg.inv(g)
                lift = inverse @ P.T @ np.linalg.inv(P @ inverse @ P.T) @ y
                np.testing.assert_allclose(P @ lift, y, atol=1e-12)
            np.testing.assert_allclose(np.einsum("in,ij,jn->n", lift, g, lift), 1, atol=1e-11)


@pytest.mark.parametrize("dual", [False, True])
def test_in_three_dimensions_all_shapes_are_g(dual: bool) -> None:
    U = torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    identity = Basis(torch.eye(3, dtype=torch.float64), "identity", ("x", "y", "z"))
    for shape in SHAPES:
        field = ellipsoid_field(torch.randn(5, 3), LowRankMetric(U), identity, shape, dual)
        for token in range(5):
            g = dense_block(U[None], token)
            np.testing.assert_allclose(form_of(field.axes[token]), np.linalg.inv(g) if dual else g, rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("U", [torch.zeros(4, 6, 2), torch.zeros(4, 6, 0)], ids=["zero", "rank 0"])
def test_no_metric_gives_unit_balls_and_says_so(shape: str, U: torch.Tensor) -> None:
    field = ellipsoid_field(torch.randn(4, 6), LowRankMetric(U), random_basis(6), shape)
    for axes in field.axes:
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-12)
    assert not field.has_metric
    assert "unit sphere" in field.description


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("tokens", "dim", "heads"), [(1, 5, 2), (2, 5, 2), (4, 1, 1), (4, 2, 1), (4, 1, 2), (1, 1, 1)])
def test_few_tokens_and_few_dimensions(shape: str, base: str, tokens: int, dim: int, heads: int) -> None:
    trace = make_trace(tokens, heads, dim, rank=2)
    for space in SPACES:
        field = trace_field(trace, 0, space, 0, shape, base=base)
        assert field.centres.shape == (tokens, 3)
        assert np.isfinite(field.axes).all()
        assert field.stage.scale > 0
        assert 0 <= field.share.sum() <= 1 + 1e-12
        width = SPACES[space].positions(trace.layers[0], 0).shape[1]
        P = basis(trace, base, space, 0).directions
        kept = min(3, width)
        torch.testing.assert_close(P[:kept] @ P[:kept].mT, torch.eye(kept, dtype=torch.float64))
        np.testing.assert_allclose(field.centres[:, kept:], 0)


def test_dual_axes_are_the_inverse_lengths_in_the_metric_frame() -> None:
    trace = make_trace()
    ball, dual = trace_field(trace, 0), trace_field(trace, 0, dual=True)
    np.testing.assert_allclose(np.linalg.norm(ball.axes, axis=1) * np.linalg.norm(dual.axes, axis=1), 1)
    assert (np.linalg.norm(ball.axes, axis=1) <= 1 + 1e-12).all()
    assert "Unit ball" in ball.description
    assert "Dual glyph" in dual.description


def test_shared_pca_is_that_of_numpy() -> None:
    trace = make_trace(tokens=40)
    stacked = np.concatenate([(layer.factors.k[1] - layer.factors.k[1].mean(0)).numpy() for layer in trace.layers])
    _, _, rows = np.linalg.svd(stacked, full_matrices=False)
    found = shared_pca(trace, "keys", 1).directions.numpy()
    np.testing.assert_allclose(np.abs((found * rows[:3]).sum(1)), 1, atol=1e-10)
    assert (np.take_along_axis(found, np.abs(found).argmax(1)[:, None], 1) > 0).all()


@pytest.mark.parametrize("space", ["keys", "residual"])
def test_principal_metric_directions_are_those_of_the_dense_mean(space: str) -> None:
    trace = make_trace(tokens=20)
    blocks = SPACES[space].blocks(trace.layers[0], 0)
    mean = np.mean([dense_block(blocks, t) for t in range(20)], axis=0)
    top = np.linalg.eigh(mean)[1][:, ::-1][:, :3].T
    found = principal_metric_directions(trace.layers[0], space, 0).directions.numpy()
    np.testing.assert_allclose(np.abs((found * top).sum(1)), 1, atol=1e-9)


def test_a_model_without_metric_falls_back_to_pca() -> None:
    trace = make_trace(rank=0)
    pca = shared_pca(trace, "keys", 0)
    torch.testing.assert_close(basis(trace, "principal metric directions", "keys", 0).directions, pca.directions)


def test_one_scale_for_all_layers_and_unit_balls_do_not_overlap_much() -> None:
    trace = make_trace(tokens=30)
    scales = {trace_field(trace, layer).stage.scale for layer in range(3)}
    assert len(scales) == 1
    along = shared_pca(trace, "keys", 0)
    nearest, radii = [], []
    for layer in trace.layers:
        y = (centred(layer.factors.k[0]) @ along.directions.mT).numpy()
        gaps = np.linalg.norm(y[:, None] - y[None], axis=-1) + 1e9 * np.eye(30)
        nearest.append(np.median(gaps.min(1)))
        radii.append(np.quantile(np.linalg.norm(y, axis=1), 0.9))
    limits = 0.04 * np.median(radii), 0.2 * np.median(radii)
    assert scales.pop() == pytest.approx(np.clip(0.75 * np.median(nearest), *limits))


def test_dual_glyphs_are_scaled_down_by_their_length() -> None:
    trace = make_trace()
    along = shared_pca(trace, "keys", 0)
    assert stage(trace.layers, "keys", along, 0, dual=True).scale < stage(trace.layers, "keys", along, 0).scale


def test_coinciding_tokens_get_scale_one() -> None:
    trace = make_trace(tokens=1)
    assert stage(trace.layers, "keys", shared_pca(trace, "keys")).scale == 1.0


def test_a_token_that_is_not_finite_is_left_out_and_counted() -> None:
    trace = make_trace()
    clean = trace_field(trace, 0)
    trace.layers[0].factors.U[0, 4] = float("nan")
    field = trace_field(trace, 0)
    assert field.missing == 1
    assert "not drawn: 1 of 9 tokens" in field.description
    assert np.isnan(field.axes[4]).all()
    np.testing.assert_allclose(field.eigenvalues[:4], clean.eigenvalues[:4])
    trace.layers[0].factors.k[0, 2] = float("inf")
    assert trace_field(trace, 0).missing == 2
    assert trace_field(trace, 0, base="principal metric directions").missing == 2


def test_errors_name_what_was_got_and_expected() -> None:
    trace = make_trace()
    with pytest.raises(ValueError, match=r"got shape 'cube', expected one of metric frame, slice, shadow"):
        trace_field(trace, 0, shape="cube")
    with pytest.raises(ValueError, match=r"got base 'tsne', expected one of"):
        trace_field(trace, 0, base="tsne")
    with pytest.raises(ValueError, match="widths 5, 5 and 7, expected one width"):
        ellipsoid_field(torch.randn(9, 5), LowRankMetric(trace.layers[0].factors.U[0]), random_basis(7))


@pytest.mark.parametrize("dual", [False, True])
def test_nothing_of_any_layer_leaves_the_stage(dual: bool) -> None:
    trace = make_trace(tokens=20)
    for layer in range(3):
        field = trace_field(trace, layer, "residual", dual=dual)
        low, high = np.array(field.stage.bounds)
        reach = field.stage.scale * field.stage.longest
        support = np.linalg.norm(field.drawn_axes, axis=2)  # half width of each glyph along each drawn axis
        assert (field.centres - support >= low - reach - 1e-9).all()
        assert (field.centres + support <= high + reach + 1e-9).all()


def test_a_layer_may_have_a_scale_of_its_own() -> None:
    trace = make_trace(tokens=20)  # keys grow threefold
    alike = [trace_field(trace, layer) for layer in range(3)]
    own = [trace_field(trace, layer, alike=False) for layer in range(3)]
    assert own[0].stage.bounds == alike[0].stage.bounds
    close = trace_field(trace, 0, roomy=False).stage
    assert close.scale == alike[0].stage.scale
    assert close.bounds[1][0] < alike[0].stage.bounds[1][0]
    assert own[0].stage.scale < alike[0].stage.scale < own[2].stage.scale
    assert "alike in all layers" in alike[0].description
    assert "this layer alone" in own[0].description
    np.testing.assert_array_equal(own[0].axes, alike[0].axes)


def test_joined_stages_hold_both() -> None:
    a, b = Stage(0.5, ((-1.0, -1.0, -1.0), (1.0, 2.0, 1.0)), 1.0), Stage(0.2, ((-3.0, 0.0, 0.0), (0.0, 0.0, 4.0)), 2.0)
    assert a.joined(b) == Stage(0.2, ((-3.0, -1.0, -1.0), (1.0, 2.0, 4.0)), 2.0) == b.joined(a)
