"""The rotation planes of the torsion proxy T = L R^T - R L^T, and how much of the output its Cayley map turns.

T is skew of rank at most 2 r': it has r' invariant planes, orthogonal to each other, with T e_1 = sigma e_2 and
T e_2 = -sigma e_1. C(T) turns each by 2 atan(sigma / 2), from e_1 towards e_2, and leaves the rest alone. A plane's
pair is fixed up to a turn within the plane, so a vector of it means nothing. Nor has the angle a sign of its own: for
d > 2 exchanging e_1 and e_2 changes it, and nothing prefers an order. Only two maps in one plane can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from fbt_core.attention import attend
from fbt_core.geometry.transport import cayley
from fbt_core.trace import LayerTrace


@dataclass(frozen=True)
class TorsionPlanes:
    """Planes in descending order of angle. Where an angle is 0 its plane is arbitrary (orthogonal to the others)."""

    planes: Float64[
        Tensor, "*batch plane 2 dim"
    ]  # orthonormal pairs, ordered so that the turn goes from first to second
    strengths: Float64[Tensor, "*batch plane"]  # sigma >= 0, the singular values of T, each of which T has twice
    angles: Float64[Tensor, "*batch plane"]  # 2 atan(sigma / 2), radians in [0, pi)


def torsion_planes(
    left: Float[Tensor, "*batch dim torsion"], right: Float[Tensor, "*batch dim torsion"]
) -> TorsionPlanes:
    """The min(r', floor(d/2)) planes of T = L R^T - R L^T, at a cost of O(d r'^2), in float64 (item 7)."""
    left, right = left.double(), right.double()
    frame, _ = torch.linalg.qr(torch.cat([left, right], -1))  # of a space that holds T's range
    count = frame.shape[-1] // 2
    a, b = frame.mT @ left, frame.mT @ right
    small = a @ b.mT - b @ a.mT
    # the Hermitian -i T has T's planes: T u = i sigma u for u = (e_1 - i e_2) / sqrt(2), and -sigma for its conjugate
    values, vectors = torch.linalg.eigh(-1j * small)
    top = vectors.flip(-1)[..., :count]
    pairs = torch.stack([top.real, -top.imag], -1).flatten(-2)  # e_1, e_2 of the first plane, then the second's ...
    exact, corner = torch.linalg.qr(pairs)  # changes nothing but the planes of sigma = 0, where the pair is no pair
    signs = torch.where(corner.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(exact)
    planes = (frame @ (exact * signs[..., None, :])).mT.unflatten(-2, (count, 2))
    strengths = values.flip(-1)[..., :count].clamp_min(0)
    return TorsionPlanes(planes, strengths, 2 * (strengths / 2).atan())


def plane_share(
    planes: Float[Tensor, "*batch plane 2 dim"], v: Float[Tensor, "*batch dim"]
) -> Float64[Tensor, "*batch plane"]:
    """||part of v in the plane||^2 / ||v||^2, in [0, 1]: how much of a vector lies where the map turns; 0 for v = 0."""
    v = v.double()
    parts = (planes.double() @ v[..., None, :, None]).squeeze(-1).square().sum(-1)
    size = v.square().sum(-1, keepdim=True)
    return torch.where(size > 0, parts / torch.where(size > 0, size, 1), 0)


def turned_share(
    layer: LayerTrace, transport: str = "frame", metric_compatible: bool = False
) -> Float64[Tensor, "head token"]:
    """||y - y'|| / (||y|| + ||y'||) in [0, 1] of each head's value output at each token, y' the one without any C.

    y is what the layer computes, y_i = C_i^T sum_j a_ij C_j v_j, with the attention a of its own score, before W_O;
    with ``metric_compatible`` both are taken between g_j^{1/2} and g_i^{-1/2}. 0: the torsion changes nothing; 1: y'
    turned to its opposite. Zero for transport "none" and where both are 0. In the trace's own precision. Give
    ``transport`` and ``metric_compatible`` as the model's config has them. Raises ``ValueError`` for a layer without
    torsion, or of another transport (item 7).
    """
    if layer.torsion is None:
        raise ValueError("got a layer without torsion, expected one of a model with a TorsionNet")
    if transport not in ("none", "key", "frame"):
        raise ValueError(f"got transport {transport!r}, expected none, key or frame")
    f = layer.given
    v = f.metric.root(f.v) if metric_compatible else f.v
    plain = turned = attend(f.with_values(v), layer.score)
    if transport != "none":
        turned = attend(f.with_values(cayley(*layer.torsion, v)), layer.score)
    if transport == "frame":
        turned = cayley(*layer.torsion, turned, inverse=True)
    if metric_compatible:
        plain, turned = f.metric.inverse_root(plain), f.metric.inverse_root(turned)
    plain, turned = plain.double(), turned.double()
    size = plain.norm(dim=-1) + turned.norm(dim=-1)
    return torch.where(size > 0, (turned - plain).norm(dim=-1) / torch.where(size > 0, size, 1), 0)
