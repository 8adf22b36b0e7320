"""Dong's four ablations against loops written by hand, and the reasons where parts cannot be left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fbt_core.config import FiberBundleConfig
from fbt_core.huggingface.model import HuggingFaceModel
from fbt_core.model import FiberBundleTransformer, build
from fbt_core.model.ablation import VARIANTS, ablations
from fbt_core.model.watching import observe, watching
from tests.architectures import ARCHITECTURES, PARALLEL, arguments_of, checkpoint_of, inputs_of, library_model

IDS = torch.tensor([5, 9, 33, 7, 12, 60, 4])
NAMES = tuple(VARIANTS)


def closes(ours: Tensor, theirs: Tensor) -> bool:
    """Equal to float32 rounding after a few layers."""
    return bool((ours - theirs).abs().max() <= 2e-5 * theirs.abs().max())


def joined(x: Tensor, update: Tensor, skip: bool) -> Tensor:
    """A residual addition with or without its skip."""
    return x + update if skip else update


def causal_mask(length: int) -> Tensor:
    """The library's additive mask, as its eager attention wants it."""
    return torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]


def gpt2_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """Residuals entering each block, and leaving the last."""
    body = model.transformer
    x = body.wte(IDS)[None] + body.wpe(torch.arange(len(IDS)))
    found = [x]
    for block in body.h:
        x = joined(x, block.attn(block.ln_1(x), attention_mask=causal_mask(len(IDS)))[0], skip)
        x = joined(x, block.mlp(block.ln_2(x)), skip) if feed_forward else x
        found.append(x)
    return found


def llama_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """The same for Llama, and for whatever normalises before and adds after."""
    body = model.model
    x = body.embed_tokens(IDS)[None]
    turned = body.rotary_emb(x, torch.arange(len(IDS))[None])
    found = [x]
    for block in body.layers:
        given = {"position_embeddings": turned, "attention_mask": causal_mask(len(IDS))}
        x = joined(x, block.self_attn(block.input_layernorm(x), **given)[0], skip)
        x = joined(x, block.mlp(block.post_attention_layernorm(x)), skip) if feed_forward else x
        found.append(x)
    return found


def bert_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """The same for BERT, which normalises after it adds; the norms stay."""
    x = model.bert.embeddings(input_ids=IDS[None])
    found = [x]
    for block in model.bert.encoder.layer:
        inner, output = block.attention.self, block.attention.output
        x = output.LayerNorm(joined(x, output.dense(inner(x)[0]), skip))
        update = block.output.dense(block.intermediate(x))
        x = block.output.LayerNorm(joined(x, update, skip) if feed_forward else x)
        found.append(x)
    return found


def t5_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """The same for the encoder of T5, whose first layer makes the position bias of all."""
    x, bias = model.shared(IDS)[None], None
    found = [x]
    for block in model.encoder.block:
        attention, last = block.layer[0], block.layer[1]
        update, bias = attention.SelfAttention(attention.layer_norm(x), position_bias=bias)[:2]
        x = joined(x, update, skip)
        x = joined(x, last.DenseReluDense(last.layer_norm(x)), skip) if feed_forward else x
        found.append(x)
    return found


def neox_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """The same for GPT-NeoX, whose attention and feed-forward read the same residual and are added at once."""
    body = model.gpt_neox
    x = body.embed_in(IDS)[None]
    turned = body.rotary_emb(x, torch.arange(len(IDS))[None])
    found = [x]
    for block in body.layers:
        given = {"position_embeddings": turned, "attention_mask": causal_mask(len(IDS))}
        update = block.attention(block.input_layernorm(x), **given)[0]
        if feed_forward:
            update = update + block.mlp(block.post_attention_layernorm(x))
        x = joined(x, update, skip)
        found.append(x)
    return found


