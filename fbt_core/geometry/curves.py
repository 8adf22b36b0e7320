"""Polynomial curves from a point to another, in the slice of a metric function, and their lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import legendre
from torch import Tensor
from torch.func import vmap

from fbt_core.geometry.function import MetricFunction


@dataclass(frozen=True)
class Curves:
    """Curves x + E (t delta + sum_k b_k(t) z_k), all of one degree n; ``z`` is (curve, n, d), n = 0: straight."""

    x: Float[Tensor, "curve space"]
    delta: Float[Tensor, "curve dim"]
    z: Float[Tensor, "curve degree dim"]

    def __getitem__(self, index: Tensor | slice) -> Curves:
        return Curves(self.x[index], self.delta[index], self.z[index])

    def raised(self, degree: int) -> Curves:
        """The same curves as members of a higher degree."""
        return Curves(self.x, self.delta, torch.nn.functional.pad(self.z, (0, 0, 0, degree - self.z.shape[1])))

    def at(self, g: MetricFunction, times: Float[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Points (curve, n, D) and velocities (curve, n, d)."""
        position, velocity = basis(self.z.shape[1], times)
        moved = times[:, None] * self.delta[:, None] + position @ self.z
        along = self.delta[:, None] + velocity @ self.z
        return self.x[:, None] + vmap(vmap(g.embed))(moved), along


def basis(degree: int, times: Float[Tensor, " n"]) -> tuple[Float[Tensor, "n degree"], Float[Tensor, "n degree"]]:
    """b_k and p_k = b_k' at the times, k = 1 ... degree; p_k = sqrt(2k + 1) P_k(2t - 1)."""
    k = np.arange(1, degree + 1)
    P = legendre.legvander(2 * times.cpu().numpy() - 1, degree + 1)
    position = (P[:, 2:] - P[:, :-2]) / (2 * np.sqrt(2 * k + 1))
    velocity = P[:, 1:-1] * np.sqrt(2 * k + 1)
    return torch.from_numpy(position).to(times), torch.from_numpy(velocity).to(times)


def gauss(count: int, like: Tensor) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Nodes and weights of Gauss's rule on [0, 1]."""
    nodes, weights = legendre.leggauss(count)
    return torch.from_numpy((nodes + 1) / 2).to(like), torch.from_numpy(weights / 2).to(like)


def lengths(g: MetricFunction, curves: Curves, nodes: int) -> Float[Tensor, " curve"]:
    """int sqrt(g(c', c')) dt by Gauss's rule."""
    times, weights = gauss(nodes, curves.x)
    points, velocities = curves.at(g, times)
    return vmap(vmap(g.inner))(points, velocities, velocities).sqrt() @ weights


def coordinates(g: MetricFunction, moves: Float[Tensor, "*n space"]) -> Float[Tensor, "*n dim"]:
    """The part of each move along the slice, in the slice's coordinates: E^+ move."""
    return moves if g.inclusion is None else moves @ torch.linalg.pinv(g.inclusion).mT
