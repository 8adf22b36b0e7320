"""Spearman's rho and its interval against scipy, a literal bootstrap, and data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from fbt_core.measures.correlation import RESAMPLES, spearman, within_ranks


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_rho_is_that_of_scipy_ties_included(decimals: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=400).round(decimals)
    y = (0.6 * x + rng.normal(size=400)).round(decimals)
    found = spearman(x, y)
    assert found.rho == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert found.n == found.groups == 400
    assert -1 <= found.low < found.rho < found.high <= 1


def test_the_interval_is_that_of_resampled_groups_put_together() -> None:
    """Every resample made literally: the drawn groups' pairs in one heap, and scipy's rho of the heap."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(6), 5)
    x = rng.normal(size=30).round(1) + groups
    y = x + 2 * rng.normal(size=30)
    drawn = np.random.default_rng(7).multinomial(6, np.full(6, 1 / 6), size=RESAMPLES)
    rhos = []
    for counts in drawn:
        heap = np.concatenate([np.flatnonzero(groups == g) for g, n in enumerate(counts) for _ in range(n)])
        rhos.append(spearmanr(x[heap], y[heap]).statistic)
    found = spearman(x, y, groups, seed=7)
    np.testing.assert_allclose([found.low, found.high], np.nanpercentile(rhos, [2.5, 97.5]), atol=1e-12)


def test_whole_groups_make_the_interval_as_wide_as_it_is() -> None:
    """Ten copies of each of 12 pairs are no more evidence than the 12."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=12)
    y = x + 1.5 * rng.normal(size=12)
    alone = spearman(x, y)
    copied = spearman(np.tile(x, 10), np.tile(y, 10), np.tile(np.arange(12), 10))
    naive = spearman(np.tile(x, 10), np.tile(y, 10))
    assert copied.rho == pytest.approx(alone.rho)
    assert (copied.n, copied.groups) == (120, 12)
    assert copied.high - copied.low == pytest.approx(alone.high - alone.low, rel=0.1)
    assert naive.high - naive.low < 0.6 * (copied.high - copied.low)


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Independent normal pairs have rho 0, which 95 % intervals of 30 pairs hold some 93 times in 100."""
    rng = np.random.default_rng(6)
    found = [spearman(*rng.normal(size=(2, 30)), seed=trial) for trial in range(120)]
    assert 0.85 <= np.mean([one.low <= 0 <= one.high for one in found]) <= 0.99


def test_order_is_kept_by_any_growing_function_and_turned_by_a_sign() -> None:
    x = np.linspace(-2, 2, 40).reshape(5, 8)
    assert spearman(x, np.exp(x)).rho == pytest.approx(1)
    assert spearman(x, -(x**3)).rho == pytest.approx(-1)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.ones(9), np.arange(9.0), "the first quantity is the same everywhere"),
        (np.arange(9.0), 3 + 1e-15 * np.arange(9.0), "the second quantity is the same everywhere"),
        (np.zeros(9), np.zeros(9), "the first and the second quantity is the same everywhere"),
        (np.arange(2.0), np.arange(2.0), "an order needs at least 3 pairs, there are 2"),
        (np.full(5, np.nan), np.arange(5.0), "an order needs at least 3 pairs, there are 0"),
    ],
)
def test_without_an_order_there_is_no_number_but_a_reason(x: np.ndarray, y: np.ndarray, reason: str) -> None:
    found = spearman(x, y)
    assert np.isnan([found.rho, found.low, found.high]).all()
    assert found.reason == reason


def test_two_groups_have_a_rho_but_no_interval() -> None:
    x = np.arange(10.0)
    found = spearman(x, x, np.arange(10) % 2)
    assert found.rho == pytest.approx(1) and np.isnan(found.low)
    assert "at least 3 independent groups" in found.reason


def test_missing_pairs_do_not_count_and_unequal_shapes_are_refused() -> None:
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 20))
    gaps = np.where(np.arange(20) % 4 == 0, np.nan, x)
    assert spearman(gaps, y).rho == pytest.approx(spearmanr(x[~np.isnan(gaps)], y[~np.isnan(gaps)]).statistic)
    with pytest.raises(ValueError, match="expected one shape"):
        spearman(x, y[:-1])


def test_ranks_within_rows_are_scipys_and_forget_how_rows_differ() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(size=(2, 3, 7)).round(1)
    expected = rankdata(values, axis=-1)
    np.testing.assert_allclose(within_ranks(values), (expected - 4) / 3, atol=1e-12)
    np.testing.assert_array_equal(within_ranks(values), within_ranks(np.exp(3 * values) + 100))
    holed = values.copy()
    holed[0, 0, 2] = np.nan
    assert np.isnan(within_ranks(holed)).sum() == 1
    np.testing.assert_array_equal(within_ranks(np.ones((1, 4))), np.zeros((1, 4)))
