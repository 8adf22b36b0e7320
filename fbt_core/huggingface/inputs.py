"""What a model of the transformers library is called with: a batch of one, checked before it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fbt_core.huggingface.config import HuggingFaceConfig


def prepared(
    module: Any, config: HuggingFaceConfig, ids: Tensor | None, target: Tensor | None, pixels: Tensor | None,
    attention_mask: Tensor | None,
) -> dict[str, Tensor]:  # fmt: skip
    """The arguments by name. Raises ``ValueError`` (got, expected) for what the model cannot read."""
    device = module.device
    if config.input == "image":
        if pixels is None:
            raise ValueError("got no pixels, expected an image (channel, height, width): this model reads images")
        return {"pixel_values": pixels[None].to(device, module.dtype)}
    ids = _checked(module, config, ids)
    inputs = {"input_ids": ids[None].to(device)}
    if attention_mask is not None:
        inputs["attention_mask"] = attention_mask[None].to(device)
    if len(config.stacks) > 1:
        target = _shifted(module, ids) if target is None else _checked(module, config, target)
        inputs["decoder_input_ids"] = target[None].to(device)
    return inputs


def _checked(module: Any, config: HuggingFaceConfig, ids: Tensor | None) -> Tensor:
    vocabulary = module.get_input_embeddings().weight.shape[0]
    if ids is None or len(ids) == 0:
        raise ValueError("got no token, expected at least one")
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        raise ValueError(f"got ids from {int(ids.min())} to {int(ids.max())}, expected 0 to {vocabulary - 1}")
    if (most := _positions(module, config)) and len(ids) > most:
        raise ValueError(f"got {len(ids)} tokens, expected at most {most}, the model's context")
    return ids


def _positions(module: Any, config: HuggingFaceConfig) -> int:
    """How many tokens there are positions for; 0 where that is open. RoBERTa's first positions are the padding's."""
    most = config.context
    for name, part in module.named_modules():
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            most = min(most, part.num_embeddings - part.padding_idx - 1)
    return most


def _shifted(module: Any, ids: Tensor) -> Tensor:
    """The input behind the decoder's first token and without its own last, as encoder-decoders are trained."""
    starts = (getattr(module.config, name, None) for name in ("decoder_start_token_id", "pad_token_id"))
    start = next((value for value in starts if value is not None), 0)
    return torch.cat([ids.new_tensor([start]), ids[:-1]])
