"""The whole transformer: one forward path, every option, gradients, regularisers against dense sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fbt_core.attention.scores import attention
from fbt_core.config import CHOICES, FiberBundleConfig
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.transport import cayley
from fbt_core.model import regularisers
from fbt_core.model.fiber_bundle import FiberBundleTransformer

SMALL = FiberBundleConfig(vocab_size=23, width=12, layers=2, heads=2, feed_forward=20, context=16, rank=2, atoms=3)
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "dictionary": {"metric_family": "dictionary"},
    "overcomplete dictionary": {"metric_family": "dictionary", "atoms": 9},
    "euclidean": {"score": "euclidean"},
    "l2": {"score": "l2"},
    "blended": {"alpha": 0.4},
    "blended dictionary": {"alpha": 0.4, "metric_family": "dictionary"},
    "alpha 0": {"alpha": 0.0},
    "bidirectional": {"causal": False},
    "alibi": {"position": "alibi"},
    "alibi, bidirectional dictionary": {"position": "alibi", "metric_family": "dictionary", "causal": False},
    "no position": {"position": "none"},
    "torsion without transport": {"torsion_rank": 1},
    "key transport": {"transport": "key", "torsion_rank": 1},
    "frame transport": {"transport": "frame", "torsion_rank": 2},
    "compatible transport": {"transport": "frame", "torsion_rank": 1, "metric_compatible": True},
    "rezero": {"residual": "rezero"},
    "untied embedding": {"tied_embedding": False},
    "bare": {"gate": False, "curvature_bias": False, "precondition": False},
    "qk norm": {"qk_norm": True},
    "tied qk": {"tied_qk": True},
    "pure stack": {"pure_stack": True, "causal": False},
    "pure stack, bare": {"pure_stack": True, "norm": "none", "tied_qk": True, "transport": "frame", "torsion_rank": 1},
    "one head, wide MetricNet": {"heads": 1, "metric_expansion": 2},
}


def model_of(**fields: Any) -> FiberBundleTransformer:
    return FiberBundleTransformer(replace(SMALL, **fields)).double()


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def model(request: pytest.FixtureRequest) -> FiberBundleTransformer:
    return model_of(**request.param)


IDS = torch.arange(22).reshape(2, 11) % 23


def test_trace_and_forward_give_the_same_logits(model: FiberBundleTransformer) -> None:
    logits = model(IDS)
    assert logits.shape == (2, 11, 23)
    for row in range(2):
        trace = model.trace(IDS[row])
        torch.testing.assert_close(trace.logits, logits[row].detach(), rtol=1e-12, atol=1e-12)
        assert len(trace.layers) == model.config.layers and trace.length == 11


def test_what_is_traced_is_what_ran(model: FiberBundleTransformer) -> None:
    """The residual after each layer's attention, rebuilt from the traced factors by dense maps."""
    trace = model.trace(IDS[0])
    for layer, block in zip(trace.layers, model.blocks, strict=True):
        f, c = layer.factors, model.config
        v = f.metric.root(f.v) if c.metric_compatible else f.v
        if c.transport != "none":
            v = cayley(*layer.torsion, v)
        y = attention(f, layer.score) @ v
        if c.transport == "frame":
            y = cayley(*layer.torsion, y, inverse=True)
        y = f.metric.inverse_root(y) if c.metric_compatible else y
        update = block.output(y.transpose(0, 1).flatten(1)).detach()
        if c.pure_stack:
            expected = update
        else:
            gain = block.attention_gain.detach() if c.residual == "rezero" else 1.0
            expected = layer.residual_in + gain * update
        torch.testing.assert_close(layer.residual_mid, expected, rtol=1e-10, atol=1e-10)
    for above, below in zip(trace.layers[1:], trace.layers, strict=False):
        assert torch.equal(above.residual_in, below.residual_out)


def test_every_parameter_is_used(model: FiberBundleTransformer) -> None:
    if model.config.residual == "rezero":  # its gains start at 0 and hold all else back
        for block in model.blocks:
            nn.init.ones_(block.attention_gain)
            nn.init.ones_(block.feed_forward_gain)
    loss, penalty = model.loss(IDS)
    (loss + penalty).backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    idle = "torsion" if model.config.transport == "none" else "alpha 0 leaves the score Euclidean"
    if model.config.alpha == 0.0:
        unused = [name for name in unused if not name.endswith(("log_tau", "curvature"))]
    assert [name for name in unused if idle not in name] == []


