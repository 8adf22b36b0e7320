"""Theorem A: one layer of attention by content contracts the spread of its tokens, and near collapse it cubes it.

For X' = A(X) X W with A_ij = softmax_j s(x_i, x_j), and M = sup ||d_x d_y s||_2 over the tokens' convex hull,

    diam' <= tanh(M diam^2 / 4) ||W||_2 diam <= 1/4 M ||W||_2 diam^3.

``docs/mathematics.md``, "Rank collapse", has the proof. Nothing in it asks for a Gram matrix, or for one metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor

Points = Float64[Tensor, "point width"]
Pairs = tuple[Float64[Tensor, "pair width"], Float64[Tensor, "pair width"]]
PairScore = Callable[[Tensor, Tensor], Tensor]
"""s(x, y) of two vectors (width,), a scalar, twice differentiable where it is asked."""

PAIRS = 48
"""Pairs of points of the hull at which M is sampled by default."""


def diameter(X: Points) -> float:
    """max_ij ||x_i - x_j||, Euclidean, from the differences themselves."""
    return float(torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist").max())


def bound(M: float, spread: float) -> float:
    """tanh(M diam^2 / 4) in [0, 1]: what multiplies ||W|| diam in Theorem A."""
    return math.tanh(M * spread**2 / 4)


def mixed_norms(score: PairScore, x: Points, y: Points) -> Float64[Tensor, " point"]:
    """||d_x d_y s||_2 at pairs (x_n, y_n), by automatic differentiation: width^2 numbers a pair."""
    mixed = torch.func.jacrev(torch.func.grad(score, argnums=0), argnums=1)
    return torch.linalg.matrix_norm(torch.func.vmap(mixed)(x, y), 2)


def hull_pairs(X: Points, generator: torch.Generator, pairs: int = PAIRS) -> Pairs:
    """Pairs of points of the tokens' convex hull: a third each of two tokens, two points of one chord, two mixtures.

    A mixture has Dirichlet weights on all tokens, concentrated (1 / L each), so that few tokens make it.
    """
    L, third = len(X), max(pairs // 3, 1)

    def tokens() -> Tensor:
        return X[torch.randint(L, (third,), generator=generator)]

    def mixtures() -> Tensor:
        # u^L is the Gamma(1 / L) law near 0, where nearly all of its mass is
        weights = torch.rand(third, L, generator=generator, dtype=torch.float64) ** L
        return (weights / weights.sum(-1, keepdim=True)).to(X) @ X

    a, b = tokens(), tokens()
    share = torch.rand(2, third, 1, generator=generator, dtype=torch.float64).to(X)
    chord = a + share * (b - a)
    return torch.cat([tokens(), chord[0], mixtures()]), torch.cat([tokens(), chord[1], mixtures()])


def sampled_norm(score: PairScore, X: Points, generator: torch.Generator, pairs: int = PAIRS) -> float:
    """The largest ||d_x d_y s||_2 at ``hull_pairs``: an estimate of M from below. NaN where one is not finite."""
    found = mixed_norms(score, *hull_pairs(X, generator, pairs)).detach()
    return float(found.max()) if found.isfinite().all() else math.nan


# --- trying to violate it ------------------------------------------------------------------------------------------

SIZES = ((2, 1), (2, 2), (3, 1), (3, 2), (4, 3), (5, 2))
"""(L, width) of the attempts: few tokens, since the proof's worst case has two."""

REACH = (1e-2, 50.0)
"""M diam^2 stays between these: below them the rounding of float64 is what an ascent would climb."""


