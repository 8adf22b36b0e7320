"""Adapters: the blended pass against the base's own, their training, their file and every way it can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as save_safetensors
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.checkpoints import Checkpoint, CheckpointError, Origin, native
from fbt_core.checkpoints import adapter as adapter_file
from fbt_core.checkpoints.adapter import Adapter, AdapterConfig
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.sources import apply
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.model.adapted import AdapterNets, base_of
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.tokenizer import WordByteTokenizer
from fbt_core.training.adapter import Text, adapter_plan, next_token_loss, open_text, train_adapter

ORIGIN = Origin("base.safetensors", "safetensors", "ab" * 32, 1234)
SENTENCE = "the quick brown fox jumps over the lazy dog. "


def euclidean_model() -> Any:
    config = FiberBundleConfig(
        vocab_size=257, width=16, layers=2, heads=2, feed_forward=16, score="euclidean", context=64
    )
    return FiberBundleTransformer(config).eval().requires_grad_(False)


def library_model(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    from fbt_core.huggingface.model import HuggingFaceModel

    sizes: dict[str, Any] = {"vocab_size": 257}
    if kind == "GPT2":
        sizes |= {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
    else:
        sizes |= {
            "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64,
        }  # fmt: skip
    if kind in ("Mistral", "Gemma2"):
        sizes["sliding_window"] = 7
    settings = getattr(transformers, f"{kind}Config")(**sizes)
    torch.manual_seed(0)
    name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    module = getattr(transformers, name)(settings).eval().requires_grad_(False)
    for parameter in module.parameters():  # the library starts small: nothing would attend to anything
        parameter.data = parameter.data + 0.2 * torch.randn_like(parameter)
    return HuggingFaceModel(module, HuggingFaceConfig.from_table(settings.to_dict(), name))


MODELS: dict[str, Any] = {
    "own": euclidean_model,
    "gpt2": lambda: library_model("GPT2"),
    "llama": lambda: library_model("Llama"),
    "mistral with a window": lambda: library_model("Mistral"),
    "gemma 2 with soft caps": lambda: library_model("Gemma2"),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


def parameters(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in getattr(model, "module", model).state_dict().items()}


def config_for(model: Any, **more: Any) -> AdapterConfig:
    base = base_of(model)
    return AdapterConfig(base.layers, base.heads, base.head_width, base.inputs, **{"hidden": 8, "rank": 2} | more)


def text(tmp_path: Path, repeats: int = 60) -> Text:
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "words.txt"
    path.write_text(SENTENCE * repeats, encoding="utf-8")
    return open_text(path, WordByteTokenizer(()), 24)


def checkpoint_of(model: Any) -> Checkpoint:
    return Checkpoint(model.config, parameters(model), WordByteTokenizer(()), {}, ORIGIN)


def trained(model: Any, tmp_path: Path, **numbers: Any) -> tuple[dict[str, Any], Path]:
    plan = adapter_plan(**{"steps": 20, "batch": 4, "length": 24, "learning_rate": 1e-2} | numbers)
    out = tmp_path / "adapter.safetensors"
    shape = {"rank": 2, "hidden": 8}
    return train_adapter(checkpoint_of(model), model, text(tmp_path), plan, shape, out), out


def opened(path: Path) -> Adapter:
    return adapter_file.open_adapter(path)


def test_without_its_share_an_adapter_changes_nothing(model: Any) -> None:
    """alpha = 0 through the replaced attention is the base's own forward: masks, scales, rotation, shared heads."""
    base, ids = base_of(model), torch.arange(40).reshape(2, 20) * 5 % 257
    nets = AdapterNets(config_for(model, alpha=0.0))
    with torch.no_grad():
        torch.testing.assert_close(base.logits(ids, nets), base.logits(ids, None), rtol=1e-4, atol=1e-5)
        bent = base.logits(ids, AdapterNets(config_for(model, alpha=0.5)))
        assert not torch.allclose(bent, base.logits(ids, None), atol=1e-3)


