"""Which class of the transformers library a checkpoint is, and that class without and with its numbers.

Only classes that the library itself ships are ever named here: a file chooses one by a name in its own tables, and no
code comes from a file or from a network.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.model.hollow import Unset

LOCK = threading.RLock()
"""The library changes torch's functions while a model is built: one at a time."""


def library() -> ModuleType:
    """The transformers library, silent. It is imported here and not earlier: that takes seconds."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def known(model_type: str) -> dict[str, str]:
    """The library's class names of a model type, by what they are for; empty for a type that it does not know."""
    library()
    from transformers.models.auto import modeling_auto as auto

    tables: dict[str, Any] = {
        "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        "image": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        "plain": auto.MODEL_MAPPING_NAMES,
    }
    found = {use: table.get(model_type) for use, table in tables.items()}
    return {use: names if isinstance(names, str) else names[0] for use, names in found.items() if names}


def candidates(table: Mapping[str, Any]) -> list[str]:
    """Class names that could hold the tensors of a file with this ``config.json``, in the order to try them.

    A config that names a class with a language head must have that head; one that names the plain model, or a head
    for another task, may hold one, and is the plain model otherwise. ``table`` carries the library's defaults.
    """
    names = known(str(table.get("model_type")))
    declared = next((name for name in table.get("architectures") or () if isinstance(name, str)), "")
    if table.get("is_encoder_decoder") is True:
        uses: tuple[str, ...] = ("seq2seq",)
    elif table.get("is_decoder") is True or "masked" not in names:
        uses = ("causal", "image")
    else:
        uses = ("masked", "image")
    headed = [names[use] for use in uses if use in names]
    if declared in headed:
        return [declared]
    has_plain = "plain" in names and (declared or "masked" in names or "image" in names or not headed)
    return [*headed, names["plain"]] if has_plain else headed


def settings(table: Mapping[str, Any]) -> Any:
    """The library's own config object of a ``config.json``. Raises ``ValueError`` for one that its class refuses."""
    library()
    from transformers import CONFIG_MAPPING

    values = {key: value for key, value in table.items() if key != "model_type"}
    try:
        made = CONFIG_MAPPING[str(table["model_type"])](**values)
    except Exception as fault:  # the file chose every value, and each config class has its own ways to fail
        raise ValueError(f"got a config.json that the library refuses ({repr(str(fault))[:200]})") from fault
    made._attn_implementation = "eager"
    return made


def base_prefix(config: HuggingFaceConfig) -> str:
    """The first segment of names that the class gives to its model without a head, such as "bert"."""
    return str(getattr(library(), config.architecture).base_model_prefix)


def hollow(config: HuggingFaceConfig) -> nn.Module:
    """The config's model on the meta device, in eval mode: names, shapes and ties, but no memory and no values.

    It is built without a pooler: no page shows one, and many files have none. Raises ``ValueError`` where the library
    cannot build it.
    """
    names = known(config.model_type)
    if config.architecture not in names.values():
        raise ValueError(f"got the class {config.architecture[:80]!r}, expected one of {sorted({*names.values()})}")
    made = settings(json.loads(config.table))
    built = getattr(library(), config.architecture)
    more = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(built).parameters else {}
    try:
        with LOCK, torch.device("meta"), Unset():
            return built(made, **more).eval()
    except Exception as fault:
        raise ValueError(f"got a config.json of which no model can be built ({repr(str(fault))[:200]})") from fault


def filled(config: HuggingFaceConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> nn.Module:
    """The config's model with a checkpoint's tensors in place, in eval mode, asking for no gradient.

    ``tensors`` are those of a ``Checkpoint``: under the module's own names, all of them but the tied ones. They are
    not copied unless ``dtype`` asks for another. Buffers that no file holds, such as rotary frequencies, are computed
    by the library as it does for every model. Raises ``ValueError`` if a parameter would be left without a value.
    """
    module: Any = hollow(config)
    cast = {name: t.to(dtype) if dtype and t.is_floating_point() else t for name, t in tensors.items()}
    missing = set(module.state_dict()) - set(cast)
    with LOCK:
        module.load_state_dict(cast, strict=False, assign=True)
        for tensor in module.state_dict(keep_vars=True).values():
            tensor._is_hf_initialized = tensor.device.type != "meta"
        module.tie_weights(missing_keys=missing, recompute_mapping=False)
        module._move_missing_keys_from_meta_to_device(set(), None, None, None)
        module._initialize_missing_keys(False)
    left = [name for name, tensor in module.state_dict(keep_vars=True).items() if tensor.device.type == "meta"]
    if left:
        raise ValueError(f"got no values for {left[:3]} and {max(0, len(left) - 3)} more, expected all of the model's")
    return module.eval().requires_grad_(False)
