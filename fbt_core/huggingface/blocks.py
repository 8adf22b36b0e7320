"""Where the blocks of a transformers model are, and what kind of layer each is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import nn

KINDS: dict[str, str] = {
    r"linear ?attention|delta|lightning|retention|rwkv": "linear attention",
    r"attention|attn": "attention",
    r"mamba|bamba|\bssm\b|state ?space": "mamba",
    r"recurrent|lru|lstm|gru\b": "recurrent",
    r"conv": "convolution",
    r"fourier|mixer": "token mixing",
}
"""The kind of a layer by the words of its mixer's class, the first that fits."""

FEEDERS = re.compile(r"(mlp|feed ?forward|ffn?|mo ?e( block| layer)?|experts)$")
"""How the words of a feed-forward's class end."""

CROSS = re.compile(r"cross|encoder_attn|encdec", re.IGNORECASE)
"""What attention to another sequence is called."""


def _words(module: nn.Module) -> str:
    """The name of a module's class, its words apart: ``GptOssMLP`` is no ``ssm``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(module).__name__).lower()


def kind_of(module: nn.Module) -> str:
    """The kind of mixer that a module is by its class's name; empty where it is none."""
    words = _words(module)
    if words.endswith("norm") or FEEDERS.search(words) or next(module.children(), None) is None:
        return ""
    return next((kind for pattern, kind in KINDS.items() if re.search(pattern, words)), "")


def is_mixer(module: nn.Module) -> bool:
    """Whether a module brings other tokens' content to a token: attention, or what stands in its place."""
    return bool(kind_of(module))


def is_feeder(module: nn.Module) -> bool:
    """Whether a block's child is its feed-forward, by its class's name."""
    return bool(FEEDERS.search(_words(module)))


def is_cross(path: str) -> bool:
    """Whether the module at a path attends to the other stack."""
    return bool(CROSS.search(path))


def find_blocks(model: Any, several: bool) -> dict[str, tuple[nn.Module, ...]]:
    """The blocks of each stack, in order. ``several``: whether there is an encoder and a decoder.

    Blocks are the children of the outermost lists of modules whose class the library names as a layer; without such
    names, of the longest list of a stack. Raises ``ValueError`` where there is none.
    """
    named = set(getattr(model, "_no_split_modules", None) or ())
    named |= {_layer_class(part) for part in model.modules()} - {""}
    lists = list(_outermost_lists(model, ""))
    chosen = [(path, found) for path, found in lists if all(type(block).__name__ in named for block in found)]
    stacks: dict[str, tuple[nn.Module, ...]] = {}
    for path, found in chosen or sorted(lists, key=lambda pair: len(pair[1])):
        stack = ("decoder" if "decoder" in path else "encoder") if several else ""
        stacks[stack] = (*(stacks.get(stack, ()) if chosen else ()), *found)
    if not stacks or not all(any(map(_mixes, found)) for found in stacks.values()):
        name = type(model).__name__
        raise ValueError(f"got a {name}, which keeps no list of blocks, expected one: there is no layer to trace")
    return dict(sorted(stacks.items(), reverse=True))  # the encoder runs first


def owner(model: nn.Module, block: nn.Module) -> nn.Module:
    """The innermost of the library's models that holds a block: its output is the stack's last hidden state."""
    best, size = model, float("inf")
    for module in model.modules():
        if hasattr(module, "base_model_prefix"):
            inside = list(module.modules())
            if len(inside) < size and any(part is block for part in inside):
                best, size = module, len(inside)
    return best


def _mixes(block: nn.Module) -> bool:
    """Whether a mixer is inside. XLM keeps its attentions and its feed-forwards in lists of their own: no blocks."""
    return any(is_mixer(part) for part in block.modules() if part is not block)


def _layer_class(module: nn.Module) -> str:
    """The class whose outputs the library calls hidden states, where a model says so."""
    recorded = (getattr(type(module), "_can_record_outputs", None) or {}).get("hidden_states")
    recorded = getattr(recorded, "target_class", recorded)
    return recorded.__name__ if isinstance(recorded, type) else ""


def _outermost_lists(module: nn.Module, path: str) -> Iterable[tuple[str, list[nn.Module]]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}"
        if isinstance(child, nn.ModuleList) and len(child):
            yield inner, list(child)
        else:
            yield from _outermost_lists(child, inner)