def test_the_blended_pass_is_the_score_of_a_trace_in_the_first_layer(model: Any) -> None:
    """The first layer's q, k, v do not depend on the adapter, so its attention is that of the base's trace, blended."""
    ids = torch.arange(12) * 5 % 257
    nets = AdapterNets(config_for(model, alpha=0.5))
    adapter = Adapter(nets.adapter, nets.state_dict(), ORIGIN.sha256, ORIGIN.name, {}, ORIGIN)
    layer = apply(model, model.trace(ids), "adapter", adapter=adapter).layers[0]
    f = layer.given.with_alpha(0.5)
    own = replace(layer, factors=f)
    mixed = torch.stack([own.attention(head, "blended") @ f.v[head] for head in range(layer.heads)], 1)

    seen: list[torch.Tensor] = []
    site = model._sites("")[0].attention if hasattr(model, "module") else model.blocks[0]
    output = next(m for n, m in site.named_modules() if n in ("output", "o_proj", "c_proj"))
    hook = output.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        base_of(model).logits(ids[None], nets)
    hook.remove()
    torch.testing.assert_close(seen[0][0], mixed.flatten(1), rtol=1e-4, atol=1e-5)


def test_training_lowers_the_loss_and_leaves_the_base_bit_identical(model: Any, tmp_path: Path) -> None:
    before = parameters(model)
    record, out = trained(model, tmp_path)
    losses = record["held_out_loss"]
    assert losses["end"] < losses["start"]
    assert record["curve"][-1][1] < record["curve"][0][1]
    for name, value in parameters(model).items():
        assert torch.equal(value, before[name]), name
    assert model.trace(torch.arange(5)).layers[0].factors is not None, "the base runs as before"
    adapter = opened(out)
    assert adapter.base_sha256 == ORIGIN.sha256 and adapter.training["held_out_loss"] == losses


