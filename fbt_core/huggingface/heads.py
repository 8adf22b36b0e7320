"""The way from a model's last hidden state to its logits, found by running it once, and trusted only if it fits."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

CAPS = ("final_logit_softcapping", "logits_soft_cap")
"""What configs call a soft cap of the logits."""

TOLERANCE = 1e-3
"""Of the largest logit: rounding of any dtype with 8 bits or more stays below 10 times this."""


@dataclass(frozen=True)
class Head:
    """Modules one after the other, then a factor, an offset and a soft cap."""

    modules: tuple[nn.Module, ...]
    factor: float = 1.0
    offset: Tensor | None = None
    cap: float | None = None

    def __call__(self, normed: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocab"]:
        """Logits of a hidden state after the final norm."""
        x = normed
        for module in self.modules:
            x = module(x)
        x = x if self.factor == 1.0 else x * self.factor
        x = x if self.offset is None else x + self.offset
        return x if self.cap is None else self.cap * torch.tanh(x / self.cap)


class Listener:
    """While active, the direct children of a model that run in this thread, in the order in which they begin."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.ran, self._hooks = model, [], []

    def __enter__(self) -> Listener:
        thread = threading.get_ident()

        def note(module: nn.Module, args: tuple[Any, ...]) -> None:
            if threading.get_ident() == thread:
                self.ran.append(module)

        self._hooks = [child.register_forward_pre_hook(note) for child in self.model.children()]
        return self

    def __exit__(self, *fault: object) -> None:
        for hook in self._hooks:
            hook.remove()


def find_head(
    ran: list[nn.Module], normed: Float[Tensor, "token width"], logits: Float[Tensor, "token vocab"],
    stack: nn.Module, cap: float | None,
) -> Head | None:  # fmt: skip
    """The head that turns ``normed`` into ``logits``; None where none of the simple forms does.

    ``ran`` are the model's children as they ran, ``stack`` one of the models whose hidden state ``normed`` is.
    """
    inside = {id(part) for part in stack.modules()}  # such as an embedding that stack and model share
    after = [
        module for module in ran if id(module) not in inside and not any(part is stack for part in module.modules())
    ]
    after = [module for module in after if not _holds_blocks(module)]
    try:
        plain = Head(tuple(after))(normed).float()
    except (RuntimeError, TypeError, AttributeError):
        return None
    if plain.shape != logits.shape:
        return None
    wanted = logits.float() if cap is None else cap * torch.atanh((logits.float() / cap).clamp(-1 + 1e-7, 1 - 1e-7))
    factor = float((wanted * plain).sum() / plain.square().sum().clamp_min(torch.finfo(torch.float32).tiny))
    offset = (wanted - plain).mean(0)
    for head in (
        Head(tuple(after), cap=cap),
        Head(tuple(after), factor=factor, cap=cap),
        Head(tuple(after), offset=offset.to(logits.dtype), cap=cap),
    ):
        if (head(normed).float() - logits.float()).abs().max() <= _tolerance(logits):
            return head
    return None


def _holds_blocks(module: nn.Module) -> bool:
    """Whether a child is another stack and no head."""
    return any(isinstance(part, nn.ModuleList) and len(part) > 1 for part in module.modules())


def _tolerance(logits: Tensor) -> float:
    wide = logits.dtype in (torch.float32, torch.float64)
    return float(logits.float().abs().max()) * (TOLERANCE if wide else 10 * TOLERANCE)
