"""The metric of a model as a function of the residual stream, against its trace, autograd and the definition."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import jvp, vmap

from fbt_core.checkpoints.adapter import Adapter, AdapterConfig
from fbt_core.checkpoints.checkpoint import Origin
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.curvature import scalar
from fbt_core.geometry.model_field import READINGS, field_heads, field_points, field_unavailable, model_field
from fbt_core.geometry.sources import apply
from fbt_core.measures import GEOMETRY, OPTIONS, read, read_geometry
from fbt_core.measures import geometry as measures
from fbt_core.model import build
from fbt_core.model.adapted import AdapterNets
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.trace import Trace
from tests.architectures import checkpoint_of, library_model

LENGTH, LAYERS, HEADS = 6, 2, 2

MODELS: dict[str, dict[str, Any]] = {
    "full": {},
    "ceiling": {"metric_init": 1.0, "kappa_max": 0.6, "kappa_min": 0.1},
    "dictionary": {"metric_family": "dictionary"},
    "blended": {"alpha": 0.5, "causal": False, "tied_qk": True},
    "no norm": {"pure_stack": True, "causal": False, "norm": "none"},
}


def model_of(**options: Any) -> FiberBundleTransformer:
    config = FiberBundleConfig(vocab_size=20, width=16, layers=LAYERS, heads=HEADS, rank=3, context=32, **options)
    model = FiberBundleTransformer(config).double().eval()
    with torch.no_grad():
        for block in model.blocks:
            if block.normalise:
                block.attention_norm.weight.uniform_(0.5, 1.5)
    return model


def traced(model: Any, strength: float = 1.0) -> Trace:
    return model.trace(torch.arange(LENGTH) * 7 % 20, strength)


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model(request: pytest.FixtureRequest) -> FiberBundleTransformer:
    return model_of(**request.param)


def matrices(g: Any, points: Tensor) -> Tensor:
    return vmap(g.dense)(points)


# --- the model's own MetricNet ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_the_field_at_a_token_is_the_traced_metric(model: FiberBundleTransformer, strength: float) -> None:
    trace, exact = traced(model, strength), {"rtol": 1e-11, "atol": 1e-13}
    for layer in range(LAYERS):
        points, found = field_points(trace, layer), trace.layers[layer]
        for head in range(HEADS):
            for reading in ("block", "key"):
                g = model_field(model, trace, layer, head, reading)
                assert g.factor is not None and g.dim == 8
                torch.testing.assert_close(vmap(g.factor)(points), found.given.U[head], **exact)
        whole = model_field(model, trace, layer, 0, "whole")
        torch.testing.assert_close(matrices(whole, points), found.residual_metric.dense(), **exact)
    assert (trace.layers[0].given.U.square().sum((-2, -1)) > 0.59 * strength**2).any() or model.config.kappa_max > 1


def test_the_ceiling_is_in_the_field() -> None:
    trace = traced(model_of(**MODELS["ceiling"]))
    sizes = trace.layers[0].metric.trace
    assert (sizes > 0.6 - 1e-9).any() and (sizes < 0.6 - 1e-3).any(), "tokens on both sides of the ceiling"


def test_derivatives_go_through_the_norm(model: FiberBundleTransformer) -> None:
    """Along each vector of the slice, against differences of what the model's own modules compute."""
    trace, step = traced(model), 1e-5
    block = model.blocks[1]
    x = field_points(trace, 1)[3]

    def U(y: Tensor, head: int) -> Tensor:
        with torch.no_grad():
            h = block.attention_norm(y[None, None]) if block.normalise else y[None, None]
            return block.metric(h, 1.0).metric.U[0, head, 0]

    for head in range(HEADS):
        g = model_field(model, trace, 1, head)
        assert g.factor is not None and g.inclusion is not None
        for i in range(8):
            direction = torch.zeros(16, dtype=torch.float64)
            direction[8 * head + i] = 1.0
            assert torch.equal(g.inclusion[:, i], direction)
            exact = (U(x + step * direction, head) - U(x - step * direction, head)) / (2 * step)
            torch.testing.assert_close(jvp(g.factor, (x,), (direction,))[1], exact, rtol=1e-6, atol=1e-8)


