"""Every source of a metric against autograd, dense linear algebra or a loop, and the contract that all rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.causal import causal_factor
from fbt_core.geometry.ellipsoid import trace_field
from fbt_core.geometry.fisher import fisher_metric
from fbt_core.geometry.local import local_factors
from fbt_core.geometry.quotient import head_factors
from fbt_core.geometry.readout import readout
from fbt_core.geometry.sources import SOURCES, apply, with_strength
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.measures import read
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.trace import Trace

EXACT = {"rtol": 1e-9, "atol": 1e-11}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Stub:
    """A model that is nothing but a readout."""

    def __init__(self, norm: nn.Module, unembedding: Tensor, bias: Tensor | None = None, link: Any = None) -> None:
        self.norm, self.unembedding, self.bias, self.link = norm, unembedding, bias, link or (lambda x: x)

    def final_norm(self, h: Tensor) -> Tensor:
        return self.norm(h)

    def lens(self, h: Tensor) -> Tensor:
        return self.link(self.norm(h) @ self.unembedding.mT + (0 if self.bias is None else self.bias))


def norms(width: int) -> dict[str, nn.Module]:
    """One of each kind, with gains and shifts that are nobody's default."""
    kinds = {
        "rms": nn.RMSNorm(width, eps=1e-5),
        "layer": nn.LayerNorm(width, eps=1e-4),
        "layer without bias": nn.LayerNorm(width, bias=False),
        "none": nn.Identity(),
    }
    for norm in kinds.values():
        for seed, parameter in enumerate(norm.parameters()):
            parameter.data = normal(width, seed=seed + 5).float()
        norm.double().requires_grad_(False)
    return kinds


def stub(kind: str, width: int = 6, vocab: int = 11, cap: float | None = None, bias: bool = True) -> Stub:
    link = None if cap is None else lambda x: cap * torch.tanh(x / cap)
    return Stub(norms(width)[kind], normal(vocab, width, seed=1), normal(vocab, seed=2) if bias else None, link)


def dense_fisher(lens: Callable[[Tensor], Tensor], x: Tensor, kept: Tensor | None = None) -> Tensor:
    """J^T (diag p - p p^T) J by autograd; with ``kept``, the terms of those tokens alone, about the mean of all."""
    J = torch.func.jacrev(lambda h: lens(h[None])[0])(x)
    p = lens(x[None])[0].softmax(-1)
    rows = (J - p @ J) * p.sqrt()[:, None]
    return rows.mT @ rows if kept is None else rows[kept].mT @ rows[kept]


def best_rank(G: Tensor, rank: int) -> Tensor:
    values, vectors = torch.linalg.eigh(G)
    return (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].mT


# --- the readout ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("kind", ["rms", "layer", "layer without bias", "none"])
def test_the_readout_is_the_models_own(kind: str, width: int) -> None:
    model, x, y = stub(kind, width), 3 * normal(4, width, seed=3), normal(4, 2, width, seed=4)
    found = readout(model)
    torch.testing.assert_close(found.logits(found.products(x)), model.lens(x), **EXACT)
    for token in range(4):
        J = torch.func.jacrev(model.norm)(x[token])
        torch.testing.assert_close(found.norm.push(x, y)[token], y[token] @ J.mT, **EXACT)
        torch.testing.assert_close(found.norm.pull(x, y)[token], y[token] @ J, **EXACT)


def test_the_epsilon_of_the_norm_is_found_where_it_matters() -> None:
    model, x = stub("layer"), 1e-3 * normal(4, 6)
    found = readout(model)
    torch.testing.assert_close(found.logits(found.products(x)), model.lens(x), rtol=1e-6, atol=1e-9)


def test_capped_and_scaled_logits_have_their_slope() -> None:
    model = stub("rms", cap=12.0, bias=False)
    found = readout(model, softcap=12.0)
    x = normal(3, 6, seed=9)
    torch.testing.assert_close(found.logits(found.products(x)), model.lens(x), rtol=1e-7, atol=1e-8)
    scaled = stub("rms", bias=False)
    scaled.link = lambda x: x / 8
    assert readout(scaled).scale == pytest.approx(1 / 8)


def test_logits_that_are_no_linear_function_are_refused() -> None:
    model = stub("rms", bias=False)
    model.link = lambda x: x**3
    with pytest.raises(ValueError, match="no linear function"):
        readout(model)
    model.unembedding = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no unembedding"):
        readout(model)


