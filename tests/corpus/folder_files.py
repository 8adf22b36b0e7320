"""Folders as Hugging Face writes them: good ones, and those whose weights do not fit together."""

from __future__ import annotations

import torch

from tests.corpus.case import Case, loads, refused
from tests.corpus.folder_writers import as_bin, configured, folder, padded, prefixed, put, sharded, weights, without

EMBEDDING = "transformer.wte.weight"
HUGE = 10**12
DEEP_JSON = '{"a":' * 50_000 + "1" + "}" * 50_000
CONFIG = "config.json"

CASES: dict[str, Case] = {
    "hf-gpt2": loads(1, folder("gpt2"), "GPT2|gpt2"),
    "hf-llama": loads(1, folder("llama"), "Llama"),
    "hf-bert": loads(1, folder("bert"), "Bert"),
    "hf-loose-files": loads(1, folder("llama"), "Llama", loose=True),
    "hf-sharded": loads(1, folder("llama", sharded), "Llama", same_as="hf-llama"),
    "hf-bin": loads(2, folder("gpt2", as_bin), "GPT2|gpt2", same_as="hf-gpt2"),
    "hf-prefixed": loads(4, folder("gpt2", weights(prefixed)), r"module\.", r"_orig_mod\."),
    "hf-lfs": refused(
        17,
        folder(
            "gpt2",
            put("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123456789\n"),
        ),
        "Git LFS",
        "123456789|123",
    ),
    "hf-page": refused(18, folder("gpt2", put("model.safetensors", "<html>Sign in</html>")), "web page"),
    "hf-cut": refused(
        16,
        folder(
            "gpt2",
            lambda path: (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-30]),
        ),
        "cut short",
    ),
    "hf-not-finite": loads(
        25,
        folder("gpt2", weights(lambda t: t["transformer.h.0.mlp.c_fc.weight"].fill_(float("nan")))),
        "NaN|not finite",
        "c_fc",
    ),
    "hf-mixed-dtypes": loads(26, folder("gpt2", weights(lambda t: t.update({EMBEDDING: t[EMBEDDING].half()})))),
    "hf-padded": loads(27, folder("gpt2", padded(EMBEDDING)), "128", "97"),
    "hf-tied-with-head": loads(
        27, folder("gpt2", weights(lambda t: t.update({"lm_head.weight": t[EMBEDDING].clone()})))
    ),
    "hf-tied-other-head": loads(
        27, folder("gpt2", weights(lambda t: t.update({"lm_head.weight": t[EMBEDDING] + 1}))), "lm_head"
    ),
    "hf-untied-without-head": refused(27, folder("llama", weights(lambda t: t.pop("lm_head.weight"))), "lm_head"),
    "hf-50-layers": refused(27, folder("llama", configured(num_hidden_layers=50)), r"layers\.\d+|48|432|50"),
    "hf-1-layer": refused(27, folder("llama", configured(num_hidden_layers=1)), r"layers\.1"),
    "hf-key-missing": refused(
        27,
        folder("llama", weights(lambda t: t.pop("model.layers.1.self_attn.q_proj.weight"))),
        r"layers\.1\.self_attn\.q_proj",
    ),
    "hf-key-strange": refused(
        27, folder("llama", weights(lambda t: t.update({"model.stranger": torch.ones(2)}))), "stranger"
    ),
    "hf-shape-wrong": refused(
        27, folder("llama", weights(lambda t: t.update({"model.norm.weight": torch.ones(31)}))), "norm"
    ),
    "hf-fewer-rows": refused(27, folder("llama", configured(vocab_size=200)), "97", "200"),
    "hf-without-config": loads(27, folder("gpt2", without(CONFIG)), "config"),
    "hf-without-weights": refused(27, folder("gpt2", without("model.safetensors")), "weights|tensors"),
    "hf-without-tokenizer": loads(27, folder("gpt2", without("tokenizer.json")), "ids|tokenizer"),
    "hf-shards-missing": refused(
        27,
        folder(
            "llama", sharded, without("model-00002-of-00003.safetensors"), without("model-00003-of-00003.safetensors")
        ),
        "model-00002-of-00003",
        "model-00003-of-00003",
    ),
    "hf-shard-without-index": loads(
        27, folder("llama", sharded, without("model.safetensors.index.json")), same_as="hf-llama"
    ),
}
