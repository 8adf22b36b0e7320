"""Models of the transformers library from folders: every number is the file's, or the file is refused with a reason."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from fbt_core.checkpoints import CheckpointError, SeveralParts, load, memory
from fbt_core.checkpoints.tensors import open_header, read_tensors
from fbt_core.huggingface.classes import filled
from tests.architectures import ARCHITECTURES, inputs_of, library_model

IMAGES = ("vit",)


def saved(folder: Path, name: str, dtype: torch.dtype = torch.float32, **more: Any) -> Path:
    """A tiny model of a kind, as the library writes it."""
    library_model(name).to(dtype).save_pretrained(folder, **more)
    return folder


def changed(folder: Path, weights: Callable[[dict[str, Tensor]], Any] | None = None, **config: Any) -> Path:
    """The folder with its tensors or its config.json changed."""
    path = folder / "model.safetensors"
    if weights:
        state = load_file(path)
        weights(state)
        save_file(state, path)
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**table, **config}))
    return folder


def refused(source: Any, *words: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(source)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    return caught.value


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "gpt2", "gpt2")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return saved(tmp_path / "llama", "llama")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_gives_what_from_pretrained_gives(name: str, tmp_path: Path) -> None:
    saved(tmp_path, name)
    checkpoint = load(tmp_path)
    model = filled(checkpoint.config, checkpoint.tensors)
    known = getattr(transformers, ARCHITECTURES[name][1]).from_pretrained(tmp_path).eval()
    assert type(model) is type(known)
    for ours, theirs in ((model.named_parameters(), known.named_parameters()),
                         (model.named_buffers(), known.named_buffers())):  # fmt: skip
        ours, theirs = dict(ours), dict(theirs)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) and ours[key].dtype == theirs[key].dtype for key in theirs)
    addresses = {tensor.data_ptr() for tensor in checkpoint.tensors.values()}
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]  # the library pads a head's bias
    assert all(matrix.data_ptr() in addresses for matrix in matrices)  # in place, not copied
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs_of(name))[0], known(**inputs_of(name))[0], rtol=1e-4, atol=1e-4)
    assert (checkpoint.tokenizer is None) == (name in IMAGES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_file_s_own_dtype_stays(tmp_path: Path, dtype: torch.dtype) -> None:
    checkpoint = load(saved(tmp_path, "llama", dtype))
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {dtype}


def test_mixed_dtypes_become_the_widest(llama: Path) -> None:
    changed(llama, lambda t: t.update({"lm_head.weight": t["lm_head.weight"].bfloat16()}))
    assert {tensor.dtype for tensor in load(llama).tensors.values()} == {torch.float32}


def test_shards_are_one_model_and_missing_ones_are_listed(tmp_path: Path) -> None:
    saved(tmp_path, "llama", max_shard_size="20KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    whole = library_model("llama").state_dict()
    found = load(tmp_path)
    assert found.tensors.keys() == whole.keys() and all(torch.equal(found.tensors[k], whole[k]) for k in whole)
    assert "shards" in found.origin.format
    for lost in shards[1:3]:
        lost.unlink()
    refused(tmp_path, *(repr(lost.name) for lost in shards[1:3]), f"{len(shards) - 2} of {len(shards)} shards")
    (tmp_path / "model.safetensors.index.json").unlink()  # their names alone say how many there should be
    refused(tmp_path, *(repr(lost.name) for lost in shards[1:3]))


def test_an_index_cannot_point_elsewhere(tmp_path: Path) -> None:
    saved(tmp_path, "llama", max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../model.safetensors"}}))
    refused(tmp_path, "'../model.safetensors'", "bare file names")


def test_a_folder_of_pickles_is_the_same_model(gpt2: Path, tmp_path: Path) -> None:
    state = library_model("gpt2").state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin")
    shutil.copy(gpt2 / "config.json", tmp_path)
    found, known = load(tmp_path), load(gpt2)
    assert found.config == known.config and found.origin.format.startswith("PyTorch")
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in known.tensors.items())


def test_a_training_checkpoint_asks_which_and_never_takes_the_optimizer(gpt2: Path, tmp_path: Path) -> None:
    model = library_model("gpt2").requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters())
    model(**inputs_of("gpt2"))[0].sum().backward()
    optimizer.step()
    state = {f"module.{name}": value.detach() for name, value in model.state_dict().items()}
    ema = {name: value * 2 for name, value in state.items()}
    content = {
        "model": state,
        "ema": ema,
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "epoch": 7,
    }
    torch.save(content, tmp_path / "run.ckpt")
    files = [tmp_path / "run.ckpt", gpt2 / "config.json"]
    with pytest.raises(SeveralParts) as caught:
        load(files)
    assert caught.value.parts == ("model", "ema") and "'ema'" in caught.value.remedy
    found = load(files, part="ema")
    name = "transformer.h.0.attn.c_attn.weight"
    assert torch.equal(found.tensors[name], ema[f"module.{name}"]) and found.training["epoch"] == 7
    assert any("'module.'" in notice for notice in found.notices)
    refused_part = pytest.raises(CheckpointError, match="one of 'model', 'ema'")
    with refused_part:
        load(files, part="optimizer")


def test_one_state_dict_is_taken_and_said(gpt2: Path, tmp_path: Path) -> None:
    torch.save({"state_dict": library_model("gpt2").state_dict(), "epoch": 7}, tmp_path / "run.ckpt")
    found = load([tmp_path / "run.ckpt", gpt2 / "config.json"])
    assert any("'state_dict'" in notice for notice in found.notices)


def test_a_zipped_folder_loose_files_and_names_are_the_same(gpt2: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        for file in gpt2.iterdir():
            archive.write(file, f"gpt2/{file.name}")
    held = tmp_path / "held"
    shutil.copy(gpt2 / "model.safetensors", held)
    names = {"model.safetensors": held, "config.json": gpt2 / "config.json"}
    known = load(gpt2)
    for source in (tmp_path / "m.zip", [gpt2 / "config.json", gpt2 / "model.safetensors"], names):
        found = load(source)
        assert found.config == known.config and found.origin.sha256 == known.origin.sha256
        assert all(torch.equal(found.tensors[name], tensor) for name, tensor in known.tensors.items())
    assert not [*Path(tmp_path).glob("fiberscope*")]


def test_a_link_out_of_the_folder_is_refused_and_the_cache_s_own_are_not(gpt2: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "c0ffee"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(gpt2 / file, blobs / f"sum-{file}")
        (snapshot / file).symlink_to(f"../../blobs/sum-{file}")
    assert load(snapshot).config is not None
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.safetensors").symlink_to(gpt2 / "model.safetensors")
    refused(other, "'model.safetensors'", "leaves its folder")


FAULTS: dict[str, tuple[Callable[[dict[str, Tensor]], Any] | None, dict[str, Any], tuple[str, ...]]] = {
    "layers that are not there": (None, {"num_hidden_layers": 5}, ("layers.3.", "without")),
    "layers without end": (None, {"num_hidden_layers": 10**6}, ("num_hidden_layers", "at most 1024")),
    "layers left over": (None, {"num_hidden_layers": 2}, ("layers.2.", "no place for")),
    "a head that is neither there nor tied": (lambda t: t.pop("lm_head.weight"), {}, ("'lm_head.weight'",)),
    "one tensor missing": (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), {}, ("layers.1.mlp.up_proj.weight",)),
    "one of another shape": (lambda t: t.update({"model.norm.weight": torch.ones(9)}), {}, ("(9,)", "(32,)")),
    "rows missing": (None, {"vocab_size": 99}, ("(61, 32)", "(99, 32)")),
    "a stranger": (lambda t: t.update({"secret.weight": torch.ones(2)}), {}, ("'secret.weight'",)),
    "a size in words": (None, {"hidden_size": "32"}, ("hidden_size", "'32'")),
    "a vocabulary beyond sense": (None, {"vocab_size": 10**12}, ("vocab_size",)),
    "heads that do not divide": (None, {"num_attention_heads": 5}, ("config.json",)),
    "GPTQ": (lambda t: t.update({f"model.x.{n}": torch.ones(2, 2, dtype=torch.int32) for n in
             ("qweight", "qzeros", "scales", "g_idx")}), {}, ("GPTQ",)),
    "int8 with scales": (lambda t: t.update({"model.x.SCB": torch.ones(2)}), {}, ("bitsandbytes int8",)),
    "fp8": (lambda t: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.float8_e4m3fn)}), {}, ("F8_E4M3",)),
}  # fmt: skip


@pytest.mark.parametrize(("weights", "config", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_what_does_not_fit_is_refused_by_name(
    llama: Path, weights: Callable[..., Any] | None, config: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(changed(llama, weights, **config), *words)


def test_padded_rows_are_trusted_and_said(gpt2: Path, tmp_path: Path) -> None:
    shutil.copytree(gpt2, tmp_path / "m")
    found = load(changed(tmp_path / "m", vocab_size=50))
    assert found.config.vocab_size == 61 and found.tensors["transformer.wte.weight"].shape[0] == 61
    assert any("ids 50 to 60 are padding" in notice for notice in found.notices)


def test_a_head_that_the_config_ties_and_the_file_does_not_stays_apart(gpt2: Path, tmp_path: Path) -> None:
    shutil.copytree(gpt2, tmp_path / "m")
    changed(tmp_path / "m", lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}))
    found = load(tmp_path / "m")
    model = filled(found.config, found.tensors)
    assert torch.equal(model.lm_head.weight, model.transformer.wte.weight + 1)
    assert any("lm_head.weight" in notice for notice in found.notices)


def test_code_and_places_in_a_config_are_dropped(llama: Path) -> None:
    hostile = {"auto_map": {"AutoModel": "evil.Model"}, "attn_implementation": "evil/kernel", "_name_or_path": "/etc",
               "_attn_implementation": "evil/kernel", "trust_remote_code": True}  # fmt: skip
    (llama / "evil.py").write_text("raise SystemExit('imported')")
    found = load(changed(llama, **hostile))
    assert "evil" not in found.config.table and "/etc" not in found.config.table
    assert filled(found.config, found.tensors).config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("kind", "expected", "unused"),
    [("BertModel", "BertModel", "pooler"), ("BertForSequenceClassification", "BertModel", "classifier"),
     ("BertForPreTraining", "BertForMaskedLM", "seq_relationship"), ("BertForMaskedLM", "BertForMaskedLM", "")],
)  # fmt: skip
def test_the_class_is_the_one_that_the_tensors_fill(tmp_path: Path, kind: str, expected: str, unused: str) -> None:
    config = transformers.BertConfig(**ARCHITECTURES["bert"][2])
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config)
    model.save_pretrained(tmp_path)
    found = load(tmp_path)
    assert found.config.architecture == expected
    assert any(unused in notice for notice in found.notices) or not unused
    theirs = model.state_dict()
    for name, tensor in found.tensors.items():
        assert torch.equal(tensor, theirs.get(name, theirs.get(f"bert.{name}")))


def test_weights_without_a_known_config_can_be_looked_at(llama: Path) -> None:
    alone = load(llama / "model.safetensors")
    strange = load(changed(llama, model_type="mine", hidden_size="32"))
    for found in (alone, strange):
        assert found.config is None and found.tokenizer is None
        assert torch.equal(found.tensors["lm_head.weight"], library_model("llama").state_dict()["lm_head.weight"])
    assert "no config.json" in alone.notices[0] and "'mine'" in strange.notices[0]


def test_numbers_that_are_none_are_named_and_do_not_stop_it(llama: Path) -> None:
    def sicken(state: dict[str, Tensor]) -> None:
        state["lm_head.weight"][3, 4] = float("nan")
        state["model.norm.weight"][0] = float("-inf")
        state["model.layers.0.mlp.up_proj.weight"].zero_()

    notices = " ".join(load(changed(llama, sicken)).notices)
    assert "2 values are NaN or infinite, in 'model.norm.weight', 'lm_head.weight'" in notices or (
        "2 values are NaN or infinite, in 'lm_head.weight', 'model.norm.weight'" in notices
    )
    assert "Only zeros in 'model.layers.0.mlp.up_proj.weight'" in notices


def test_a_model_too_large_is_refused_before_it_is_read(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fbt_core.checkpoints.weights.read_tensors", lambda *_: pytest.fail("a tensor was read"))
    monkeypatch.setenv(memory.ENVIRONMENT, "2K")
    refused(llama, "memory", "1 MiB")


def test_a_file_that_is_overwritten_while_it_is_read_is_an_error(llama: Path) -> None:
    path = llama / "model.safetensors"
    header, content = open_header(path), path.read_bytes()
    for other in (content[:-40], content[: len(content) // 2], b"", content.replace(b"F32", b"I32", 1)):
        path.write_bytes(other)
        with pytest.raises(CheckpointError):
            read_tensors(path, header)


PEAK = """
import sys
from pathlib import Path
from fbt_core.checkpoints import load
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
small, large = map(Path, sys.argv[1:])
load(small)
before = peak()
checkpoint = load(large)
print(peak() - before, sum(t.nbytes for t in checkpoint.tensors.values()) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's count of resident memory")
def test_loading_needs_little_beyond_the_tensors(llama: Path, tmp_path: Path, root: Path) -> None:
    large = tmp_path / "large"
    config = transformers.LlamaConfig(vocab_size=64_000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
                                      num_attention_heads=8, num_key_value_heads=8)  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(large)
    command = [sys.executable, "-c", PEAK, str(llama), str(large)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    grown, tensors = map(int, done.stdout.split())
    assert tensors > 200_000  # kB
    assert grown < tensors + 100_000
