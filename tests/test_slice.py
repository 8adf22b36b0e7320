"""The plane through three tokens: surfaces whose curvature is known, and the model's own field on it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.slice import (
    QUANTITIES,
    Plane,
    lattice,
    plane_through,
    quantity_on,
    surface,
    surface_metrics,
)

SPHERE = MetricFunction(3, lambda x, a, b: 4 / (1 + x @ x).square() * (a @ b), name="unit sphere")
"""The unit 3-sphere, stereographic."""


def corners(*points: tuple[float, ...]) -> Tensor:
    return torch.tensor(points, dtype=torch.float64)


def grid(plane: Plane, cells: int = 5) -> Tensor:
    x, y = lattice(plane, cells)
    return torch.cartesian_prod(x, y)


def test_tokens_stand_where_they_are() -> None:
    points = torch.randn(3, 6, dtype=torch.float64)
    g = MetricFunction.low_rank(lambda x: x[:, None] * 0, 6)
    plane = plane_through(g, points)
    torch.testing.assert_close(vmap(plane.point)(plane.tokens), points)
    torch.testing.assert_close(plane.axes.mT @ plane.axes, torch.eye(2, dtype=torch.float64))
    assert plane.inside == pytest.approx(1)
    assert plane.tokens[0].tolist() == [0, 0] and abs(float(plane.tokens[1, 1])) < 1e-12


def test_in_a_slice_the_others_stand_at_their_coordinates() -> None:
    """E takes two of five axes, one of them doubled: the rest of the first token stays."""
    E = torch.zeros(5, 3, dtype=torch.float64)
    E[1, 0], E[3, 1], E[4, 2] = 1, 2, 1
    points = torch.randn(3, 5, dtype=torch.float64)
    g = MetricFunction.low_rank(lambda x: x[:3, None], 3, E)
    plane = plane_through(g, points)
    for token, p in zip(points, plane.tokens, strict=True):
        expected = points[0].clone()
        expected[[1, 3, 4]] = token[[1, 3, 4]]
        torch.testing.assert_close(plane.point(p), expected)
    moved = points[1:] - points[0]
    share = float(moved[:, [1, 3, 4]].square().sum() / moved.square().sum())
    assert plane.inside == pytest.approx(share)


@pytest.mark.parametrize("height", [0.0, 0.3, 1.2])
def test_a_plane_in_the_sphere_is_a_smaller_sphere(height: float) -> None:
    """The plane at distance h of the pole's image has g = 4 / (1 + h^2 + r^2)^2, a sphere of K = 1 + h^2; the space
    around it has K = 1 in every plane, and S = 6."""
    plane = plane_through(SPHERE, corners((0.1, 0.2, height), (0.9, 0.1, height), (0.0, -0.6, height)))
    places = grid(plane)
    for name, expected in (("gaussian", 1 + height**2), ("sectional", 1.0), ("scalar", 6.0)):
        values, error = quantity_on(SPHERE, plane, name, places, planes=8)
        torch.testing.assert_close(values, torch.full_like(values, expected), rtol=1e-9, atol=0)
        assert float(error.max()) < 1e-9
    volume, _ = quantity_on(SPHERE, plane, "volume", places)
    at = vmap(plane.point)(places)
    torch.testing.assert_close(volume, 3 * (2 / (1 + at.square().sum(-1))).log())


def test_the_low_rank_surface_is_the_graph_that_it_is() -> None:
    """g = I + grad f grad f^T is the graph of f; on a plane, that of f restricted, K = det f'' / (1 + |f'|^2)^2."""

    def f(x: Tensor) -> Tensor:
        return torch.sin(x[0]) * x[1] + 0.5 * x[2].square() - x[0] * x[3]

    g = MetricFunction.low_rank(lambda x: torch.func.grad(f)(x)[:, None], 4)
    plane = plane_through(g, torch.randn(3, 4, dtype=torch.float64))
    places = grid(plane)
    found, _ = quantity_on(g, plane, "gaussian", places)

    def monge(p: Tensor) -> Tensor:
        def restricted(q: Tensor) -> Tensor:
            return f(plane.point(q))

        return (
            torch.linalg.det(torch.func.hessian(restricted)(p))
            / (1 + torch.func.grad(restricted)(p).square().sum()) ** 2
        )

    torch.testing.assert_close(found, vmap(monge)(places), rtol=1e-9, atol=1e-12)
    metrics = surface_metrics(g, plane, places)
    dense = vmap(lambda p: plane.axes.mT @ g.dense(plane.point(p)) @ plane.axes)(places)
    torch.testing.assert_close(metrics, dense)
    assert surface(g, plane).factor is not None


def test_where_no_plane_is_there_is_a_reason() -> None:
    with pytest.raises(ValueError, match="one place"):
        plane_through(SPHERE, corners((0, 0, 0), (1, 0, 0), (1, 0, 0)))
    with pytest.raises(ValueError, match="one line"):
        plane_through(SPHERE, corners((0, 0, 0), (1, 1, 0), (3, 3, 0)))
    with pytest.raises(ValueError, match="one place"):
        plane_through(SPHERE, corners((0, 0, 0), (0, 0, 0), (0, 0, 0)))
    with pytest.raises(ValueError, match="not finite"):
        plane_through(SPHERE, corners((0, 0, 0), (float("nan"), 0, 0), (0, 1, 0)))
    with pytest.raises(ValueError, match="expected one of"):
        quantity_on(SPHERE, plane_through(SPHERE, corners((0, 0, 0), (1, 0, 0), (0, 1, 0))), "ricci", torch.zeros(1, 2))


@pytest.mark.parametrize("third", [(0.5, 3.0), (0.5, 1e-3), (-8.0, 0.5)])
def test_the_grid_is_square_celled_and_holds_the_tokens(third: tuple[float, float]) -> None:
    plane = plane_through(MetricFunction.low_rank(lambda x: x[:, None], 2), corners((0, 0), (1, 0), third))
    x, y = lattice(plane, 33)
    assert float(x[1] - x[0]) == pytest.approx(float(y[1] - y[0]), rel=0.06)
    assert max(len(x), len(y)) == 33 and min(len(x), len(y)) >= 16
    low, high = plane.tokens.min(0).values, plane.tokens.max(0).values
    for axis, least, most in zip((x, y), low, high, strict=True):
        assert float(axis[0]) < float(least) and float(most) < float(axis[-1])


def test_every_quantity_says_what_it_is() -> None:
    for row in QUANTITIES.values():
        assert row.unit and row.meaning.endswith(".") and row.symbol
