"""Scores, and the three ways to attend by them, against double loops over dense metrics and torch's SDPA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fbt_core.attention import attend, streamed
from fbt_core.attention.factored import dictionary_attention, features
from fbt_core.attention.images import subtract_squares
from fbt_core.attention.scores import SCORES, Factors, attention
from fbt_core.attention.streamed import streamed_attention
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric
from tests import oracles

EXACT = {"rtol": 1e-12, "atol": 1e-12}
HEADS, LENGTH, DIM = 2, 9, 4


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def factors(kind: str = "full", causal: bool = True, alibi: bool = False, alpha: float = 1.0) -> Factors:
    same = normal(HEADS, DIM, 1)
    metrics = {
        "none": lambda: LowRankMetric(normal(HEADS, LENGTH, DIM, 0)),
        "full": lambda: LowRankMetric(normal(HEADS, LENGTH, DIM, 3)),
        "dictionary": lambda: DictionaryMetric.of(normal(HEADS, DIM, 3), normal(HEADS, LENGTH, 3).square()),
        "overcomplete": lambda: DictionaryMetric.of(normal(HEADS, DIM, 6), normal(HEADS, LENGTH, 6).square()),
        "degenerate": lambda: DictionaryMetric.of(same.repeat(1, 1, 2), normal(HEADS, LENGTH, 2).square()),
    }  # fmt: skip
    q, k, v = normal(3, HEADS, LENGTH, DIM)
    slopes = torch.tensor([0.5, 0.1]).double() if alibi else None
    tau = torch.tensor([3.0, 5.0]).double()
    return Factors(q, k, v, metrics[kind](), tau, normal(HEADS, LENGTH).square(), alpha, causal, slopes)


def by_loop(f: Factors, score: str) -> np.ndarray:
    maps = []
    for h in range(HEADS):
        q, k, U, omega = (t[h].numpy() for t in (f.q, f.k, f.U, f.omega))
        S = oracles.score_by_loop(score, q, k, U, float(f.tau[h]), omega, f.alpha)
        maps.append(oracles.softmax_by_loop(S, f.causal, 0.0 if f.slopes is None else float(f.slopes[h])))
    return np.stack(maps)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("alibi", [True, False])
@pytest.mark.parametrize("kind", ["none", "full", "dictionary"])
@pytest.mark.parametrize("score", SCORES)
def test_every_map_is_that_of_a_double_loop(score: str, kind: str, alibi: bool, causal: bool) -> None:
    f = factors(kind, causal, alibi, alpha=0.3)
    np.testing.assert_allclose(attention(f, score).numpy(), by_loop(f, score), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tile", [1, 2, 4, 100, None])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score", SCORES)
def test_streamed_attention_is_the_map_times_the_values(score: str, causal: bool, tile: int | None) -> None:
    f = factors(causal=causal, alibi=True, alpha=0.7)
    expected = torch.from_numpy(by_loop(f, score)) @ f.v
    torch.testing.assert_close(streamed_attention(f, score, tile), expected, **EXACT)


@pytest.mark.parametrize("alpha", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("alibi", [True, False])
@pytest.mark.parametrize("kind", ["none", "dictionary", "overcomplete", "degenerate"])
def test_dictionary_attention_is_the_map_times_the_values(kind: str, alibi: bool, causal: bool, alpha: float) -> None:
    f = factors(kind, causal, alibi, alpha)
    expected = torch.from_numpy(by_loop(f, "blended")) @ f.v
    torch.testing.assert_close(dictionary_attention(f), expected, rtol=1e-11, atol=1e-11)


def test_feature_widths_are_those_of_the_cost_table() -> None:
    width = {
        kind: features(factors(kind))[0].shape[-1] for kind in ("none", "dictionary", "overcomplete", "degenerate")
    }
    assert width == {
        "none": DIM + 1,
        "dictionary": DIM + 3 * 3 + 1,
        "overcomplete": DIM + 4 * 6 + 1,
        "degenerate": DIM + 4 * 2 + 1,
    }


def test_full_metrics_are_refused_as_a_dictionary() -> None:
    with pytest.raises(ValueError, match="expected a DictionaryMetric"):
        dictionary_attention(factors("full"))


@pytest.mark.parametrize("causal", [True, False])
def test_without_a_metric_and_with_normalised_keys_it_is_standard_attention(causal: bool) -> None:
    """Item 5: at tau = 2 sqrt(d) the row and column terms are constant, so the softmax is SDPA's."""
    f = factors("none", causal)
    f = replace(f, k=F.normalize(f.k, dim=-1), tau=torch.full((HEADS,), 2 * DIM**0.5).double(), omega=f.omega * 0)
    expected = F.scaled_dot_product_attention(f.q, f.k, f.v, is_causal=causal)
    for score in ("riemannian", "l2", "homogeneous", "euclidean"):
        torch.testing.assert_close(streamed_attention(f, score), expected, **EXACT)
    torch.testing.assert_close(attend(f, "l2"), expected, **EXACT)
    torch.testing.assert_close(attend(f, "euclidean"), expected, **EXACT)


