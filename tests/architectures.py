"""Tiny random models of the transformers library, one a kind of architecture that users bring."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from fbt_core.checkpoints.checkpoint import Checkpoint, Origin
from fbt_core.huggingface.config import HuggingFaceConfig

VOCABULARY, WIDTH, LAYERS, HEADS = 61, 32, 3, 4

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_MAMBA = {"mamba_d_state": 4, "mamba_d_conv": 2, "mamba_expand": 2, "mamba_dt_rank": 4, "use_mamba_kernels": False}

Row = tuple[str, str, dict[str, Any]]

ARCHITECTURES: dict[str, Row] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel",
             {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64,
              **_IDS}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**_GROUPED, "sliding_window": 5}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_GROUPED, "head_dim": 16}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
               {**_GROUPED, "head_dim": 16, "sliding_window": 5, "attn_logit_softcapping": 2.0,
                "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 20}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
               {**_GROUPED, "head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 2}),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM",
                {**_GROUPED, "head_dim": 8, "sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM",
                    {**_SIZES, "num_key_value_heads": HEADS, "kv_lora_rank": 8, "q_lora_rank": 12,
                     "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 8, "n_routed_experts": 4,
                     "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
                     "moe_intermediate_size": 16}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**_SIZES, "rotary_pct": 0.5}),
    "opt": ("OPTConfig", "OPTForCausalLM",
            {**{k: v for k, v in _SIZES.items() if k != "intermediate_size"}, "ffn_dim": 48,
             "word_embed_proj_dim": WIDTH}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM",
                {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM",
                  {**_GROUPED, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM",
                   {**_GROUPED, "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                    "linear_conv_kernel_dim": 2, "num_experts": 4, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}),
    "jamba": ("JambaConfig", "JambaForCausalLM",
              {**_GROUPED, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1,
               "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
               **_MAMBA}),
    "mamba": ("MambaConfig", "MambaForCausalLM",
              {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "state_size": 4,
               "conv_kernel": 2, **_IDS}),
    "bloom": ("BloomConfig", "BloomForCausalLM",
              {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, **_IDS}),
    "falcon": ("FalconConfig", "FalconForCausalLM",
               {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
                "num_attention_heads": HEADS, **_IDS}),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", {**_GROUPED, "partial_rotary_factor": 0.5}),
    "phi": ("PhiConfig", "PhiForCausalLM", {**_SIZES, "partial_rotary_factor": 0.5}),
    "cohere": ("CohereConfig", "CohereForCausalLM", _GROUPED),
    "deberta": ("DebertaConfig", "DebertaForMaskedLM",
                {**_SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}),
    "bert": ("BertConfig", "BertForMaskedLM", _SIZES),
    "modernbert": ("ModernBertConfig", "ModernBertForMaskedLM",
                   {**_SIZES, "local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 1,
                    "sep_token_id": 2}),
    "t5": ("T5Config", "T5ForConditionalGeneration",
           {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 48, "num_layers": LAYERS,
            "num_heads": HEADS, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2}),
    "bart": ("BartConfig", "BartForConditionalGeneration",
             {"vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS - 1,
              "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 48,
              "decoder_ffn_dim": 48, "max_position_embeddings": 64, "decoder_start_token_id": 2,
              "forced_eos_token_id": 2, **_IDS}),
    "vit": ("ViTConfig", "ViTForImageClassification",
            {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
             "intermediate_size": 48, "image_size": 24, "patch_size": 8}),
}  # fmt: skip
"""Config class, model class, and the settings of each."""

ODD: dict[str, Row] = {
    "longformer": ("LongformerConfig", "LongformerForMaskedLM", {**_SIZES, "attention_window": 4}),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**_SIZES, "pad_token_id": 1, "bos_token_id": 0}),
    "xlm": ("XLMConfig", "XLMWithLMHeadModel", {"n_words": VOCABULARY, "emb_dim": WIDTH, "n_layers": 2, "n_heads": 4}),
}
"""Models with a trap of their own: maps of a window, positions that are taken, no blocks."""

NOT_CAPTURED = ("bloom", "falcon", "deberta")
"""Models that attend outside of the library's interface: their own maps, and no queries and keys."""

PARALLEL = ("gpt_neox", "phi", "falcon", "cohere")
"""Models whose blocks add attention and feed-forward at once."""


def library_model(name: str, attention: str = "eager", **more: Any) -> Any:
    """The library's own model, in eval mode, every number drawn large enough for attention to be far from uniform."""
    config_class, model_class, settings = {**ARCHITECTURES, **ODD}[name]
    config = getattr(transformers, config_class)(**{**settings, **more})
    config._attn_implementation = attention
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        scale = (0.8 if name == "t5" else 1.5) * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
        offset = parameter if parameter.dim() == 1 else 0.0
        parameter.copy_(scale * drawn + offset)
    model.tie_weights()
    return model


def checkpoint_of(model: Any, processor: str = "") -> Checkpoint:
    """A checkpoint as the readers make it: the model's config and its numbers, tied ones once."""
    kind = "image" if "pixel_values" in model.main_input_name else "text"
    config = HuggingFaceConfig.from_table(model.config.to_dict(), type(model).__name__, kind, processor)
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in model.state_dict().items():
        if value.data_ptr() not in seen or value.numel() == 0:
            tensors[key] = value
            seen.add(value.data_ptr())
    return Checkpoint(config, tensors, None, {}, Origin("tiny", "memory", "0" * 64, 0))


def inputs_of(name: str, length: int = 12) -> dict[str, Tensor]:
    """Random inputs for the library's own forward, a batch of one."""
    generator = torch.Generator().manual_seed(2)

    def ids(n: int) -> Tensor:
        return torch.randint(3, VOCABULARY, (1, n), generator=generator)

    if name == "vit":
        return {"pixel_values": torch.randn(1, 3, 24, 24, generator=generator)}
    if name in ("t5", "bart"):
        return {"input_ids": ids(length), "decoder_input_ids": ids(length - 5)}
    return {"input_ids": ids(length)}


def arguments_of(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """The same inputs as arguments of our ``traces``."""
    return {
        "ids": inputs["input_ids"][0] if "input_ids" in inputs else torch.zeros(0, dtype=torch.long),
        **({"target": inputs["decoder_input_ids"][0]} if "decoder_input_ids" in inputs else {}),
        **({"pixels": inputs["pixel_values"][0]} if "pixel_values" in inputs else {}),
    }