def test_the_reading_along_keys_is_the_pull_back(model: FiberBundleTransformer) -> None:
    """With W from the residual (norm linearised by its gain) to a key: W E = I, so E^T (W^T g W) E = g."""
    trace = traced(model)
    block = model.blocks[0]
    weight = (block.query if model.config.tied_qk else block.key).weight
    W = (weight * (block.attention_norm.weight if block.normalise else 1.0)).detach().unflatten(0, (HEADS, 8))
    for head in range(HEADS):
        g = model_field(model, trace, 0, head, "key")
        E, x = g.inclusion, field_points(trace, 0)[2]
        assert E is not None
        torch.testing.assert_close(W[head] @ E, torch.eye(8, dtype=torch.float64), rtol=1e-10, atol=1e-10)
        pulled = W[head].mT @ trace.layers[0].metric.dense()[head, 2] @ W[head]
        torch.testing.assert_close(E.mT @ pulled @ E, g.dense(x), rtol=1e-9, atol=1e-10)


def test_a_constant_metric_net_is_flat_whatever_its_proxy_says() -> None:
    """The counterexample of item 6, through all the code: Omega > 0, volume > 0, and no curvature at all."""
    model = model_of()
    with torch.no_grad():
        for block in model.blocks:
            block.metric.second.weight.zero_()
            block.metric.second.bias.normal_()
    trace = traced(model)
    assert (read(trace, "omega").values > 0.01).all() and (read_geometry(model, trace, "volume").values > 0.1).all()
    for name in ("scalar_curvature", "scalar_sampled", "sectional_max", "sectional_min", "sectional_top"):
        assert np.abs(read_geometry(model, trace, name).values).max() < 1e-14


def test_curvature_scales_with_the_square_of_lengths() -> None:
    """Without a norm, x -> c x in the weights of MetricNet makes every residual length c times shorter: S / c^2."""
    model = model_of(**MODELS["no norm"])
    trace = traced(model)
    x = field_points(trace, 0)[1]
    before = scalar(model_field(model, trace, 0, 0), x)
    with torch.no_grad():
        model.blocks[0].metric.first.weight *= 3.0
    after = scalar(model_field(model, trace, 0, 0), x / 3.0)
    torch.testing.assert_close(after, 9 * before, rtol=1e-9, atol=1e-12)


# --- other sources ------------------------------------------------------------------------------------------------


def baseline(**options: Any) -> FiberBundleTransformer:
    return model_of(score="euclidean", **options)


@pytest.mark.parametrize("token", [0, 4])
def test_the_fisher_field_is_that_of_autograd(token: int) -> None:
    """On the slice of its token, at the token and elsewhere: I + c J^T (diag p - p p^T) J."""
    model = baseline()
    trace = apply(model, traced(model), "fisher", rank=3, strength=0.7)
    layer, x = trace.layers[1], field_points(trace, 1)[token]
    g = model_field(model, trace, 1, 0, token=token)
    assert g.inclusion is not None and g.dim == 3 and layer.residual_U is not None

    def lens(y: Tensor) -> Tensor:
        return model.final_norm(y) @ model.embedding.weight.mT

    def fisher(y: Tensor) -> Tensor:
        J = torch.autograd.functional.jacobian(lens, y)
        p = lens(y).softmax(-1).detach()
        return J.mT @ (p.diag() - torch.outer(p, p)) @ J

    with torch.enable_grad():
        strongest = torch.linalg.eigvalsh(fisher(x))[-1]
        scale = layer.residual_U[token].square().sum(0).max() / strongest
        for move in (torch.zeros(3), torch.tensor([0.3, -0.2, 0.5])):
            y = x + g.embed(move.double())
            E = g.inclusion
            exact = torch.eye(3, dtype=torch.float64) + scale * E.mT @ fisher(y) @ E
            torch.testing.assert_close(g.dense(y), exact, rtol=1e-6, atol=1e-8)


def test_the_fisher_measures_have_one_head() -> None:
    model = baseline()
    trace = apply(model, traced(model), "fisher", rank=3)
    found = read_geometry(model, trace, "scalar_curvature")
    assert found.values.shape == (LAYERS, 1, LENGTH) and found.labels["head"] == ("all",)
    assert np.isfinite(found.values).all() and "slice of the 3 directions" in " ".join(found.notes)
    assert np.isnan(read_geometry(model, trace, "sectional_qk").values).all()


def adapted(model: FiberBundleTransformer, layers: tuple[int, ...]) -> Adapter:
    config = AdapterConfig(layers, HEADS, 8, 16, 12, rank=3)
    nets = AdapterNets(config, seed=1)
    tensors = {name: value.detach() for name, value in nets.state_dict().items()}
    return Adapter(config, tensors, "0" * 64, "base", {}, Origin("a", "safetensors", "0" * 64, 1))


