"""The pure stack X <- A(X) X W_V, one head, without residual, feed-forward or output projection: item 11.

With QK-norm (||q||^2 = ||k||^2 = d / 2), and with MetricNet and TorsionNet reading unit-RMS tokens, a layer commutes
with a scaling of all tokens. The gate of item 3 is left out, so that q and k do not depend on the metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fbt_core.attention.scores import Factors
from fbt_core.config import FiberBundleConfig
from fbt_core.experiments.arms import Arm
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.transport import cayley
from fbt_core.model.initialise import initialise, named_generator
from fbt_core.model.metric_net import FullMetricNet
from fbt_core.model.torsion_net import TorsionNet

Tokens = Float[Tensor, "batch token width"]

UNITS = ("tau/L", "tau/R^2")
"""What a strength multiplies to give Ubar^2 = max_t ||U_t||_2^2; R = max_ij ||q_i - k_j||."""

HELD = ("layer", "first")
"""Whose R: each layer's own, so that Ubar grows where tied tokens come together; or the first layer's, for all."""

TRANSPORTS: dict[str, tuple[bool, bool]] = {
    "none": (False, False),
    "key": (True, False),
    "query": (False, True),
    "frame": (True, True),
}
"""y_i = C(T_i)^T sum_j a_ij C(T_j) v_j: whether the right rotation acts, and whether the left one does."""


@dataclass(frozen=True)
class Shape:
    """All that makes a stack, but its arm."""

    length: int  # L, tokens
    width: int  # d, of tokens, queries, keys and values
    rank: int  # r, columns of U
    layers: int
    strength: float
    unit: str
    tied: bool  # W_K = W_Q
    held: str = "layer"
    transport: str = "none"
    omega: float = 0.0  # Omega_j = omega ||U_j||_F^2, subtracted from column j; the paper starts at 0.0486
    causal: bool = False

    def config(self) -> FiberBundleConfig:
        """What MetricNet and TorsionNet read. Without a ceiling: the strength is set, and not bounded."""
        return FiberBundleConfig(
            1, width=self.width, layers=self.layers, heads=1, rank=self.rank, kappa_max=1e9, torsion_rank=1
        )


class PureLayer(nn.Module):
    """One layer of one arm."""

    def __init__(self, shape: Shape, arm: Arm) -> None:
        super().__init__()
        self.shape, self.arm = shape, arm
        width, config = shape.width, shape.config()
        self.query, self.value = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        if not shape.tied:
            self.key = nn.Linear(width, width, bias=False)
        if arm.metric in ("content", "shuffled"):
            self.metric = FullMetricNet(config)
        if arm.metric in ("one", "position"):
            self.U = nn.Parameter(torch.empty(1 if arm.metric == "one" else shape.length, width, shape.rank))
        if arm.temperature == "trained":
            self.log_tau = nn.Parameter(torch.empty(1))
        if shape.transport != "none":
            self.torsion = TorsionNet(config)
        if arm.metric == "shuffled":
            self.register_buffer("order", torch.arange(shape.length))  # whose U each token gets

    def queries_and_keys(self, x: Float[Tensor, "*token width"]) -> tuple[Tensor, Tensor]:
        """q and k of tokens, with QK-norm where the arm has it."""
        q, k = self.query(x), (self.query if self.shape.tied else self.key)(x)
        if not self.arm.normalised:
            return q, k
        size = (self.shape.width / 2) ** 0.5
        return F.normalize(q, dim=-1, eps=0.0) * size, F.normalize(k, dim=-1, eps=0.0) * size

    def direction(self, x: Tokens) -> Float[Tensor, "#batch token width rank"]:
        """U_t before its strength is set; of rank 0 in an arm without a metric."""
        if self.arm.metric == "none":
            return x.new_zeros(*x.shape, 0)
        if self.arm.metric == "one":
            return self.U.expand(x.shape[-2], -1, -1).unsqueeze(0)
        if self.arm.metric == "position":
            return self.U.unsqueeze(0)
        U = self.metric(unit_rms(x), 1.0).raw.U[:, 0]
        return U[:, self.order] if self.arm.metric == "shuffled" else U

    def tau(self, x: Tensor) -> Float[Tensor, " 1"]:
        """d, or what was trained."""
        return self.log_tau.exp() if self.arm.temperature == "trained" else x.new_full((1,), float(self.shape.width))

    def factors(self, x: Tokens, radius: Tensor | None = None) -> Factors:
        """What this layer attends with. ``radius`` stands for this layer's own R^2 where it is given."""
        q, k = self.queries_and_keys(x)
        U = self.direction(x)
        with torch.no_grad():  # the strength is set, and not learned
            gain = self.gain(U, squared_radius(q, k) if radius is None else radius)
        U = U * gain[:, None, None, None]
        if self.arm.score != "euclidean":
            middle = k.mean(-2, keepdim=True)  # only differences matter, and those of centred vectors keep their digits
            q, k = q - middle, k - middle
        metric = LowRankMetric(U[:, None].expand(len(x), -1, -1, -1, -1))
        omega = self.shape.omega * metric.trace
        return Factors(
            q[:, None], k[:, None], self.value(x)[:, None], metric, self.tau(x), omega, 1.0, self.shape.causal
        )

    def gain(self, U: Tensor, radius: Tensor) -> Float[Tensor, " batch"]:
        """What U is multiplied by, so that max_t ||U_t||_2^2 is the strength times its unit, in every sequence.

        The unit's tau is d, also where another one is trained: that sharpens the metric's part of a score as well.
        """
        s = self.shape
        if U.shape[-1] == 0 or s.strength == 0:
            return torch.zeros_like(radius)
        least = s.width * torch.finfo(U.dtype).eps ** 2  # below it a radius is rounding, and may be 0
        wanted = s.strength * s.width / (s.length if s.unit == "tau/L" else radius.clamp_min(least))
        return torch.as_tensor(wanted).to(U).sqrt() / spectral_norms(U).amax(-1)

    def move(self, x: Tokens, f: Factors, A: Float[Tensor, "batch head token token"]) -> Tokens:
        """A X W_V, with the transport if there is one."""
        before, after = TRANSPORTS[self.shape.transport]
        if not (before or after):
            return (A @ f.v)[:, 0]
        torsion = self.torsion(unit_rms(x))
        out = A @ (cayley(*torsion, f.v) if before else f.v)
        return (cayley(*torsion, out, inverse=True) if after else out)[:, 0]


