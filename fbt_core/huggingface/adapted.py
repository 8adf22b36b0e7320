"""A causal language model of the transformers library with its attention replaced by an adapter's blended score."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from fbt_core.attention import Factors, attend
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.huggingface import capture
from fbt_core.huggingface.capture import Recording, has_interface
from fbt_core.model.adapted import AdapterNets, Base

NAME = "fiberscope-adapter"
"""Of the attention function and of the mask function, in the library's tables."""


@dataclass
class _Running:
    """The nets of a pass under way, and what each attention module read last."""

    nets: AdapterNets
    places: dict[int, int]  # id of an attention module -> its layer
    read: dict[int, Tensor]
    masks: Any  # of the house's capture: what each of the library's masks says


_RUNNING: ContextVar[_Running | None] = ContextVar("adapted", default=None)


def library_base(model: Any) -> Base:
    """The base that a ``HuggingFaceModel`` makes: a causal language model.

    Raises ``ValueError`` with the reason where its attention cannot be replaced.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    sites = {index: site for index, site in enumerate(model._sites("")) if site.attention is not None}
    if not sites or not all(has_interface(site.attention) for site in sites.values()):
        raise ValueError("got a model whose attention cannot be replaced, expected one that uses the library's "
                         "attention interface")  # fmt: skip
    if len({(site.heads, site.width) for site in sites.values()}) > 1:
        raise ValueError("got layers of different numbers or widths of heads, expected all alike")
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    places = {id(site.attention): index for index, site in sites.items()}
    for site in sites.values():
        site.attention.register_forward_pre_hook(_remember, with_kwargs=True)

    def logits(ids: Int[Tensor, "batch token"], nets: AdapterNets | None) -> Tensor:
        if nets is None:
            return model.module(input_ids=ids, use_cache=False).logits
        token = _RUNNING.set(_Running(nets, places, {}, Recording(fused=False)))
        model.module.set_attn_implementation(NAME)  # so this is not for a model that another thread is reading
        try:
            return model.module(input_ids=ids, use_cache=False).logits
        finally:
            model.module.set_attn_implementation(capture.NAME)
            _RUNNING.reset(token)

    first = next(iter(sites.values()))
    return Base(tuple(sites), first.heads, first.width, model.config.width, logits)


def _remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if (running := _RUNNING.get()) is not None:
        running.read[id(module)] = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """What the library calls in place of eager attention; the same arguments, the same result."""
    running = _RUNNING.get()
    if running is None or id(module) not in running.places:
        raise ValueError(f"got a call from {type(module).__name__}, expected one of the adapted layers")
    if kwargs.get("s_aux") is not None:
        raise ValueError("got attention with sinks, which the blended score does not have, expected none")
    parts = tuple(part for part in (attention_mask, kwargs.get("position_bias")) if part is not None)
    mask = running.masks.mask(parts, query.shape[2], key.shape[2])
    heads = query.shape[1]
    scaling = kwargs.get("scaling")
    scale = query.new_full((heads,), query.shape[-1] ** -0.5 if scaling is None else float(scaling))
    key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    flat, none = LowRankMetric(query.new_zeros(*query.shape, 0)), query.new_zeros(query.shape[:-1])
    plain = Factors(
        query, key, value, flat, 2 / scale, none, 0.0, mask.causal,
        scale=scale, mask=mask.added, softcap=kwargs.get("softcap"),
    )  # fmt: skip
    factors = running.nets.bend(running.places[id(module)], running.read.pop(id(module)), plain)
    return attend(factors, "blended").transpose(1, 2).contiguous(), None
