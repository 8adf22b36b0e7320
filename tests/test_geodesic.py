"""Geodesics, distances and graphs against closed forms: great circles, hyperbolic space, odd coordinates, Clairaut."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.attention.scores import attention, bias
from fbt_core.attention.true_distance import distance_ratio, true_distance_attention
from fbt_core.checkpoints import load
from fbt_core.geometry.boundary import connect, connect_all, log
from fbt_core.geometry.curves import Curves, basis, coordinates, gauss
from fbt_core.geometry.descent import minimise
from fbt_core.geometry.distances import chord, distances, every_pair, through, token_distances
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import exp, geodesic, shoot
from fbt_core.geometry.graph_paths import graph_lengths, in_slice, segment_lengths
from fbt_core.geometry.manifolds import MANIFOLDS, constant, flat, graph, halfspace, poincare, sphere, torus
from fbt_core.geometry.model_field import field_points, model_field
from fbt_core.geometry.sources import apply
from fbt_core.model import build

TWIN = ("riemannian.safetensors", "the cat sat on the mat")


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- closed forms --------------------------------------------------------------------------------------------------


def lift(x: Tensor, radius: float) -> Tensor:
    """Stereographic coordinates to the sphere of that radius."""
    square = x.square().sum(-1, keepdim=True)
    return torch.cat([2 * radius**2 * x, radius * (square - radius**2)], -1) / (radius**2 + square)


def drop(p: Tensor, radius: float) -> Tensor:
    return radius * p[..., :-1] / (radius - p[..., -1:])


def arc(x: Tensor, y: Tensor, radius: float) -> Tensor:
    """Great circles, by the half chord: accurate at any angle."""
    return 2 * radius * ((lift(x, radius) - lift(y, radius)).norm(dim=-1) / (2 * radius)).asin()


def great_circle(x: Tensor, v: Tensor, radius: float, time: float) -> Tensor:
    """Where the great circle from x with velocity v is at a time, in stereographic coordinates."""
    p, direction = torch.func.jvp(lambda y: lift(y, radius), (x,), (v,))
    speed = direction.norm()
    angle = time * speed / radius
    return drop(angle.cos() * p + radius * angle.sin() * direction / speed, radius)


def ball_distance(x: Tensor, y: Tensor) -> Tensor:
    gap = (x - y).square().sum(-1) / ((1 - x.square().sum(-1)) * (1 - y.square().sum(-1)))
    return torch.acosh(1 + 2 * gap)


def mobius(x: Tensor, y: Tensor) -> Tensor:
    xy, xx, yy = x @ y, x @ x, y @ y
    return ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)


def ball_exp(x: Tensor, v: Tensor) -> Tensor:
    return mobius(x, (v.norm() / (1 - x @ x)).tanh() * v / v.norm())


def ball_log(x: Tensor, y: Tensor) -> Tensor:
    w = mobius(-x, y)
    return (1 - x @ x) * w.norm().atanh() * w / w.norm()


def halfspace_distance(x: Tensor, y: Tensor) -> Tensor:
    return torch.acosh(1 + (x - y).square().sum(-1) / (2 * x[..., -1] * y[..., -1]))


def bent(x: Tensor) -> Tensor:
    """The odd coordinates of ``flat``, written once more."""
    a, b, c = x.unbind(-1)
    return x + 0.3 * torch.stack([(b + c).sin(), (a * c).tanh(), a.square() / (1 + b.square())], -1)


def straightened(x: Tensor, y: Tensor) -> Tensor:
    return (bent(x) - bent(y)).norm(dim=-1)


def hemisphere(radius: float = 2.0) -> MetricFunction:
    """The upper half of a sphere as a graph over the plane: g = I + U U^T with U its slope, the low-rank path."""
    return MetricFunction.low_rank(lambda x: (-x / (radius**2 - x @ x).sqrt())[:, None], 2, name="hemisphere")


def raised(x: Tensor, radius: float = 2.0) -> Tensor:
    return torch.cat([x, (radius**2 - x.square().sum(-1, keepdim=True)).sqrt()], -1)


def dome(x: Tensor, y: Tensor) -> Tensor:
    return 4 * ((raised(x) - raised(y)).norm(dim=-1) / 4).asin()


def of_constant(x: Tensor, y: Tensor) -> Tensor:
    g = constant().metric.dense(x[0])
    return ((x - y) @ g * (x - y)).sum(-1).sqrt()


def seeded(make: Callable[..., object], count: int) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.stack([make().point(rng) for _ in range(count)])


CLOSED: dict[str, tuple[MetricFunction, Tensor, Callable[[Tensor, Tensor], Tensor]]] = {
    "sphere": (sphere(3, 2.0).metric, 0.8 * seeded(sphere, 8), lambda x, y: arc(x, y, 2.0)),
    "poincare": (poincare(4).metric, seeded(poincare, 8), ball_distance),
    "halfspace": (halfspace(3).metric, seeded(halfspace, 8), halfspace_distance),
    "flat": (flat().metric, 0.6 * seeded(flat, 8), straightened),
    "constant": (constant().metric, seeded(constant, 8), of_constant),
    "hemisphere": (hemisphere(), 0.6 * draws(8, 2, seed=3).tanh(), dome),
}


# --- between two points --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
def test_true_distance_is_the_closed_form(name: str) -> None:
    g, points, exact = CLOSED[name]
    x, y = points[:4], points[4:]
    shot = name in ("sphere", "hemisphere", "constant")
    for one, length in zip(connect_all(g, x, y, shot=shot), exact(x, y), strict=True):
        assert not shot or one.miss < 1e-5
        assert one.converged and one.why == ""
        assert one.length == pytest.approx(float(length), rel=1e-10)
        assert abs(one.length - float(length)) <= one.error + 1e-12
        assert one.speed_drift < 1e-5


@pytest.mark.parametrize("name", CLOSED)
def test_ends_are_the_points_asked_for(name: str) -> None:
    g, points, _ = CLOSED[name]
    one = connect(g, points[0], points[1], shot=False)
    torch.testing.assert_close(one.points[[0, -1]], points[:2], rtol=1e-13, atol=1e-14)
    t, step = torch.tensor([0.3], dtype=torch.float64), 1e-5
    slope = (one.at(t + step)[0] - one.at(t - step)[0]) / (2 * step)
    torch.testing.assert_close(slope, one.at(t)[1], rtol=1e-7, atol=1e-7)


def test_the_curve_is_the_great_circle() -> None:
    g, points, _ = CLOSED["sphere"]
    one = connect(g, points[0], points[1])
    exact = torch.stack([great_circle(points[0], one.velocities[0], 2.0, t / 32) for t in range(33)])
    torch.testing.assert_close(one.points, exact, rtol=1e-7, atol=1e-8)


def test_error_estimate_bounds_the_error_where_the_metric_has_a_kink() -> None:
    """|x| in the exponent: the geodesic crosses x = 0 between two half-planes, each with its own conformal factor."""
    g = MetricFunction(2, lambda x, a, b: (0.8 * x[0].abs()).exp() * (a @ b))
    x, y = torch.tensor([-1.0, -0.7], dtype=torch.float64), torch.tensor([1.2, 0.9], dtype=torch.float64)
    one = connect(g, x, y, shot=False)
    grid = graph_length_on_a_fine_polygon(g, one)
    assert one.converged and 0 < one.error < 1e-3
    assert abs(one.length - grid) < max(one.error, 1e-5)


def graph_length_on_a_fine_polygon(g: MetricFunction, start: object) -> float:
    """Least energy among polygons of 512 sides, by SciPy, with NumPy's derivative of this very metric."""
    from scipy.optimize import minimize

    at = start.at(torch.linspace(0, 1, 129, dtype=torch.float64))[0].numpy()  # pyright: ignore
    first, last = at[0], at[-1]

    def energy(inner: np.ndarray) -> tuple[float, np.ndarray]:
        p = np.vstack([first, inner.reshape(-1, 2), last])
        d, m = np.diff(p, axis=0), (p[1:] + p[:-1]) / 2
        factor = np.exp(0.8 * np.abs(m[:, 0]))
        square = (d**2).sum(1)
        slope = np.zeros_like(p)
        side = 2 * factor[:, None] * d
        slope[1:] += side
        slope[:-1] -= side
        bend = 0.4 * np.sign(m[:, 0]) * factor * square
        slope[1:, 0] += bend
        slope[:-1, 0] += bend
        count = len(d)
        return count * float(factor @ square), count * slope[1:-1].ravel()

    best = minimize(energy, at[1:-1].ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15})
    return math.sqrt(best.fun)


