"""The table of claims, and C1 to C7: each where it is true and where it is false, and their parts against oracles."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fbt_core import FiberBundleConfig, FiberBundleTransformer, load
from fbt_core.__main__ import app
from fbt_core.attention.scores import Factors
from fbt_core.checkpoints import native
from fbt_core.claims import (
    CLAIMS,
    VERDICTS,
    Chart,
    Curve,
    Evidence,
    Finding,
    Mark,
    altered,
    attempt,
    documentation,
    evidence,
    gather,
    judge,
    metric_collapse,
    non_gram,
    rank_needed,
    rank_threshold,
    score_difference,
    weyl,
)
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric
from fbt_core.geometry.sources import apply
from fbt_core.model import build
from fbt_core.sample import sample_text
from fbt_core.tokenizer import WordByteTokenizer
from fbt_core.trace import Trace
from fbt_core.training.grammar import WORDS
from tests import oracles
from tests.architectures import checkpoint_of, library_model
from tests.traces import random_trace, with_factors

IDS = ["C1", "C1b", *(f"C{n}" for n in range(2, 15))]


def on(trace: Trace) -> Evidence:
    """Evidence of a trace alone: enough for all claims that need no model."""
    return Evidence(None, None, trace, "", trace.ids)


def of_head(trace: Trace) -> dict[str, np.ndarray]:
    """The first head's numbers, for the oracles."""
    f = trace.layers[0].given
    return {"q": f.q[0].numpy(), "k": f.k[0].numpy(), "U": f.U[0].numpy(), "omega": f.omega[0].numpy()}


def dictionary_trace(length: int, dim: int, atoms: int, fixed: bool = False) -> Trace:
    """One head whose metrics share rank-one atoms; ``fixed`` makes the weights of every token sum to 1."""
    trace = random_trace(length, 1, 1, dim, 1, torsion=0)
    weights = torch.rand(1, length, atoms, dtype=torch.float64) + 0.1
    weights = weights / weights.sum(-1, keepdim=True) if fixed else weights
    metric = DictionaryMetric.of(torch.randn(1, dim, atoms, dtype=torch.float64), weights)
    layer = trace.layers[0]
    return replace(trace, layers=(replace(layer, factors=replace(layer.factors, metric=metric)),))


def one_metric(trace: Trace) -> Trace:
    """Every token of a head carries the metric of its first token."""
    U = trace.layers[0].given.U[:, :1]
    return with_factors(trace, U=U.expand(-1, trace.length, -1, -1).contiguous())


# --- the table ------------------------------------------------------------------------------------------------------


def test_the_table_holds_every_claim_in_order():
    assert list(CLAIMS) == IDS and all(claim.id == name for name, claim in CLAIMS.items())
    for claim in CLAIMS.values():
        words = (claim.title, claim.statement, claim.source, claim.statistic, claim.reason, claim.says_paper)
        assert all(words) and not any("$" in part for part in (*words, claim.equation))
        assert claim.statement.endswith(".") and math.isfinite(claim.threshold)


def test_the_page_is_the_tables(root: Path):
    assert (root / "docs" / "claims.md").read_text(encoding="utf-8") == documentation()


def test_a_finding_and_its_pictures_are_checked():
    with pytest.raises(ValueError, match="verdict"):
        Finding("maybe", 1.0, "", "")
    with pytest.raises(ValueError, match="finite"):
        Finding("holds", math.nan, "", "")
    with pytest.raises(ValueError, match="lengths"):
        Curve("a", np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="lengths"):
        Curve("a", np.zeros(3), np.zeros(3), low=np.zeros(3))
    with pytest.raises(ValueError, match="style"):
        Curve("a", np.zeros(1), np.zeros(1), style="pie")
    with pytest.raises(ValueError, match="axis"):
        Mark("z", 0.0, "")


def test_a_claim_that_cannot_be_tested_says_why():
    def unavailable(_: Evidence) -> Finding:
        raise evidence.Unavailable("there is no metric")

    def broken(_: Evidence) -> Finding:
        raise ZeroDivisionError

    found = judge(replace(CLAIMS["C1"], function=unavailable), on(random_trace()))
    assert (found.verdict, found.why) == ("not testable", "There is no metric.") and math.isnan(found.statistic)
    with pytest.raises(ZeroDivisionError):  # a fault of ours is no verdict
        judge(replace(CLAIMS["C1"], function=broken), on(random_trace()))
    found = attempt(replace(CLAIMS["C1"], function=broken), on(random_trace()))  # but not the end of the others
    assert found.verdict == "not testable" and found.why.startswith("The check could not be computed")


