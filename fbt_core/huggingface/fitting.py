"""Whether tensors are those of a model, by the library's own rules of naming: nothing is filled in, ever.

The library renames what older versions saved and joins what it keeps joined (the experts of a mixture), so a state dict
is compared with a model after these conversions. Meta tensors, made from headers, are fitted as well as real ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from fbt_core.huggingface.classes import LOCK, hollow
from fbt_core.huggingface.config import HuggingFaceConfig

HARMLESS = re.compile(
    r"(.*\.)?(pooler|rotary_emb\.inv_freq|position_ids|token_type_ids|(attn|attention)\.(masked_)?bias)(\..*)?"
    r"|(cls|classifier|score|qa_outputs|lm_head|pre_classifier|discriminator_predictions|generator_predictions"
    r"|generator_lm_head|vocab_(transform|layer_norm|projector)|summary|multiple_choice_head|classification_head"
    r"|logits_proj|mlm_head|nsp|seq_relationship|projector|sop_classifier|dropout|predictions|distillation_classifier"
    r"|cls_classifier)(\..*)?"
)
"""Names that a file may have beyond the model: buffers of older versions, the pooler, and heads for other tasks."""


@dataclass(frozen=True)
class Fit:
    """``tensors`` under the model's names. ``missing`` leaves out what is tied to a tensor that is there.

    ``mismatched`` is (name, shape in the file, shape by the config); ``extra`` are names that no rule explains.
    """

    tensors: Mapping[str, Tensor]
    missing: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    unused: tuple[str, ...]  # harmless: heads for other tasks, poolers, old buffers
    extra: tuple[str, ...]
    tied: tuple[str, ...]
    doubled: tuple[tuple[str, ...], ...]  # names that the config ties and that all have a tensor in the file
    computed_bytes: int  # of buffers that the library computes and no file holds

    @property
    def is_whole(self) -> bool:
        """Whether the tensors are the model's: none missing, none of another shape, none unexplained."""
        return not (self.missing or self.mismatched or self.extra)


def fit(config: HuggingFaceConfig, tensors: Mapping[str, Tensor]) -> Fit:
    """The tensors as those of the config's model.

    Floating-point tensors of one dtype stay as they are, in their own memory; of several, all become the widest.
    Raises ``ValueError`` where the library cannot build the model, or a conversion fails.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig

    model: Any = hollow(config).to(common_dtype(tensors.values()))
    device = next(iter(tensors.values())).device.type if tensors else "meta"
    rules: Any = get_model_conversion_mapping(model)
    try:
        with LOCK, torch.no_grad():
            found, _ = convert_and_load_state_dict_in_model(
                model, dict(tensors), LoadStateDictConfig(device_map={"": device}, weight_mapping=rules)
            )
    except Exception as fault:
        raise ValueError(f"got tensors that the library cannot convert ({repr(str(fault))[:200]})") from fault
    if found.conversion_errors:
        raise ValueError(f"got tensors that the library cannot convert ({repr(str(found.conversion_errors))[:200]})")
    return _fit(model, found)


def common_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """The narrowest floating-point dtype that holds all of them; float32 where there is none."""
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return reduce(torch.promote_types, dtypes) if dtypes else torch.float32


def _fit(model: Any, found: Any) -> Fit:
    wrong = {name: (tuple(got), tuple(wanted)) for name, got, wanted in found.mismatched_keys}
    missing = {*found.missing_keys} - {*wrong}
    held = {name: t.detach() for name, t in model.state_dict().items() if name not in missing and name not in wrong}
    tied = {name for group in _ties(model) if group & {*held} for name in group & missing}
    ignored = [re.compile(pattern) for pattern in model._keys_to_ignore_on_load_unexpected or ()]
    beyond = sorted(found.unexpected_keys)
    unused = [name for name in beyond if HARMLESS.fullmatch(name) or any(rule.search(name) for rule in ignored)]
    return Fit(
        held, tuple(sorted(missing - tied)), tuple(sorted((name, *shapes) for name, shapes in wrong.items())),
        tuple(unused), tuple(name for name in beyond if name not in unused), tuple(sorted(tied)),
        tuple(tuple(sorted(group & {*held})) for group in _ties(model) if len(group & {*held}) > 1),
        sum(buffer.nbytes for _, buffer in model.named_non_persistent_buffers()),
    )  # fmt: skip


def _ties(model: Any) -> list[set[str]]:
    """Groups of names of one tensor each, where the config ties them."""
    groups: dict[str, set[str]] = {}
    for target, source in model.all_tied_weights_keys.items():
        groups.setdefault(source, {source}).add(target)
    return list(groups.values())
