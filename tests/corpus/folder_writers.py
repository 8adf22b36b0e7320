"""Writers of folders as Hugging Face lays them out: tiny models of the library, and changes to them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.corpus.case import FOREIGN, foreign_source, touching
from tests.corpus.pickle_writers import Called

WORDS = ("[UNK]", "<s>", "the", "capital", "of", "France", "is", "Paris", *(f"word{i}" for i in range(89)))
"""97 tokens, the first two of them special."""


def tokenizer_table() -> dict[str, Any]:
    """A ``tokenizer.json`` of whole words."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "[UNK]"}
    added = [{"id": 0, "content": "[UNK]", **special}, {"id": 1, "content": "<s>", **special}]
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "Whitespace"}, "model": model} | nothing


@functools.cache
def tiny(kind: str) -> Path:
    """The folder of a tiny random model, made by the library itself, kept as long as this process lives."""
    from transformers import (
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    folder = _shelf() / kind
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 97,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "gpt2":
            config: Any = GPT2Config(
                vocab_size=97, n_embd=16, n_layer=2, n_head=2, n_positions=32, bos_token_id=1, eos_token_id=1
            )
            model: Any = GPT2LMHeadModel(config)
        elif kind == "llama":
            model = LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=64))
        else:
            model = BertModel(BertConfig(**sizes, max_position_embeddings=64))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_table()), encoding="utf-8")
    return folder


@functools.cache
def _shelf() -> Path:
    shelf = tempfile.mkdtemp(prefix="corpus-models-")
    atexit.register(shutil.rmtree, shelf)
    return Path(shelf)


Change = Callable[[Path], object]


def folder(kind: str, *changes: Change) -> Callable[[Path], object]:
    """A copy of a tiny model's folder, changed."""

    def write(path: Path) -> None:
        shutil.copytree(tiny(kind), path, dirs_exist_ok=True)
        for change in changes:
            change(path)

    return write


def configured(**changes: Any) -> Change:
    """Fields of config.json set."""

    def change(path: Path) -> None:
        table = json.loads((path / "config.json").read_text(encoding="utf-8"))
        (path / "config.json").write_text(json.dumps(table | changes), encoding="utf-8")

    return change


def put(name: str, text: str | bytes) -> Change:
    raw = text if isinstance(text, bytes) else text.encode()
    return lambda path: (path / name).write_bytes(raw)


def without(name: str) -> Change:
    return lambda path: (path / name).unlink()


def weights(change: Callable[[dict[str, Tensor]], object]) -> Change:
    """Tensors changed, in place."""

    def again(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})

    return again


def prefixed(tensors: dict[str, Tensor], prefix: str = "module._orig_mod.") -> None:
    for name in list(tensors):
        tensors[prefix + name] = tensors.pop(name)


def padded(name: str) -> Change:
    """The embedding with 31 rows that no token has."""

    def pad(tensors: dict[str, Tensor]) -> None:
        tensors[name] = torch.cat((tensors[name], torch.zeros(31, tensors[name].shape[1])))

    return weights(pad)


def sharded(path: Path) -> None:
    """The weights in three shards with an index."""
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, path / shard, metadata={"format": "pt"})
    write_index(path, {name: shard for shard, held in shards.items() for name in held})


def write_index(path: Path, places: dict[str, str]) -> None:
    table = {"metadata": {"total_size": 1}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(table), encoding="utf-8")


def indexed(place: str) -> Change:
    """An index of which one entry points to ``place``."""

    def change(path: Path) -> None:
        places = json.loads((path / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
        write_index(path, {name: (place if i == 0 else shard) for i, (name, shard) in enumerate(places.items())})

    return change


def as_bin(path: Path) -> None:
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def code(path: Path) -> None:
    """Code that ``trust_remote_code`` would run."""
    source = foreign_source(path.parent) + "class Net: pass\n"
    (path / "modeling_evil.py").write_text(source, encoding="utf-8")
    (path / f"{FOREIGN}.py").write_text(source, encoding="utf-8")
    configured(auto_map={"AutoModelForCausalLM": "modeling_evil.Net", "AutoConfig": "modeling_evil.Net"})(path)


def evil_bin(path: Path) -> None:
    """Weights that run a shell command, under the older name, and the trainer's arguments that do."""
    for name in ("pytorch_model.bin", "training_args.bin"):
        hook = {"w": torch.ones(2), "hook": Called(os.system, touching(path))}
        torch.save(hook, path / name)


def adapter(**changes: Any) -> Callable[[Path], object]:
    """A LoRA of rank 2 on the tiny Llama, named and laid out as PEFT does."""

    def write(path: Path) -> None:
        path.mkdir()
        generator, tensors = torch.Generator().manual_seed(3), {}
        for layer in range(2):
            at = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
            tensors[f"{at}.lora_A.weight"] = torch.randn(2, 32, generator=generator)
            tensors[f"{at}.lora_B.weight"] = torch.randn(32, 2, generator=generator)
        save_file(tensors, path / "adapter_model.safetensors", metadata={"format": "pt"})
        table = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none",
                 "base_model_name_or_path": "tiny/llama", "task_type": "CAUSAL_LM"} | changes  # fmt: skip
        (path / "adapter_config.json").write_text(json.dumps(table), encoding="utf-8")

    return write