def test_the_temperature_exchange_changes_nothing() -> None:
    """Item 5: (q, k, tau) -> (c q, c k, c^2 tau)."""
    f = factors()
    scaled = replace(f, q=3 * f.q, k=3 * f.k, tau=9 * f.tau)
    torch.testing.assert_close(attention(scaled, "riemannian"), attention(f, "riemannian"), **EXACT)


def test_a_common_shift_of_q_and_k_changes_nothing() -> None:
    f, shift = factors(), normal(DIM)
    torch.testing.assert_close(
        attention(replace(f, q=f.q + shift, k=f.k + shift), "riemannian"), attention(f, "riemannian"), **EXACT
    )


@pytest.mark.parametrize("kind", ["full", "dictionary"])
@pytest.mark.parametrize("recompute", [True, False])
def test_gradients_by_finite_differences(kind: str, recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if recompute:
        monkeypatch.setattr(streamed, "KEPT_PAIRS", 0)
    f = factors(kind, alibi=True)
    inputs = [t.detach().clone().requires_grad_() for t in (f.q, f.k, f.v, f.omega)]
    inputs += [f.metric.atoms, f.metric.weights] if isinstance(f.metric, DictionaryMetric) else [f.metric.U]
    inputs = [t.requires_grad_() for t in inputs]

    def run(q: Tensor, k: Tensor, v: Tensor, omega: Tensor, *metric: Tensor) -> Tensor:
        made = DictionaryMetric.of(*metric) if kind == "dictionary" else LowRankMetric(*metric)
        g = replace(f, q=q, k=k, v=v, omega=omega, metric=made)
        return streamed_attention(g, tile=4) if kind == "full" else dictionary_attention(g)

    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize(("left", "right"), [(2, 1), (1, 2), (2, 2)])
def test_subtract_squares_and_its_gradient(left: int, right: int) -> None:
    score, a, b = normal(3, 4, 5), normal(3, left, 4, 6), normal(3, right, 5, 6)
    expected = score - (a @ b.mT).square().sum(-3)
    torch.testing.assert_close(subtract_squares(score.clone(), a, b), expected, **EXACT)
    inputs = [t.requires_grad_() for t in (score, a, b)]
    assert torch.autograd.gradcheck(lambda score, a, b: subtract_squares(score.clone(), a, b), inputs)


def test_streaming_keeps_no_map() -> None:
    """Bytes, not seconds: the largest tensor that is made grows with L, and does not hold L^2."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                Largest.elements = max(Largest.elements, out.numel())
            return out

    largest = {}
    for length in (256, 512, 1024):
        q, k, v = torch.randn(3, 1, length, 8)
        f = Factors(
            q, k, v, LowRankMetric(torch.randn(1, length, 8, 4)), torch.ones(1), torch.ones(1, length), 1.0, False
        )
        Largest.elements = 0
        with torch.no_grad(), Largest():
            streamed_attention(f, tile=32)
        largest[length] = Largest.elements
    assert largest[512] <= 2 * largest[256] and largest[1024] <= 2 * largest[512]
    assert largest[1024] < 1024 * 1024 / 4


def test_selecting_a_head_selects_everything() -> None:
    for kind in ("full", "dictionary"):
        f = factors(kind, alibi=True)
        for score in SCORES:
            torch.testing.assert_close(attention(f.select(1), score)[0], attention(f, score)[1], **EXACT)