# --- fisher ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rms", "layer", "none"])
def test_fisher_is_the_hessian_of_the_divergence(kind: str) -> None:
    model, x = stub(kind), normal(3, 6, seed=3)
    found = fisher_metric(readout(model), x, rank=6)
    for token in range(3):
        p = model.lens(x[token][None])[0].log_softmax(-1)

        def divergence(v: Tensor, x: Tensor = x[token], p: Tensor = p) -> Tensor:
            return (p.exp() * (p - model.lens((x + v)[None])[0].log_softmax(-1))).sum()

        hessian = torch.autograd.functional.hessian(divergence, torch.zeros(6, dtype=torch.float64))
        torch.testing.assert_close(found.U[token] @ found.U[token].mT, hessian, **EXACT)
        assert float(found.total[token]) == pytest.approx(float(hessian.trace()), rel=1e-9)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_fisher_keeps_the_best_part_of_that_rank(rank: int) -> None:
    model, x = stub("rms", width=12, vocab=40), normal(5, 12, seed=3)
    found = fisher_metric(readout(model), x, rank)
    for token in range(5):
        G = dense_fisher(model.lens, x[token])
        values = torch.linalg.eigvalsh(G).flip(-1)
        torch.testing.assert_close(found.U[token] @ found.U[token].mT, best_rank(G, rank), rtol=1e-7, atol=1e-9)
        error = torch.linalg.matrix_norm(G - found.U[token] @ found.U[token].mT, 2)
        assert float(error) == pytest.approx(float(values[rank]), rel=1e-6)
        assert float(found.rest[token]) == pytest.approx(float(values[rank] / values[0]), rel=1e-6)


@pytest.mark.parametrize("cap", [None, 9.0])
def test_fisher_of_the_likeliest_tokens_is_part_of_the_whole(cap: float | None) -> None:
    model, x = stub("rms", width=8, vocab=40, cap=cap, bias=cap is None), normal(4, 8, seed=3)
    found = fisher_metric(readout(model, cap), x, rank=8, vocabulary=10)
    for token in range(4):
        kept = model.lens(x[token][None])[0].topk(10).indices
        part, whole = dense_fisher(model.lens, x[token], kept), dense_fisher(model.lens, x[token])
        tight = {"rtol": 1e-5, "atol": 1e-7} if cap else EXACT
        torch.testing.assert_close(found.U[token] @ found.U[token].mT, part, **tight)
        assert float(found.kept[token]) == pytest.approx(float(part.trace()), rel=1e-6)
        assert float(found.total[token]) == pytest.approx(float(whole.trace()), rel=1e-6)
        assert torch.linalg.eigvalsh(whole - part).min() > -1e-10
        assert part.trace() < whole.trace()


@pytest.mark.parametrize("rank", [1, 3])
def test_block_krylov_finds_the_leading_part_of_a_wide_space(rank: int) -> None:
    """Wide enough that the blocks do not fill the space, and the eigenvalues close to one another."""
    model, x = stub("rms", width=60, vocab=300), normal(4, 60, seed=3)
    found = fisher_metric(readout(model), x, rank)
    for token in range(4):
        G = dense_fisher(model.lens, x[token])
        values = torch.linalg.eigvalsh(G).flip(-1)
        error = torch.linalg.matrix_norm(G - found.U[token] @ found.U[token].mT, 2)
        assert values[rank] * (1 - 1e-9) <= error < values[rank] * 1.05
        assert float(found.U[token].square().sum()) == pytest.approx(float(values[:rank].sum()), rel=0.01)
        assert 0.9 * values[rank] / values[0] < found.rest[token] <= values[rank] / values[0] * (1 + 1e-9)


@pytest.mark.parametrize("vocabulary", [None, 20])
def test_fisher_of_a_nearly_certain_prediction_is_not_rounding(vocabulary: int | None) -> None:
    """Where all but 1e-12 is one token's, float32 must not subtract its row of J from the mean that it nearly is, nor
    take the rest of a basis, in which there is nothing but rounding, for directions."""
    model, x = stub("rms", width=60, vocab=200, bias=False), 100 * normal(6, 60, seed=3)
    model.unembedding = 14 * model.unembedding
    p = model.lens(x).softmax(-1).amax(-1)
    assert p.max() > 1 - 1e-6
    dense = [dense_fisher(model.lens, h, model.lens(h[None])[0].topk(vocabulary or 200).indices) for h in x]
    model.norm.float()
    model.unembedding = model.unembedding.float()
    single = fisher_metric(readout(model), x.float(), rank=3, vocabulary=vocabulary)
    for token, G in enumerate(dense):
        U = single.U[token].double()
        assert float((U @ U.mT - best_rank(G, 3)).norm()) < 1e-3 * float(G.norm()), float(1 - p[token])
        assert float(single.kept[token]) == pytest.approx(float(G.trace()), rel=1e-3)