class PureStack(nn.Module):
    """The layers of one arm, float64, drawn from ``seed``: parameters of the same name are the same in every arm."""

    def __init__(self, shape: Shape, arm: Arm, seed: int) -> None:
        super().__init__()
        self.config = shape.config()
        self.layers = nn.ModuleList(PureLayer(shape, arm) for _ in range(shape.layers))
        initialise(self, seed)
        self.double()
        for number, layer in enumerate(self.layers):
            for linear in (layer.query, layer.value, *([] if shape.tied else [layer.key])):
                linear.weight.data = orthogonal(linear.weight.data)
            if arm.metric == "shuffled":
                layer.order = torch.randperm(shape.length, generator=named_generator(seed, f"order.{number}"))
            if arm.temperature == "trained":
                layer.log_tau.data.fill_(math.log(shape.width))


def first_tokens(shape: Shape, seed: int) -> Tokens:
    """X_0: independent normal entries of variance 1, one sequence."""
    draw = torch.randn(shape.length, shape.width, generator=named_generator(seed, "tokens"), dtype=torch.float64)
    return draw.unsqueeze(0)


def orthogonal(weight: Float[Tensor, "width width"]) -> Float[Tensor, "width width"]:
    """The orthogonal factor of a matrix with normal entries, signs such that it is uniform over all (Mezzadri 2007)."""
    q, r = torch.linalg.qr(weight)
    return q * r.diagonal().sign()


def unit_rms(x: Float[Tensor, "*token width"]) -> Float[Tensor, "*token width"]:
    """x over its root mean square, without an epsilon: undefined at 0."""
    return x * x.square().mean(-1, keepdim=True).rsqrt()


def squared_radius(q: Tokens, k: Tokens) -> Float[Tensor, " batch"]:
    """R^2 = max_ij ||q_i - k_j||^2, from the differences themselves: a product would lose the digits of near pairs."""
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist").square().amax((-2, -1))


def spectral_norms(U: Float[Tensor, "*batch token width rank"]) -> Float[Tensor, "*batch token"]:
    """||U_t||_2, from the r x r Gram matrices."""
    return torch.linalg.eigvalsh(U.mT @ U)[..., -1].clamp_min(0).sqrt()
