"""Attention as other models do it: their own scale, masks, soft caps and sinks, keys that are other tokens, layers that
have no attention, and layers of which only the map is known. Oracles are double loops in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fbt_core.attention import attend
from fbt_core.attention.decompose import score_shares
from fbt_core.attention.pooling import head_map, rollout
from fbt_core.attention.scores import Factors, allowed, attention
from fbt_core.attention.streamed import streamed_attention
from fbt_core.attention.views import all_heads, term_maps
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.measures import MEASURES, read
from fbt_core.trace import LayerTrace, Trace
from tests.traces import random_trace

HEADS, ROWS, KEYS, DIM = 3, 5, 8, 4


def factors(rows: int = ROWS, keys: int = ROWS, **more: Any) -> Factors:
    torch.manual_seed(1)
    q, k, v = torch.randn(HEADS, rows, DIM), torch.randn(HEADS, keys, DIM), torch.randn(HEADS, keys, 6)
    scale = torch.tensor([0.3, 0.5, 0.9])
    own = Factors(
        q.double(), k.double(), v.double(), LowRankMetric(torch.zeros(HEADS, keys, DIM, 0, dtype=torch.float64)),
        2 / scale.double(), torch.zeros(HEADS, keys, dtype=torch.float64), 0.0, False, scale=scale.double(),
    )  # fmt: skip
    return replace(own, **more)


def by_loop(f: Factors) -> np.ndarray:
    """The dot-product attention that a model with these factors runs, one exponential at a time."""
    q, k = f.q.numpy(), f.k.numpy()
    out = np.zeros((len(q), q.shape[1], k.shape[1]))
    for h, i in np.ndindex(*out.shape[:2]):
        logits = []
        for j in range(k.shape[1]):
            logit = float(f.scale[h]) * float(q[h, i] @ k[h, j])
            if f.softcap is not None:
                logit = f.softcap * np.tanh(logit / f.softcap)
            if f.mask is not None:
                logit += float(f.mask[i, j] if f.mask.dim() == 2 else f.mask[h, i, j])
            if f.causal and j > i:
                logit = -np.inf
            logits.append(logit)
        sink = [] if f.sinks is None else [float(f.sinks[h])]
        weights = np.exp(np.array(logits + sink))
        out[h, i] = (weights / weights.sum())[: k.shape[1]]
    return out


def window(rows: int, keys: int) -> torch.Tensor:
    i, j = torch.arange(rows)[:, None], torch.arange(keys)[None]
    return torch.zeros(rows, keys, dtype=torch.float64).masked_fill((j > i) | (j < i - 2), float("-inf"))


CASES: dict[str, dict[str, Any]] = {
    "own scale": {},
    "causal": {"causal": True},
    "soft cap": {"softcap": 0.7, "causal": True},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64), "causal": True},
    "window": {"mask": window(ROWS, ROWS)},
    "position bias": {"mask": torch.randn(HEADS, ROWS, ROWS, generator=torch.Generator().manual_seed(2)).double()},
    "everything": {"mask": window(ROWS, ROWS), "softcap": 2.0, "sinks": torch.ones(HEADS, dtype=torch.float64)},
}


@pytest.mark.parametrize("case", CASES)
def test_own_attention_is_the_double_loop(case: str) -> None:
    f = factors(**CASES[case])
    expected = by_loop(f)
    np.testing.assert_allclose(attention(f, "euclidean").numpy(), expected, atol=1e-14)
    for head in range(HEADS):
        np.testing.assert_allclose(attention(f.select(head), "euclidean")[0].numpy(), expected[head], atol=1e-14)
        seen = by_loop(replace(f, sinks=None))[head] > 0
        np.testing.assert_array_equal(allowed(f.select(head)).numpy(), seen)
    np.testing.assert_allclose(attend(f, "euclidean").numpy(), expected @ f.v.numpy(), atol=1e-13)
    np.testing.assert_allclose(streamed_attention(f, "euclidean", 2).numpy(), expected @ f.v.numpy(), atol=1e-13)
    assert (expected.sum(-1) < 1 - 1e-3).any() == (f.sinks is not None)


@pytest.mark.parametrize("score", ["l2", "riemannian", "blended", "homogeneous"])
def test_other_scores_keep_the_mask_and_leave_cap_and_sinks_to_the_model(score: str) -> None:
    f = factors(**CASES["everything"])
    cells = attention(f, score)
    torch.testing.assert_close(cells.sum(-1), torch.ones(HEADS, ROWS, dtype=torch.float64))
    assert not cells[:, ~(window(ROWS, ROWS) == 0)].any()


def test_l2_differs_from_the_own_dot_product_by_the_key_norm_alone() -> None:
    f = factors(causal=True)  # tau = 2 / scale: 2 q.k / tau is the model's own logit
    logits = attention(f, "l2").log() + (f.k.square().sum(-1) / f.tau[:, None])[:, None, :]
    expected = attention(f, "euclidean").log()
    spread = (logits - expected).tril()
    for i in range(ROWS):
        torch.testing.assert_close(spread[:, i, : i + 1], spread[:, i, :1].expand(-1, i + 1), atol=1e-12, rtol=0)


def test_shares_of_the_difference_use_the_models_own_scale() -> None:
    f = factors(causal=True)
    shares = score_shares(f.select(1), "difference")
    assert shares[1].abs() < 1e-12, "2/tau is the own scale: the bilinear term of s_R - s_E vanishes"
    torch.testing.assert_close(shares[2], torch.ones((), dtype=torch.float64))


def foreign_trace() -> Trace:
    """Four layers: attention, something else, a map alone, attention of fewer heads."""
    trace = random_trace(layers=4, heads=2, rank=0)
    bare = {"factors": None, "torsion": None}
    maps = torch.rand(2, trace.length, trace.length, dtype=torch.float64).softmax(-1)
    layers = list(trace.layers)
    layers[1] = replace(layers[1], kind="mamba", residual_mid=None, **bare)
    layers[2] = replace(layers[2], maps=maps, score="euclidean", why="its q and k are fused in one kernel", **bare)
    layers[3] = layers[3].select(0)
    return replace(trace, layers=tuple(replace(layer, score="euclidean") for layer in layers), has_metric=False)


def cross_trace() -> Trace:
    trace = random_trace(length=ROWS, heads=HEADS, layers=2, rank=0)
    layers = tuple(replace(layer, factors=factors(ROWS, KEYS), torsion=None) for layer in trace.layers)
    layers = tuple(replace(layer, score="euclidean") for layer in layers)
    return replace(trace, layers=layers, key_tokens=tuple("abcdefgh"), stack="cross", has_metric=False)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("make", [foreign_trace, cross_trace])
def test_every_measure_says_what_it_cannot_read(name: str, make: Any) -> None:
    trace = make()
    reading = read(trace, name)
    assert reading.values.shape == tuple(len(reading.labels[axis]) for axis in reading.measure.axes)
    assert not np.isnan(reading.values).all() or reading.notes
    assert (not np.isnan(reading.values).any()) or reading.notes
    if make is foreign_trace and "head" in reading.measure.axes:
        assert np.isnan(reading.values[1]).all() and any("mamba" in note for note in reading.notes)
        assert np.isnan(reading.values[3, 1]).all()
    if name == "entropy":
        assert np.isfinite(reading.values[0]).all()


def test_a_layer_gives_its_own_map_or_its_reason() -> None:
    layer = foreign_trace().layers[2]
    assert layer.maps is not None and layer.heads == 2
    torch.testing.assert_close(layer.attention(1, "euclidean", slice(2, 4)), layer.maps[1, 2:4])
    torch.testing.assert_close(head_map(layer, 1, "euclidean"), layer.maps[1])
    with pytest.raises(ValueError, match="fused in one kernel"):
        layer.attention(1, "riemannian")
    mamba = foreign_trace().layers[1]
    assert mamba.heads == 0
    for act in (lambda: mamba.attention(0, "euclidean"), lambda: mamba.metric, lambda: head_map(mamba, 0, "l2")):
        with pytest.raises(ValueError, match="layer 1 has no attention: it is a mamba layer"):
            act()


def test_views_of_foreign_layers() -> None:
    trace, cross = foreign_trace(), cross_trace()
    assert all_heads(trace, layer=2, score="euclidean").shape == (2, trace.length, trace.length)
    assert all_heads(trace, layer=3, score="euclidean").shape[0] == 1
    assert all_heads(cross, layer=0, score="euclidean", bins=4).shape == (HEADS, 4, 4)
    assert all_heads(cross, layer=0, score="euclidean", other="l2").shape == (HEADS, ROWS, KEYS)
    with pytest.raises(ValueError, match="mamba"):
        all_heads(trace, layer=1, score="euclidean")
    assert term_maps(cross, layer=0, head=1)["bilinear"].shape == (ROWS, KEYS)
    with pytest.raises(ValueError, match="cross-attention"):
        rollout(cross, "euclidean")
    through = rollout(trace, "euclidean", 1)
    torch.testing.assert_close(through, rollout(trace, "euclidean", 0)), "a layer without attention moves nothing"


def test_the_residual_metric_is_the_blocks_or_the_streams_own() -> None:
    layer: LayerTrace = random_trace(heads=2, dim=4, rank=2).layers[0]
    assert layer.residual_metric.U.shape[-2:] == (8, 4)
    U = torch.randn(7, 8, 3, dtype=torch.float64)
    own = replace(layer, residual_U=U).residual_metric
    torch.testing.assert_close(own.dense(), torch.eye(8, dtype=torch.float64) + U @ U.mT)