def cohere_by_hand(model: Any, skip: bool, feed_forward: bool) -> list[Tensor]:
    """The same for Cohere: parallel too, but added one after the other."""
    body = model.model
    x = body.embed_tokens(IDS)[None]
    turned = body.rotary_emb(x, torch.arange(len(IDS))[None])
    found = [x]
    for block in body.layers:
        h = block.input_layernorm(x)
        given = {"position_embeddings": turned, "attention_mask": causal_mask(len(IDS))}
        update = block.self_attn(h, **given)[0]
        if feed_forward:
            update = update + block.mlp(h)
        x = joined(x, update, skip)
        found.append(x)
    return found


BY_HAND = {
    "gpt2": gpt2_by_hand, "llama": llama_by_hand, "bert": bert_by_hand, "t5": t5_by_hand, "gpt_neox": neox_by_hand,
    "cohere": cohere_by_hand,
}  # fmt: skip


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("name", BY_HAND)
def test_variants_equal_loops_written_by_hand(name: str, variant: str) -> None:
    what = VARIANTS[variant]
    by_hand = BY_HAND[name](library_model(name), what.skip, what.feed_forward)
    trace = build(checkpoint_of(library_model(name))).trace(IDS, variant=variant)
    ours = [trace.layers[0].residual_in, *(layer.residual_out for layer in trace.layers)]
    assert len(ours) == len(by_hand)
    for mine, theirs in zip(ours, by_hand, strict=True):
        assert closes(mine, theirs[0])


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_the_middle_stands_between_attention_and_feed_forward(name: str) -> None:
    """Without feed-forward a block of the hand-written loop ends at the middle, up to BERT's second norm."""
    model = library_model(name)
    trace = build(checkpoint_of(model)).trace(IDS)
    middle = trace.layers[0].residual_mid
    assert middle is not None
    expected = BY_HAND[name](library_model(name), True, False)[1][0]
    if name == "bert":
        middle = model.bert.encoder.layer[0].output.LayerNorm(middle)
    assert closes(middle, expected)


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES)))
def test_every_architecture_runs_each_variant_or_says_why_not(name: str) -> None:
    """And where it runs, leaving a part out changes the result, while ``full`` is the model itself."""
    inputs = inputs_of(name)
    reference = library_model(name)(**inputs, output_hidden_states=True)
    model = build(checkpoint_of(library_model(name)))
    traces = {variant: next(iter(model.traces(**arguments_of(inputs), variant=variant).values())) for variant in NAMES}
    if traces["full"].logits is not None:
        assert closes(traces["full"].logits, reference.logits[0])
    last = {variant: trace.layers[-1].residual_out for variant, trace in traces.items()}
    assert not closes(last["san"], last["full"]) and not closes(last["san+skip"], last["san"])
    if name == "mamba":  # a block of it is a mixer and nothing else
        assert torch.equal(last["san+skip"], last["full"])
    else:
        assert not closes(last["san+skip"], last["full"])
    assert (traces["full"].layers[0].residual_mid is None) == (name in PARALLEL)


@pytest.fixture(params=["rezero", "riemannian", "euclidean"])
def fiber_bundle(request: pytest.FixtureRequest) -> FiberBundleTransformer:
    sizes: dict[str, Any] = {"vocab_size": 61, "width": 16, "layers": 3, "heads": 2, "feed_forward": 24, "context": 16}
    if request.param == "rezero":
        sizes |= {"residual": "rezero", "transport": "frame", "torsion_rank": 1}
    config = FiberBundleConfig(**sizes, score="euclidean" if request.param == "euclidean" else "riemannian")
    model = FiberBundleTransformer(config, seed=3).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith("_gain"):
            parameter.fill_(0.7)  # at 0, as initialised, no variant would differ from another
    return model