@pytest.mark.parametrize("name", IDS[:6])
def test_what_has_no_metric_or_no_numbers_is_not_testable(name: str):
    assert judge(CLAIMS[name], on(random_trace(rank=0))).verdict == "not testable"
    trace = random_trace(30)
    wild = with_factors(trace, q=trace.layers[0].given.q * math.nan)
    assert "not finite" in judge(CLAIMS[name], on(wild)).why


@pytest.mark.parametrize("name", IDS[:6])
def test_findings_are_complete(name: str):
    trace = random_trace(40)
    found = judge(CLAIMS[name], on(trace))
    assert found.verdict in VERDICTS[:2] and found.why.endswith(".") and found.would_change.endswith(".")
    assert found.grid is not None and found.grid.shape == (3, 2) and found.grid_title and found.charts
    names = [number for number, _, _ in found.numbers]
    assert len(set(names)) == len(names), "the JSON has a dictionary of them"
    assert all(isinstance(chart, Chart) and chart.note for chart in found.charts)
    for chart in found.charts:
        for curve in chart.curves:
            assert np.isfinite(curve.y).all() and (not chart.log_y or (curve.y > 0).all())


# --- C1: rank -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "rank"), [(3, 1), (4, 2), (5, 5)])
def test_c1_full_metrics_reach_the_universal_rank(dim: int, rank: int):
    predicted = dim * dim + 3 * dim + 2
    trace = random_trace(predicted + 12, 1, 1, dim, rank)
    S = oracles.score_by_loop("riemannian", tau=float(trace.layers[0].given.tau[0]), **of_head(trace))
    assert np.linalg.matrix_rank(S) == predicted
    found = judge(CLAIMS["C1"], on(trace))
    assert found.verdict == "holds" and found.statistic == predicted - (dim + 2)
    values = dict((name, value) for name, value, _ in found.numbers)
    assert values["universal rank, median"] == predicted and values["heads of exactly the universal rank"] == 1
    assert values["gap at the universal rank, median"] > 1e4


@pytest.mark.parametrize(("fixed", "predicted"), [(False, 6 + 3 * 4 + 2), (True, 6 + 3 * 4 + 2 - 2)])
def test_c1_a_dictionary_has_d_plus_3m_plus_2(fixed: bool, predicted: int):
    trace = dictionary_trace(50, 6, 4, fixed)  # a fixed sum of the weights lowers the affine dimension by one
    head = on(trace).metric_heads[0]
    assert non_gram.universal_rank(head) == predicted == non_gram.spectrum(head).rank
    S = oracles.score_by_loop("riemannian", tau=float(trace.layers[0].given.tau[0]), **of_head(trace))
    assert np.linalg.matrix_rank(S) == predicted


def test_c1_fails_with_one_metric_for_all_tokens():
    trace = one_metric(random_trace(40))
    found = judge(CLAIMS["C1"], on(trace))
    assert found.verdict == "fails" and found.statistic == 0 and (found.grid == 6).all()
    assert non_gram.metric_span(trace.layers[0].given.U[0]) == (0, 0)


def test_c1_one_head_in_which_the_metric_is_one_is_enough_to_fail():
    trace = random_trace(40)
    U = trace.layers[0].given.U.clone()
    U[1] = U[1, :1]
    assert judge(CLAIMS["C1"], on(with_factors(trace, U=U))).verdict == "fails"


def test_c1_needs_more_tokens_than_d_plus_2():
    assert judge(CLAIMS["C1"], on(random_trace(6))).verdict == "not testable"
    assert judge(CLAIMS["C1"], on(random_trace(7))).verdict == "holds"


def test_c1_asks_for_the_tokens_that_the_prediction_needs():
    short, asked = random_trace(12, 1, 1), []

    def retrace(count: int) -> Trace:
        asked.append(count)
        return random_trace(count, 1, 1)

    found = judge(CLAIMS["C1"], replace(on(short), retrace=retrace))
    assert asked == [30 + non_gram.SPARE] and "met in 1 of 1 heads" in found.why
    assert "cannot be seen here" in judge(CLAIMS["C1"], on(short)).why


