"""Run by itself, with GEOMSTATS_BACKEND set: geomstats' own curvature of two metrics at given points, as JSON.

It reads {"W", "V", "points", "sphere"} from standard input. The first metric is I + U U^T with U(x) = V tanh(W x), V
reshaped to (d, r); the second is the unit sphere in stereographic coordinates, whose curvature is 1.
"""

import json
import sys

import geomstats.backend as gs
from geomstats.geometry.euclidean import Euclidean
from geomstats.geometry.riemannian_metric import RiemannianMetric


class LowRank(RiemannianMetric):
    """I + U U^T."""

    def __init__(self, space: Euclidean, W: list, V: list) -> None:
        super().__init__(space)
        self.W, self.V, self.dim = gs.array(W), gs.array(V), space.dim

    def metric_matrix(self, base_point=None):  # type: ignore[no-untyped-def]
        hidden = gs.tanh(gs.einsum("ij,j->i", self.W, base_point))
        U = gs.reshape(gs.einsum("ij,j->i", self.V, hidden), (self.dim, -1))
        return gs.eye(self.dim) + gs.matmul(U, gs.transpose(U))


class Sphere(RiemannianMetric):
    """4 / (1 + |x|^2)^2 I."""

    def metric_matrix(self, base_point=None):  # type: ignore[no-untyped-def]
        return 4.0 / (1.0 + gs.sum(base_point**2)) ** 2 * gs.eye(len(base_point))


def curvatures(metric: RiemannianMetric, point: list) -> dict:
    x = gs.array(point)
    found = {
        "christoffels": metric.christoffels(x), "riemann": metric.covariant_riemann_tensor(x),
        "ricci": metric.ricci_tensor(x), "scalar": metric.scalar_curvature(x),
    }  # fmt: skip
    return {name: gs.to_numpy(value).tolist() for name, value in found.items()}


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    low_rank = LowRank(Euclidean(len(given["points"][0])), given["W"], given["V"])
    sphere = Sphere(Euclidean(len(given["sphere"])))
    answer = {
        "points": [curvatures(low_rank, x) for x in given["points"]],
        "sphere": curvatures(sphere, given["sphere"]),
    }
    print(json.dumps(answer))
