"""Clouds against scipy, umap-learn's own loop and dense algebra; and what few, equal or broken tokens give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes
from scipy.spatial import procrustes as scipy_procrustes

from fbt_core.cloud import CLOUDS, SCALES, cloud, jacobians, picture_axes, procrustes, stages
from fbt_core.cloud.jacobian import linear
from fbt_core.cloud.neighbours import nearest
from fbt_core.cloud.pca import DENSE, pca, principal
from fbt_core.cloud.points import Options, derivative, known, scaled
from fbt_core.cloud.umap import EPOCHS, _descend, _graph, _library, _start, _ties, bounded
from tests.traces import random_trace

RNG = np.random.default_rng


def walk(layers: int = 4, tokens: int = 9, width: int = 12, seed: int = 0) -> np.ndarray:
    """Tokens that wander through depth, as residuals do: their norms grow."""
    steps = RNG(seed).normal(size=(layers, tokens, width)) * np.arange(1, layers + 1)[:, None, None]
    return steps.cumsum(0)


# ---- all methods ----


@pytest.mark.parametrize("method", CLOUDS)
@pytest.mark.parametrize("dims", [2, 3])
def test_every_method_draws_every_token(method: str, dims: int) -> None:
    found = cloud(method, walk(), dims)
    assert found.method == method and found.positions.shape == (4, 9, dims) and len(found.axes) == dims
    assert np.isfinite(found.positions).all()
    assert np.ptp(found.positions, axis=(0, 1)).min() > 0
    unit = "of the variance" if method == "pca" else "no unit"
    assert all(unit in axis for axis in found.axes)


@pytest.mark.parametrize("method", [name for name, row in CLOUDS.items() if row.slow])
def test_a_seed_gives_one_picture_and_another_seed_another(method: str) -> None:
    first, again, other = (cloud(method, walk(), seed=seed).positions for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("method", CLOUDS)
@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2])
def test_few_tokens_break_nothing(method: str, tokens: int, layers: int) -> None:
    found = cloud(method, walk(layers, tokens))
    assert np.isfinite(found.positions).all()
    few = CLOUDS[method].slow and (CLOUDS[method].by_layer or tokens * layers < 4)
    assert any("PCA is drawn instead" in note for note in found.notes) == few
    assert found.method == ("pca" if few else method)


@pytest.mark.parametrize("method", CLOUDS)
def test_repeated_tokens_break_nothing(method: str) -> None:
    layers = walk(3, 10)
    layers[:, 6:] = layers[:, :4]  # four of the ten twice
    found = cloud(method, layers)
    assert np.isfinite(found.positions).all() and found.method == method
    same = cloud(method, np.ones((3, 10, 5)))
    assert same.method == "pca" and np.array_equal(same.positions, np.zeros((3, 10, 2)))
    assert any("fewer than 2 directions" in note for note in same.notes)


@pytest.mark.parametrize("method", CLOUDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", SCALES)
def test_rows_that_are_not_finite_are_left_out_and_named(method: str, bad: float, scale: str) -> None:
    layers = walk(3, 11)
    layers[1, 4, 2] = bad
    found = cloud(method, layers, scale=scale)
    missing = np.isnan(found.positions).any(-1)
    assert missing[1, 4]
    assert missing.sum() == (3 if method == "aligned" else 1)  # a token of AlignedUMAP goes all the way or not at all
    assert any("token 4 at stage 1" in note for note in found.notes)


def test_nothing_finite_is_drawn_as_nothing() -> None:
    for method in CLOUDS:
        found = cloud(method, np.full((2, 3, 4), np.nan))
        assert np.isnan(found.positions).all() and found.method == "pca"


def test_many_missing_points_are_counted() -> None:
    layers = walk(2, 12)
    layers[0, :10] = np.nan
    note = next(note for note in cloud("pca", layers).notes if "left out" in note)
    assert "and 2 more" in note


@pytest.mark.parametrize("wrong", [{"method": "tsne"}, {"dims": 4}, {"scale": "log"}])
def test_a_wrong_choice_is_told(wrong: dict) -> None:
    options = {"method": "pca", "dims": 2, "scale": "raw"} | wrong
    with pytest.raises(ValueError, match=r"got .* expected"):
        cloud(options["method"], walk(), options["dims"], scale=options["scale"])


def test_progress_is_told_and_can_stop() -> None:
    class Stopped(Exception):
        pass

    told: list[float] = []

    def watch(share: float, words: str) -> None:
        told.append(share)
        if share > 0.5:
            raise Stopped

    for method in ("umap", "aligned", "procrustes"):
        told.clear()
        with pytest.raises(Stopped):
            cloud(method, walk(), progress=watch)
        assert told == sorted(told) and 0 <= told[0] < told[-1] < 0.9
    assert np.isfinite(cloud("aligned", walk()).positions).all()  # and it goes again


# ---- PCA ----


def test_pca_is_the_eigenvectors_of_the_covariance() -> None:
    layers = walk()
    found = pca(layers, known(layers), 3, Options())
    flat = layers.reshape(-1, 12)
    values, vectors = np.linalg.eigh(np.cov(flat.T))
    assert np.allclose(found.share, values[::-1][:3] / values.sum(), rtol=1e-12)
    assert np.allclose(np.abs((found.directions * vectors[:, ::-1].T[:3]).sum(1)), 1.0)
    assert np.allclose(found.positions.reshape(-1, 3), (flat - flat.mean(0)) @ found.directions.T)
    assert (found.directions[np.arange(3), np.abs(found.directions).argmax(1)] > 0).all()


def test_lanczos_agrees_with_the_whole_spectrum() -> None:
    points = RNG(1).normal(size=(DENSE + 200, DENSE + 100)) * np.geomspace(30, 1, DENSE + 100)
    rows, shares = principal(points, 3)
    centred = points - points.mean(0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    assert np.allclose(shares, values[:3] ** 2 / (values**2).sum(), rtol=1e-9)
    assert np.allclose(np.abs((rows * vectors[:3]).sum(1)), 1.0, atol=1e-9)


# ---- scales ----


def test_scales() -> None:
    layers = walk()
    unit, alike = scaled(layers, "unit"), scaled(layers, "layer")
    assert np.allclose(np.linalg.norm(unit, axis=-1), 1)
    assert np.allclose(alike.mean(1), 0)
    assert np.allclose((alike**2).sum(-1).mean(1), 1)
    assert np.array_equal(scaled(np.zeros((1, 2, 3)), "unit"), np.zeros((1, 2, 3)))
    assert np.array_equal(scaled(np.ones((1, 2, 3)), "layer"), np.zeros((1, 2, 3)))


@pytest.mark.parametrize("scale", ["raw", "unit"])
def test_the_derivative_of_a_scale_is_its_finite_difference(scale: str) -> None:
    layers, J = walk(), RNG(2).normal(size=(4, 9, 2, 12))
    step, h = RNG(3).normal(size=12), 1e-6
    moved = layers.copy()
    moved[2, 5] += h * step
    change = (scaled(moved, scale) - scaled(layers, scale))[2, 5] / h
    assert np.allclose(derivative(layers, J, scale)[2, 5] @ step, J[2, 5] @ change, rtol=1e-4, atol=1e-6)


def test_the_derivative_of_layers_alike_holds_mean_and_size_fixed() -> None:
    layers, J = walk(), RNG(2).normal(size=(4, 9, 2, 12))
    size = np.sqrt(((layers[1] - layers[1].mean(0)) ** 2).sum(1).mean())
    assert np.allclose(derivative(layers, J, "layer")[1], J[1] / size)


def test_stages_are_the_residuals_before_each_block_and_after_the_last() -> None:
    trace = random_trace()
    found = stages(trace)
    assert np.array_equal(found[:-1], np.stack([layer.residual_in.numpy() for layer in trace.layers]))
    assert np.array_equal(found[-1], trace.layers[-1].residual_out.numpy())
    assert np.array_equal(stages(trace, (2, 0)), found[:, [2, 0]])


def test_layers_of_other_shapes_share_no_space() -> None:
    trace = random_trace()
    names = ("residual_in", "residual_mid", "residual_out")
    narrow = replace(trace.layers[0], **{name: getattr(trace.layers[0], name)[:, :5] for name in names})
    with pytest.raises(ValueError, match=r"\(7, 5\), \(7, 8\)"):
        stages(replace(trace, layers=(narrow, *trace.layers[1:])))


# ---- Procrustes ----


def test_the_rotation_is_scipys() -> None:
    x, y = RNG(0).normal(size=(2, 20, 5))
    turn = procrustes(x, y)
    rotation, _ = orthogonal_procrustes(x - x.mean(0), y - y.mean(0))
    assert np.allclose(turn.rotation, rotation)
    assert turn.scale == 1.0
    assert np.allclose(turn.apply(x), (x - x.mean(0)) @ rotation + y.mean(0))


def test_size_and_residual_are_scipys() -> None:
    x, y = RNG(1).normal(size=(2, 15, 4))
    turn = procrustes(x, y, scaled=True)
    _, moved, disparity = scipy_procrustes(y, x)
    assert turn.residual == pytest.approx(disparity)
    scatter = np.linalg.norm(y - y.mean(0))
    assert np.allclose((turn.apply(x) - y.mean(0)) / scatter, moved)


def test_a_moved_copy_is_found_through_missing_rows_and_widths() -> None:
    x = RNG(2).normal(size=(30, 4))
    rotation, _ = np.linalg.qr(RNG(3).normal(size=(6, 6)))
    y = 2.5 * np.pad(x, ((0, 0), (0, 2))) @ rotation + 7.0
    y[4] = np.nan
    turn = procrustes(x, y, scaled=True)
    assert turn.residual < 1e-24 and turn.scale == pytest.approx(2.5)
    assert np.allclose(np.delete(turn.apply(x), 4, 0), np.delete(y, 4, 0))
    back = procrustes(y, x, scaled=True)
    assert back.apply(y).shape == (30, 4) and np.allclose(np.delete(back.apply(y), 4, 0), np.delete(x, 4, 0))


def test_procrustes_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="got 2 and 3 points"):
        procrustes(np.zeros((2, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="no point"):
        procrustes(np.full((2, 2), np.nan), np.zeros((2, 2)))
    alone = procrustes(np.ones((1, 2)), np.zeros((1, 2)), scaled=True)
    assert alone.residual == 0 and np.array_equal(alone.apply(np.ones((1, 2))), np.zeros((1, 2)))


def test_layers_turned_by_hand_come_back_together() -> None:
    """UMAP + Procrustes of one layer turned and moved: each layer is the same picture, so nothing is left over."""
    first = RNG(5).normal(size=(14, 6))
    rotation, _ = np.linalg.qr(RNG(6).normal(size=(6, 6)))
    found = cloud("procrustes", np.stack([first, first]))
    assert np.allclose(found.positions[0], found.positions[1], atol=1e-6)
    turned = cloud("procrustes", np.stack([first, first @ rotation + 3]))
    worst = procrustes(turned.positions[1], turned.positions[0]).residual
    assert np.allclose(procrustes(turned.positions[1], turned.positions[0]).apply(turned.positions[1]),
                       turned.positions[1], atol=1e-6)  # fmt: skip
    assert f"left over {100 * worst:.2g} to {100 * worst:.2g} %" in " ".join(turned.notes)


# ---- UMAP ----


def test_neighbours_are_those_of_brute_force() -> None:
    points = RNG(0).normal(size=(1100, 7)) + 100
    points[3] = points[9]
    index, distance = nearest(points, 6)
    rows = [0, 3, 9, 1050, 1099]
    apart = np.linalg.norm(points[rows, None] - points, axis=-1)
    assert np.allclose(distance[rows], np.sort(apart, 1)[:, :6])
    assert np.array_equal(index[:, 0], np.arange(1100)) and (distance[:, 0] == 0).all()
    assert index[3, 1] == 9 and distance[3, 1] == 0
    with pytest.raises(ValueError, match="got 0 neighbours"):
        nearest(points, 0)


def test_neighbours_are_bounded_by_the_other_points() -> None:
    assert [bounded(15, n) for n in (3, 4, 10, 16, 100)] == [2, 3, 9, 15, 15]
    found = cloud("umap", walk(2, 4), neighbours=200)
    assert any("with 7 neighbours" in note for note in found.notes)
    assert any("200 neighbours were asked for" in note for note in found.notes)


def test_the_descent_is_umap_learns_own() -> None:
    """Its public loop, given the same start and random state, ends at the very same numbers."""
    from umap.layouts import optimize_layout_euclidean

    points = RNG(0).normal(size=(40, 8))
    graph, start, options = _graph(points, 10, 0), points[:, :2].copy(), Options(seed=5)
    edges = graph.tocoo()
    edges.sum_duplicates()
    edges.data[edges.data < edges.data.max() / EPOCHS] = 0
    edges.eliminate_zeros()
    umap = _library().umap
    a, b = umap.find_ab_params(1.0, 0.1)
    limits = np.iinfo(np.int32)
    state = np.random.RandomState(5).randint(limits.min + 1, limits.max - 1, 3).astype(np.int64)
    layout = _start(start, 5)
    theirs = optimize_layout_euclidean(
        layout, layout, edges.row, edges.col, EPOCHS, 40, umap.make_epochs_per_sample(edges.data, EPOCHS), a, b, state,
        move_other=True,
    )  # fmt: skip
    assert np.array_equal(_descend(graph, start, options, (0.0, 1.0), "x"), theirs.astype(np.float64))


def test_the_graph_is_that_of_umaps_class() -> None:
    from umap import UMAP

    points = RNG(1).normal(size=(30, 6))
    theirs = UMAP(n_neighbors=8, random_state=0, n_jobs=1, n_epochs=1, init="random").fit(points).graph_
    assert np.allclose(_graph(points, 8, 0).toarray(), theirs.toarray(), atol=1e-5)


@pytest.mark.parametrize("method", ["umap", "aligned", "procrustes"])
def test_groups_that_are_apart_stay_apart(method: str) -> None:
    """Two groups of tokens, ten radii apart at every stage: in the picture, a token's nearest is of its own group."""
    layers = RNG(0).normal(size=(3, 24, 10))
    layers[:, 12:, 0] += 30
    found = cloud(method, layers).positions
    for here in found:
        apart = np.linalg.norm(here[:, None] - here, axis=-1) + np.diag(np.full(24, np.inf))
        assert np.array_equal(apart.argmin(1) >= 12, np.arange(24) >= 12)


