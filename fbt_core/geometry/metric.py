"""g = I + U U^T: a Riemannian metric of low rank, one a token. It is never made dense outside tests and drawing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.geometry.matrix_function import factorable, inverse_root_kernel, root_kernel


@dataclass(frozen=True)
class LowRankMetric:
    """A batch of metrics g = I_d + U U^T.

    ``U`` is (\\*batch, d, r); r may be 0, which is the Euclidean metric. Vectors are (\\*batch, d) and broadcast
    against the batch. With K = U^T U (r x r), every operation costs O(d r + r^3) a metric and never O(d^2).
    """

    U: Float[Tensor, "*batch dim rank"]

    @property
    def dim(self) -> int:
        """d, the dimension of the space that is measured."""
        return self.U.shape[-2]

    @property
    def rank(self) -> int:
        """r, the number of columns of U (an upper bound of the rank of U U^T)."""
        return self.U.shape[-1]

    @property
    def gram(self) -> Float[Tensor, "*batch rank rank"]:
        """K = U^T U."""
        return self.U.mT @ self.U

    @property
    def trace(self) -> Float[Tensor, "*batch"]:
        """tr K = ||U||_F^2 >= 0, the strength of the metric beyond the identity."""
        return self.U.square().sum((-2, -1))

    def project(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch rank"]:
        """U^T x."""
        return (self.U * x.unsqueeze(-1)).sum(-2)

    def _lift(self, c: Tensor) -> Tensor:
        """U c."""
        return (self.U * c.unsqueeze(-2)).sum(-1)

    def inner(self, x: Float[Tensor, "*batch dim"], y: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """x^T g y."""
        return (x * y).sum(-1) + (self.project(x) * self.project(y)).sum(-1)

    def quadratic(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """x^T g x >= ||x||^2."""
        return self.inner(x, x)

    def distance(self, x: Float[Tensor, "*batch dim"], y: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """sqrt((x - y)^T g (x - y)): the chord under this one metric, not a geodesic length."""
        return self.quadratic(x - y).sqrt()

    def push(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """A x = U U^T x, what the metric adds to the identity."""
        return self._lift(self.project(x))

    def apply(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """g x."""
        return x + self.push(x)

    def solve(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """g^{-1} x = x - U (I + K)^{-1} U^T x, by Woodbury and Cholesky."""
        if self.rank == 0:
            return x
        rhs = self.project(x).unsqueeze(-1)
        factor = self._factor()
        batch = np.broadcast_shapes(rhs.shape[:-2], factor.shape[:-2])  # torch's own imports sympy, 0.4 s
        rhs = rhs.expand(*batch, *rhs.shape[-2:])
        return x - self._lift(torch.cholesky_solve(rhs.to(factor), factor).squeeze(-1).to(x))

    def root(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """g^{1/2} x, the symmetric root: x + U f(K) U^T x with f(l) = 1 / (1 + sqrt(1 + l))."""
        return x + self._lift((root_kernel(self.gram) @ self.project(x).unsqueeze(-1)).squeeze(-1))

    def inverse_root(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """g^{-1/2} x: x - U f(K) U^T x with f(l) = 1 / (sqrt(1 + l) (1 + sqrt(1 + l)))."""
        return x - self._lift((inverse_root_kernel(self.gram) @ self.project(x).unsqueeze(-1)).squeeze(-1))

    def logdet(self) -> Float[Tensor, "*batch"]:
        """log det g = log det (I + K) >= 0."""
        if self.rank == 0:
            return self.U.new_zeros(self.U.shape[:-2])
        return 2 * self._factor().diagonal(dim1=-2, dim2=-1).log().sum(-1).to(self.U)

    def frame(self) -> tuple[Float[Tensor, "*batch rank"], Float[Tensor, "*batch dim rank"]]:
        """The top min(d, r) eigenvalues of g, descending and >= 1, and their orthonormal eigenvectors.

        All other eigenvalues of g are 1. When r > d the surplus is cut; a direction in which U vanishes has eigenvalue
        1 and some unit vector that completes the frame.
        """
        left, singular, _ = torch.linalg.svd(factorable(self.U), full_matrices=False)
        return (1 + singular.square()).to(self.U), left.to(self.U)

    def eigenvalues(self) -> Float[Tensor, "*batch dim"]:
        """All d eigenvalues of g, descending, each >= 1."""
        if self.rank == 0:
            return self.U.new_ones(self.U.shape[:-1])
        top = (1 + torch.linalg.svdvals(factorable(self.U)).square()).to(self.U)
        return torch.nn.functional.pad(top, (0, self.dim - top.shape[-1]), value=1.0)

    def semi_axes(self, dual: bool = False) -> Float[Tensor, "*batch dim"]:
        """Semi-axes of the unit ball {v: v^T g v <= 1}: lambda^{-1/2}, in the order of ``eigenvalues``.

        ``dual`` gives those of {v: v^T g^{-1} v <= 1}: lambda^{1/2}, long where attention is sensitive.
        """
        return self.eigenvalues().pow(0.5 if dual else -0.5)

    def scaled(self, strength: float) -> LowRankMetric:
        """The metric of U <- strength U; 1 leaves it as trained, 0 is the identity."""
        return LowRankMetric(self.U * strength)

    def overlap(self, other: LowRankMetric) -> Float[Tensor, "*batch"]:
        """<A, A'> = tr(A A') = ||U^T U'||_F^2 >= 0, of the parts A = U U^T beyond the identity."""
        return (self.U.mT @ other.U).square().sum((-2, -1))

    def total_overlap(self, weight: Float[Tensor, "*batch token"]) -> Float[Tensor, "*batch"]:
        """||sum_t weight_t A_t||_F^2 over the last batch axis: all pairs at once, without a pairwise tensor."""
        scaled = (self.U * weight[..., None, None]).transpose(-3, -2).flatten(-2)
        return (scaled @ self.U.transpose(-3, -2).flatten(-2).mT).square().sum((-2, -1))

    def __getitem__(self, index: slice) -> LowRankMetric:
        """The metrics of some tokens, along the last batch axis."""
        return LowRankMetric(self.U[..., index, :, :])

    def heads(self, some: slice) -> LowRankMetric:
        """Of metrics (\\*batch, head, token): those of some heads."""
        return LowRankMetric(self.U[..., some, :, :, :])

    def sequence(self, index: int) -> LowRankMetric:
        """Of metrics (batch, head, token): those of one sequence, for reading: no gradient flows through them."""
        return LowRankMetric(self.U[index].detach())

    def block_diagonal(self) -> LowRankMetric:
        """From one metric a head, (\\*batch, head, d, r), to the metric of their direct sum, (\\*batch, H d, H r).

        This is the metric G = I_D + blockdiag_h(U_h U_h^T) of the residual stream.
        """
        *batch, heads, dim, rank = self.U.shape
        blocks = self.U.new_zeros(*batch, heads, dim, heads, rank)
        index = torch.arange(heads, device=self.U.device)
        blocks[..., index, :, index, :] = self.U.movedim(-3, 0)
        return LowRankMetric(blocks.reshape(*batch, heads * dim, heads * rank))

    def dense(self) -> Float[Tensor, "*batch dim dim"]:
        """g as a matrix: for tests and for drawing only."""
        return torch.eye(self.dim, dtype=self.U.dtype, device=self.U.device) + self.U @ self.U.mT

    def _factor(self) -> Tensor:
        """The Cholesky factor of I + K, in float32 at least."""
        gram = factorable(self.gram)
        return torch.linalg.cholesky(gram + torch.eye(self.rank, dtype=gram.dtype, device=gram.device))


