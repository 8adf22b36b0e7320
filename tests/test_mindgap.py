"""The benchmark of "Mind the Gap": its attention, its ranks, and the limits that random matrix theory gives."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from bench import mindgap
from bench.mindgap import AT, OTHERS, PUBLISHED, average, draw, limit


def fuss_catalan(order: int, moment: int) -> Fraction:
    """The moment of the Fuss-Catalan law of an order, by its combinatorial formula."""
    return Fraction(math.comb((order + 1) * moment, moment), order * moment + 1)


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
def test_the_limits_are_the_moments_and_the_edge_of_the_fuss_catalan_law(layer: int) -> None:
    n, length = 2 * layer, 150
    moments = [fuss_catalan(n, k) for k in range(400, 404)]
    # m_k ~ edge^k k^(-3/2), so the ratio of two moments needs that power, and is then right to order 1 / k^2
    ratios = [float(after / before) * (1 + 1.5 / (400 + k)) for k, (before, after) in enumerate(pairwise(moments))]
    edge = float(np.mean(ratios))
    assert 1 + limit(length, layer, kept=False) == pytest.approx(length * float(fuss_catalan(n, 2)) / edge**2, rel=1e-4)
    assert limit(length, layer, kept=True) == pytest.approx(length * float(fuss_catalan(n, 2)) / float(length) ** n)


def test_attention_is_stochastic_with_entries_of_mean_and_variance_one() -> None:
    A = mindgap.attention(400, np.random.default_rng(0))
    np.testing.assert_allclose(A.sum(1), 1)
    assert (A > 0).all()
    assert (400 * A).var() == pytest.approx(1, abs=0.03)


def test_the_excess_is_the_stable_rank_of_the_kernel_minus_one() -> None:
    X = np.random.default_rng(0).normal(size=(9, 12)) + 3
    eigenvalues = np.linalg.eigvalsh(X @ X.T)
    expected = (eigenvalues**2).sum() / eigenvalues.max() ** 2 - 1
    assert mindgap.excess(X) == pytest.approx(expected, rel=1e-9)


def test_the_outlier_has_the_constant_vectors_and_taking_it_out_leaves_the_others() -> None:
    """A 1 = 1, so A - 11^T / T annihilates 1; its largest singular value is the second of A, up to order 1 / T."""
    A = mindgap.attention(200, np.random.default_rng(1))
    rest = A - 1 / 200
    np.testing.assert_allclose(rest @ np.ones(200), 0, atol=1e-14)
    largest = np.linalg.svd(rest, compute_uv=False)[0]
    assert largest == pytest.approx(np.linalg.svd(A, compute_uv=False)[1], rel=0.02)


def test_measured_ranks_meet_the_limits() -> None:
    length = 400
    runs = [draw(length, 2, seed) for seed in range(3)]
    for layer in (1, 2):
        removed, _ = average([1 + run.removed[layer - 1] for run in runs])
        kept, _ = average([run.kept[layer - 1] for run in runs])
        assert removed == pytest.approx(1 + limit(length, layer, kept=False), rel=0.2)
        assert kept == pytest.approx(limit(length, layer, kept=True), rel=0.2)
    assert average([run.top for run in runs])[0] == pytest.approx(1, abs=2 / length)
    assert 1.9 < average([run.second for run in runs])[0] * math.sqrt(length) < 2.4


def test_the_published_figures_lie_within_the_spread_and_normal_tokens_do_not_meet_the_first() -> None:
    runs = [draw(AT, 3, seed) for seed in range(8)]
    for name, figures in PUBLISHED.items():
        for layer, figure in enumerate(figures):
            mean, spread = average([1 + getattr(run, name)[layer] for run in runs])
            assert abs(figure - mean) < 2 * spread
    other = next(setting for setting in OTHERS if not setting.isometric)
    mean, spread = average([1 + draw(AT, 1, seed, other).removed[0] for seed in range(8)])
    assert PUBLISHED["removed"][0] - mean > 2 * spread


def test_a_draw_depends_on_its_seed_alone() -> None:
    np.testing.assert_array_equal(draw(30, 3, 5).removed, draw(30, 3, 5).removed)
    assert draw(30, 3, 5).removed[0] != draw(30, 3, 6).removed[0]


def test_the_command_prints_a_table_a_length_and_the_published_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindgap, "AT", 40)
    app = mindgap.typer.Typer()
    app.command()(mindgap.main)
    result = CliRunner().invoke(app, ["--lengths", "20,30", "--layers", "2", "--seeds", "2"])
    assert result.exit_code == 0, result.exception
    assert "T = 20: s_1 = 1.0" in result.stdout and "T = 30: s_1 = 1.0" in result.stdout
    assert "outlier removed, layer 2: 6; ours" in result.stdout
    assert all(setting.title in result.stdout for setting in OTHERS)