def test_loss_is_the_cross_entropy_of_the_next_token(model: FiberBundleTransformer) -> None:
    probabilities = model(IDS).softmax(-1)
    total = sum(-math.log(probabilities.detach()[b, t, IDS[b, t + 1]]) for b in range(2) for t in range(10))
    assert float(model.loss(IDS)[0].detach()) == pytest.approx(total / 20, rel=1e-10)


@pytest.mark.parametrize("name", ["full", "dictionary", "compatible transport", "euclidean", "l2"])
def test_a_causal_model_does_not_see_the_future(name: str) -> None:
    model = model_of(**VARIANTS[name])
    changed = IDS.clone()
    changed[:, 6:] = 1
    torch.testing.assert_close(model(IDS)[:, :6], model(changed)[:, :6], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(IDS)[:, 6:], model(changed)[:, 6:])


@pytest.mark.parametrize("name", ["full", "frame transport", "compatible transport", "dictionary"])
def test_gradients_by_finite_differences(name: str) -> None:
    model = model_of(**VARIANTS[name], layers=1)
    named = dict(model.named_parameters())
    loss = sum(model.loss(IDS))
    gradients = dict(zip(named, torch.autograd.grad(loss, named.values(), allow_unused=True), strict=True))
    step = 1e-5
    for key, gradient in gradients.items():
        direction = torch.randn_like(named[key])
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                named[key].add_(sign * step * direction)
                values.append(float(sum(model.loss(IDS)).detach()))
                named[key].sub_(sign * step * direction)
        expected = 0.0 if gradient is None else float((gradient * direction).sum())
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-8), key


def test_strength_is_a_what_if_on_every_metric(model: FiberBundleTransformer) -> None:
    half, plain = model.trace(IDS[0], strength=0.5), model.trace(IDS[0])
    torch.testing.assert_close(half.layers[0].metric.trace, plain.layers[0].metric.trace / 4)
    flat = model.trace(IDS[0], strength=0.0)
    assert float(flat.layers[-1].metric.trace.abs().max()) == 0.0 == float(flat.layers[-1].factors.omega.abs().max())


def test_the_ceiling_holds() -> None:
    for family in CHOICES["metric_family"]:
        model = model_of(metric_family=family, metric_init=50.0, kappa_max=2.0)
        trace = model.trace(IDS[0]).layers[0].metric.trace
        assert float(trace.max()) <= 2.0 + 1e-9 and float(trace.max()) > 1.9


def test_the_preconditioned_feed_forward_is_the_dense_inverse() -> None:
    """Item 8: x <- x + g^{-1} FFN(RMSNorm(x)), per head block."""
    model = model_of()
    layer, block = model.trace(IDS[0]).layers[0], model.blocks[0]
    update = block.contract(nn.functional.gelu(block.expand(block.feed_forward_norm(layer.residual_mid)))).detach()
    G = layer.residual_metric.dense()
    expected = layer.residual_mid + torch.linalg.solve(G, update)
    torch.testing.assert_close(layer.residual_out, expected, rtol=1e-10, atol=1e-10)


def test_compatible_transport_is_an_isometry() -> None:
    """Item 7: P = g_i^{-1/2} C_i^T C_j g_j^{1/2} has P^T g_i P = g_j."""
    layer = model_of(**VARIANTS["compatible transport"]).trace(IDS[0]).layers[0]
    metric, torsion, eye = layer.metric, layer.torsion, torch.eye(6).double()

    def matrix(function: Any) -> Tensor:
        return torch.stack([function(column.expand(2, 11, 6)) for column in eye], -1)

    C, root, inverse = matrix(lambda v: cayley(*torsion, v)), matrix(metric.root), matrix(metric.inverse_root)
    g, i, j = metric.dense(), 3, 7
    P = inverse[:, i] @ C[:, i].mT @ C[:, j] @ root[:, j]
    torch.testing.assert_close(P.mT @ g[:, i] @ P, g[:, j], rtol=1e-10, atol=1e-10)


def test_regularisers_against_dense_sums() -> None:
    raw = LowRankMetric(torch.randn(1, 1, 5, 4, 2, dtype=torch.float64))
    A = (raw.U @ raw.U.mT)[0, 0]
    trace = A.diagonal(dim1=-2, dim2=-1).sum(-1)
    flat = sum(max(0.5 - t, 0) ** 2 + max(t - 6.0, 0) ** 2 for t in trace.tolist()) / 5
    assert float(regularisers.anti_flatness(raw, 0.5, 6.0)) == pytest.approx(flat, rel=1e-12)
    pairs = [(A[s] * A[t]).sum() / (A[s].norm() * A[t].norm()) for s in range(5) for t in range(5) if s != t]
    assert float(regularisers.diversity(raw)) == pytest.approx(float(sum(pairs)) / 20, rel=1e-5)
    steps = sum(float((A[t + 1] - A[t]).norm()) ** 2 for t in range(4)) / 4
    assert float(regularisers.smoothness(raw)) == pytest.approx(steps, rel=1e-12)