@dataclass(frozen=True)
class DictionaryMetric(LowRankMetric):
    """Metrics that share their atoms: A = B diag(w) B^T, U = B diag(sqrt w).

    ``atoms`` is B, (head, d, m), one dictionary a head; ``weights`` is (\\*batch, head, token, m), none negative.
    Whatever touches U goes through B instead, as one product for all tokens of a head.
    """

    atoms: Float[Tensor, "head dim atom"]
    weights: Float[Tensor, "*batch atom"]

    @classmethod
    def of(cls, atoms: Tensor, weights: Tensor) -> DictionaryMetric:
        """The metrics with U filled in."""
        return cls(atoms[:, None] * weights.sqrt().unsqueeze(-2), atoms, weights)

    @property
    def gram(self) -> Tensor:
        root = self.weights.sqrt()
        return root.unsqueeze(-1) * (self.atoms.mT @ self.atoms)[:, None] * root.unsqueeze(-2)

    @property
    def trace(self) -> Tensor:
        return (self.weights * self.atoms.square().sum(-2)[:, None]).sum(-1)

    def project(self, x: Tensor) -> Tensor:
        return (x @ self.atoms) * self.weights.sqrt()

    def _lift(self, c: Tensor) -> Tensor:
        return (c * self.weights.sqrt()) @ self.atoms.mT

    def push(self, x: Tensor) -> Tensor:
        return ((x @ self.atoms) * self.weights) @ self.atoms.mT  # without sqrt: its gradient at w = 0 is infinite

    def scaled(self, strength: float) -> DictionaryMetric:
        return DictionaryMetric.of(self.atoms, self.weights * strength**2)

    def overlap(self, other: LowRankMetric) -> Tensor:
        if not isinstance(other, DictionaryMetric) or other.atoms is not self.atoms:
            return super().overlap(other)
        return ((self.weights @ self._products) * other.weights).sum(-1)

    def total_overlap(self, weight: Tensor) -> Tensor:
        total = (self.weights * weight.unsqueeze(-1)).sum(-2, keepdim=True)
        return ((total @ self._products) * total).sum((-2, -1))

    def __getitem__(self, index: slice) -> DictionaryMetric:
        return DictionaryMetric(self.U[..., index, :, :], self.atoms, self.weights[..., index, :])

    def heads(self, some: slice) -> DictionaryMetric:
        return DictionaryMetric(self.U[..., some, :, :, :], self.atoms[some], self.weights[..., some, :, :])

    def sequence(self, index: int) -> DictionaryMetric:
        return DictionaryMetric(self.U[index].detach(), self.atoms.detach(), self.weights[index].detach())

    @property
    def _products(self) -> Tensor:
        """<b_a b_a^T, b_b b_b^T> = (b_a . b_b)^2."""
        return (self.atoms.mT @ self.atoms).square()
