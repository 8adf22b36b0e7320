"""Rotation planes of the Cayley map against the dense map's eigenvalues and logarithm, and the share that it turns."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.torsion_planes import plane_share, torsion_planes, turned_share
from fbt_core.geometry.transport import cayley
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.trace import LayerTrace
from tests.test_geodesic import draws
from tests.test_levi_civita import dense_cayley, root


@pytest.mark.parametrize(("dim", "torsion"), [(2, 1), (7, 1), (8, 2), (9, 3), (5, 4)])
def test_planes_are_those_of_the_dense_map(dim: int, torsion: int) -> None:
    from scipy.linalg import logm

    left, right = draws(dim, torsion), draws(dim, torsion, seed=1)
    found = torsion_planes(left, right)
    count = min(torsion, dim // 2)
    assert found.planes.shape == (count, 2, dim)
    frame = found.planes.flatten(0, 1)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(2 * count, dtype=torch.float64), rtol=0, atol=1e-12)
    C = dense_cayley(left, right)
    angles = torch.linalg.eigvals(C).angle()
    expected = angles[angles > 1e-9].sort(descending=True).values
    torch.testing.assert_close(found.angles, expected, rtol=1e-10, atol=1e-12)
    generator = sum(
        angle * (torch.outer(b, a) - torch.outer(a, b))
        for angle, (a, b) in zip(found.angles, found.planes, strict=True)
    )
    torch.testing.assert_close(generator, torch.tensor(logm(C.numpy()).real), rtol=1e-8, atol=1e-9)  # order of the pair


def test_the_map_turns_the_first_of_a_pair_towards_the_second() -> None:
    left, right = draws(3, 4, 9, 2), draws(3, 4, 9, 2, seed=1)
    found = torsion_planes(left, right)
    first, second = found.planes.unbind(-2)
    for k in range(2):
        angle = found.angles[..., k, None]
        turned = angle.cos() * first[..., k, :] + angle.sin() * second[..., k, :]
        torch.testing.assert_close(cayley(left, right, first[..., k, :]), turned, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.angles, 2 * (found.strengths / 2).atan())
    assert (found.angles.diff(dim=-1) <= 0).all() and (found.angles < math.pi).all()
    dense = left @ right.mT - right @ left.mT
    torch.testing.assert_close(torch.linalg.svdvals(dense)[..., [0, 2]], found.strengths, rtol=1e-10, atol=1e-11)


def test_planes_of_equal_angle_and_of_none() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    twice = torsion_planes(eye[:, [0, 1]], eye[:, [2, 3]])  # T = two turns of strength 1: any split of the 4-space
    frame = twice.planes.flatten(0, 1)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(twice.strengths, torch.ones(2, dtype=torch.float64))
    for a, b in twice.planes:
        torch.testing.assert_close(dense_cayley(eye[:, [0, 1]], eye[:, [2, 3]]) @ a, 0.6 * a + 0.8 * b)  # 2 atan(1/2)
    one = torsion_planes(torch.stack([eye[0], eye[0]], 1), torch.stack([eye[1], eye[1]], 1))  # rank 2, of 4
    torch.testing.assert_close(one.strengths, torch.tensor([2.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-12)
    frame = one.planes.flatten(0, 1)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-12)
    none = torsion_planes(torch.zeros(3, 6, 1), draws(3, 6, 1))
    assert (none.angles == 0).all() and none.planes.isfinite().all()
    assert torsion_planes(draws(1, 1), draws(1, 1)).planes.shape == (0, 2, 1)  # no plane in one dimension


def test_share_of_a_vector_in_a_plane() -> None:
    found = torsion_planes(draws(5, 6, 1), draws(5, 6, 1, seed=1))
    v = draws(5, 6, seed=2)
    for k in range(5):
        span = torch.linalg.qr(torch.stack([draws(5, 6, 1)[k, :, 0], draws(5, 6, 1, seed=1)[k, :, 0]], 1))[0]
        expected = (span @ span.mT @ v[k]).square().sum() / v[k].square().sum()
        torch.testing.assert_close(plane_share(found.planes, v)[k, 0], expected)
    assert (plane_share(found.planes, v * 0) == 0).all()


def layer_of(**options: object) -> tuple[LayerTrace, FiberBundleConfig]:
    config = FiberBundleConfig(
        vocab_size=20, width=12, layers=1, heads=2, feed_forward=8, rank=2, torsion_rank=2, **options
    )  # pyright: ignore
    model = FiberBundleTransformer(config).double()
    with torch.no_grad():
        model.blocks[0].torsion.out.weight.mul_(40)  # so that there is something to see
    return model.trace(torch.arange(7)).layers[0], config


@pytest.mark.parametrize(
    ("transport", "compatible"), [("none", False), ("key", False), ("frame", False), ("frame", True)]
)
def test_turned_share_is_that_of_a_double_loop(transport: str, compatible: bool) -> None:
    layer, config = layer_of(transport=transport, metric_compatible=compatible)
    share = turned_share(layer, config.transport, config.metric_compatible)
    assert share.shape == (2, 7) and layer.torsion is not None
    for head in range(2):
        A = layer.attention(head, layer.score)
        C = [
            dense_cayley(left, right)
            for left, right in zip(layer.torsion[0][head], layer.torsion[1][head], strict=True)
        ]
        U = layer.metric.U[head]
        g = [torch.eye(6, dtype=torch.float64) + u @ u.mT * compatible for u in U]
        for i in range(7):
            turned, plain = torch.zeros(2, 6, dtype=torch.float64)
            for j in range(i + 1):
                v = A[i, j] * root(g[j], 0.5) @ layer.given.v[head, j]
                plain = plain + v
                turned = turned + (v if transport == "none" else C[j] @ v)
            if transport == "frame":
                turned = C[i].mT @ turned
            turned, plain = root(g[i], -0.5) @ turned, root(g[i], -0.5) @ plain
            expected = (turned - plain).norm() / (turned.norm() + plain.norm())
            torch.testing.assert_close(share[head, i], expected, rtol=1e-7, atol=1e-9)
    if transport == "none":
        assert (share == 0).all()
    if transport == "frame":
        assert share[:, 0].abs().max() < 1e-12 < share[:, 1:].min()  # the first token sees only itself: C^T C = I


def test_opposite_vectors_have_share_one_and_wrong_questions_an_answer() -> None:
    layer, _ = layer_of(transport="key")
    strong = torch.zeros(2, 7, 6, 3), torch.zeros(2, 7, 6, 3)
    for k in range(3):  # T turns all three planes by nearly pi
        strong[0][..., 2 * k, k], strong[1][..., 2 * k + 1, k] = 1e8, 1.0
    turned = LayerTrace(**{**layer.__dict__, "torsion": tuple(part.double() for part in strong)})
    torch.testing.assert_close(turned_share(turned, "key"), torch.ones(2, 7, dtype=torch.float64))
    plain = LayerTrace(**{**layer.__dict__, "torsion": None})
    with pytest.raises(ValueError, match="torsion"):
        turned_share(plain)
    with pytest.raises(ValueError, match="sideways"):
        turned_share(layer, "sideways")


def test_it_takes_any_precision() -> None:
    left, right = (part.float() for part in (draws(4, 8, 2), draws(4, 8, 2, seed=1)))
    found: Tensor = torsion_planes(left, right).planes
    assert found.dtype == torch.float64
