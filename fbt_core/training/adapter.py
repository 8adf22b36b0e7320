"""Trains MetricNets on a frozen base by its next-token loss.

Deterministic for a seed on a CPU. Interrupted, it writes nothing."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints import adapter as adapter_file
from fbt_core.checkpoints.adapter import AdapterConfig
from fbt_core.model.adapted import AdapterNets, Base, base_of
from fbt_core.training.plan import TrainingPlan
from fbt_core.training.progress import Progress
from fbt_core.training.trainer import DivergenceError

HELD_OUT, EVALUATION_ROWS = 0.1, 8
"""The last part of the text, which is never trained on, and the rows of it that the losses are measured on."""


@dataclass(frozen=True)
class Text:
    """A text as the base's tokens. ``start`` goes in front of every row: what the tokenizer puts before a text."""

    name: str
    sha256: str
    train: Int[np.ndarray, " trained"]
    held: Int[np.ndarray, " held"]
    start: tuple[int, ...]

    def rows(self, key: tuple[int, ...], count: int, length: int, held: bool = False) -> Int[Tensor, "row token"]:
        """Random windows, a function of ``key`` alone."""
        ids, size = self.held if held else self.train, length - len(self.start)
        starts = np.random.default_rng(np.random.SeedSequence(key)).integers(0, len(ids) - size + 1, count)
        windows = ids[starts[:, None] + np.arange(size)]
        front = np.tile(np.array(self.start, np.int64), (count, 1))
        return torch.from_numpy(np.concatenate([front, windows], axis=1))


def open_text(path: Path, tokenizer: Any, length: int) -> Text:
    """A text file in a checkpoint's own tokens.

    Raises ``ValueError`` (got, expected, remedy) for a missing or empty file, a checkpoint without a tokenizer, and a
    text whose held-out tenth is shorter than one row of ``length`` tokens.
    """
    if tokenizer is None:
        raise ValueError("got a base without a tokenizer, expected one: a text cannot be read without it")
    if not path.is_file():
        raise ValueError(f"got --text {str(path)!r}, expected a file: check the path")
    content = path.read_bytes()
    ids = np.array(tokenizer.encode(content.decode("utf-8", "replace")).ids, np.int64)
    start = tuple(tokenizer.encode("").ids[:1])
    ids = ids[len(start) :] if tuple(ids[: len(start)]) == start else ids
    cut = len(ids) - int(len(ids) * HELD_OUT)
    if len(ids) - cut < length:
        needed = math.ceil(length / HELD_OUT)
        raise ValueError(
            f"got {len(ids)} tokens of text in {path.name}, expected at least {needed} for rows of {length} (a tenth "
            "is held out): give a longer text, or a smaller --length"
        )
    return Text(path.name, hashlib.sha256(content).hexdigest(), ids[:cut], ids[cut:], start)


def train_adapter(
    checkpoint: Checkpoint, model: Any, text: Text, plan: TrainingPlan, shape: dict[str, Any], out: Path
) -> dict[str, Any]:
    """Train an adapter of ``shape`` (fields of ``AdapterConfig``) and write it to ``out``; returns its record.

    The base's tensors are not touched. Raises ``ValueError`` where the base can have no adapter, and
    ``DivergenceError`` when the loss is no longer finite.
    """
    base = base_of(model)
    config = AdapterConfig(
        layers=base.layers, heads=base.heads, head_width=base.head_width, inputs=base.inputs, **shape
    )
    nets = AdapterNets(config, plan.seed).to(device=plan.device)
    held = text.rows((1, plan.length), EVALUATION_ROWS, plan.length, held=True).to(plan.device)
    losses = {"base": _held_out_loss(base, None, held), "start": _held_out_loss(base, nets, held)}
    began, curve = time.monotonic(), _descend(base, nets, text, plan)
    losses["end"] = _held_out_loss(base, nets, held)
    record = {
        "plan": plan.to_dict(), "adapter": asdict(config) | {"layers": list(config.layers)}, "held_out_loss": losses,
        "curve": curve, "seconds": round(time.monotonic() - began, 1), "torch": torch.__version__,
        "threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in nets.parameters()),
        "data": {"source": text.name, "sha256": text.sha256}, "held_out_rows": EVALUATION_ROWS,
    }  # fmt: skip
    adapter_file.save(out, config, nets.state_dict(), checkpoint.origin, record)
    return record


def _descend(base: Base, nets: AdapterNets, text: Text, plan: TrainingPlan) -> list[list[int | float]]:
    """All steps of AdamW; returns [step, loss] in nats a token."""
    optimizer = torch.optim.AdamW(
        nets.parameters(), lr=plan.learning_rate, betas=(plan.beta_1, plan.beta_2), weight_decay=plan.weight_decay
    )
    curve: list[list[int | float]] = []
    with Progress("adapter", plan.steps, 0) as progress:
        for step in range(plan.steps):
            ids = text.rows((0, plan.seed, step), plan.batch, plan.length).to(plan.device)
            for group in optimizer.param_groups:
                group["lr"] = plan.rate(step)
            loss = next_token_loss(base, nets, ids)
            optimizer.zero_grad()
            loss.backward()
            slope = float(clip_grad_norm_(nets.parameters(), plan.clip))
            value = float(loss.detach())
            if not math.isfinite(value + slope):
                raise DivergenceError(
                    f"got loss {value} and a gradient of norm {slope} at step {step + 1}, expected finite numbers: use "
                    "another seed, or a smaller --learning-rate"
                )
            optimizer.step()
            curve.append([step + 1, value])
            progress.advance(step + 1, ids.numel(), value)
    return curve


def next_token_loss(base: Base, nets: AdapterNets | None, ids: Int[Tensor, "row token"]) -> Tensor:
    """Mean cross-entropy of the next token, nats a token, through the base with or without the adapter."""
    logits = base.logits(ids, nets)[:, :-1]
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def _held_out_loss(base: Base, nets: AdapterNets | None, held: Tensor) -> float:
    return float(torch.stack([next_token_loss(base, nets, row[None]) for row in held]).double().mean())


def adapter_plan(**numbers: Any) -> TrainingPlan:
    """A plan with the numbers that were asked for (``None`` leaves the default)."""
    default = TrainingPlan(
        "adapter", steps=300, batch=4, length=128, source="text", learning_rate=1e-3, warm_up=20, weight_decay=0.01
    )
    return replace(default, **{name: value for name, value in numbers.items() if value is not None})