def test_constant_field_gives_the_straight_line_and_the_chord() -> None:
    g, points, _ = CLOSED["constant"]
    one = connect(g, points[0], points[1])
    t = torch.linspace(0, 1, 33, dtype=torch.float64)[:, None]
    torch.testing.assert_close(one.points, points[0] + t * (points[1] - points[0]), rtol=1e-12, atol=1e-12)
    assert one.length == pytest.approx(chord(g, points[0], points[1]), rel=1e-13) and one.steps == 0


def test_nothing_lies_between_a_point_and_itself() -> None:
    g, points, _ = CLOSED["sphere"]
    one = connect(g, points[0], points[0])
    assert (one.length, one.error, one.speed_drift, one.miss) == (0, 0, 0, 0) and one.converged


def test_no_geodesic_is_told() -> None:
    wall = MetricFunction(2, lambda x, a, b: (1 - x[0].square()).sqrt() * (a @ b))
    one = connect(wall, draws(2) * 0, torch.tensor([3.0, 0.0], dtype=torch.float64))
    assert (
        not one.converged
        and "not finite" in one.why
        and math.isnan(float(log(wall, *(0 * draws(2), 0 * draws(2) + 3))[0]))
    )
    with pytest.raises(ValueError, match="finite"):
        connect(wall, draws(2) * math.nan, draws(2))


