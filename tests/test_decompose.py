"""The terms of Eq. 28: they add up to the score, each is its own formula, and their shares sum to one."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from fbt_core.attention.decompose import TERMS, score_shares, score_terms
from fbt_core.attention.scores import Factors, euclidean, riemannian
from fbt_core.geometry.metric import LowRankMetric
from tests.oracles import score_shares_by_loop, score_terms_by_loop
from tests.traces import random_trace

EXACT = 1e-12


def one_head(**options: object) -> Factors:
    return random_trace(**options).layers[0].factors.select(1)  # type: ignore[arg-type]


def oracle_terms(f: Factors) -> dict[str, np.ndarray]:
    return score_terms_by_loop(f.q[0].numpy(), f.k[0].numpy(), f.U[0].numpy(), float(f.tau), f.omega[0].numpy())


@settings(max_examples=40)
@given(length=st.integers(1, 9), dim=st.integers(1, 6), rank=st.integers(0, 7), seed=st.integers(0, 99))
def test_terms_sum_to_the_score_and_to_its_difference_from_the_euclidean_one(length, dim, rank, seed):
    f = one_head(length=length, dim=dim, rank=rank, seed=seed)
    everything = slice(0, length)
    score = riemannian(f, everything, everything)[0]
    difference = score - euclidean(f, everything, everything)[0]
    torch.testing.assert_close(sum(score_terms(f).values()), score, rtol=0, atol=EXACT)
    torch.testing.assert_close(sum(score_terms(f, of="difference").values()), difference, rtol=0, atol=EXACT)


def test_each_term_is_its_own_formula():
    f = one_head(length=6)
    expected = oracle_terms(f)
    found = score_terms(f)
    assert list(found) == list(TERMS) == list(expected)
    for name in TERMS:
        np.testing.assert_allclose(found[name].numpy(), expected[name], rtol=0, atol=EXACT, err_msg=name)


def test_some_rows_are_the_rows_of_all():
    f = one_head(length=9)
    for name, term in score_terms(f, slice(3, 6)).items():
        torch.testing.assert_close(term, score_terms(f)[name][3:6], rtol=0, atol=EXACT)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tile", [1, 4, 64])
def test_shares_are_covariances_of_row_centred_terms(causal, tile):
    f = one_head(length=9, causal=causal)
    found = score_shares(f, tile=tile)
    expected = score_shares_by_loop(oracle_terms(f), causal)
    np.testing.assert_allclose(found.numpy(), [expected[name] for name in TERMS], rtol=0, atol=EXACT)
    assert float(found.sum()) == pytest.approx(1, abs=EXACT)


def test_a_query_norm_has_no_share_however_large_it_is():
    f = one_head(length=8)
    found = score_shares(replace(f, q=f.q + 100))
    assert abs(float(found[list(TERMS).index("query_norm")])) < EXACT


def test_one_term_alone_has_the_whole_share():
    f = one_head(length=8, rank=0)
    f = replace(f, q=torch.zeros_like(f.q), k=torch.zeros_like(f.k), omega=torch.arange(8.0, dtype=torch.float64)[None])
    found = dict(zip(TERMS, score_shares(f).tolist(), strict=True))
    assert found == pytest.approx({name: float(name == "curvature_bias") for name in TERMS})


def test_opposed_terms_have_shares_outside_zero_to_one():
    f = one_head(length=8, rank=0, causal=False)
    f = replace(f, q=f.k.mean(1, keepdim=True).expand_as(f.k), omega=f.k.square().sum(-1) * -0.9 / f.tau)
    shares = score_shares(f)
    assert shares.min() < 0 and shares.max() > 1
    assert float(shares.sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("length", [1, 5])
def test_scores_that_do_not_vary_have_no_shares(length):
    f = one_head(length=length)
    parts = {name: getattr(f, name)[:, :1].expand_as(getattr(f, name)) for name in ("q", "k", "omega")}
    same = replace(f, **parts, metric=LowRankMetric(f.U[:, :1].expand_as(f.U)))
    assert score_shares(same).isnan().all()


def test_more_than_one_head_and_another_form_are_refused():
    f = random_trace().layers[0].factors
    with pytest.raises(ValueError, match="expected one head"):
        score_terms(f)
    with pytest.raises(ValueError, match="expected riemannian or difference"):
        score_terms(f.select(0), of="euclidean")