def test_an_adapters_field_is_its_metric() -> None:
    model = baseline()
    trace = apply(model, traced(model), "adapter", strength=0.5, adapter=adapted(model, (1,)))
    assert "has no metric for layer 0" in field_unavailable(model, trace, 0) and field_unavailable(model, trace) == ""
    points = field_points(trace, 1)
    for head in range(HEADS):
        g = model_field(model, trace, 1, head)
        assert g.factor is not None
        torch.testing.assert_close(vmap(g.factor)(points), trace.layers[1].given.U[head].double(), rtol=1e-5, atol=1e-7)
    found = read_geometry(model, trace, "scalar_curvature")
    assert np.isnan(found.values[0]).all() and (np.abs(found.values[1]) > 1e-8).all()


def of_library(architecture: str) -> Any:
    """A tiny model of the transformers library."""
    return build(checkpoint_of(library_model(architecture)))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
def test_the_fisher_field_of_a_library_model(architecture: str) -> None:
    """A LayerNorm, an RMSNorm, and an RMSNorm of another form whose logits have a soft cap."""
    model, precise = of_library(architecture), of_library(architecture)
    precise.module.double()
    trace = apply(model, model.trace(torch.arange(2, 8)), "fisher", rank=2)
    x = field_points(trace, 1)[3]
    g = model_field(model, trace, 1, 0, token=3)

    def lens(y: Tensor) -> Tensor:
        return precise.lens(y[None])[0]

    with torch.enable_grad():
        E, y = g.inclusion, x + g.embed(torch.tensor([0.2, -0.1], dtype=torch.float64))
        assert E is not None
        J = torch.autograd.functional.jacobian(lens, y) @ E
        p = lens(y).softmax(-1).detach()
        exact = J.mT @ (p.diag() - torch.outer(p, p)) @ J
        beyond = g.dense(y) - torch.eye(2, dtype=torch.float64)
    scale = beyond.trace() / exact.trace()
    torch.testing.assert_close(beyond, scale * exact, rtol=1e-4, atol=1e-4 * float(beyond.abs().max()))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2", "opt"])
def test_an_adapters_field_on_a_library_model(architecture: str) -> None:
    """Norms of several forms, grouped heads, and heads whose widths do not add up to the stream's."""
    model = of_library(architecture)
    plain = model.trace(torch.arange(2, 8))
    heads, _, dim = plain.layers[1].given.k.shape
    width = plain.layers[1].residual_in.shape[1]
    config = AdapterConfig((1,), heads, dim, width, 12, rank=2)
    tensors = {name: value.detach() for name, value in AdapterNets(config, seed=1).state_dict().items()}
    given = Adapter(config, tensors, "0" * 64, "base", {}, Origin("a", "safetensors", "0" * 64, 1))
    trace = apply(model, plain, "adapter", adapter=given)
    points = field_points(trace, 1)
    for reading in ("key", "block") if heads * dim == width else ("key",):
        g = model_field(model, trace, 1, heads - 1, reading)
        assert g.factor is not None
        torch.testing.assert_close(vmap(g.factor)(points), trace.layers[1].given.U[-1].double(), rtol=1e-4, atol=1e-6)
        assert scalar(g, points[2]).isfinite()


@pytest.mark.parametrize(
    ("source", "said", "zero"),
    [
        ("", "no metric", True),
        ("identity", "same everywhere", True),
        ("causal", "same everywhere", True),
        ("local", "no function of a point", False),
    ],
)
def test_what_is_no_field_says_so(source: str, said: str, zero: bool) -> None:
    model = baseline()
    trace = apply(model, traced(model), source) if source else traced(model)
    assert said in field_unavailable(model, trace) and said in field_unavailable(model, trace, 1)
    with pytest.raises(ValueError, match=said):
        model_field(model, trace, 0, 0)
    found = read_geometry(model, trace, "scalar_curvature")
    assert said in " ".join(found.notes) and found.values.shape == (LAYERS, HEADS, LENGTH)
    assert (found.values == 0).all() if zero else np.isnan(found.values).all()
    volume = read_geometry(model, trace, "volume").values
    np.testing.assert_allclose(volume, read(trace, "logdet_g").values / 2, rtol=1e-12, atol=1e-15)