def test_fisher_is_the_same_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = stub("layer", width=8, vocab=40), normal(7, 8, seed=3)
    whole = fisher_metric(readout(model), x, 2, vocabulary=12)
    monkeypatch.setattr("fbt_core.geometry.fisher.MOST_NUMBERS", 200)
    torch.testing.assert_close(fisher_metric(readout(model), x, 2, vocabulary=12).U, whole.U, **EXACT)


# --- quotient, causal, local ----------------------------------------------------------------------------------------


def test_the_quotient_is_the_dense_one() -> None:
    W, U = normal(3, 4, 9, seed=1), normal(5, 9, 2, seed=2)
    found = head_factors(W, U)
    for head in range(3):
        values, vectors = torch.linalg.eigh(W[head] @ W[head].mT)
        root = vectors @ torch.diag(values.sqrt()) @ vectors.mT
        for token in range(5):
            g = torch.eye(9).double() + U[token] @ U[token].mT
            quotient = torch.linalg.inv(W[head] @ torch.linalg.inv(g) @ W[head].mT)
            dense = torch.eye(4).double() + found[head, token] @ found[head, token].mT
            torch.testing.assert_close(dense, root @ quotient @ root, **EXACT)


def test_the_quotient_is_the_shortest_way_up() -> None:
    """The squared length of a key is the least of all residuals over it, by constrained least squares."""
    W, U = normal(1, 3, 7, seed=1), normal(1, 7, 2, seed=2)
    g, key = torch.eye(7).double() + U[0] @ U[0].mT, normal(3, seed=3)
    system = torch.zeros(10, 10, dtype=torch.float64)
    system[:7, :7], system[:7, 7:], system[7:, :7] = g, W[0].mT, W[0]
    lift = torch.linalg.solve(system, torch.cat([torch.zeros(7).double(), key]))[:7]
    torch.testing.assert_close(W[0] @ lift, key, **EXACT)
    values, vectors = torch.linalg.eigh(W[0] @ W[0].mT)
    white = vectors @ torch.diag(values.rsqrt()) @ vectors.mT @ key
    Uh = head_factors(W, U)[0, 0]
    assert float(white @ white + (Uh.mT @ white).square().sum()) == pytest.approx(float(lift @ g @ lift))


def test_a_projection_that_lacks_a_direction_leaves_it_euclidean() -> None:
    W = normal(1, 3, 7, seed=1)
    W[0, 2] = W[0, 0] + W[0, 1]
    U = normal(4, 7, 2, seed=2)
    found = head_factors(W, U)
    assert found.isfinite().all()
    lost = torch.linalg.eigh(W[0] @ W[0].mT).eigenvectors[:, 0]
    torch.testing.assert_close(lost @ found[0], torch.zeros(4, 2).double(), **EXACT)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_causal_is_the_covariance_of_the_unembedding(kind: str) -> None:
    model = stub(kind, width=6, vocab=30)
    gain = torch.diag(model.norm.weight)
    if kind == "layer":
        gain = (torch.eye(6).double() - torch.full((6, 6), 1 / 6, dtype=torch.float64)) @ gain
    covariance = gain @ torch.cov(model.unembedding.mT, correction=0) @ gain.mT
    U = causal_factor(readout(model), 3)
    torch.testing.assert_close(U @ U.mT, best_rank(covariance, 3), **EXACT)
    full = causal_factor(readout(model), 8)
    assert full.shape == (6, 8)
    torch.testing.assert_close(full @ full.mT, covariance, **EXACT)


def test_causal_is_fisher_at_uniform_predictions() -> None:
    model = stub("none", width=6, vocab=30, bias=False)
    fisher = fisher_metric(readout(model), torch.zeros(1, 6).double(), rank=6).U[0]
    causal = causal_factor(readout(model), 6)
    torch.testing.assert_close(fisher @ fisher.mT, causal @ causal.mT, **EXACT)


