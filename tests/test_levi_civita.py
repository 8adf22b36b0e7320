"""Parallel transport and holonomy against rotations of the sphere, areas by quadrature, and hyperbolic triangles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fbt_core.geometry.boundary import connect
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.geodesic import geodesic
from fbt_core.geometry.levi_civita import segment, transport
from fbt_core.geometry.loops import carry, gauge_holonomy, holonomy, rotation_angles
from fbt_core.geometry.manifolds import MANIFOLDS, constant, flat, poincare, sphere, torus
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.model_field import field_points, model_field
from tests.test_geodesic import ball_distance, bent, draws, lift, twin


def solid_angle(p: Tensor, q: Tensor, r: Tensor) -> float:
    """Of the triangle of three unit vectors: its area on the unit sphere (Van Oosterom and Strackee 1983)."""
    return 2 * math.atan2(float(torch.linalg.det(torch.stack([p, q, r])).abs()), float(1 + p @ q + q @ r + r @ p))


# --- along a curve -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MANIFOLDS)
def test_transport_is_isometric_linear_and_has_a_way_back(name: str) -> None:
    manifold = MANIFOLDS[name]()
    rng = torch.Generator().manual_seed(4)
    g, x, y = manifold.metric, manifold.point(rng), manifold.point(rng)
    y = x + (y - x) / 3
    curve = segment(g, x, y)
    w = torch.randn(2, g.dim, generator=rng, dtype=torch.float64)
    found = transport(g, curve, torch.stack([*w, w[0] + 2 * w[1]]), samples=5)
    assert found.error < 1e-8 and found.why == ""
    first, second, both = found.vectors[-1]
    torch.testing.assert_close(g.inner(y, first, second), g.inner(x, *w), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(both, first + 2 * second, rtol=1e-7, atol=1e-8)
    back = transport(g, segment(g, y, x), found.vectors[-1, :2], samples=2)
    torch.testing.assert_close(back.vectors[-1], w, rtol=1e-7, atol=1e-8)


def test_a_geodesic_carries_its_own_velocity() -> None:
    g = sphere(3, 2.0).metric
    along = geodesic(g, draws(3), draws(3, seed=1))
    found = transport(g, along, along.velocities[0])
    torch.testing.assert_close(found.vectors[:, 0], along.velocities, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.points, along.points)


def test_along_a_great_circle_vectors_turn_with_the_sphere() -> None:
    """In space, transport along a great circle is the rotation that moves the sphere along it."""
    R, x, y = 2.0, 0.7 * draws(2), 0.7 * draws(2, seed=1)
    g, w = sphere(2, R).metric, draws(2, seed=2)
    found = transport(g, connect(g, x, y, shot=False), w, samples=2).vectors[-1, 0]
    p, before = torch.func.jvp(lambda z: lift(z, R), (x,), (w,))
    q, after = torch.func.jvp(lambda z: lift(z, R), (y,), (found,))
    axis = torch.linalg.cross(p, q)
    axis = axis / axis.norm()
    angle = torch.acos(p @ q / R**2)
    turned = (  # Rodrigues
        angle.cos() * before
        + angle.sin() * torch.linalg.cross(axis, before)
        + (1 - angle.cos()) * (axis @ before) * axis
    )
    torch.testing.assert_close(after, turned, rtol=1e-7, atol=1e-8)


def test_in_flat_space_vectors_stay_what_they_are() -> None:
    x, y, w = 0.5 * draws(3), 0.5 * draws(3, seed=1), draws(3, seed=2)
    found = transport(flat().metric, segment(flat().metric, x, y), w, samples=2).vectors[-1, 0]
    before, after = (torch.func.jvp(bent, (p,), (v,))[1] for p, v in ((x, w), (y, found)))
    torch.testing.assert_close(after, before, rtol=1e-8, atol=1e-9)


def test_transport_that_stops_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fbt_core.geometry.geodesic.MAXIMUM_STEPS", 12)
    wall = MetricFunction(2, lambda x, a, b: (1 - x[0].square()).sqrt() * (a @ b))
    out = segment(wall, torch.zeros(2), torch.tensor([2.0, 0.0]))
    found = transport(wall, out, torch.ones(2), samples=9)
    assert found.why and not found.vectors[-1].isfinite().all() and found.vectors[0].isfinite().all()


# --- around a loop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3])
def test_holonomy_of_a_spherical_triangle_is_its_area(dim: int) -> None:
    R, corners = 2.0, 0.8 * draws(3, 2, seed=3)
    inside = torch.nn.functional.pad(corners, (0, dim - 2))
    found = holonomy(sphere(dim, R).metric, inside)
    excess = solid_angle(*(lift(corners, R) / R))
    assert found.angles.tolist() == pytest.approx([excess], rel=1e-7) and found.error < 1e-8 and found.why == ""
    assert torch.linalg.det(found.matrix) > 0 and len(found.lengths) == 3


def test_holonomy_of_a_polygon_is_the_sum_of_its_triangles() -> None:
    R = 2.0
    corners = torch.tensor([[0.9, 0.1], [0.2, 0.8], [-0.7, 0.3], [-0.4, -0.9], [0.5, -0.6]], dtype=torch.float64)
    p = lift(corners, R) / R
    area = sum(solid_angle(p[0], p[k], p[k + 1]) for k in (1, 2, 3))
    assert float(holonomy(sphere(2, R).metric, corners).angles[0]) == pytest.approx(area, rel=1e-7)


def test_holonomy_of_a_hyperbolic_triangle_is_its_defect() -> None:
    corners = torch.tensor([[0.3, 0.1], [-0.2, 0.4], [0.1, -0.5]], dtype=torch.float64)
    a, b, c = (float(ball_distance(corners[i], corners[j])) for i, j in ((1, 2), (0, 2), (0, 1)))

    def angle(far: float, one: float, other: float) -> float:
        return math.acos((math.cosh(one) * math.cosh(other) - math.cosh(far)) / (math.sinh(one) * math.sinh(other)))

    defect = math.pi - angle(a, b, c) - angle(b, a, c) - angle(c, a, b)
    assert float(holonomy(poincare(2).metric, corners).angles[0]) == pytest.approx(defect, rel=1e-7)


def test_along_segments_it_is_the_curvature_within() -> None:
    """On the torus K dA = cos(phi) dphi dtheta, so a rectangle of the angles turns by the difference of sines."""
    low, high, width = -0.4, 1.1, 0.9
    corners = torch.tensor([[0.0, low], [width, low], [width, high], [0.0, high]], dtype=torch.float64)
    found = holonomy(torus().metric, corners, along="segments")
    assert float(found.angles[0]) == pytest.approx(width * (math.sin(high) - math.sin(low)), rel=1e-8)
    assert found.lengths == ()


def test_segments_and_geodesics_enclose_different_areas() -> None:
    """A straight triangle in stereographic coordinates: K dA by quadrature over it."""
    from scipy.integrate import dblquad

    R, corners = 2.0, torch.tensor([[1.4, 0.2], [-0.9, 1.1], [0.1, -1.5]], dtype=torch.float64)
    p, q, r = corners.numpy()
    jacobian = abs(np.linalg.det(np.stack([q - p, r - p])))

    def density(v: float, u: float) -> float:
        x = p + u * (q - p) + v * (r - p)
        return 4 * R**2 / (R**2 + x @ x) ** 2 * jacobian

    area, _ = dblquad(density, 0, 1, 0, lambda u: 1 - u, epsabs=1e-10)
    straight = holonomy(sphere(2, R).metric, corners, along="segments")
    assert float(straight.angles[0]) == pytest.approx(area, rel=1e-8)
    assert float(holonomy(sphere(2, R).metric, corners).angles[0]) != pytest.approx(area, rel=1e-3)


@pytest.mark.parametrize("make", [flat, constant])
def test_flat_fields_have_none(make: type) -> None:
    manifold = make()
    rng = torch.Generator().manual_seed(0)
    corners = torch.stack([0.5 * manifold.point(rng) for _ in range(3)])
    for along in ("geodesics", "segments"):
        assert holonomy(manifold.metric, corners, along).angles.abs().max() < 1e-6  # of geodesics known to 1e-8


def test_there_and_back_is_nothing() -> None:
    found = holonomy(sphere(3, 2.0).metric, draws(2, 3))
    torch.testing.assert_close(found.matrix, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-7)


def test_a_vector_carried_leg_by_leg_is_the_matrix_times_it() -> None:
    g, corners, w = sphere(2, 2.0).metric, 0.8 * draws(3, 2, seed=3), draws(2)
    found = holonomy(g, corners)
    walked = carry(g, found.edges, w, samples=4)
    torch.testing.assert_close(walked.vectors[-1, 0], found.carried @ w, rtol=1e-7, atol=1e-8)
    assert walked.points.shape == (12, 2)
    torch.testing.assert_close(walked.points[[3, 7, 11]], corners.roll(-1, 0))


def test_what_a_loop_needs() -> None:
    g = sphere(2, 2.0).metric
    for bad in (lambda: holonomy(g, draws(1, 2)), lambda: holonomy(g, draws(3, 2), along="chords")):
        with pytest.raises(ValueError, match="expected at least 2"):
            bad()


def test_rotation_angles_of_a_built_rotation() -> None:
    angles = [3.0, 1.2, 0.4]
    plain = torch.block_diag(*[torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) for a in angles])
    plain = torch.block_diag(plain.double(), torch.ones(1, 1).double())
    turned = torch.linalg.qr(draws(7, 7))[0]
    assert rotation_angles(turned @ plain @ turned.mT).tolist() == pytest.approx(angles, abs=1e-6)
    assert rotation_angles(plain * math.nan).isnan().all()


def test_on_a_trained_field_the_map_is_a_rotation(assets: Path) -> None:
    model, trace = twin(assets)
    points = field_points(trace, 3)
    for reading in ("whole", "key"):
        g = model_field(model, trace, 3, 1, reading)
        found = holonomy(g, points[[2, 5, 7]])
        assert found.error < 1e-8 and found.why == "" and torch.linalg.det(found.matrix) > 0
        assert 1e-4 < float(found.angles[0]) < 1 and (found.angles.diff() <= 0).all()


# --- FiberTransport ------------------------------------------------------------------------------------------------


def dense_cayley(left: Tensor, right: Tensor) -> Tensor:
    T = left @ right.mT - right @ left.mT
    eye = torch.eye(len(T), dtype=T.dtype)
    return torch.linalg.solve(eye - T / 2, eye + T / 2)


def root(g: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(g)
    return vectors * values**power @ vectors.mT


@pytest.mark.parametrize("compatible", [False, True])
def test_the_gauge_has_no_holonomy_though_its_legs_turn(compatible: bool) -> None:
    left, right, U = draws(2, 5, 6, 2), draws(2, 5, 6, 2, seed=1), draws(2, 5, 6, 3, seed=2)
    loop = [3, 0, 4, 1]
    found = gauge_holonomy(left, right, loop, LowRankMetric(U) if compatible else None)
    assert found.error.max() < 1e-12 and found.legs.shape == (4, 2, 6, 6)
    for head in range(2):
        for leg, (j, i) in enumerate(zip(loop, [*loop[1:], loop[0]], strict=True)):
            C_i, C_j = (dense_cayley(left[head, k], right[head, k]) for k in (i, j))
            dense = C_i.mT @ C_j
            if compatible:
                g_i, g_j = (torch.eye(6, dtype=torch.float64) + U[head, k] @ U[head, k].mT for k in (i, j))
                dense = root(g_i, -0.5) @ dense @ root(g_j, 0.5)
            torch.testing.assert_close(found.legs[leg, head], dense, rtol=1e-10, atol=1e-11)
            assert (dense - torch.eye(6, dtype=torch.float64)).abs().max() > 0.1