# --- C1b: the rank that attention needs -----------------------------------------------------------------------------


def test_c1b_holds_for_strong_metrics_of_their_own():
    trace = random_trace(60, 1, 2, 3, 3, causal=False)
    strong = with_factors(trace, U=3 * trace.layers[0].given.U, tau=torch.full((2,), 2.0, dtype=torch.float64))
    found = judge(CLAIMS["C1b"], on(strong))
    assert found.verdict == "holds" and (found.grid > 5).all()


def test_c1b_needs_more_pairs_than_the_fit_has_numbers():
    assert "fits anything" in judge(CLAIMS["C1b"], on(random_trace(23))).why  # 2 * 23 * 6 = 23 * 24 / 2
    assert judge(CLAIMS["C1b"], on(random_trace(24))).verdict in VERDICTS[:2]


@pytest.mark.parametrize("causal", [False, True])
def test_c1b_fails_where_one_metric_serves_all(causal: bool):
    trace = one_metric(random_trace(40, causal=causal, alibi=causal))
    found = judge(CLAIMS["C1b"], on(trace))
    assert found.verdict == "fails" and found.statistic == 0 and (found.grid <= 6).all()


def test_c1b_the_truncation_is_numpys_and_the_fit_better():
    trace = random_trace(30, 1, 1, 3, 3, alibi=True)
    trace = with_factors(trace, U=3 * trace.layers[0].given.U)
    head, slope = on(trace).heads[0], float(trace.layers[0].given.slopes[0])
    S = oracles.score_by_loop("riemannian", tau=float(trace.layers[0].given.tau[0]), **of_head(trace))
    left, values, right = np.linalg.svd(S - S.mean(1, keepdims=True))
    exact, needed = oracles.softmax_by_loop(S, True, slope), rank_needed.rank_needed(head)

    def moved(k: int) -> float:
        A = oracles.softmax_by_loop(left[:, :k] * values[:k] @ right[:k], True, slope)
        return sum(oracles.total_variation_by_loop(a, b) for a, b in zip(A, exact, strict=True)) / len(A)

    assert needed.cut == pytest.approx(moved(5), rel=1e-9)
    assert next(k for k in range(1, 31) if moved(k) < rank_needed.ENOUGH) == needed.rank > 5
    assert needed.fitted < needed.cut


# --- C2: Woodbury ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", [random_trace(9), dictionary_trace(9, 6, 4)], ids=["full", "dictionary"])
def test_c2_holds_for_the_house_and_fails_for_a_wrong_formula(trace: Trace, monkeypatch: pytest.MonkeyPatch):
    assert judge(CLAIMS["C2"], on(trace)).verdict == "holds"
    right = LowRankMetric.logdet
    monkeypatch.setattr(LowRankMetric, "logdet", lambda self: right(self) * (1 + 1e-9))
    assert judge(CLAIMS["C2"], on(trace)).verdict == "fails"
    monkeypatch.setattr(LowRankMetric, "logdet", right)
    monkeypatch.setattr(LowRankMetric, "solve", lambda self, x: x - self.push(x))  # first order in U U^T
    assert judge(CLAIMS["C2"], on(trace)).verdict == "fails"


# --- C3: the Weyl chain ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_c3_every_number_is_that_of_dense_matrices(causal: bool):
    trace = random_trace(12, 1, 1, causal=causal)
    parts, tau = of_head(trace), float(trace.layers[0].given.tau[0])
    flat = parts | {"U": np.zeros_like(parts["U"])}
    S_R, S_E = (oracles.score_by_loop("riemannian", tau=tau, **some) for some in (parts, flat))
    A_R, A_E = oracles.softmax_by_loop(S_R, causal), oracles.softmax_by_loop(S_E, causal)
    spectra = [np.linalg.svd(A, compute_uv=False) for A in (A_R, A_E)]
    seen = [range(i + 1) if causal else range(12) for i in range(12)]
    rows = [np.array([S_R[i, j] - S_E[i, j] for j in js]) for i, js in enumerate(seen)]
    half = math.sqrt(sum(((row - row.mean()) ** 2).sum() for row in rows)) / 2
    reach = max(np.linalg.norm(parts["q"][i] - parts["k"][j]) for i, js in enumerate(seen) for j in js)
    strength = max(np.linalg.norm(U, 2) for U in parts["U"])
    expected = (np.abs(spectra[0] - spectra[1]).max(), np.linalg.norm(A_R - A_E, 2), half,
                12 * strength**2 * reach**2 / (2 * tau))  # fmt: skip
    assert weyl.chain(on(trace).heads[0]).values == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("strength", [0.0, 1e-6, 1.0, 30.0])