@pytest.mark.parametrize(("length", "neighbours"), [(12, 4), (3, 16), (1, 4), (5, 0)])
def test_local_is_the_covariance_of_the_neighbourhood(length: int, neighbours: int) -> None:
    x = normal(length, 5, seed=1)
    x[-1] = x[0]  # two tokens at one place
    U = local_factors(x, 2, neighbours)
    assert U.shape == (length, 5, 2)
    points = x.numpy()
    for token in range(length):
        others = sorted(set(range(length)) - {token}, key=lambda j: (np.linalg.norm(points[token] - points[j]), j))
        around = points[[token, *others[:neighbours]]]
        moved = around - around.mean(0)
        covariance = torch.from_numpy(moved.T @ moved / len(around))
        torch.testing.assert_close(U[token] @ U[token].mT, best_rank(covariance, 2), rtol=1e-9, atol=1e-10)


# --- on a trace: our own baseline, and a small Llama ----------------------------------------------------------------


def euclidean_model(**more: Any) -> FiberBundleTransformer:
    config = FiberBundleConfig(
        vocab_size=30, width=16, layers=2, heads=2, feed_forward=16, score="euclidean", context=32, **more
    )
    return FiberBundleTransformer(config).double().eval().requires_grad_(False)


def library_model(kind: str) -> Any:
    """A small random model of the transformers library, its numbers made large enough to matter."""
    transformers = pytest.importorskip("transformers")
    from fbt_core.huggingface.model import HuggingFaceModel

    sizes: dict[str, Any] = {"vocab_size": 40, "max_position_embeddings": 64}
    if kind == "GPT2":
        sizes |= {"n_embd": 24, "n_layer": 2, "n_head": 4}
    else:
        sizes |= {
            "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 8,
        }  # fmt: skip
    settings = getattr(transformers, f"{kind}Config")(**sizes)
    name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    torch.manual_seed(0)
    module = getattr(transformers, name)(settings).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.data = parameter.data * 3 + 0.1 * torch.randn_like(parameter)
    return HuggingFaceModel(module, HuggingFaceConfig.from_table(settings.to_dict(), name))


def small_llama() -> Any:
    return library_model("Llama")


MODELS = {"euclidean": euclidean_model, "llama": small_llama}
WITHOUT_HELP = [name for name in SOURCES if name not in ("learned", "adapter")]


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def traced(request: pytest.FixtureRequest) -> tuple[Any, Trace]:
    model = request.param()
    return model, model.trace(torch.arange(9) * 3 % 30, tokens=[f"t{i}" for i in range(9)])


@pytest.mark.parametrize("source", WITHOUT_HELP)
def test_a_source_puts_a_metric_on_every_layer_and_changes_nothing_else(traced: tuple[Any, Trace], source: str) -> None:
    model, trace = traced
    steps: list[tuple[int, int]] = []
    found = apply(model, trace, source, rank=3, progress=lambda done, of: steps.append((done, of)))
    assert found.source == source and found.has_metric and found.strength == 1.0
    assert steps == [(1, 2), (2, 2)] and any("what-if" in note for note in found.notes)
    rank = 0 if source == "identity" else 3
    for layer, before in zip(found.layers, trace.layers, strict=True):
        f, g = layer.given, before.given
        assert f.U.shape == (*f.k.shape, rank)
        assert layer.residual_U is not None and layer.residual_U.shape == (*layer.residual_in.shape, rank)
        for name in ("q", "k", "v", "tau", "scale", "mask", "causal", "alpha"):
            assert getattr(f, name) is getattr(g, name)
        if rank:
            assert float(f.metric.trace.mean()) == pytest.approx(1.0, rel=1e-5)
            assert float(layer.residual_U.square().sum((1, 2)).mean()) == pytest.approx(1.0, rel=1e-5)
        softplus = float(torch.nn.functional.softplus(torch.tensor(-3.0)))
        torch.testing.assert_close(f.omega, softplus * f.metric.trace)
    again = apply(model, trace, source, rank=3)
    assert all(torch.equal(a.given.U, b.given.U) for a, b in zip(found.layers, again.layers, strict=True))


