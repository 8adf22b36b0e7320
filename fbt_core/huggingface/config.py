"""What a ``config.json`` says of a model, under the names that the rest of the house uses. No library is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "width": ("hidden_size", "n_embd", "d_model", "dim", "embed_dim"),
    "head_width": ("head_dim", "d_kv", "v_head_dim"),
    "feed_forward": ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "encoder_ffn_dim", "hidden_dim"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length"),
    "vocab_size": ("vocab_size",),
}
"""The names that the library's configs use for each size; the first that is there counts."""

STACKS = ("encoder", "decoder", "cross")
"""The attention stacks of an encoder-decoder; any other model has one, without a name."""

BIDIRECTIONAL = (
    "bert", "roberta", "distilbert", "electra", "deberta", "albert", "mpnet", "camembert", "modernbert", "vit", "deit",
    "beit", "dinov2", "nomic", "esm", "longformer", "luke", "ernie", "convbert", "squeezebert",
)  # fmt: skip
"""How the model types of encoders begin, whose every token sees every other."""


@dataclass(frozen=True)
class HuggingFaceConfig:
    """A model of the ``transformers`` library, checked. Where the config leaves a size open it is 0.

    The metric's fields are those of a model without one, so that an app need not ask which kind it has.
    """

    model_type: str
    architecture: str  # the library's class that fits the tensors of the file, such as LlamaForCausalLM
    table: str  # the config itself as JSON, without any entry that names code, kernels or places
    layers: int
    heads: int
    width: int
    head_width: int
    feed_forward: int
    vocab_size: int
    context: int
    causal: bool
    input: str = "text"  # text | image
    stacks: tuple[str, ...] = ("",)
    processor: str = ""  # preprocessor_config.json of an image model
    position: str = "its own"
    has_metric: bool = False
    own_score: str = "euclidean"
    alpha: float = 0.0
    metric_rank: int = 0

    @classmethod
    def from_table(
        cls, table: Mapping[str, Any], architecture: str, input: str = "text", processor: str = ""
    ) -> HuggingFaceConfig:
        """The config of a table that holds whole numbers where sizes stand.

        ``table`` should carry the library's defaults too (``PretrainedConfig.to_dict``), since a ``config.json`` may
        leave them out.
        """
        inner = table.get("text_config")
        held = inner if isinstance(inner, Mapping) else table
        size = {name: _size(held, names) for name, names in NAMES.items()}
        model_type = str(table.get("model_type", ""))
        several = bool(table.get("is_encoder_decoder"))
        return cls(
            model_type=model_type, architecture=architecture, table=json.dumps(table, default=str),
            layers=size["layers"], heads=size["heads"], width=size["width"],
            head_width=size["head_width"] or size["width"] // max(size["heads"], 1),
            feed_forward=size["feed_forward"], vocab_size=size["vocab_size"], context=size["context"],
            causal=not several and input == "text" and not model_type.startswith(BIDIRECTIONAL),
            input=input, stacks=STACKS if several else ("",), processor=processor,
        )  # fmt: skip


def _size(table: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """The first of the names that holds a positive whole number; 0 where none does."""
    for name in names:
        value = table.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