def test_c3_holds_at_any_strength(strength: float):
    trace = random_trace(20)
    found = judge(CLAIMS["C3"], on(with_factors(trace, U=strength * trace.layers[0].given.U)))
    assert found.verdict == "holds" and found.statistic <= 1


def test_c3_fails_where_more_than_the_metric_differs(monkeypatch: pytest.MonkeyPatch):
    trace = random_trace(20)
    faint = with_factors(trace, U=1e-2 * trace.layers[0].given.U)
    same = weyl.plain
    monkeypatch.setattr(weyl, "plain", lambda f: replace(same(f), tau=f.tau * 2))  # the paper's temperature mismatch
    found = judge(CLAIMS["C3"], on(faint))
    assert found.verdict == "fails" and found.statistic > 1


# --- C4: the threshold ----------------------------------------------------------------------------------------------


def with_a_threshold(length: int) -> Trace:
    """One head whose attention turns over at three times tau/L, at L tokens and at a quarter of them.

    Query i looks at its own key by a margin of 12 nats over key 0, which lies at the same distance from all queries.
    Metrics lengthen the way to the own key, of squared length 4 L for late tokens and L for the first quarter.
    """
    way = torch.full((length,), 4.0 * length, dtype=torch.float64)
    way[: length // 4] = length
    q = torch.zeros(1, length, length + 1, dtype=torch.float64)
    q[0, range(1, length), range(1, length)] = (way + 12).sqrt()[1:]
    k = q.clone()
    k[0, 1:, length] = way.sqrt()[1:]
    U = torch.zeros(1, length, length + 1, 1, dtype=torch.float64)
    U[0, 1:, length] = 1.0
    trace = random_trace(length, 1, 1, length + 1, 1, causal=False, torsion=0)
    return with_factors(trace, q=q, k=k, v=q, U=U, tau=torch.ones(1, dtype=torch.float64), omega=torch.zeros(1, length))


def test_c4_holds_where_there_is_a_threshold():
    found = judge(CLAIMS["C4"], on(with_a_threshold(32)))
    assert found.verdict == "holds" and found.statistic > 3
    values = {name: value for name, value, _ in found.numbers}
    assert 3 < values["the same at a quarter of the tokens, over it"] < 8, "4, but for the grid of strengths"
    assert 1 < values["strength of a 10 % change, median"] < 4


def test_c4_fails_where_growth_is_linear():
    found = judge(CLAIMS["C4"], on(random_trace(32)))
    assert found.verdict == "fails" and 0.5 < found.statistic < 1.1


def test_c4_fails_where_the_place_does_not_move_with_the_length():
    trace = with_a_threshold(32)
    f = trace.layers[0].given
    way = f.k[..., -1:].clone()
    k = f.k.clone()
    k[..., -1:] = way.where(way == 0, way.max())  # as long a way for the first quarter as for all others
    q = f.q.where(f.q == 0, f.q.max())
    k[..., :-1] = q[..., :-1]
    found = judge(CLAIMS["C4"], on(with_factors(trace, q=q, k=k)))
    assert found.verdict == "fails" and found.statistic > 3, "sharp, but at the same strength for any length"


def test_c4_the_changes_are_those_of_dense_matrices():
    trace = random_trace(16, 1, 1)
    parts, tau = of_head(trace), float(trace.layers[0].given.tau[0])
    top = max(np.linalg.norm(U, 2) for U in parts["U"])

    def rank(x: float, count: int) -> float:
        some = {name: value[:count] for name, value in parts.items()}
        some |= {"U": some["U"] * math.sqrt(x * tau / 16) / top, "omega": np.zeros(count)}
        A = oracles.softmax_by_loop(oracles.score_by_loop("riemannian", tau=tau, **some), True)
        return oracles.effective_rank_by_loop(list(np.linalg.svd(A, compute_uv=False)))

    found = rank_threshold.growth(on(trace).heads[0])
    for count, changes in ((16, found.change), (4, found.quarter)):
        expected = [rank(x, count) / rank(0, count) - 1 for x in rank_threshold.STRENGTHS[::3]]
        assert changes[::3] == pytest.approx(expected, rel=1e-8, abs=1e-12)


# --- C5: the difference of the scores -------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_c5_shares_are_those_of_double_loops(causal: bool):
    trace = random_trace(14, 1, 1, causal=causal)
    tau, d = float(trace.layers[0].given.tau[0]), 4
    terms = oracles.score_terms_by_loop(**of_head(trace), tau=tau)
    terms["bilinear"] *= (2 / tau - 1 / math.sqrt(d)) * tau / 2
    found = score_difference.split(on(trace).heads[0])
    expected = oracles.score_shares_by_loop(terms, causal)
    assert dict(zip(expected, found.shares, strict=True)) == pytest.approx(expected, abs=1e-10)
    both = {"metric": terms["metric_i"] + terms["metric_j"]}
    total = {"total": sum(terms.values())}

    def variance(parts: dict[str, np.ndarray]) -> float:
        (values,) = parts.values()
        rows = [values[i, : i + 1] if causal else values[i] for i in range(14)]
        return sum(((row - row.mean()) ** 2).sum() for row in rows)

    assert found.metric_alone == pytest.approx(variance(both) / variance(total), rel=1e-10) and found.error < 1e-15


def equal_keys(trace: Trace, strength: float) -> Trace:
    """Keys of one length and no temperature mismatch: but for Omega, which is 0, only the metric is left."""
    f = trace.layers[0].given
    k, tau = torch.nn.functional.normalize(f.k, dim=-1), torch.full_like(f.tau, 2 * math.sqrt(f.q.shape[-1]))
    return with_factors(trace, k=k, tau=tau, U=strength * f.U, omega=torch.zeros_like(f.omega))


def test_c5_holds_where_only_the_metric_is_left_and_fails_where_it_is_faint():
    trace = random_trace(20)
    found = judge(CLAIMS["C5"], on(equal_keys(trace, 1.0)))
    assert found.verdict == "holds" and found.statistic == pytest.approx(1, abs=1e-10)
    faint = judge(CLAIMS["C5"], on(with_factors(trace, U=0.05 * trace.layers[0].given.U)))
    assert faint.verdict == "fails" and "6 of 6 heads are confounded" in faint.why
    assert judge(CLAIMS["C5"], on(equal_keys(trace, 0.0))).verdict == "not testable"


def test_c5_fails_where_the_terms_do_not_add_up(monkeypatch: pytest.MonkeyPatch):
    right = score_difference.score_terms

    def wrong(f: Factors, of: str) -> dict[str, torch.Tensor]:
        return right(f, of=of) | {"metric_j": right(f, of=of)["metric_j"] * (1 + 1e-9)}

    monkeypatch.setattr(score_difference, "score_terms", wrong)
    assert judge(CLAIMS["C5"], on(equal_keys(random_trace(20), 1.0))).verdict == "fails"


# --- C6 and C7: losses ----------------------------------------------------------------------------------------------


def small(seed: int = 0, **options: object) -> FiberBundleTransformer:
    given = dict(vocab_size=29, width=16, layers=2, heads=2, feed_forward=16, context=64, rank=2) | options
    return FiberBundleTransformer(FiberBundleConfig(**given), seed).double().eval().requires_grad_(False)


def of_model(model: FiberBundleTransformer) -> Evidence:
    ids = torch.randint(0, 29, (400,), generator=torch.Generator().manual_seed(5))
    return Evidence(model, None, model.trace(ids[:20]), "", ids)


@pytest.fixture(scope="module")
def twin() -> Evidence:
    """The Riemannian twin on a few rows of the bundled text."""
    root = Path(__file__).resolve().parent.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "WINDOWS", 4)
        found = gather(load(root / "assets" / "riemannian.safetensors"), sample_text(), evidence.Options(tokens=40))
        assert len(found.base_losses) == 4
    return found