def test_ties_hold_tokens_near_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that differ by noise: without ties a token wanders farther from stage to stage."""
    layers = RNG(3).normal(size=(20, 8)) + 0.3 * RNG(4).normal(size=(5, 20, 8))

    def moved() -> float:
        return float(np.linalg.norm(np.diff(cloud("aligned", layers).positions, axis=0), axis=-1).mean())

    tied = moved()
    monkeypatch.setattr("fbt_core.cloud.umap.TIE", 0.0)
    assert tied < 0.8 * moved()


def test_ties_are_to_the_same_token_of_the_layers_around() -> None:
    relations = _ties(5, 3)
    for layer, offset in np.ndindex(5, 7):
        there = offset != 3 and 0 <= layer + offset - 3 < 5
        assert (relations[layer, offset] == (np.arange(3) if there else -1)).all()


# ---- the local map ----


def by_hand(x: np.ndarray, y: np.ndarray, rank: int) -> tuple[np.ndarray, float]:
    """The same fit by lstsq on explicit coordinates, and R^2 by fitting anew without each point."""
    mean, directions = x.mean(0), np.linalg.svd(x - x.mean(0))[2][:rank]
    z = (x - mean) @ directions.T
    design = np.column_stack([np.ones(len(z)), z])
    fit = np.linalg.lstsq(design, y, rcond=None)[0]
    missed = spread = 0.0
    for out in range(len(z)):
        kept = np.arange(len(z)) != out
        part = np.linalg.lstsq(design[kept], y[kept], rcond=None)[0]
        missed += float(((y[out] - design[out] @ part) ** 2).sum())
        spread += float(((y[out] - y[kept].mean(0)) ** 2).sum())
    return fit[1:].T @ directions, 1 - missed / spread


def test_the_local_map_and_its_r2_are_those_of_lstsq() -> None:
    points, picture = RNG(0).normal(size=(3, 20, 30)), RNG(1).normal(size=(3, 20, 2))
    found = jacobians(points, picture, count=24)
    x, y = points.reshape(-1, 30), picture.reshape(-1, 2)
    index, _ = nearest(x, 24)
    for place in (0, 17, 59):
        J, r2 = by_hand(x[index[place]], y[index[place]], 8)
        assert np.allclose(found.maps.reshape(-1, 2, 30)[place], J)
        assert found.r2.ravel()[place] == pytest.approx(r2)


def test_a_linear_picture_is_found_exactly_and_noise_is_not_trusted() -> None:
    flat, basis = RNG(2).normal(size=(2, 40, 3)), np.linalg.qr(RNG(3).normal(size=(16, 3)))[0].T
    J = RNG(4).normal(size=(2, 3)) @ basis
    points = flat @ basis
    found = jacobians(points, points @ J.T)
    assert np.allclose(found.maps, J) and np.allclose(found.r2, 1) and found.trusted.all()
    noise = jacobians(points, RNG(5).normal(size=(2, 40, 2)))
    assert noise.trusted.mean() < 0.1 and np.median(noise.r2) < 0.1


def test_too_few_points_and_missing_ones_have_no_map() -> None:
    points = walk(2, 3)
    found = jacobians(points, points[..., :2])
    assert np.isnan(found.maps).all() and np.isnan(found.r2).all() and not found.trusted.any()
    points = walk(2, 12)
    picture = points[..., :2].copy()
    points[0, 3], picture[1, 5] = np.nan, np.nan
    missing = np.isnan(jacobians(points, picture).r2)
    assert missing[0, 3] and missing[1, 5] and missing.sum() == 2
    still = jacobians(walk(2, 12), np.zeros((2, 12, 2)))
    assert np.isnan(still.r2).all()


def test_the_map_of_a_pca_is_its_directions() -> None:
    layers = walk()
    found = cloud("pca", layers, 3)
    assert found.directions is not None
    local = linear(found.directions, known(layers))
    x, y = layers[1, 2], found.positions[1, 2]
    assert np.allclose(local.maps[3, 4] @ (layers[3, 4] - x), found.positions[3, 4] - y)
    assert local.trusted.all()


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_the_ellipsoid_is_the_image_of_the_dense_metrics_ball(dual: bool, dims: int) -> None:
    blocks, J = torch.randn(2, 5, 6, 3, dtype=torch.float64), RNG(0).normal(size=(5, dims, 12))
    axes, plain = picture_axes(J, blocks, dual)
    for token in range(5):
        U = torch.block_diag(*blocks[:, token]).numpy()
        g = np.eye(12) + U @ U.T
        image = J[token] @ (g if dual else np.linalg.inv(g)) @ J[token].T
        assert np.allclose(axes[token] @ axes[token].T, image)
        assert np.allclose(plain[token] @ plain[token].T, J[token] @ J[token].T)
        lengths = np.linalg.norm(axes[token], axis=0)
        assert (np.diff(lengths) <= 1e-12).all()
        inner = axes[token].T @ axes[token]
        assert np.allclose(inner, np.diag(np.diag(inner)))


def test_points_on_the_unit_ball_lie_inside_its_image() -> None:
    blocks, J = torch.randn(1, 1, 8, 2, dtype=torch.float64), RNG(1).normal(size=(1, 2, 8))
    axes, _ = picture_axes(J, blocks)
    U = blocks[0, 0].numpy()
    root = np.linalg.cholesky(np.linalg.inv(np.eye(8) + U @ U.T))
    on_sphere = RNG(2).normal(size=(4000, 8))
    ball = on_sphere / np.linalg.norm(on_sphere, axis=1, keepdims=True) @ root.T
    reach = np.linalg.norm(np.linalg.solve(axes[0], J[0] @ ball.T), axis=0)
    assert reach.max() <= 1 + 1e-9 and reach.max() > 0.9


def test_a_map_that_is_missing_gives_no_ellipsoid() -> None:
    J = np.full((2, 2, 4), np.nan)
    J[1] = np.eye(2, 4)
    axes, plain = picture_axes(J, torch.zeros(1, 2, 4, 0, dtype=torch.float64))
    assert np.isnan(axes[0]).all() and np.isnan(plain[0]).all()
    assert np.allclose(np.abs(axes[1].sum(0)), 1)