def test_one_bad_pair_leaves_the_others_alone() -> None:
    g, points, exact = CLOSED["poincare"]
    ends = points[4:].clone()
    ends[1] = torch.tensor([1.0, 0, 0, 0])  # on the rim: the metric is infinite there
    found = connect_all(g, points[:4], ends)
    assert [one.converged for one in found] == [True, False, True, True]
    for k in (0, 2, 3):
        assert found[k].length == pytest.approx(float(exact(points[k], ends[k])), rel=1e-10)


def test_exp_and_log_are_those_of_the_ball() -> None:
    g, points, _ = CLOSED["poincare"]
    for x, y in zip(points[:2], points[4:6], strict=True):
        torch.testing.assert_close(log(g, x, y), ball_log(x, y), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(exp(g, x, ball_log(x, y)), y, rtol=1e-8, atol=1e-9)
        v = draws(4, seed=5)
        torch.testing.assert_close(exp(g, x, v), ball_exp(x, v), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(log(g, x, exp(g, x, v)), v, rtol=1e-6, atol=1e-6)


def test_a_slice_moves_only_its_own_coordinates() -> None:
    """Block [2, 3) x ... of a space: the rest stays that of the first point, and the metric is that of the slice."""
    E = torch.eye(5, dtype=torch.float64)[:, [1, 3]]
    g = MetricFunction(2, lambda x, a, b: 4 / (1 + x[[1, 3]] @ x[[1, 3]]).square() * (a @ b), inclusion=E)
    x, y = draws(5), draws(5, seed=1)
    one = connect(g, x, y)
    assert one.length == pytest.approx(float(arc(x[[1, 3]], y[[1, 3]], 1.0)), rel=1e-9)
    torch.testing.assert_close(one.points[:, [0, 2, 4]], x[[0, 2, 4]].expand(33, -1))
    torch.testing.assert_close(one.points[-1], in_slice(g, y[None], x)[0])
    torch.testing.assert_close(coordinates(g, y - x), (y - x)[[1, 3]])


def test_it_works_where_no_gradient_is_recorded() -> None:
    g, points, exact = CLOSED["hemisphere"]
    with torch.no_grad():
        one = connect(g, points[0], points[1])
        assert one.length == pytest.approx(float(exact(points[0], points[1])), rel=1e-10) and one.miss < 1e-6


# --- from a velocity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MANIFOLDS)
def test_speed_is_constant_and_the_way_back_is_the_way(name: str) -> None:
    manifold = MANIFOLDS[name]()
    rng = torch.Generator().manual_seed(2)
    g, x = manifold.metric, manifold.point(rng)
    v = torch.randn(g.dim, generator=rng, dtype=torch.float64)
    v = v / g.inner(x, v, v).sqrt()
    out = geodesic(g, x, v)
    assert out.converged and out.length == pytest.approx(1, rel=1e-9) and out.speed_drift < 1e-8
    back = geodesic(g, out.points[-1], -out.velocities[-1])
    torch.testing.assert_close(back.points[-1], x, rtol=1e-8, atol=1e-8)


def test_geodesics_are_great_circles_and_the_error_is_an_honest_one() -> None:
    g = sphere(3, 2.0).metric
    x, v = draws(3), draws(3, seed=1)
    found = geodesic(g, x, v)
    for step, point in enumerate(found.points):
        torch.testing.assert_close(point, great_circle(x, v, 2.0, step / 32), rtol=1e-8, atol=1e-9)
    loose = geodesic(g, x, 5 * v, tolerance=1e-5)
    assert float((loose.points[-1] - great_circle(x, 5 * v, 2.0, 1)).norm()) == pytest.approx(loose.error, rel=0.1)


def test_clairaut_on_the_torus() -> None:
    """(2 + cos phi)^2 theta' is constant along a geodesic."""
    found = geodesic(torus().metric, draws(2), 3 * draws(2, seed=1))
    momentum = (2 + found.points[:, 1].cos()).square() * found.velocities[:, 0]
    torch.testing.assert_close(momentum, momentum[0].expand(33), rtol=1e-8, atol=1e-9)


def test_order_of_the_integrator() -> None:
    """The regression line of log error on log steps falls with slope 8."""
    g, x, v = sphere(3, 2.0).metric, draws(3), 5 * draws(3, seed=1)
    steps, end = [6, 8, 11, 15], great_circle(x, v, 2.0, 1)
    found = [geodesic(g, x, v, steps=n) for n in steps]
    errors = [float((one.points[-1] - end).norm()) for one in found]
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert -9.5 < slope < -7.3 and errors[-1] > 1e-13  # and no rounding in it
    assert [one.steps for one in found] == steps


def test_accuracy_follows_the_tolerance() -> None:
    x, v = draws(3), 5 * draws(3, seed=1)
    g, end = sphere(3, 2.0).metric, great_circle(x, v, 2.0, 1)
    errors = [float((geodesic(g, x, v, tolerance=10.0**-k).points[-1] - end).norm()) for k in (4, 7, 10)]
    assert errors == sorted(errors, reverse=True) and errors[0] > 100 * errors[2] and errors[2] < 1e-8


def test_a_geodesic_that_ends_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """g = e^{2x} on a line: e^x grows linearly, so backwards it is 0, at x = - infinity, after finite time."""
    monkeypatch.setattr("fbt_core.geometry.geodesic.MAXIMUM_STEPS", 12)
    g = MetricFunction(1, lambda x, a, b: (2 * x[0]).exp() * (a @ b))
    short, gone = (geodesic(g, torch.zeros(1), torch.tensor([v])) for v in (-0.5, -2.0))
    assert short.converged and float(short.points[-1]) == pytest.approx(math.log(0.5), rel=1e-9)
    assert not gone.converged and gone.why and not gone.points[-1].isfinite() and gone.points[5].isfinite()
    assert math.isinf(gone.error) and exp(g, torch.zeros(1), torch.tensor([-2.0])).isnan().all()


def test_several_shots_at_once() -> None:
    g = sphere(3, 2.0).metric
    x, v = draws(5, 3), draws(5, 3, seed=1)
    landed = shoot(g, x, v).at(torch.ones(1, dtype=torch.float64))[0, :, :3]
    torch.testing.assert_close(landed, torch.stack([great_circle(a, b, 2.0, 1) for a, b in zip(x, v, strict=True)]))


# --- the parts -----------------------------------------------------------------------------------------------------


def test_basis_is_orthonormal_and_vanishes_at_both_ends() -> None:
    t, w = gauss(24, torch.zeros(1, dtype=torch.float64))
    _, velocity = basis(12, t)
    torch.testing.assert_close(velocity.mT @ (w[:, None] * velocity), torch.eye(12, dtype=torch.float64))
    ends, _ = basis(12, torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert ends.abs().max() < 1e-14
    step = 1e-6
    slope = (basis(12, t + step)[0] - basis(12, t - step)[0]) / (2 * step)
    torch.testing.assert_close(slope, velocity, rtol=1e-6, atol=1e-6)


def test_descent_finds_the_minima_that_scipy_finds() -> None:
    from scipy.optimize import minimize

    A = torch.stack([torch.diag(draws(6, seed=k).square() + 0.1) for k in range(3)])
    b = draws(3, 6, seed=7)

    def value(z: Tensor, k: int) -> Tensor:
        return 50 + z @ A[k] @ z + b[k] @ z + (0.3 * z).pow(4).sum() + (z[0] * z[1]).sin()

    def evaluate(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        pairs = [torch.func.grad_and_value(value)(one, int(k)) for one, k in zip(z, which, strict=True)]
        return torch.stack([v for _, v in pairs]), torch.stack([s for s, _ in pairs])

    best = minimise(evaluate, lambda r, which: r, torch.zeros(3, 6, dtype=torch.float64), 1e-9, 200)
    assert (best.slope < 1e-8).all() and (best.iterations < 100).all()
    for k in range(3):
        there = minimize(lambda z, k=k: float(value(torch.tensor(z), k)), np.zeros(6), tol=1e-12)
        assert float(value(best.place[k], k)) == pytest.approx(there.fun, abs=1e-9)


# --- graphs and matrices -------------------------------------------------------------------------------------------


def test_segments_have_the_length_of_the_integral() -> None:
    from scipy.integrate import quad

    g, points, _ = CLOSED["poincare"]
    x, y = points[:4], points[4:]
    for length, error, a, b in zip(*segment_lengths(g, x, y), x.numpy(), y.numpy(), strict=True):
        exact, _ = quad(lambda t, a=a, b=b: 2 * np.linalg.norm(b - a) / (1 - np.sum((a + t * (b - a)) ** 2)), 0, 1)
        assert float(length) == pytest.approx(exact, rel=1e-9) and float(error) < 1e-8


def test_graph_paths_are_the_best_of_all_paths() -> None:
    g, points, _ = CLOSED["halfspace"]
    found = graph_lengths(g, points[:6])
    assert found.errors.max() < 1e-3
    for start, end in itertools.permutations(range(6), 2):
        inner = [k for k in range(6) if k not in (start, end)]
        ways = [(start, *some, end) for n in range(5) for some in itertools.permutations(inner, n)]
        best = min(sum(found.edges[a, b] for a, b in itertools.pairwise(way)) for way in ways)
        assert found.lengths[start, end] == pytest.approx(best, rel=1e-12)
        path = found.path(start, end)
        assert sum(found.edges[a, b] for a, b in itertools.pairwise(path)) == pytest.approx(best, rel=1e-12)
        assert path[0] == start and path[-1] == end


def test_neighbours_repeated_points_and_islands() -> None:
    g, points, _ = CLOSED["constant"]
    apart = torch.cat([points[:3], points[:1], points[:3] + 1000])
    found = graph_lengths(g, apart, neighbours=2)
    assert found.lengths[0, 3] == 0 and found.path(0, 3) == [0, 3]
    assert math.isinf(found.lengths[0, 4]) and found.path(0, 4) == [] and math.isinf(found.path_error(0, 4))
    assert (found.lengths == found.lengths.T).all() and (np.diag(found.lengths) == 0).all()
    complete = graph_lengths(g, apart)
    assert np.isfinite(complete.lengths).all() and (complete.lengths <= found.lengths).all()
    assert graph_lengths(g, points[:1]).lengths.tolist() == [[0.0]] and graph_lengths(g, points[:1]).path(0, 0) == [0]
    for bad in (lambda: graph_lengths(g, points, 0), lambda: graph_lengths(g, points * math.nan)):
        with pytest.raises(ValueError, match="expected"):
            bad()


@pytest.mark.parametrize("name", CLOSED)
def test_lengths_in_their_order(name: str) -> None:
    g, points, exact = CLOSED[name]
    told: list[tuple[int, int]] = []
    found = distances(g, points, progress=lambda done, total: told.append((done, total)))
    assert found.pairs == tuple(every_pair(8)) and told[-1] == (28, 28) and not any(found.why)
    rows, columns = (list(side) for side in zip(*found.pairs, strict=True))
    np.testing.assert_allclose(found.true, exact(points[rows], points[columns]), rtol=1e-9)
    slack = 1 + 1e-9
    assert (found.true <= found.graph * slack).all() and (found.graph <= found.straight * slack).all()
    if g.factor is not None:  # g >= I
        assert (found.euclid <= found.true * slack).all()
    matrix = found.matrix("true", 8, symmetric=True)
    assert (matrix == matrix.T).all() and matrix[2, 5] == found.true[found.pairs.index((2, 5))]


def test_a_graph_finds_the_way_around_that_the_straight_start_misses() -> None:
    """Beyond the conjugate point of the outer equator of the torus a geodesic is still there, but not the shortest."""
    g = torus().metric
    points = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.7, 2.2], [2.3, 2.2]], dtype=torch.float64)
    stuck = connect(g, points[0], points[1])
    assert stuck.length == pytest.approx(9, rel=1e-12) and stuck.converged
    found = distances(g, points, [(0, 1)])
    assert found.true[0] < 8.5 and found.true[0] <= found.graph[0] < 9 and found.speed_drift[0] < 1e-4
    again = through(g, points, [0, 2, 3, 1])
    assert again.length == found.true[0]
    momentum = (2 + again.points[:, 1].cos()).square() * again.velocities[:, 0]
    assert float((momentum.max() - momentum.min()) / momentum.mean()) < 1e-3  # Clairaut: a geodesic


@pytest.mark.parametrize("name", ["sphere", "hemisphere"])
def test_one_token_no_pair_and_the_same_token_twice(name: str) -> None:
    g, points, exact = CLOSED[name]
    alone = distances(g, points[:1])
    assert (
        alone.true.shape == (0,)
        and alone.matrix("true", 1).tolist() == [[0.0]]
        and connect_all(g, points[:0], points[:0]) == []
    )
    twice = distances(g, points[[0, 0, 1]])
    way = float(exact(points[0], points[1]))
    for lengths in (twice.true, twice.graph):
        assert lengths[0] == 0 and lengths[1] == lengths[2]
    assert twice.true[1] == pytest.approx(way, rel=1e-9) and not any(twice.why)
    around = through(g, points[[0, 0, 2, 2, 1]], [0, 1, 2, 3, 4])
    assert around.length == pytest.approx(way, rel=1e-9) and around.converged


# --- the trained model ---------------------------------------------------------------------------------------------


@cache
def twin(assets: Path) -> tuple[object, object]:
    loaded = load(assets / TWIN[0])
    model = build(loaded, device="cpu")
    encoded = loaded.tokenizer.encode(TWIN[1])
    return model, model.trace(torch.tensor(encoded.ids), tokens=encoded.tokens)


@pytest.mark.parametrize("reading", ["whole", "block", "key"])
def test_the_order_of_lengths_on_a_trained_field(assets: Path, reading: str) -> None:
    model, trace = twin(assets)
    tokens = [0, 2, 5, 7]
    found = token_distances(model, trace, 3, 1, reading, tokens)
    slack = 1 + 1e-9
    assert not any(found.why) and (found.error < 1e-5 * found.true).all()
    assert (found.euclid <= found.true * slack).all() and (found.true <= found.graph * slack).all()
    g, points = model_field(model, trace, 3, 1, reading), field_points(trace, 3)
    one = connect(g, points[2], points[7])
    assert one.miss < 1e-6 and one.length == pytest.approx(found.true[found.pairs.index((1, 3))], rel=1e-9)


def test_a_metric_of_one_slice_a_token(assets: Path) -> None:
    loaded = load(assets / "l2.safetensors")
    model = build(loaded, device="cpu")
    trace = apply(model, model.trace(torch.tensor(loaded.tokenizer.encode(TWIN[1]).ids)), "fisher", 3, 1.0)
    told: list[tuple[int, int]] = []
    tokens = [1, 4, 6]
    found = token_distances(model, trace, 2, tokens=tokens, progress=lambda done, total: told.append((done, total)))
    assert found.pairs == ((0, 1), (0, 2), (1, 2)) and told == [(2, 3), (3, 3)]
    points = field_points(trace, 2)
    for (i, j), length in zip(found.pairs, found.true, strict=True):
        g = model_field(model, trace, 2, 0, token=tokens[i])
        assert connect(g, points[tokens[i]], points[tokens[j]], shot=False).length == pytest.approx(length, rel=1e-8)
    assert (found.euclid <= found.true).all() and (found.true <= found.graph * (1 + 1e-9)).all()


def test_the_command(assets: Path) -> None:
    words = ["geodesic", str(assets / TWIN[0]), "--text", TWIN[1], "--layer", "3", "--from", "2", "--to", "7"]
    table = CliRunner().invoke(app, words)
    assert table.exit_code == 0 and all(word in table.stdout for word in ("euclid", "chord", "true", "graph", "drift"))
    found = json.loads(CliRunner().invoke(app, [*words, "--json", "-"]).stdout)
    model, trace = twin(assets)
    pair = token_distances(model, trace, 3, tokens=[2, 7])
    for key in ("euclid", "chord", "true", "straight"):
        assert found[key] == pytest.approx(getattr(pair, key)[0], rel=1e-9)
    assert found["euclid"] < found["true"] <= found["graph"] <= found["straight"] and found["miss"] < 1e-6
    assert f"{found['true']:.9f}" in table.stdout
    for bad in (
        [*words[:-1], "99"],
        [*words, "--reading", "x"],
        [words[0], str(assets / "l2.safetensors"), *words[2:]],
    ):
        result = CliRunner().invoke(app, bad)
        assert result.exit_code == 2 and result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


# --- the what-if ---------------------------------------------------------------------------------------------------


def test_attention_with_the_true_distance(assets: Path) -> None:
    _, trace = twin(assets)
    f = trace.layers[3].factors.select(2)  # pyright: ignore
    n = f.q.shape[-2]
    ratio = 0.5 + draws(n, n).square().float()
    found = true_distance_attention(f, ratio)[0].double()
    q, k, U = (x[0].double() for x in (f.q, f.k, f.U))
    for i in range(n):
        scores = []
        for j in range(i + 1):
            e = q[i] - k[j]
            g = torch.eye(len(e), dtype=torch.float64) + (U[i] @ U[i].mT + U[j] @ U[j].mT) / 2
            scores.append(float(-ratio[i, j] * (e @ g @ e) / f.tau[0] - f.omega[0, j]))
        expected = torch.tensor(scores, dtype=torch.float64).softmax(0)
        torch.testing.assert_close(found[i, : i + 1], expected, rtol=2e-4, atol=1e-5)
    one = torch.ones(n, n)
    torch.testing.assert_close(true_distance_attention(f, one), attention(f, "riemannian"), rtol=1e-4, atol=1e-6)
    half = f.with_alpha(0.3)
    torch.testing.assert_close(
        true_distance_attention(half, one, "blended"), attention(half, "blended"), rtol=1e-4, atol=1e-6
    )
    assert bias(f, slice(0, n), slice(0, n)) is not None
    holed = one.clone()
    holed[3, 1], holed[1, 3] = math.nan, math.nan
    rows = true_distance_attention(f, holed)[0].isnan().any(-1)
    assert rows.nonzero().flatten().tolist() == [3]  # (1, 3) is hidden by the causal mask
    with pytest.raises(ValueError, match="chord"):
        true_distance_attention(f, one, "euclidean")


def test_ratio_of_distances() -> None:
    true, straight = torch.tensor([[0.0, 3.0], [math.nan, 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    torch.testing.assert_close(
        distance_ratio(true, straight), torch.tensor([[1.0, 2.25], [math.nan, 1.0]]), equal_nan=True
    )


def test_curves_keep_their_shape_in_a_higher_degree() -> None:
    g, points, _ = CLOSED["constant"]
    curve = Curves(points[:2], points[2:4], draws(2, 3, 5))
    t = torch.linspace(0, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(curve.at(g, t)[0], curve.raised(6).at(g, t)[0])
    assert graph().metric.factor is not None