def deaf(model: FiberBundleTransformer) -> FiberBundleTransformer:
    """A model whose attention says nothing and whose feed-forward is not preconditioned: no metric can matter."""
    for block in model.blocks:
        block.output.weight.zero_()
        block.contract.weight.zero_()
        block.contract.bias.zero_()
    return model


def test_c6_holds_for_the_twin_and_fails_for_a_model_that_hears_nothing(twin: Evidence):
    found = judge(CLAIMS["C6"], twin)
    assert found.verdict == "holds" and found.statistic > 0.1 and "not retrained" in found.why
    deafened = judge(CLAIMS["C6"], of_model(deaf(small())))
    assert deafened.verdict == "fails" and deafened.statistic == 0
    assert judge(CLAIMS["C6"], of_model(small(alpha=0.0))).verdict == "not testable"
    assert judge(CLAIMS["C6"], of_model(small(score="l2"))).verdict == "not testable"


def test_c6_the_blend_is_that_of_the_formula():
    model = small()
    ids = torch.arange(12)
    f = altered.with_alpha(model, 0.25).trace(ids).layers[0].given.select(1)
    parts = {"q": f.q[0].numpy(), "k": f.k[0].numpy(), "U": f.U[0].numpy(), "omega": f.omega[0].numpy()}
    S = oracles.score_by_loop("blended", tau=float(f.tau[0]), alpha=0.25, **parts)
    expected = torch.from_numpy(oracles.softmax_by_loop(S, True)) @ f.v[0]
    heard = []
    copy = altered.with_alpha(model, 0.25)
    copy.blocks[0].output.register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    copy(ids[None])
    assert torch.allclose(heard[0][0, :, 8:], expected, atol=1e-12)
    assert torch.equal(altered.with_alpha(model, 1.0)(ids[None]), model(ids[None]))