@pytest.mark.parametrize("source", WITHOUT_HELP)
def test_pages_can_draw_and_measure_every_source(traced: tuple[Any, Trace], source: str) -> None:
    model, trace = traced
    found = apply(model, trace, source)
    for space in ("keys", "residual"):
        assert trace_field(found, 1, space).missing == 0
    assert np.isfinite(read(found, "trace_k").values).all()
    attention = found.layers[0].attention(1, "riemannian")
    torch.testing.assert_close(attention.sum(-1), torch.ones(9).to(attention))
    if source == "identity":
        torch.testing.assert_close(attention, trace.layers[0].attention(1, "l2"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("source", WITHOUT_HELP)
def test_a_model_of_half_the_bits_has_its_scores_in_float32(source: str, dtype: torch.dtype) -> None:
    model = small_llama()
    ids = torch.arange(9)
    model.module.to(dtype)
    found = apply(model, model.trace(ids), source)
    model.module.to(torch.float32)  # the same rounded weights, without the rounding of activations
    exact = apply(model, model.trace(ids), source)
    for one, other in zip(found.layers, exact.layers, strict=True):
        attention = one.attention(1, "riemannian")
        assert attention.dtype == torch.float32
        torch.testing.assert_close(attention, other.attention(1, "riemannian"), rtol=0, atol=0.05)


@pytest.mark.parametrize("source", ["fisher", "local"])
def test_numbers_that_are_not_finite_are_a_reason_and_no_crash(source: str) -> None:
    model = euclidean_model()
    model.blocks[0].output.weight.data[0, 0] = float("nan")
    found = apply(model, model.trace(torch.arange(9)), source)
    assert any("not finite" in note for note in found.notes) and torch.isnan(found.layers[1].residual_in).all()


@pytest.mark.parametrize("source", ["fisher", "local"])
def test_strength_multiplies_after_the_scaling(traced: tuple[Any, Trace], source: str) -> None:
    model, trace = traced
    one, two = apply(model, trace, source), apply(model, trace, source, strength=2.0)
    slid = with_strength(one, 2.0)
    assert two.strength == slid.strength == 2.0
    for a, b, c in zip(one.layers, two.layers, slid.layers, strict=True):
        torch.testing.assert_close(b.given.U, 2 * a.given.U)
        torch.testing.assert_close(b.given.omega, 4 * a.given.omega)
        torch.testing.assert_close(c.given.U, b.given.U)
        torch.testing.assert_close(c.residual_U, b.residual_U)
    with pytest.raises(ValueError, match="strength 1"):
        with_strength(two, 3.0)


def test_fisher_of_our_own_model_is_the_dense_quotient() -> None:
    model = euclidean_model()
    trace = model.trace(torch.arange(5))
    found = apply(model, trace, "fisher", rank=16, normalise=False, vocabulary=None)

    def lens(h: Tensor) -> Tensor:
        return model.final_norm(h) @ model.embedding.weight.mT

    for layer, block in zip(found.layers, model.blocks, strict=True):
        W = (block.key.weight * block.attention_norm.weight).unflatten(0, (2, 8))
        for token in range(5):
            G = dense_fisher(lens, layer.residual_in[token])
            torch.testing.assert_close(layer.residual_U[token] @ layer.residual_U[token].mT, G, rtol=1e-7, atol=1e-9)
            for head in range(2):
                values, vectors = torch.linalg.eigh(W[head] @ W[head].mT)
                root = vectors @ torch.diag(values.sqrt()) @ vectors.mT
                g = torch.eye(16).double() + G
                dense = root @ torch.linalg.inv(W[head] @ torch.linalg.inv(g) @ W[head].mT) @ root
                U = layer.given.U[head, token]
                torch.testing.assert_close(torch.eye(8).double() + U @ U.mT, dense, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["Llama", "GPT2", "Gemma2"])
def test_fisher_of_a_library_model_is_autograd_through_its_lens(kind: str) -> None:
    """RMSNorm, LayerNorm with a shift, and a norm whose gain is 1 + w under capped logits."""
    model = library_model(kind)
    trace = model.trace(torch.arange(5))
    found = apply(model, trace, "fisher", rank=24, normalise=False, vocabulary=None)
    for layer in found.layers:
        for token in range(5):
            G = dense_fisher(model.lens, layer.residual_in[token])
            U = layer.residual_U[token]
            assert float((U @ U.mT - G).norm()) < 2e-3 * float(G.norm())


def test_a_rotated_layers_factors_turn_with_its_keys() -> None:
    """The causal metric is the same at every token, so in a rotary layer U differs by the rotation alone."""
    model = small_llama()
    trace = model.trace(torch.arange(6))
    layer = apply(model, trace, "causal", rank=2).layers[1]
    U, (cos, sin) = layer.given.U, trace.layers[1].rotary
    for head in range(4):
        for token in range(6):
            first, turned = U[head, 0], U[head, token]
            c, s = cos[token, :4, None], sin[token, :4, None]
            expected = torch.cat([first[:4] * c - first[4:] * s, first[4:] * c + first[:4] * s])
            torch.testing.assert_close(turned, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(U.square().sum((2, 3)), U[:, :1].square().sum((2, 3)).expand(-1, 6))
    assert not torch.allclose(U[0, 0], U[0, 3], atol=1e-3)


def test_the_query_projection_is_the_named_alternative() -> None:
    model = euclidean_model()
    trace = model.trace(torch.arange(5))
    key, query = (apply(model, trace, "fisher", projection=which).layers[0].given.U for which in ("key", "query"))
    assert not torch.allclose(key, query)
    with pytest.raises(ValueError, match="key or query"):
        apply(model, trace, "fisher", projection="value")


def test_the_notes_say_what_was_captured_and_scaled() -> None:
    model = euclidean_model()
    trace = model.trace(torch.arange(5))
    notes = " ".join(apply(model, trace, "fisher", vocabulary=8).notes)
    assert "captured" in notes and "of tr G" in notes and "natural units" in notes and "spectral error" in notes
    whole = " ".join(apply(model, trace, "fisher", vocabulary=None).notes)
    assert "captured 100.0%" in whole


def test_layers_without_queries_and_keys_stay_as_they_are() -> None:
    model = euclidean_model()
    trace = model.trace(torch.arange(5))
    bare = replace(trace.layers[0], factors=None, kind="mamba", why="layer 0 has no attention: it is a mamba layer")
    mixed = replace(trace, layers=(bare, trace.layers[1]))
    found = apply(model, mixed, "fisher")
    assert found.layers[0] is bare and found.layers[1].given.U.shape[-1] == 4
    with pytest.raises(ValueError, match="no layer"):
        apply(model, replace(trace, layers=(bare,)), "fisher")


def test_what_cannot_be_had_is_refused_with_the_reason() -> None:
    model = euclidean_model()
    trace = model.trace(torch.arange(5))
    with pytest.raises(ValueError, match="expected one of identity"):
        apply(model, trace, "nonsense")
    with pytest.raises(ValueError, match="strength -1"):
        apply(model, trace, "local", strength=-1.0)
    with pytest.raises(ValueError, match="no MetricNet"):
        apply(model, trace, "learned")
    with pytest.raises(ValueError, match="fbt_core adapt"):
        apply(model, trace, "adapter")
    with pytest.raises(ValueError, match="encoder"):
        apply(model, replace(trace, stack="encoder"), "fisher")
    fewer = {name: getattr(trace.layers[0].given, name)[:, :3] for name in ("k", "v", "omega")}
    crossed = replace(trace.layers[0], factors=replace(trace.layers[0].given, **fewer))
    with pytest.raises(ValueError, match="cross-attention"):
        apply(model, replace(trace, layers=(crossed,), key_tokens=("a", "b", "c"), stack="cross"), "local")


def test_learned_is_the_models_own_trace() -> None:
    config = FiberBundleConfig(vocab_size=30, width=16, layers=2, heads=2, feed_forward=16)
    model = FiberBundleTransformer(config).eval()
    trace = model.trace(torch.arange(5))
    found = apply(model, trace, "learned")
    assert found.layers is trace.layers and found.source == "learned"
    other = apply(model, trace, "local")
    assert not torch.equal(other.layers[0].given.U, trace.layers[0].given.U)


def test_every_row_says_what_it_is() -> None:
    for name, row in SOURCES.items():
        assert row.name == name and all((row.title, row.formula, row.source, row.cost, row.memory))


def test_work_that_was_stopped_goes_on_where_it_was() -> None:
    """A progress call that raises ends the work; the layers that were done are not computed again."""
    torch.manual_seed(0)
    config = FiberBundleConfig(vocab_size=11, width=8, layers=3, heads=2, feed_forward=8, score="euclidean")
    model = FiberBundleTransformer(config).double()
    trace = model.trace(torch.arange(5))
    finished: dict[int, Any] = {}

    def stop(done: int, layers: int) -> None:
        if done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        apply(model, trace, "fisher", 2, progress=stop, finished=finished)
    assert set(finished) == {0, 1}
    kept = dict(finished)
    whole, again = apply(model, trace, "fisher", 2), apply(model, trace, "fisher", 2, finished=finished)
    assert all(finished[index] is kept[index] for index in kept) and set(finished) == {0, 1, 2}
    for one, other in zip(whole.layers, again.layers, strict=True):
        torch.testing.assert_close(one.metric.U, other.metric.U)
