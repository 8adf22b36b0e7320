"""The entropy-matched temperature against a brute-force scan and against entropies by double loop."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fbt_core.attention.matching import matched, mean_entropy, tempered
from fbt_core.attention.scores import Factors, attention
from tests import oracles
from tests.traces import random_trace


def factors(seed: int = 0, length: int = 9, **options: object) -> Factors:
    return random_trace(length, layers=1, heads=3, dim=4, rank=2, seed=seed, **options).layers[0].given


def entropy_by_loop(f: Factors, score: str, head: int) -> float:
    """Scores pair by pair, softmax and entropy term by term."""
    q, k, U, omega = (x[head].numpy() for x in (f.q, f.k, f.U, f.omega))
    S = oracles.score_by_loop(score, q, k, U, float(f.tau[head]), omega)
    if score == "euclidean" and f.scale is not None:
        S = S * float(f.scale[head]) * math.sqrt(q.shape[1])
    slope = 0.0 if f.slopes is None else float(f.slopes[head])
    A = oracles.softmax_by_loop(S, f.causal, slope)
    return float(np.mean([oracles.row_entropy_by_loop(row) for row in A]))


@pytest.mark.parametrize("score", ["euclidean", "l2", "riemannian", "homogeneous", "blended"])
@pytest.mark.parametrize("causal", [True, False])
def test_mean_entropy_is_that_of_the_double_loop(score: str, causal: bool) -> None:
    f = factors(causal=causal)
    expected = [entropy_by_loop(f, score, head) for head in range(3)]
    np.testing.assert_allclose(mean_entropy(f, score).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("score", ["euclidean", "l2", "homogeneous"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_match_has_the_targets_entropy_in_every_head(score: str, causal: bool, seed: int) -> None:
    f = factors(seed, causal=causal)
    other, multiplier = matched(f, score, "riemannian")
    assert multiplier.isfinite().all() and (multiplier > 0).all()
    for head in range(3):
        wanted = entropy_by_loop(f, "riemannian", head)
        assert entropy_by_loop(other, score, head) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("score", ["euclidean", "l2"])
def test_the_multiplier_is_where_a_brute_force_scan_finds_it(score: str) -> None:
    f = factors(1)
    _, multiplier = matched(f, score, "riemannian")
    grid = np.geomspace(1e-2, 1e2, 4001)
    for head in range(3):
        wanted = entropy_by_loop(f, "riemannian", head)
        one = f.select(head)
        found = [
            float(mean_entropy(tempered(one, score, torch.tensor([c], dtype=torch.float64)), score)) for c in grid[::40]
        ]
        assert all(a > b for a, b in pairwise(found)), "entropy falls in the multiplier"
        near = grid[::40][int(np.abs(np.array(found) - wanted).argmin())]
        assert near / 1.1 < float(multiplier[head]) < near * 1.1


def test_a_score_matched_with_itself_is_left_alone() -> None:
    f = factors()
    for score in ("euclidean", "l2", "riemannian"):
        _, multiplier = matched(f, score, score)
        torch.testing.assert_close(multiplier, torch.ones_like(multiplier), rtol=1e-7, atol=0.0)


def test_tempering_multiplies_the_logits_of_every_score() -> None:
    f, c = factors(causal=False), torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    for score in ("euclidean", "l2", "riemannian"):
        warm, plain = attention(tempered(f, score, c), score).log(), attention(f, score).log()
        spread = warm - warm[..., :1]  # logits up to a constant a row
        torch.testing.assert_close(spread, c[:, None, None] * (plain - plain[..., :1]))


def test_what_no_temperature_reaches_is_nan_and_left_as_it_was() -> None:
    f = factors(causal=False)
    same = f.k[:, :1].expand_as(f.k)  # all keys alike: uniform rows at any temperature
    flat = replace(f, k=torch.cat([same[:1], f.k[1:]]))
    other, multiplier = matched(flat, "euclidean", "riemannian")
    assert multiplier[0].isnan() and multiplier[1:].isfinite().all()
    assert float(other.dot_scale[0, 0, 0]) == float(f.dot_scale[0, 0, 0])


def test_one_token_and_the_first_row_have_no_entropy_to_match() -> None:
    one = factors(length=1)
    assert torch.equal(mean_entropy(one, "riemannian"), torch.zeros(3, dtype=torch.float64))
    _, multiplier = matched(one, "euclidean", "riemannian")
    assert multiplier.isfinite().all()


def test_a_position_bias_is_kept_and_still_matched() -> None:
    f = factors(alibi=True)
    other, multiplier = matched(f, "euclidean", "riemannian")
    for head in range(3):
        if multiplier[head].isfinite():
            wanted = entropy_by_loop(f, "riemannian", head)
            assert entropy_by_loop(other, "euclidean", head) == pytest.approx(wanted, abs=1e-9)
    assert multiplier.isfinite().any()


def test_masks_hide_keys_from_the_match() -> None:
    f = factors(causal=True)
    mask = torch.zeros(9, 9, dtype=torch.float64)
    mask = mask.masked_fill(torch.ones(9, 9).triu(1).bool(), float("-inf"))
    given = replace(f, causal=False, mask=mask)
    torch.testing.assert_close(matched(given, "l2", "riemannian")[1], matched(f, "l2", "riemannian")[1])


def test_scores_without_a_temperature_of_their_own_are_refused() -> None:
    f = factors()
    with pytest.raises(ValueError, match="blended"):
        matched(f, "blended", "riemannian")
    with pytest.raises(ValueError, match="soft cap"):
        matched(replace(f, softcap=5.0), "euclidean", "riemannian")