def test_regularisers_have_a_gradient_at_zero_and_for_one_token() -> None:
    U = torch.zeros(1, 1, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    raw = LowRankMetric(U)
    (regularisers.diversity(raw) + regularisers.smoothness(raw)).backward()
    assert bool(U.grad.isfinite().all())
    assert float(regularisers.diversity(raw[:1])) == 0.0 == float(regularisers.smoothness(raw[:1]))


@pytest.mark.parametrize("family", CHOICES["metric_family"])
def test_the_metric_starts_where_the_config_says(family: str) -> None:
    """E ||U||_F^2 near metric_init, between 0.05 and 1 by default, never 0."""
    model = FiberBundleTransformer(FiberBundleConfig(vocab_size=500, metric_family=family, layers=2))
    trace = model.trace(torch.arange(400)).layers[0].metric.trace
    assert float(trace.mean()) == pytest.approx(model.config.metric_init, rel=0.3)
    assert float(trace.min()) > 0.0


def test_U_zero_is_stationary_for_the_full_family() -> None:
    """Item 2: the reason for a nonzero start."""
    model = model_of(gate=True)
    for block in model.blocks:
        nn.init.zeros_(block.metric.second.weight)
    sum(model.loss(IDS)).backward()
    assert all(float(block.metric.second.weight.grad.abs().max()) == 0.0 for block in model.blocks)


def test_twins_start_alike() -> None:
    a, b = (dict(model_of(score=score).named_parameters()) for score in ("euclidean", "riemannian"))
    shared = set(a) & set(b)
    assert set(a) < set(b) and all(torch.equal(a[name], b[name]) for name in shared)
    other = dict(FiberBundleTransformer(SMALL, seed=1).named_parameters())
    assert not torch.equal(other["blocks.0.query.weight"], b["blocks.0.query.weight"].float())


def test_lengths_at_the_edges() -> None:
    model = model_of()
    assert model.trace(torch.tensor([3])).logits.shape == (1, 23)
    with pytest.raises(ValueError, match="got 17 tokens, expected at most 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="got no token"):
        model(torch.zeros(1, 0, dtype=torch.long))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("width", 13, "heads to divide"), ("score", "cosine", "expected one of"), ("alpha", 1.5, "from 0 to 1"),
        ("layers", 0, "at least 1"), ("layers", 10**6, "at most 512"), ("heads", True, "expected int"),
        ("kappa_min", 9.0, "kappa_min"), ("transport", "key", "torsion_rank"), ("metric_compatible", True, "both"),
        ("gate_init", float("nan"), "finite"), ("rank", "4", "expected int"), ("vocab_size", 1 << 30, "at most"),
    ],
)  # fmt: skip
def test_a_config_out_of_range_says_so(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FiberBundleConfig.from_dict({**SMALL.to_dict(), field: value})


def test_a_config_survives_its_dict_and_names_strangers() -> None:
    assert FiberBundleConfig.from_dict(SMALL.to_dict()) == SMALL
    with pytest.raises(ValueError, match="colour"):
        FiberBundleConfig.from_dict({**SMALL.to_dict(), "colour": 1})
    with pytest.raises(ValueError, match="vocab_size"):
        FiberBundleConfig.from_dict({})


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf")])
def test_a_strength_that_is_none_says_so(strength: float) -> None:
    with pytest.raises(ValueError, match="expected a finite number"):
        model_of().trace(IDS[0], strength=strength)


@pytest.mark.parametrize("name", ["full", "dictionary", "compatible transport"])
def test_half_precision_runs_and_stays_near_float32(name: str) -> None:
    """Factorisations are made in float32, all else in bfloat16, whose 8 bits leave about two digits."""
    model = model_of(**VARIANTS[name]).float()
    exact = model.trace(IDS[0]).logits
    half = model.to(torch.bfloat16).trace(IDS[0]).logits
    assert half.dtype == torch.bfloat16
    assert float((half.float() - exact).norm() / exact.norm()) < 0.1