def attack(family: str, seed: int = 0, tries: int = 32, steps: int = 150) -> float:
    """The largest diam' / bound that could be found; above 1 it would be a counterexample to Theorem A.

    Gradient ascent on the logarithm of that ratio from many random starts, over tokens, W and scores, with M exact:

    - ``bilinear``: s = x^T B y, whose M is ||B||_2;
    - ``any``: any matrix of scores between the tokens, with M the largest
      |s_ij - s_il - s_kj + s_kl| / (||x_i - x_k|| ||x_j - x_l||). The proof asks no more of a score.

    Tokens are scaled to diameter 1, which changes nothing, and scores to an M that is searched as well. float64;
    about a second; ``KeyError`` for another family.
    """
    worst, generator = 0.0, torch.Generator().manual_seed(seed)
    for length, width in SIZES:
        sizes = {"X": (length, width), "W": (width, width), "B": (width, width), "S": (length, length), "M": ()}
        free = {
            name: torch.randn(tries, *size, generator=generator, dtype=torch.float64).requires_grad_()
            for name, size in sizes.items()
        }
        optimiser = torch.optim.Adam(free.values(), 0.05)
        for _ in range(steps):
            ratios = _ratios(free, FAMILIES[family])
            worst = max(worst, float(ratios.detach().max()))
            optimiser.zero_grad()
            (-ratios.clamp_min(1e-12).log().sum()).backward()  # 0 where saturated rows all pick one key
            optimiser.step()
    return worst


def _ratios(free: dict[str, Tensor], family: Callable[[dict[str, Tensor], Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """diam' over tanh(M diam^2 / 4) ||W|| diam of every start, (start,)."""
    X = free["X"] - free["X"].mean(-2, keepdim=True)
    X = X / _distances(X).amax((-2, -1), keepdim=True)
    S, M = family(free, X)
    wanted = (math.log(REACH[0]) + math.log(REACH[1] / REACH[0]) * free["M"].sigmoid()).exp()
    A = (S * (wanted / M)[:, None, None]).softmax(-1)
    after = _distances(A @ X @ free["W"]).amax((-2, -1))
    return after / ((wanted / 4).tanh() * torch.linalg.matrix_norm(free["W"], 2))


def _bilinear(free: dict[str, Tensor], X: Tensor) -> tuple[Tensor, Tensor]:
    return X @ free["B"] @ X.mT, torch.linalg.matrix_norm(free["B"], 2)


def _any(free: dict[str, Tensor], X: Tensor) -> tuple[Tensor, Tensor]:
    S, apart = free["S"], _distances(X)
    rows = S[:, :, None] - S[:, None]  # start i k j: s_ij - s_kj
    mixed = (rows[..., :, None] - rows[..., None, :]).abs()  # start i k j l
    scale = apart[:, :, :, None, None] * apart[:, None, None]
    return S, torch.where(scale > 0, mixed / torch.where(scale > 0, scale, 1.0), 0.0).flatten(1).amax(-1)


FAMILIES = {"bilinear": _bilinear, "any": _any}
"""Scores between the tokens, and their exact M."""


def _distances(X: Tensor) -> Tensor:
    """||x_i - x_j||, with the gradient 0 at 0."""
    squares = (X[..., :, None, :] - X[..., None, :, :]).square().sum(-1)
    return torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)


def blind_spot(c: float = 1.0) -> dict[str, float]:
    """Why M at the tokens alone is not enough: tokens -1 and 1, and s(x, y) = f(x) f(y), f(x) = c (3 x - x^3) / 2.

    f' vanishes at both tokens, so that M there is 0 and would promise collapse in one layer. The true contraction is
    tanh(c^2), and the bound with M over the hull, (3 c / 2)^2, is tanh(9 c^2 / 4).
    """
    X = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)

    def f(x: Tensor) -> Tensor:
        return c * (3 * x - x**3).sum(-1) / 2

    def s(x: Tensor, y: Tensor) -> Tensor:
        return f(x) * f(y)

    A = (f(X)[:, None] * f(X)[None]).softmax(-1)
    i, j = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    grid = torch.linspace(-1, 1, 21, dtype=torch.float64)
    at_tokens = float(mixed_norms(s, X[i], X[j]).max())
    over_hull = float(mixed_norms(s, *(y.reshape(-1, 1) for y in torch.meshgrid(grid, grid, indexing="ij"))).max())
    return {
        "M_tokens": at_tokens,
        "M_hull": over_hull,
        "contraction": diameter(A @ X) / 2,
        "bound": bound(over_hull, 2.0),
    }