def test_what_is_asked_wrongly_is_said() -> None:
    model = model_of()
    trace = traced(model)
    for wrong, said in (
        ({"reading": "half"}, "got reading 'half'"),
        ({"layer": 2}, "got layer 2, expected 0 to 1"),
        ({"head": 2}, "got head 2, expected 0 to 1"),
    ):
        asked = {"layer": 0, "head": 0, "reading": "block"} | wrong
        with pytest.raises(ValueError, match=said):
            model_field(model, trace, **asked)
        if "reading" not in wrong:
            with pytest.raises(ValueError, match=said):
                read_geometry(model, trace, "volume", **wrong)
    with pytest.raises(ValueError, match="got measure 'curl'"):
        read_geometry(model, trace, "curl")
    with pytest.raises(ValueError, match="got planes = 1"):
        read_geometry(model, trace, "volume", planes=1)
    x = torch.zeros(LENGTH, 20)
    wide = replace(trace, layers=(replace(trace.layers[0], residual_in=x, residual_mid=x, residual_out=x),))
    with pytest.raises(ValueError, match="take the reading along keys"):
        model_field(model, wide, 0, 0)


# --- the measures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GEOMETRY)
def test_every_row_documents_itself_and_keeps_its_axes(name: str) -> None:
    row = GEOMETRY[name]
    assert row.name == name and row.axes == ("layer", "head", "token") and set(row.options) <= set(OPTIONS)
    assert all([row.symbol, row.title, row.range, row.equation, row.source]) and "|" not in row.symbol + row.equation
    model = model_of()
    trace = traced(model)
    for reading in READINGS:
        heads = field_heads(trace, reading)
        found = read_geometry(model, trace, name, reading=reading, planes=8)
        assert found.values.shape == (LAYERS, heads or 1, LENGTH) and found.values.dtype == np.float64
        assert [len(found.labels[axis]) for axis in row.axes] == list(found.values.shape)
        assert np.isfinite(found.values).all() and found.options["reading"] == reading
        one = read_geometry(model, trace, name, reading=reading, planes=8, layer=1, head=1 if heads else None)
        np.testing.assert_allclose(one.values[0, 0], found.values[1, 1 if heads else 0], rtol=1e-9, atol=1e-13)
        assert found.to_csv().count("\n") == found.values.size + 1 and found.to_json()


def test_measures_are_those_of_the_field() -> None:
    """One token of one head, each number by its own definition."""
    from fbt_core.geometry.curvature import sectional

    model = model_of()
    trace = traced(model)
    layer, head, token = 1, 1, 4
    g, x = model_field(model, trace, layer, head), field_points(trace, layer)[token]
    given = trace.layers[layer].given
    values, vectors = torch.linalg.eigh(g.dense(x))

    def value(name: str) -> float:
        return float(read_geometry(model, trace, name).values[layer, head, token])

    assert value("scalar_curvature") == pytest.approx(float(scalar(g, x)), rel=1e-10)
    assert value("sectional_top") == pytest.approx(float(sectional(g, x, vectors[:, -1], vectors[:, -2])), rel=1e-9)
    qk = sectional(g, x, given.q[head, token], given.k[head, token])
    assert value("sectional_qk") == pytest.approx(float(qk), rel=1e-9)
    assert value("volume") == pytest.approx(float(torch.logdet(g.dense(x))) / 2, rel=1e-11)
    assert value("condition") == pytest.approx(float(values[-1] / values[0]), rel=1e-11)
    assert value("sectional_min") <= value("sectional_qk") <= value("sectional_max")
    assert abs(value("scalar_sampled") - value("scalar_curvature")) < 5 * value("sampling_error")


def test_bad_tokens_are_named() -> None:
    model = model_of()
    trace = traced(model)
    residual = trace.layers[0].residual_in.clone()
    residual[2] = torch.inf
    bad = replace(trace, layers=(replace(trace.layers[0], residual_in=residual), trace.layers[1]))
    found = read_geometry(model, bad, "scalar_curvature")
    assert np.isnan(found.values[0, :, 2]).all() and np.isfinite(np.delete(found.values, 2, 2)).all()
    assert any("at tokens (2)" in note for note in found.notes)


def test_an_ill_conditioned_metric_is_named() -> None:
    model = model_of()
    trace = traced(model, strength=1e5)
    assert any("ill-conditioned" in note for note in read_geometry(model, trace, "scalar_curvature").notes)
    assert not any("ill-conditioned" in note for note in read_geometry(model, traced(model), "scalar_curvature").notes)


def test_surveys_are_kept_as_long_as_their_trace() -> None:
    model = model_of()
    trace = traced(model)
    before = len(measures.KEPT)
    read_geometry(model, trace, "scalar_curvature")
    assert len(measures.KEPT) == before + LAYERS * HEADS
    read_geometry(model, trace, "sectional_max")
    assert len(measures.KEPT) == before + LAYERS * HEADS
    del trace
    gc.collect()
    assert len(measures.KEPT) == before