@pytest.mark.parametrize("variant", NAMES)
def test_a_fiber_bundle_transformer_goes_through_the_same_watch(fiber_bundle: Any, variant: str) -> None:
    what, rezero = VARIANTS[variant], fiber_bundle.config.residual == "rezero"
    x = fiber_bundle._embed(IDS[None])
    by_hand = [x]
    for block in fiber_bundle.blocks:
        h = block.attention_norm(x)
        field = block.metric(h, 1.0) if fiber_bundle.config.has_metric else None
        factors = block._factors(h, field, None)
        torsion = block.torsion(h) if fiber_bundle.config.torsion_rank else None
        update = block.output(block._attend(factors, torsion).transpose(1, 2).flatten(2))
        x = joined(x, block.attention_gain * update if rezero else update, what.skip)
        if what.feed_forward:
            update = block._feed_forward(x, factors)
            x = joined(x, block.feed_forward_gain * update if rezero else update, what.skip)
        by_hand.append(x)
    trace = fiber_bundle.traces(IDS, variant=variant)[""]
    for mine, theirs in zip([trace.layers[0].residual_in, *(layer.residual_out for layer in trace.layers)], by_hand,
                            strict=True):  # fmt: skip
        assert closes(mine, theirs[0])


def test_a_pure_stack_has_nothing_to_leave_out() -> None:
    config = FiberBundleConfig(vocab_size=61, width=16, layers=2, heads=2, pure_stack=True, precondition=False)
    model = FiberBundleTransformer(config)
    assert model.traces(IDS)[""].layers[0].residual_out is not None
    with pytest.raises(ValueError, match="contributions"):
        model.traces(IDS, variant="san")


def test_ablations_gives_one_trace_a_variant() -> None:
    model = build(checkpoint_of(library_model("t5")))
    found = ablations(model, IDS, stack="decoder")
    assert list(found) == ["full", "san+skip", "san+mlp", "san"]
    assert all(trace.stack == "decoder" for trace in found.values())
    expected = model.traces(IDS, variant="san")["decoder"].layers[-1].residual_out
    assert torch.equal(found["san"].layers[-1].residual_out, expected)


def test_an_unknown_variant_is_refused() -> None:
    model = build(checkpoint_of(library_model("gpt2")))
    with pytest.raises(ValueError, match="'half', expected one of full"):
        model.trace(IDS, variant="half")


class Hidden(nn.Module):
    """A block whose residual addition is no addition that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x, self.mixing(x)]).sum(0)


class InPlace(nn.Module):
    """A block that adds into its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x += self.mixing(x)
        return x


def test_a_block_that_cannot_be_seen_is_refused_and_not_guessed() -> None:
    block = Hidden()
    observe(block, {"": [block]}, lambda part: isinstance(part, nn.Linear), lambda part: False)
    with watching("san") as watch, torch.no_grad():
        block(torch.ones(1, 3, 4))
    with pytest.raises(ValueError, match="got block 0 \\(Hidden\\)"):
        watch.check()
    with watching("full") as watch, torch.no_grad():
        block(torch.ones(1, 3, 4))
    watch.check()
    assert not watch.passages[0].seen


def test_what_a_block_writes_over_was_copied_before() -> None:
    first, second = InPlace(), InPlace()
    model = nn.Sequential(first, second)
    observe(model, {"": [first, second]}, lambda part: isinstance(part, nn.Linear), lambda part: False)
    start = torch.randn(1, 3, 4)
    middle = start + first.mixing(start)
    end = middle + second.mixing(middle)
    with watching("full") as watch, torch.no_grad():
        model(start.clone())
    one, two = watch.passages
    assert one.after is not None and two.after is not None
    assert closes(one.before, start) and closes(one.after, middle)
    assert closes(two.before, middle) and closes(two.after, end)
    with watching("san") as watch, torch.no_grad():
        out = model(start.clone())
    watch.check()
    assert closes(out, second.mixing(first.mixing(start)))


def test_models_are_watched_once_however_often_they_are_wrapped() -> None:
    module = library_model("llama")
    config = checkpoint_of(module).config
    first = HuggingFaceModel(module, config).trace(IDS)
    again = HuggingFaceModel(module, config).trace(IDS)
    assert len(again.layers) == len(first.layers) == module.config.num_hidden_layers
    assert torch.equal(first.layers[-1].residual_out, again.layers[-1].residual_out)
