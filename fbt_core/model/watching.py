"""The hooks by which a model's modules tell the residual watch of their thread what runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from fbt_core.model.residual_watch import Passage, ResidualWatch

_WATCH: ContextVar[ResidualWatch | None] = ContextVar("residual watch", default=None)
_LOCK = threading.Lock()


@contextmanager
def watching(variant: str = "full", maps: bool = False) -> Iterator[ResidualWatch]:
    """Watch, or change, the blocks that run in this thread, and keep the attention maps that they return if asked.

    Raises ``ValueError`` for an unknown variant.
    """
    watch = ResidualWatch(variant, maps)
    token = _WATCH.set(watch)
    try:
        with watch:
            yield watch
    finally:
        _WATCH.reset(token)


def current_passage() -> Passage | None:
    """The block that runs in this thread under a watch."""
    watch = _WATCH.get()
    return None if watch is None else watch.current


def observe(
    model: nn.Module, stacks: dict[str, Iterable[nn.Module]], is_mixer: Callable[[nn.Module], bool],
    is_feeder: Callable[[nn.Module], bool],
) -> None:  # fmt: skip
    """Put the hooks of the watch on a model, once: they do nothing while no watch is active in their thread.

    ``is_mixer`` tells modules that bring other tokens' content to a token (attention, or what stands in its place),
    ``is_feeder`` tells feed-forwards among a block's children.
    """
    with _LOCK:
        if getattr(model, "_residual_hooks", False):
            return
        for module in model.modules():
            if "norm" in type(module).__name__.lower():
                module.register_forward_hook(_after_norm)
        for stack, blocks in stacks.items():
            for block in blocks:
                _observe_block(stack, block, is_mixer, is_feeder)
        model._residual_hooks = True  # type: ignore[assignment]


def _observe_block(
    stack: str, block: nn.Module, is_mixer: Callable[[nn.Module], bool], is_feeder: Callable[[nn.Module], bool]
) -> None:
    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream = _stream_of(args, kwargs)
        if (watch := _WATCH.get()) is not None and stream is not None:
            watch.enter(stack, module, stream)

    def leave(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if (watch := _WATCH.get()) is not None:
            watch.leave(output if isinstance(output, Tensor) else output[0])

    block.register_forward_pre_hook(enter, with_kwargs=True)
    block.register_forward_hook(leave)
    for module in block.modules():
        if module is not block and is_mixer(module):
            module.register_forward_pre_hook(_before_mixer, with_kwargs=True)
            module.register_forward_hook(_after_mixer)
    for child in block.children():
        if is_feeder(child):
            child.register_forward_pre_hook(_before_feeder)
            child.register_forward_hook(_after_feeder)


def _stream_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """A block's input: its first argument, or the one that has the customary name."""
    first = args[0] if args else kwargs.get("hidden_states", kwargs.get("x"))
    return first if isinstance(first, Tensor) else None


def _before_mixer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if (passage := current_passage()) is None:
        return
    passage.attended = True
    passage.mixers.append(module)
    given = _stream_of(args, kwargs)
    if given is not None and passage.attention_norm is None:
        for output, norm in passage.norms:
            if output.data_ptr() == given.data_ptr():
                passage.attention_norm = norm
    turned = kwargs.get("position_embeddings")
    if isinstance(turned, tuple) and len(turned) == 2 and all(isinstance(part, Tensor) for part in turned):
        passage.rotary = turned


def _after_mixer(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    """Keep the attention map that a module returns, where it returns one: (batch, head, row, token)."""
    watch = _WATCH.get()
    if watch is not None and watch.maps and watch.current is not None and isinstance(output, tuple | list):
        found = [part for part in output if isinstance(part, Tensor) and part.dim() == 4]
        watch.current.maps.extend((module, part) for part in found[:1])


def _before_feeder(module: nn.Module, args: tuple[Any, ...]) -> None:
    if (passage := current_passage()) is not None:
        passage.fed = True


def _after_feeder(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """The feed-forward of a parallel block, whose attention has run and is not added yet, is silenced here."""
    watch, passage = _WATCH.get(), current_passage()
    if watch is None or passage is None or watch.variant.feed_forward or not passage.attended:
        return None
    passage.silenced = True
    if isinstance(output, Tensor):
        return torch.zeros_like(output)
    return (torch.zeros_like(output[0]), *output[1:])


def _after_norm(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    watch = _WATCH.get()
    if watch is None or not args or not isinstance(output, Tensor) or not isinstance(args[0], Tensor):
        return
    if (passage := watch.current) is not None:
        if passage.is_stream(args[0]):
            passage.same.append(output)
            passage.norms.append((output, module))
    elif watch.passages and (last := watch.passages[-1]).after is not None:
        if args[0].data_ptr() == last.after.data_ptr():
            last.final_norm = module