def test_c7_holds_for_the_twin_and_fails_for_a_model_that_hears_nothing(twin: Evidence):
    found = judge(CLAIMS["C7"], twin)
    assert found.verdict == "holds" and found.statistic > 0.05 and found.grid.shape == (6, 4)
    deafened = judge(CLAIMS["C7"], of_model(deaf(small())))
    assert deafened.verdict == "fails" and "Not felt: U = 0, U shuffled" in deafened.why


def test_c7_fails_where_the_metric_is_one_constant():
    model = small(2, metric_init=4.0)
    for block in model.blocks:
        block.metric.second.bias.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
        block.metric.second.weight.zero_()
        for linear in (block.output, block.contract):
            linear.weight.mul_(20)
    model.embedding.weight.mul_(30)
    costs = {one.name: one.cost for one in metric_collapse.effects(of_model(model))}
    assert abs(costs["A averaged over tokens"]) < 1e-9 and abs(costs["U shuffled over tokens"]) < 1e-9
    assert abs(costs["U = 0"]) > 0.01, "the metric is far from the identity, and yet collapsed"
    assert judge(CLAIMS["C7"], of_model(model)).verdict == "fails"


def test_c7_the_average_is_that_of_the_metrics_and_not_of_their_factors():
    U = torch.randn(2, 3, 5, 4, 2, dtype=torch.float64)
    root = metric_collapse.averaged(U)
    mean = sum(U[b, :, t] @ U[b, :, t].mT for b in range(2) for t in range(5)) / 10
    assert torch.allclose(root[1, :, 3] @ root[1, :, 3].mT, mean, atol=1e-12)
    turn = torch.linalg.qr(torch.randn(2, 3, 5, 2, 2, dtype=torch.float64)).Q
    again = metric_collapse.averaged(U @ turn)[0, :, 0]
    assert torch.allclose(again @ again.mT, mean, atol=1e-12)


def test_c7_shuffling_gives_the_metrics_of_another_row():
    U = torch.arange(2 * 6, dtype=torch.float64).reshape(2, 1, 6, 1, 1)
    moved = metric_collapse.shuffled(0)(U)
    assert sorted(moved[0].flatten().tolist()) == U[1].flatten().tolist() != moved[0].flatten().tolist()
    assert sorted(moved[1].flatten().tolist()) == U[0].flatten().tolist()


