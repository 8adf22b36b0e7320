"""Folders whose config.json, index or adapter asks for what it should not have, and adapters."""

from __future__ import annotations

import os

from tests.corpus.case import Case, loads, refused
from tests.corpus.folder_writers import (
    adapter,
    code,
    configured,
    evil_bin,
    folder,
    indexed,
    put,
    sharded,
    without,
)

EMBEDDING = "transformer.wte.weight"
HUGE = 10**12
DEEP_JSON = '{"a":' * 50_000 + "1" + "}" * 50_000
CONFIG = "config.json"

CASES: dict[str, Case] = {
    "hf-index-climbs": refused(29, folder("llama", sharded, indexed("../hf-gpt2/model.safetensors")), r"\.\./hf-gpt2"),
    "hf-index-absolute": refused(29, folder("llama", sharded, indexed("/etc/passwd")), "/etc/passwd"),
    "hf-index-not-json": refused(29, folder("llama", sharded, put("model.safetensors.index.json", "{")), "index"),
    "hf-index-list": refused(
        29, folder("llama", sharded, put("model.safetensors.index.json", '{"weight_map": ["a"]}')), "index"
    ),
    "hf-evil-bin": refused(8, folder("gpt2", evil_bin, without("model.safetensors")), "system"),
    "hf-evil-beside": loads(8, folder("gpt2", evil_bin), "GPT2|gpt2", same_as="hf-gpt2"),
    "hf-empty": refused(28, lambda path: path.mkdir(), "empty|no "),
    "hf-config-pipe": loads(
        28, folder("gpt2", without(CONFIG), lambda path: os.mkfifo(path / CONFIG)), "There is no config.json"
    ),
    "hf-endless-weights": refused(
        28,
        folder("gpt2", without("model.safetensors"), lambda path: (path / "model.safetensors").symlink_to("/dev/zero")),
        "model.safetensors|weights",
    ),
    "pipe.safetensors": refused(28, os.mkfifo, "no file|pipe|regular"),
    "hf-auto-map": loads(29, folder("gpt2", code), "GPT2|gpt2"),
    "hf-attention-repo": loads(
        29,
        folder(
            "gpt2",
            configured(
                attn_implementation="evil/repo",
                _attn_implementation="evil/repo",
                _attn_implementation_internal="evil/repo",
            ),
        ),
        "GPT2|gpt2",
    ),
    "hf-name-or-path": loads(
        29, folder("gpt2", configured(_name_or_path="../../evil", torch_dtype="os.system", dtype="evil")), "GPT2|gpt2"
    ),
    "hf-width-string": refused(29, folder("llama", configured(hidden_size="32")), "hidden_size"),
    "hf-width-fraction": refused(29, folder("llama", configured(hidden_size=32.5)), "hidden_size"),
    "hf-width-negative": refused(29, folder("llama", configured(hidden_size=-32)), "hidden_size|negative dimension"),
    "hf-heads-0": refused(29, folder("llama", configured(num_attention_heads=0)), "library refuses"),
    "hf-heads-do-not-divide": refused(29, folder("gpt2", configured(n_head=3)), "head"),
    "hf-vocabulary-10-12": refused(29, folder("llama", configured(vocab_size=HUGE)), "vocab_size", "1000000000000|1e"),
    "hf-layers-10-9": refused(29, folder("llama", configured(num_hidden_layers=10**9)), "layers", "1000000000|at most"),
    "hf-positions-10-12": refused(29, folder("gpt2", configured(n_positions=HUGE)), "n_positions|context|position"),
    "hf-feed-forward-10-9": refused(29, folder("llama", configured(intermediate_size=10**9))),
    "hf-activation": refused(29, folder("gpt2", configured(activation_function="os.system")), "os.system|activation"),
    "hf-rope-junk": refused(
        29,
        folder("llama", configured(rope_parameters={"rope_type": "evil"}, rope_scaling={"type": "evil"})),
        "rope|evil",
    ),
    "hf-config-not-json": refused(29, folder("gpt2", put(CONFIG, "{'a': 1}")), "config.json", "JSON"),
    "hf-config-empty": refused(29, folder("gpt2", put(CONFIG, "")), "config.json"),
    "hf-config-page": refused(29, folder("gpt2", put(CONFIG, "<html></html>")), "config.json"),
    "hf-config-list": refused(29, folder("gpt2", put(CONFIG, "[]")), "config.json"),
    "hf-config-deep": refused(29, folder("gpt2", put(CONFIG, DEEP_JSON)), "config.json"),
    "hf-config-large": refused(
        29, folder("gpt2", put(CONFIG, '{"a":"' + "x" * (33 << 20) + '"}')), "config.json", "at most|large"
    ),
    "hf-config-key-twice": refused(
        29, folder("gpt2", put(CONFIG, '{"model_type":"gpt2","model_type":"llama"}')), "twice"
    ),
    "hf-config-surrogate": refused(29, folder("gpt2", put(CONFIG, '{"model_type":"\\ud800"}')), "config.json"),
    "hf-config-no-type": loads(29, folder("gpt2", put(CONFIG, "{}")), "model_type|config"),
    "hf-unknown-type": loads(
        29, folder("gpt2", configured(model_type="mystery<b>9", architectures=["MysteryForCausalLM"])), "mystery<b>9"
    ),
    "hf-type-climbs": loads(29, folder("gpt2", configured(model_type="../../evil")), r"\.\./\.\./evil"),
    "hf-type-list": loads(29, folder("gpt2", configured(model_type=["gpt2"])), r"\['gpt2'\]"),
    "hf-architecture-strange": loads(29, folder("gpt2", configured(architectures=["os.system"])), "GPT2LMHeadModel"),
    "hf-quantization": loads(
        29, folder("gpt2", configured(quantization_config={"quant_method": "gptq", "bits": 4})), "GPT2LMHeadModel"
    ),
    "adapter": loads(1, adapter(), "LoRA|adapter"),
    "adapter-rank-10-12": refused(29, adapter(r=HUGE), r"\br\b|rank"),
    "adapter-alpha-string": refused(29, adapter(lora_alpha="4"), "lora_alpha"),
    "adapter-climbs": loads(
        29,
        adapter(base_model_name_or_path="../../../etc/passwd", auto_mapping={"parent_library": "os"}),
        "LoRA|adapter",
    ),
}
