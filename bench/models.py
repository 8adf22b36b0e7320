"""The checkpoints and the texts that pages are measured with, made from those that are bundled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from fbt_core import checkpoints
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.native import save
from fbt_core.model import FiberBundleTransformer, build
from fbt_core.training.grammar import sample_text

ROOT = Path(__file__).resolve().parents[1]

CONTEXT = 4096  # tokens of the stretched checkpoint

SPREAD = 3.0
"""What the untrained model's queries are multiplied by: its attention would else be the same everywhere."""


def stretched(path: Path, context: int = CONTEXT) -> None:
    """Write the bundled Riemannian checkpoint with its learned positions interpolated to ``context``."""
    found = checkpoints.load(ROOT / "assets" / "riemannian.safetensors")
    tensors = dict(found.tensors)
    rows = tensors["position.weight"].T[None]
    longer = torch.nn.functional.interpolate(rows, size=context, mode="linear", align_corners=True)
    tensors["position.weight"] = longer[0].T.contiguous()
    save(path, replace(found.config, context=context), tensors, found.tokenizer, {"note": "positions stretched"})


def text_of(tokens: int) -> str:
    """Sentences of the training grammar, ``tokens`` - 1 words: the tokenizer adds one."""
    words: list[str] = []
    seed = 0
    while len(words) < tokens - 1:
        words += sample_text(seed).split()
        seed += 1
    return " ".join(words[: tokens - 1])


def untrained(path: Path) -> None:
    """Write a causal checkpoint of 12 layers x 12 heads of width 16, with a bundled tokenizer."""
    bundled = checkpoints.load(ROOT / "assets" / "riemannian.safetensors")
    config = replace(bundled.config, layers=12, heads=12, width=192, feed_forward=192, transport="none", torsion_rank=0)
    tensors = {
        name: tensor * SPREAD if name.endswith("query.weight") else tensor
        for name, tensor in FiberBundleTransformer(config).state_dict().items()
    }
    save(path, config, tensors, bundled.tokenizer, {"note": "untrained"})


def attention_of(checkpoint: Checkpoint, text: str) -> tuple[list[torch.Tensor], list[str]]:
    """A model's own attention on a text, a tensor (head, row, column) a layer, and its tokens."""
    encoding = checkpoint.tokenizer.encode(text)
    trace = build(checkpoint).traces(torch.tensor(encoding.ids), tokens=encoding.tokens)[""]
    maps = [torch.stack([layer.attention(head, layer.score) for head in range(layer.heads)]) for layer in trace.layers]
    return maps, list(encoding.tokens)
