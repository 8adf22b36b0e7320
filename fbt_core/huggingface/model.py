"""A model of the transformers library, traced: its own code runs, and what it computes is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.huggingface import blocks, capture, projections
from fbt_core.huggingface.assemble import Pass, assemble
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.huggingface.heads import CAPS, Head, Listener, find_head
from fbt_core.huggingface.images import patch_labels
from fbt_core.huggingface.inputs import prepared
from fbt_core.huggingface.placement import gathered, is_spread
from fbt_core.huggingface.projections import Site
from fbt_core.model.watching import observe, watching
from fbt_core.trace import LayerTrace, Trace

PROBED = 5
"""Tokens of the pass that shows where a model's parts are."""


@dataclass(frozen=True)
class Found:
    """Where the parts of a model are: of each stack's layers, and the head."""

    sites: Mapping[str, tuple[Site, ...]]
    head: Head | None


@dataclass(frozen=True)
class SelfCheck:
    """How far our traced pass lies from the library's own forward, in the same dtype: max |difference|."""

    difference: float
    of: str  # logits | last hidden state
    tokens: int
    largest: float  # the largest magnitude of what was compared
    way: str  # sdpa | eager: the library's attention that it was compared with


class HuggingFaceModel:
    """``module`` with its blocks found and watched. It is only read: any number of threads may trace it at a time.

    ``module`` is a model of the library in eval mode, with all its numbers in place.
    """

    def __init__(self, module: Any, config: HuggingFaceConfig) -> None:
        self.module, self.config = module, config
        self.stacks = blocks.find_blocks(module, several=len(config.stacks) > 1)
        self.paths = {id(part): path for path, part in module.named_modules()}
        capture.register()
        attentions = [part for part in module.modules() if blocks.kind_of(part) == "attention"]
        self.attends = bool(attentions)
        self.captures = any(map(capture.has_interface, attentions))
        if self.captures:
            module.set_attn_implementation(capture.NAME)
        if any(parameter.dtype == torch.float64 for parameter in module.parameters()):
            module.set_experts_implementation("eager")  # the joined products of a mixture know no float64
        self.fused = bool(getattr(module, "_supports_sdpa", False))
        observe(module, dict(self.stacks), blocks.is_mixer, blocks.is_feeder)
        self.owners = {stack: blocks.owner(module, found[0]) for stack, found in self.stacks.items()}
        capture.observe_outputs(self.owners)

    @property
    def unembedding(self) -> Float[Tensor, "vocab width"] | None:
        """The rows that turn a normed residual into logits; None for a model that predicts no token so."""
        head = self.module.get_output_embeddings()
        weight = getattr(head, "weight", None)
        return weight if weight is not None and weight.shape[-1] == self.config.width else None

    def trace(
        self, ids: Int[Tensor, " token"], strength: float = 1.0, tokens: Sequence[str] = (), **more: Any
    ) -> Trace:
        """The first stack of ``traces``."""
        return next(iter(self.traces(ids, strength, tokens, **more).values()))

    @torch.no_grad()  # and not inference_mode: curvature differentiates through what is traced
    def traces(
        self, ids: Int[Tensor, " token"], strength: float = 1.0, tokens: Sequence[str] = (),
        target: Int[Tensor, " target"] | None = None, target_tokens: Sequence[str] = (),
        pixels: Float[Tensor, "channel height across"] | None = None, variant: str = "full",
        attention_mask: Int[Tensor, " token"] | None = None,
    ) -> dict[str, Trace]:  # fmt: skip
        """One sequence through the model, by the name of its stack: one without a name, or encoder, decoder and cross.

        ``tokens`` are labels for whoever draws. ``target`` is what the decoder of an encoder-decoder reads (default
        the input, shifted right as in training). An image model reads ``pixels`` and no ids. ``variant`` is a key of
        ``VARIANTS``. Tokens where ``attention_mask`` is 0 are padding, and are left out of everything. ``strength`` has
        no effect, since the model has no metric.

        Raises ``ValueError`` for no token, for more tokens than the model has positions for, for ids outside of the
        vocabulary, and for a variant that the model's blocks do not allow.
        """
        inputs = self._inputs(ids, target, pixels, attention_mask)
        keep = None if attention_mask is None else attention_mask.bool()
        names = {"input_ids": "" if len(self.stacks) == 1 else "encoder", "decoder_input_ids": "decoder"}
        text = {stack: inputs[name][0] for name, stack in names.items() if name in inputs}
        labels = {"": tuple(tokens), "encoder": tuple(tokens), "decoder": tuple(target_tokens)}
        keep = keep if pixels is None else None
        ran = self._run(inputs, keep, variant, maps=self.attends and not self.captures)
        if pixels is not None and not tokens:
            labels = {"": patch_labels(ran.outputs[""].shape[1], self.module.config, pixels)}
        found = assemble(ran, text, labels, strength, ())
        if self.captures and any(map(_lacks, (layer for trace in found.values() for layer in trace.layers))):
            found = assemble(self._run(inputs, keep, variant, maps=True), text, labels, strength, ())
        return gathered(found, self.module) if is_spread(self.module) else found

    def forward_logits(
        self, ids: Int[Tensor, " token"] | None, target: Int[Tensor, " target"] | None = None,
        pixels: Float[Tensor, "channel height across"] | None = None,
        attention_mask: Int[Tensor, " token"] | None = None, way: str = "sdpa",
    ) -> tuple[Float[Tensor, "row vocab"] | None, Float[Tensor, "row width"]]:  # fmt: skip
        """The library's own forward with its own attention, ``sdpa`` or ``eager``: logits and last hidden state.

        Padding is in both. The logits are None where the model predicts no token.
        """
        record = capture.Recording(False)
        with torch.no_grad(), capture.plain(way), capture.recording(record):
            output = self.module(**self._inputs(ids, target, pixels, attention_mask), **self._options())
        return self._logits(output), record.outputs[self._last_stack][0]

    def self_check(self, ids: Int[Tensor, " token"], **more: Any) -> SelfCheck:
        """Our traced pass against the library's own forward of the same tokens. Nothing is asserted.

        ``more`` is what ``traces`` takes: ``target``, ``pixels``, ``attention_mask``.
        """
        trace = self.traces(ids, **more)[self._last_stack]
        way, keep = "sdpa" if self.fused else "eager", more.get("attention_mask")
        given = {name: more[name] for name in ("target", "pixels", "attention_mask") if name in more}
        logits, hidden = self.forward_logits(ids, **given, way=way)
        rows = slice(None) if keep is None or len(self.stacks) > 1 else keep.bool()
        of = "last hidden state" if logits is None or trace.logits is None else "logits"
        ours, theirs = (trace.logits, logits) if of == "logits" else (trace.normed, hidden)
        assert ours is not None and theirs is not None
        difference = (ours - theirs[rows]).abs().max()
        return SelfCheck(float(difference), of, len(ours), float(theirs[rows].abs().max()), way)

    def final_norm(self, h: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """What the model makes of its last layer's output before it predicts: itself, where it has no such norm."""
        norm = self._found.sites[self._last_stack][-1].final_norm
        return h if norm is None else norm(h)

    def lens(self, h: Float[Tensor, "token width"]) -> Float[Tensor, "token vocab"]:
        """Logits of a residual as if the model ended there: final norm, then the head.

        Raises ``ValueError`` with the reason for a model that predicts no token, or not in a way that was recognised.
        """
        if self._found.head is None:
            raise ValueError(f"got a {self.config.architecture}: it predicts no token, or not by a head that we know")
        if h.shape[-1] != self.config.width:
            raise ValueError(
                f"got a residual {h.shape[-1]} wide, expected {self.config.width}: there is no lens for it"
            )
        return self._found.head(self.final_norm(h))

    def projection(self, layer: int, which: str = "key", stack: str = "") -> Float[Tensor, "head dim width"]:
        """The weights from a normalised residual to keys or queries, before their rotation; see ``projections``."""
        return projections.projection(self._sites(stack)[layer], which)

    def rotate(
        self, layer: int, x: Float[Tensor, "head token dim rank"], rotary: tuple[Tensor, Tensor] | None, stack: str = ""
    ) -> Float[Tensor, "head token dim rank"]:
        """The columns of ``x`` turned as the layer turns keys at the tokens' positions."""
        return projections.rotate(self._sites(stack)[layer], x, rotary)

    @cached_property
    def _found(self) -> Found:
        """What one pass over a few tokens shows of the model's parts."""
        side = self.module.config.image_size if self.config.input == "image" else 1
        pixels = torch.zeros(3, *((side, side) if isinstance(side, int) else side))
        ids = torch.arange(min(PROBED, self.module.get_input_embeddings().weight.shape[0])) if side == 1 else None
        inputs = self._inputs(ids, None, pixels, None)
        with torch.no_grad(), Listener(self.module) as heard:
            ran = self._run(inputs, None, "full", maps=False)
        sites = {stack: tuple(map(Site.of, passages)) for stack, passages in ran.passages.items()}
        if ran.logits is None:
            return Found(sites, None)
        caps = (getattr(self.module.config, name, None) for name in CAPS)
        cap = next((value for value in caps if value), None)
        last = self._last_stack
        return Found(sites, find_head(heard.ran, ran.outputs[last][0], ran.logits, self.owners[last], cap))

    def _sites(self, stack: str) -> tuple[Site, ...]:
        if stack and stack not in self._found.sites:
            raise ValueError(f"got the stack {stack!r}, expected one of {', '.join(self._found.sites)}")
        return self._found.sites[stack or next(iter(self._found.sites))]

    @property
    def _last_stack(self) -> str:
        return list(self.stacks)[-1]

    def _inputs(
        self, ids: Tensor | None, target: Tensor | None, pixels: Tensor | None, attention_mask: Tensor | None
    ) -> dict[str, Tensor]:
        return prepared(self.module, self.config, ids, target, pixels, attention_mask)

    def _options(self) -> dict[str, Any]:
        """Arguments of every pass: nothing is generated, so nothing is cached."""
        return {"use_cache": False} if getattr(self.module.config, "use_cache", None) is not None else {}

    def _run(self, inputs: dict[str, Tensor], keep: Tensor | None, variant: str, maps: bool) -> Pass:
        """One pass under a watch."""
        more = {**self._options(), **({"output_attentions": True} if maps else {})}
        record = capture.Recording(self.fused, maps, keep)
        with watching(variant, maps) as watch, capture.recording(record):
            output = self.module(**inputs, **more)
        watch.check()
        passages = {
            stack: found
            for stack in self.stacks
            if (found := tuple(passage for passage in watch.passages if passage.stack == stack))
        }
        return Pass(passages, record.outputs, self._logits(output), keep, lambda part: self.paths.get(id(part), ""))

    def _logits(self, output: Any) -> Tensor | None:
        """Logits (token, vocab) of an output; None for a model without them, or with those of a whole sequence."""
        logits = getattr(output, "logits", None)
        return logits[0] if logits is not None and logits.dim() == 3 else None


def _lacks(layer: LayerTrace) -> bool:
    """Whether a layer attends, and nothing of it is known yet."""
    return layer.kind == "attention" and layer.factors is None and layer.maps is None