def test_the_score_alone_can_lose_its_metric():
    model, ids = small(), torch.arange(12)[None]
    trace = model.trace(ids[0])
    whole, score = altered.with_metric(model, altered.removed), altered.with_score_metric(model, altered.removed)
    assert not torch.allclose(whole(ids), score(ids), atol=1e-6)
    block, f = score.blocks[0], trace.layers[0].given
    expected = weyl.attention(replace(f, omega=torch.zeros_like(f.omega)), "l2") @ f.v
    heard = []
    block.output.register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    score(ids)
    assert torch.allclose(heard[0][0], expected.transpose(0, 1).flatten(1), atol=1e-12)
    assert torch.equal(altered.with_score_metric(model, lambda U: U)(ids), model(ids)), "the original is untouched"


# --- evidence -------------------------------------------------------------------------------------------------------


def test_losses_are_the_models_own(twin: Evidence):
    row = torch.from_numpy(twin.held_out[2])
    logs = twin.model.trace(row).logits.log_softmax(-1)
    expected = -sum(float(logs[t, row[t + 1]]) for t in range(len(row) - 1)) / (len(row) - 1)
    assert twin.base_losses[2] == pytest.approx(expected, rel=1e-12)
    assert evidence.paired(np.array([3.0, 5.0]), np.array([1.0, 1.0])) == (3.0, pytest.approx(1.0))


def test_windows_begin_behind_the_traced_tokens(assets: Path):
    text = " ".join(["the old sailor sings ."] * 200)
    found = gather(load(assets / "riemannian.safetensors"), text, evidence.Options(tokens=50))
    assert not found.on_grammar and found.held_out.shape == (7, 128) and (found.held_out[:, 0] == 0).all()
    assert (found.held_out[0, 1:] == found.ids[50:177].numpy()).all()
    short = gather(load(assets / "riemannian.safetensors"), "the old sailor sings .", evidence.Options(tokens=4))
    assert "give a longer text" in judge(CLAIMS["C7"], short).why


def test_a_model_of_the_library_is_judged_on_a_source_and_loses_nothing():
    model = build(checkpoint_of(library_model("llama")), dtype="float64")
    ids = torch.arange(3, 43)
    trace = apply(model, model.trace(ids), "local", 2)
    given = Evidence(model, None, trace, "", ids)
    verdicts = {name: judge(CLAIMS[name], given) for name in IDS[:8]}
    assert all(verdicts[name].verdict in VERDICTS[:2] for name in IDS[:6])
    assert all("no Fiber Bundle Transformer" in verdicts[name].why for name in ("C6", "C7"))
    assert verdicts["C1"].grid.shape == (3, 4)


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tokenizer = WordByteTokenizer(WORDS)
    model = small(vocab_size=tokenizer.vocab_size, context=128)
    native.save(tmp_path / "m.safetensors", model.config, model.float().state_dict(), tokenizer, {})
    return tmp_path / "m.safetensors"


def run(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["claims", *map(str, words)])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


def test_the_command_writes_a_verdict_a_claim(saved: Path, tmp_path: Path):
    table = json.loads(run(saved, "--only", "c1, C1b,C7", "--tokens", 40, "--json"))
    assert {key: table[key] for key in ("checkpoint", "text", "tokens")} == {
        "checkpoint": "m.safetensors", "text": "the bundled sample", "tokens": 40,
    }  # fmt: skip
    assert [row["id"] for row in table["claims"]] == ["C1", "C1b", "C7"]
    for row in table["claims"]:
        assert row["verdict"] in VERDICTS and row["threshold"] == CLAIMS[row["id"]].threshold
        assert isinstance(row["numbers"], dict) and np.shape(row["grid"]) == (2, 2) and row["why"]
    (tmp_path / "text.txt").write_text("the old sailor sings . " * 40, encoding="utf-8")
    printed = run(saved, "--only", "C2", "--tokens", 20, "--text", tmp_path / "text.txt")
    assert "20 tokens of text.txt" in printed and "C2   holds" in printed


def test_the_command_tells_a_users_fault_in_one_line(saved: Path):
    assert "got --only 'C99', expected some of C1, C1b" in run(saved, "--only", "C99", status=2)
    assert "expected a file" in run(saved, "--text", "no such file", status=2)
    assert "error: " in run(saved.parent / "none.safetensors", status=2)


def test_what_is_no_number_is_null(saved: Path):
    row = json.loads(run(saved, "--only", "C1b", "--tokens", 5, "--json"))["claims"][0]
    assert row["verdict"] == "not testable" and row["statistic"] is None and row["grid"] is None