def test_a_seed_gives_the_same_adapter_to_the_last_bit(tmp_path: Path) -> None:
    first, second, other = (trained(euclidean_model(), tmp_path / name, seed=seed, steps=4)[1]
                            for name, seed in (("a", 3), ("b", 3), ("c", 4)))  # fmt: skip
    a, b, c = (opened(path).tensors for path in (first, second, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_gradients_reach_every_net_and_are_finite_differences() -> None:
    model = euclidean_model().double()
    base, ids = base_of(model), torch.arange(16)[None] * 7 % 257
    nets = AdapterNets(config_for(model)).double()
    next_token_loss_64(base, nets, ids).backward()
    for name, parameter in nets.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
        index = int(parameter.grad.abs().argmax())
        with torch.no_grad():
            flat, losses = parameter.view(-1), []
            for step in (1e-5, -2e-5):
                flat[index] += step
                losses.append(float(next_token_loss_64(base, nets, ids)))
            flat[index] += 1e-5
        expected = (losses[0] - losses[1]) / 2e-5
        assert float(parameter.grad.view(-1)[index]) == pytest.approx(expected, rel=1e-4), name


def next_token_loss_64(base: Any, nets: AdapterNets, ids: torch.Tensor) -> torch.Tensor:
    """The loss without the cast to float32 of ``next_token_loss``."""
    logits = base.logits(ids, nets)[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def test_the_loss_is_the_mean_of_minus_log_p() -> None:
    model, ids = euclidean_model(), torch.arange(10)[None]
    logs = model(ids)[0].double().log_softmax(-1)
    expected = -sum(float(logs[t, ids[0, t + 1]]) for t in range(9)) / 9
    assert float(next_token_loss(base_of(model), None, ids)) == pytest.approx(expected, rel=1e-5)


def test_on_a_trace_the_metrics_are_the_nets_of_the_normed_residual(model: Any, tmp_path: Path) -> None:
    _, out = trained(model, tmp_path, steps=3)
    adapter = opened(out)
    trace = model.trace(torch.arange(8))
    found = apply(model, trace, "adapter", adapter=adapter)
    assert found.source == "adapter" and any("did not run" in note for note in found.notes)
    for layer in found.layers:
        x = layer.residual_in
        if hasattr(model, "module"):
            h = model._sites("")[layer.index].norm(x)
        else:
            h = model.blocks[layer.index].attention_norm(x)
        weights = {name.split(".", 2)[2]: value for name, value in adapter.tensors.items()
                   if name.startswith(f"layers.{layer.index}.")}  # fmt: skip
        hidden = torch.nn.functional.gelu(h @ weights["metric.first.weight"].T + weights["metric.first.bias"])
        U = (hidden @ weights["metric.second.weight"].T + weights["metric.second.bias"]).reshape(
            len(x), layer.heads, -1, 2
        )
        U = U.transpose(0, 1)
        strength = U.square().sum((2, 3))
        U = U * (8.0 / strength.clamp_min(8.0)).sqrt()[..., None, None]
        torch.testing.assert_close(layer.given.U, U, rtol=1e-4, atol=1e-5)
        softplus = torch.nn.functional.softplus(weights["curvature"])[:, None]
        torch.testing.assert_close(layer.given.omega, softplus * U.square().sum((2, 3)), rtol=1e-4, atol=1e-5)


def test_encoders_and_models_with_a_geometry_are_refused() -> None:
    own = FiberBundleConfig(vocab_size=20, width=8, layers=1, heads=2, feed_forward=8)
    for config in (own, replace(own, score="euclidean", causal=False), replace(own, score="l2")):
        with pytest.raises(ValueError, match="expected a causal Euclidean baseline"):
            base_of(FiberBundleTransformer(config))
    transformers = pytest.importorskip("transformers")
    from fbt_core.huggingface.model import HuggingFaceModel

    settings = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    bert = HuggingFaceModel(
        transformers.BertModel(settings, add_pooling_layer=False).eval(),
        HuggingFaceConfig.from_table(settings.to_dict(), "BertModel"),
    )
    with pytest.raises(ValueError, match="causal language model"):
        base_of(bert)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    nets = AdapterNets(AdapterConfig((0, 1), 2, 8, 16, 8, rank=2))
    adapter_file.save(tmp_path / "a.safetensors", nets.adapter, nets.state_dict(), ORIGIN, {"steps": 3})
    return tmp_path / "a.safetensors"


def test_a_file_comes_back_whole(saved: Path) -> None:
    adapter = opened(saved)
    nets = AdapterNets(AdapterConfig((0, 1), 2, 8, 16, 8, rank=2))
    assert adapter.config == nets.adapter and adapter.training == {"steps": 3}
    assert all(torch.equal(adapter.tensors[name], value) for name, value in nets.state_dict().items())
    adapter.check_base(ORIGIN)
    assert list(saved.parent.iterdir()) == [saved], "nothing half is left beside it"


def test_another_base_is_refused_with_both_sums(saved: Path) -> None:
    other = replace(ORIGIN, sha256="cd" * 32, name="other.gguf")
    with pytest.raises(CheckpointError) as fault:
        opened(saved).check_base(other)
    assert "ab" * 32 in str(fault.value) and "cd" * 32 in str(fault.value) and "other.gguf" in str(fault.value)


def rewritten(path: Path, metadata: dict[str, str] | None = None, drop: str = "", **tensors: torch.Tensor) -> Path:
    """The same adapter with some of its metadata or tensors changed, and a sum that fits."""
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as file:
        table, held = dict(file.metadata()), {name: file.get_tensor(name) for name in file.keys()}
    held = {name: value for name, value in held.items() if name != drop} | tensors
    table |= {"data_sha256": native.data_sha256(held)} | (metadata or {})
    path.write_bytes(save_safetensors(held, table))
    return path


CURVATURE = "layers.1.curvature"
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a tensor short": ({"drop": CURVATURE}, "without 'layers.1.curvature'"),
    "a tensor too many": ({"extra": torch.zeros(1)}, "unexpected tensor 'extra'"),
    "another shape": ({CURVATURE: torch.zeros(3)}, "of shape"),
    "integers": ({CURVATURE: torch.zeros(2, dtype=torch.int32)}, "dtype I32"),
    "NaN": ({CURVATURE: torch.tensor([float("nan"), 0.0])}, "1 of 2 values of 'layers.1.curvature'"),
    "another sum": ({"metadata": {"data_sha256": "0" * 64}}, "whose SHA-256 is not"),
    "a later schema": ({"metadata": {"schema": "9"}}, "schema '9'"),
    "no base": ({"metadata": {"base": "{}"}}, "does not name its base"),
    "a config that is no JSON": ({"metadata": {"config": "{"}}, "'config' that is not JSON"),
    "a config that is a list": ({"metadata": {"config": "[]"}}, "'config' that is a list"),
    "a huge config": ({"metadata": {"config": json.dumps({
        "layers": [0, 1], "heads": 2, "head_width": 8, "inputs": 16, "hidden": 1 << 40, "rank": 2, "alpha": 0.5,
        "metric_init": 0.5, "kappa_max": 8.0})}}, "hidden = "),
    "layers twice": ({"metadata": {"config": json.dumps({
        "layers": [1, 1], "heads": 2, "head_width": 8, "inputs": 16, "hidden": 8, "rank": 2, "alpha": 0.5,
        "metric_init": 0.5, "kappa_max": 8.0})}}, "each once"),
    "an unknown field": ({"metadata": {"config": json.dumps({"evil": 1})}}, "got the fields"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_damaged_file_is_refused_by_name(saved: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as fault:
        opened(rewritten(saved, **change))
    assert words in str(fault.value) and fault.value.remedy


def test_other_files_are_called_by_their_true_name(saved: Path) -> None:
    content = saved.read_bytes()
    for wrong, words in (
        (content[:-4], "cut short"),
        (b"", "empty file"),
        (b"PK\x03\x04" + bytes(40), "zip archive"),
        (save_safetensors({"x": torch.zeros(2)}), "that is no metric adapter"),
    ):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=words):
            opened(saved)


def test_an_adapter_of_another_shape_is_refused_on_a_trace(saved: Path) -> None:
    config = FiberBundleConfig(vocab_size=20, width=12, layers=2, heads=2, feed_forward=8, score="euclidean")
    model = FiberBundleTransformer(config).eval()
    with pytest.raises(ValueError, match="another model's"):
        apply(model, model.trace(torch.arange(4)), "adapter", adapter=opened(saved))


# --- the text and the command line ------------------------------------------------------------------------------------


def test_rows_are_windows_of_the_text_with_its_start_in_front(tmp_path: Path) -> None:
    words = text(tmp_path)
    rows = words.rows((0, 1, 2), 5, 24)
    whole = WordByteTokenizer(()).encode(SENTENCE * 60).ids[1:]
    assert rows.shape == (5, 24) and (rows[:, 0] == 0).all()
    trained_on = whole[: len(whole) - len(whole) // 10]
    for row in rows[:, 1:].tolist():
        assert any(trained_on[i : i + 23] == row for i in range(len(trained_on)))
    assert torch.equal(rows, words.rows((0, 1, 2), 5, 24)) and not torch.equal(rows, words.rows((0, 1, 3), 5, 24))
    with pytest.raises(ValueError, match="a tenth is held out"):
        text(tmp_path, repeats=2)
    with pytest.raises(ValueError, match="without a tokenizer"):
        open_text(tmp_path / "words.txt", None, 24)


def test_the_command_trains_and_says_what_it_did(tmp_path: Path) -> None:
    model, words = euclidean_model(), tmp_path / "t.txt"
    words.write_text(SENTENCE * 60, encoding="utf-8")
    native.save(tmp_path / "base.safetensors", model.config, model.state_dict(), WordByteTokenizer(()), {})
    before = (tmp_path / "base.safetensors").read_bytes()
    line = ["adapt", str(tmp_path / "base.safetensors"), "--text", str(words), "--out", str(tmp_path / "x.safetensors")]
    result = CliRunner().invoke(app, [*line, "--steps", "3", "--length", "24", "--batch", "2", "--rank", "2"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "held-out loss" in result.stdout and "for the base alone" in result.stdout
    adapter = opened(tmp_path / "x.safetensors")
    assert adapter.config.rank == 2 and adapter.training["plan"]["steps"] == 3
    assert (tmp_path / "base.safetensors").read_bytes() == before
    failed = CliRunner().invoke(app, [*line, "--length", "100"])
    assert failed.exit_code == 2 and "error:" in failed.stderr


def test_an_interruption_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "adapter.safetensors"
    out.write_bytes(b"what was there")
    monkeypatch.setattr(
        "fbt_core.training.adapter.Progress.advance", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        trained(euclidean_model(), tmp_path)
    assert out.read_bytes() == b"what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter.safetensors", "words.txt"]
