"""Claims C8 to C14: each where it is true and where it is false, and their parts against oracles."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from fbt_core import FiberBundleConfig, FiberBundleTransformer
from fbt_core.attention.matching import matched, matched_to, mean_entropy
from fbt_core.attention.scores import attention
from fbt_core.claims import CLAIMS, Evidence, Finding, Options, judge
from fbt_core.claims.altered import with_metric
from fbt_core.claims.cost import core, counted, first, quadratic
from fbt_core.claims.fields import chosen
from fbt_core.claims.homogeneous import dense_root, dot_product
from fbt_core.claims.minimal_rank import minimal, of_twins
from fbt_core.claims.pure_stack import matched_control
from fbt_core.claims.truncation import top, tried

MINE = ("C8", "C9", "C10", "C11", "C12", "C13", "C14")


def model(seed: int = 0, **options: object) -> FiberBundleTransformer:
    """A tiny one in float64."""
    small = dict(vocab_size=29, width=16, layers=1, heads=2, feed_forward=16, context=256, rank=2) | options
    return FiberBundleTransformer(FiberBundleConfig(**small), seed).double().eval().requires_grad_(False)


def evidence(built: FiberBundleTransformer, tokens: int = 20, results: object = None) -> Evidence:
    """Random ids, 200 of them, the first traced."""
    ids = torch.randint(0, 29, (200,), generator=torch.Generator().manual_seed(5))
    return Evidence(built, None, built.trace(ids[:tokens]), "", ids, Options(results=results))


def found(name: str, built: FiberBundleTransformer, **more: object) -> Finding:
    """The finding, its grid and numbers in order."""
    one = evidence(built, **more)
    finding = judge(CLAIMS[name], one)
    if finding.grid is not None:
        assert finding.grid.shape == (len(one.trace.layers), one.trace.heads) and finding.grid_title
    assert all(isinstance(value, float) and isinstance(unit, str) for _, value, unit in finding.numbers)
    assert finding.why.endswith(".") and finding.would_change.endswith(".")
    return finding


def number(finding: Finding, name: str) -> float:
    """One of its numbers by the start of its name."""
    return next(value for title, value, _ in finding.numbers if title.startswith(name))


def test_a_baseline_has_no_metric_to_make_claims_about():
    for name in MINE:
        finding = found(name, model(score="l2"))
        assert finding.verdict == ("holds" if name == "C12" else "not testable"), name
        if name != "C12":
            assert math.isnan(finding.statistic) and finding.why


# C8


def test_operations_are_counted_to_the_last_one_and_the_kernels_own_are_not_lost():
    f = evidence(model(), tokens=32).trace.layers[0].given.select(0)
    d, r, length = 8, 2, 32
    flat = first(f, length)
    assert counted(lambda: F.scaled_dot_product_attention(flat.q, flat.k, flat.v)) == 4 * length**2 * d
    assert counted(lambda: core(flat, "euclidean")) == 4 * length**2 * d
    score = 2 * length**2 * (d + 2 + 2 * r * (d + 1))
    assert counted(lambda: core(flat, "riemannian")) == score + 2 * length**2 * d
    assert quadratic(f, "riemannian") / quadratic(f, "euclidean") == 1 + r + (1 + r) / d


def test_a_metric_a_token_costs_more_than_claimed_and_a_dictionary_does_not():
    own, shared = found("C8", model(), tokens=32), found("C8", model(metric_family="dictionary", atoms=3), tokens=32)
    assert own.verdict == "fails" and own.statistic == pytest.approx((2 + 3 / 8) / (2 / 8))
    assert shared.verdict == "holds"
    assert number(shared, "cost over standard") == pytest.approx((2 * 8 + 3 * 3 + 1) / 16)
    assert number(own, "slope in L, with") == pytest.approx(2) == number(own, "slope in L, standard")


# C9


def test_metrics_that_tell_tokens_apart_keep_rank_where_the_identity_cannot():
    """With no query at all g = I gives every row the same attention at any temperature: rank 1. A metric of its own
    still gives each token its own."""
    pure = model(pure_stack=True, causal=False, kappa_max=1000.0, metric_init=30.0, position="none")
    pure.blocks[0].query.weight.zero_()
    finding = found("C9", pure)
    assert finding.verdict == "holds" and finding.statistic > 3
    assert number(finding, "effective rank at the end, g = I, entropy matched") == pytest.approx(1, abs=1e-6)


def test_a_weak_metric_keeps_no_rank():
    finding = found("C9", model(layers=2))
    assert finding.verdict == "fails" and finding.statistic == pytest.approx(1, abs=0.1)


def test_the_control_is_as_sharp_as_the_checkpoint_in_every_head():
    built = model(layers=2, kappa_max=50.0, metric_init=20.0)
    ids = evidence(built).ids[:32]
    own = built.traces(ids, variant="san")[""]
    control, multipliers = matched_control(built, ids, own)
    for mine, other in zip(own.layers, control.layers, strict=True):
        assert not other.given.U.any()
        torch.testing.assert_close(
            mean_entropy(other.given, "l2"), mean_entropy(mine.given, "riemannian"), atol=1e-8, rtol=0
        )
    assert np.abs(np.log(multipliers)).max() > 0.05  # there was something to match
    assert built.blocks[0].log_tau.equal(model(layers=2).blocks[0].log_tau)  # and the model is as it was


def test_matching_to_given_entropies_is_what_matching_to_a_score_does():
    f = evidence(model(metric_init=4.0)).trace.layers[0].given
    assert matched(f, "l2", "riemannian")[1].equal(matched_to(f, "l2", mean_entropy(f, "riemannian"))[1])


# C10


def test_omega_orders_tokens_as_curvature_does_in_one_model_and_not_in_another():
    holds, fails = (found("C10", model(seed, heads=1, width=8, metric_init=2.0), tokens=24) for seed in (2, 1))
    assert holds.verdict == "holds" and holds.statistic > 0.7
    assert fails.verdict == "fails" and fails.statistic < 0.7


def test_a_constant_metric_has_an_omega_and_no_curvature():
    finding = found("C10", constant(model()))
    assert finding.verdict == "fails" and finding.statistic == 0


def constant(built: FiberBundleTransformer) -> FiberBundleTransformer:
    """The same U at every token."""
    for block in built.blocks:
        block.metric.second.weight.zero_()
        block.metric.second.bias.fill_(0.3)
    return built


# C11


@pytest.mark.parametrize("options", [{}, {"metric_compatible": True}])
def test_transport_turns_and_does_not_stretch(options: dict):
    finding = found("C11", model(transport="frame", torsion_rank=1, metric_init=4.0, **options))
    assert finding.verdict == "holds"
    assert (
        number(finding, "largest entry of Pᵀ g P") < 1e-12 and number(finding, "largest entry of the holonomy") < 1e-12
    )


def test_a_torsion_of_zero_and_one_beyond_rounding_fail():
    idle, broken = (model(transport="frame", torsion_rank=1) for _ in range(2))
    idle.blocks[0].torsion.out.weight.zero_()
    broken.blocks[0].torsion.out.bias.fill_(1e6)  # L and R all but equal, and large: T is lost in their difference
    nothing = found("C11", idle)
    assert nothing.verdict == "fails" and nothing.statistic == 0
    stretched = found("C11", broken)
    assert stretched.verdict == "fails" and stretched.statistic > 0.01
    assert number(stretched, "largest entry of Pᵀ g P") > 1e-9


# C12


def test_one_metric_for_all_is_a_dot_product_with_a_key_bias():
    finding = found("C12", model(metric_init=4.0))
    assert finding.verdict == "holds" and finding.statistic < 1e-12
    assert number(finding, "mean total variation without") > 1e-3


def test_a_metric_a_token_is_no_such_dot_product():
    """The stand-in for which the identity is false: the score that the identity is not about."""
    f = evidence(model(kappa_max=50.0, metric_init=20.0)).trace.layers[0].given.select(0)
    torch.testing.assert_close(dot_product(f), attention(f, "homogeneous")[0], atol=1e-12, rtol=0)
    assert (dot_product(f) - attention(f, "riemannian")[0]).abs().max() > 0.01


def test_numbers_beyond_float64_break_the_identity():
    """Queries and keys share an offset a million times what tells them apart: squares of it must cancel."""
    far = model()
    far.embedding.weight.add_(1e6)
    far.blocks[0].query.weight.mul_(1e6)
    far.blocks[0].key.weight.copy_(far.blocks[0].query.weight)
    finding = found("C12", far)
    assert finding.verdict == "fails" and finding.statistic > 1e-7


def test_the_root_of_the_mean_metric_squares_to_it():
    U = evidence(model()).trace.layers[0].given.U[0]
    root = dense_root(U)
    torch.testing.assert_close(root @ root, torch.eye(8).double() + torch.stack([u @ u.T for u in U]).mean(0))


# C13


def test_the_chord_is_the_distance_where_the_metric_is_constant_and_not_where_it_turns_sharply():
    same = found("C13", constant(model()))
    assert same.verdict == "holds" and same.statistic < 1e-9
    assert number(same, "90th percentile of |Euclid") > 0.01
    sharp = found("C13", model(metric_init=8.0))
    assert sharp.verdict == "fails" and sharp.statistic > 0.05
    assert number(sharp, "total variation of attention") > 0


# C14


def strong(seed: int = 6) -> FiberBundleTransformer:
    """A metric that the loss feels, of four columns, equally long on average."""
    return model(seed, rank=4, metric_init=50.0, kappa_max=1e3)


def test_truncating_keeps_the_best_part_of_the_metric():
    U = torch.randn(3, 5, 8, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    A = U @ U.mT
    for k in range(5):
        kept = top(U, k)
        left, values, _ = torch.linalg.svd(A)
        best = left[..., :k] @ torch.diag_embed(values[..., :k]) @ left[..., :k].mT
        torch.testing.assert_close(kept @ kept.mT, best, atol=1e-10, rtol=0)
    assert tried(4) == [0, 1, 2, 3, 4] and tried(8) == [0, 1, 2, 4, 8] and tried(12) == [0, 1, 2, 4, 8, 12]


def test_a_metric_whose_every_column_counts_fails_and_one_of_a_single_column_holds():
    spread = found("C14", strong())
    assert spread.verdict == "fails" and spread.statistic > 0.5
    single = strong()
    single.blocks[0].metric.second.weight.unflatten(0, (2, 8, 4))[:, :, 1:].zero_()
    single = found("C14", single)
    assert single.verdict == "holds" and single.statistic == 0.25
    assert number(single, "loss added with the top 1") == pytest.approx(0, abs=1e-9)
    assert abs(number(single, "loss added with the top 0")) > 0.01


def test_a_metric_that_the_loss_does_not_feel_has_no_least_rank():
    finding = found("C14", model(rank=4, metric_init=1e-9))
    assert finding.verdict == "not testable" and len(finding.charts) == 2


def test_cutting_all_columns_is_the_identity_metric():
    built = strong()
    one = evidence(built)
    ids = torch.from_numpy(one.held_out)
    bare = with_metric(built, lambda U: top(U, 0))(ids)
    torch.testing.assert_close(bare[0], built.trace(ids[0], strength=0.0).logits)


def twins(losses: dict[int, float]) -> pd.DataFrame:
    """Three seeds a rank, two layers a job, and rows of another stage and arm that must not count."""
    rows = [
        {"rank": rank, "seed": seed, "layer": layer, "stage": "trained", "arm": "heterogeneous",
         "loss": loss + seed * 1e-4, "accuracy": 1 - loss}
        for rank, loss in losses.items() for seed in range(3) for layer in range(2)
    ]  # fmt: skip
    noise = [row | {"stage": "initial", "loss": math.nan} for row in rows] + [
        row | {"arm": "matched", "loss": 9.0} for row in rows
    ]
    return pd.DataFrame([*noise, *rows])


def test_trained_twins_decide_where_a_sweep_is_given():
    plateau = found("C14", model(score="l2"), results=twins({1: 0.5, 2: 0.301, 4: 0.300, 8: 0.302}))
    assert plateau.verdict == "holds" and plateau.statistic == 2 / 8
    assert number(plateau, "accuracy, r = 2") == pytest.approx(0.699)
    falling = of_twins(twins({1: 0.5, 2: 0.4, 4: 0.3, 8: 0.2}))
    assert falling.verdict == "fails" and falling.statistic == 1
    assert found("C14", model(), results=twins({4: 0.3})).verdict == "not testable"
    assert "no column loss" in found("C14", model(), results=pd.DataFrame({"rank": [1]})).why


def test_the_least_rank_is_the_start_of_the_last_plateau():
    assert minimal([0, 1, 2, 4], [0.0, 0.5, 0.0, 0.0], 0.0) == 2  # what is good by chance at 0 does not count
    assert minimal([1, 2], [1.0, 0.0], 0.0) == 2


def test_places_are_spread_over_what_there_is():
    assert chosen(3, 8) == [0, 1, 2] and chosen(100, 3) == [0, 50, 99]
    assert chosen(24, 24) == list(range(24))


def test_a_head_of_width_one_has_no_curvature_and_no_turns():
    built = model(width=2, transport="frame", torsion_rank=1)
    for name in ("C10", "C11"):
        assert "width 1" in judge(CLAIMS[name], evidence(built)).why


def test_a_text_too_short_is_said_to_be_so():
    built = model(transport="frame", torsion_rank=1)
    for name in ("C8", "C9"):
        assert "8 tokens" in judge(CLAIMS[name], replace(evidence(built, tokens=4), ids=torch.arange(4))).why
    assert "8 tokens" in judge(CLAIMS["C10"], evidence(built, tokens=7)).why
    short = model(context=20)  # fewer positions than a window of C9 has tokens
    assert judge(CLAIMS["C9"], evidence(short)).verdict in ("holds", "fails")
    lonely = replace(evidence(built, tokens=8), ids=torch.arange(8))
    assert judge(CLAIMS["C11"], lonely).verdict == "holds"  # its loss is left out, and it needs none
    assert "give a longer text" in judge(CLAIMS["C14"], lonely).why
