"""Singular values by Gram matrices and by Lanczos against the decomposition, and against mpmath where float64 ends."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

from fbt_core.measures import rank, spectra
from fbt_core.measures.attention import spectral_gap
from fbt_core.measures.spectra import by_gram, entropy_bound, singular_values, two_largest


def with_values(values: np.ndarray, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """A matrix with these singular values, turned at random."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(rows, len(values))))[0]
    right = np.linalg.qr(rng.normal(size=(columns, len(values))))[0]
    return (left * values) @ right.T


SPECTRA: dict[str, Callable[[int], np.ndarray]] = {
    "flat": lambda n: np.ones(n),
    "slow": lambda n: np.linspace(1, 0.1, n),
    "condition 1e3": lambda n: np.logspace(0, -3, n),
    "condition 1e6": lambda n: np.logspace(0, -6, n),
    "condition 1e12": lambda n: np.logspace(0, -12, n),
    "one spike": lambda n: np.r_[1e4, np.linspace(1, 0.1, n - 1)],
    "few": lambda n: np.r_[np.linspace(2, 1, 5), np.zeros(n - 5)],
    "in pairs": lambda n: np.repeat(np.logspace(0, -2, n // 2), 2),
}


@pytest.fixture()
def decompositions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes that were decomposed, in order."""
    found, svd = [], np.linalg.svd
    monkeypatch.setattr(np.linalg, "svd", lambda X, **more: found.append(X.shape) or svd(X, **more))
    return found


@pytest.mark.parametrize("shape", [(200, 140), (140, 200)])
@pytest.mark.parametrize("name", SPECTRA)
def test_every_value_is_within_its_bound(name: str, shape: tuple[int, int]) -> None:
    exact = SPECTRA[name](140)
    values, off = by_gram(with_values(exact, *shape))
    own = 140 * spectra.EPS * exact[0]  # by which rounding moved the matrix that was built
    assert (np.abs(values - exact) <= off + own).all()
    assert off[0] < 1e-9 * values[0] and (np.diff(values) <= 0).all()


@pytest.mark.parametrize("name", SPECTRA)
def test_ranks_are_those_of_the_decomposition(name: str) -> None:
    X = with_values(SPECTRA[name](140), 160, 140)
    exact = np.linalg.svd(X, compute_uv=False)
    for eps in (1e-2, 1e-5, 1e-9):
        s = rank.spectrum(X, eps)
        assert rank.numerical_rank(s, eps) == rank.numerical_rank(exact, eps)
    assert rank.effective_rank(s) == pytest.approx(rank.effective_rank(exact), rel=spectra.ENTROPY)
    assert rank.stable_rank(s) == pytest.approx(rank.stable_rank(exact), rel=1e-10)
    assert rank.participation_ratio(s) == pytest.approx(rank.participation_ratio(exact), rel=1e-10)


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_of_the_entropy_holds(name: str) -> None:
    X = with_values(SPECTRA[name](140), 160, 140)
    values, off = by_gram(X)
    exact = np.linalg.svd(X, compute_uv=False)
    moved = abs(np.log(rank.effective_rank(values) / rank.effective_rank(exact)))
    assert moved <= entropy_bound(values, off) + 1e-13


def test_the_bound_of_the_entropy_holds_for_any_error_within_the_bounds() -> None:
    """Not for the errors that happen to occur, but for the largest ones, either way."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = np.sort(rng.uniform(size=30) ** rng.integers(1, 12))[::-1]
        off = values[0] * 10.0 ** rng.uniform(-9, -2, size=30)
        off[0] = 0  # values are in proportion to the largest
        moved = np.clip(values + off * rng.choice([-1.0, 1.0], size=30), 0, values[0])
        change = abs(np.log(rank.effective_rank(moved) / rank.effective_rank(values)))
        assert change <= entropy_bound(values, off)


@pytest.mark.parametrize(
    ("name", "eps", "expected"),
    [("condition 1e3", None, 0), ("one spike", None, 0), ("few", None, 1), ("condition 1e12", None, 1),
     ("condition 1e3", 1e-2, 0), ("condition 1e3", 1e-9, 0), ("flat", 1.0, 1)],
)  # fmt: skip
def test_the_decomposition_is_taken_where_digits_are_lost_and_only_there(
    name: str, eps: float | None, expected: int, decompositions: list[tuple[int, ...]]
) -> None:
    singular_values(with_values(SPECTRA[name](140), 160, 140), eps)
    assert len(decompositions) == expected


def test_small_empty_zero_and_extreme_matrices(decompositions: list[tuple[int, ...]]) -> None:
    assert singular_values(np.zeros((0, 7))).shape == (0,) and not decompositions
    assert len(singular_values(np.eye(spectra.DENSE))) == spectra.DENSE and len(decompositions) == 1
    assert not singular_values(np.zeros((150, 140))).any()
    X = with_values(SPECTRA["slow"](140), 150, 140)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(singular_values(scale * X), scale * singular_values(X), rtol=1e-12)
    assert len(decompositions) == 1


def test_what_is_not_finite_is_refused() -> None:
    X = np.ones((150, 140))
    X[3, 4] = np.nan
    with pytest.raises(np.linalg.LinAlgError):
        singular_values(X)


def test_the_two_ways_against_fifty_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectra, "DENSE", 2)
    X = with_values(np.logspace(0, -5, 12), 14, 12)
    with mpmath.workdps(50):
        exact = np.array([float(value) for value in mpmath.svd_r(mpmath.matrix(X.tolist()), compute_uv=False)])
    values, off = by_gram(X)
    assert (np.abs(values - exact) <= off).all() and np.abs(values - exact).max() > 0
    np.testing.assert_allclose(two_largest(X), exact[:2], rtol=1e-10)


def maps(length: int) -> dict[str, torch.Tensor]:
    """Attention maps of every kind: rows sum to 1."""
    torch.manual_seed(0)
    future = torch.full((length, length), -torch.inf).triu(1).double()
    noise, i = torch.randn(length, length).double(), torch.arange(length)
    uniform = torch.full((length, length), 1 / length).double()
    return {
        "causal": (noise + future).softmax(-1),
        "sharp": (8 * noise + future).softmax(-1),
        "everywhere": noise.softmax(-1),
        "itself": torch.eye(length).double(),
        "next": torch.eye(length).double().roll(1, 0),
        "near": (-0.1 * (i[:, None] - i).abs() + future).softmax(-1),
        "nearly one": uniform + 1e-7 * torch.eye(length).double(),
        "hardly more": uniform + 1e-11 * torch.eye(length).double(),
    }


@pytest.mark.parametrize("name", maps(3))
def test_the_gap_of_a_map_is_that_of_the_decomposition(name: str) -> None:
    """``hardly more`` has 1e-11 of the first value, of which float64 leaves five digits to any way."""
    A = maps(spectra.DENSE + 40)[name]
    exact = torch.linalg.svdvals(A)
    assert spectral_gap(A) == pytest.approx(float(exact[0] / exact[1]), rel=1e-3 if name == "hardly more" else 1e-8)
    assert spectral_gap(A) == spectral_gap(A)


def test_a_map_of_one_direction_has_no_second_value() -> None:
    length = spectra.DENSE + 40
    for row in (torch.full((length,), 1 / length), torch.eye(length)[0]):
        assert spectral_gap(row.double().expand(length, length)) == float("inf")


def test_what_lanczos_cannot_do_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.sparse.linalg

    X = with_values(SPECTRA["slow"](140), 150, 140)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(two_largest(scale * X), scale * singular_values(X)[:2], rtol=1e-10)
    assert two_largest(0 * X) == (0.0, 0.0)
    with pytest.raises(np.linalg.LinAlgError):
        two_largest(np.where(X == X.max(), np.nan, X))

    def gives_up(*_: object, **__: object) -> None:
        raise scipy.sparse.linalg.ArpackNoConvergence("no", np.zeros(0), np.zeros(0))

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", gives_up)
    np.testing.assert_allclose(two_largest(X), singular_values(X)[:2], rtol=1e-10)


def test_usual_maps_are_never_decomposed(decompositions: list[tuple[int, ...]]) -> None:
    for name in ("causal", "sharp", "everywhere", "itself", "next", "near"):
        spectral_gap(maps(spectra.DENSE + 40)[name])
    assert not decompositions
