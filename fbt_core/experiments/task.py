"""What a pure stack is trained to do: tasks whose failure is visible, and the model around the stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fbt_core.attention.scores import attention
from fbt_core.experiments.arms import Arm
from fbt_core.experiments.stack import PureStack, Shape, Tokens, squared_radius, unit_rms
from fbt_core.model.initialise import named_generator

Ids = Int[Tensor, "batch token"]


@dataclass(frozen=True)
class Task:
    """What is asked at every position of a sequence of independent, uniform tokens. Chance is 1 / vocabulary."""

    name: str
    title: str
    answers: Callable[[Ids], Ids]
    positions: bool  # whether the input says where a token stands


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("identify", "Which token stands here", lambda ids: ids, False),
        Task("copy", "Which token stands before this one (before the first: the last)",
             lambda ids: ids.roll(1, -1), True),
    )
}  # fmt: skip
"""Collapsed tokens are all the same, and no readout of one can answer better than chance."""


class Learner(nn.Module):
    """Embedding, pure stack, and a linear readout of unit-RMS tokens. Same seed: same weights in every arm."""

    def __init__(self, shape: Shape, arm: Arm, seed: int, vocabulary: int, task: Task) -> None:
        super().__init__()
        self.task = task
        self.stack = PureStack(shape, arm, seed)
        self.embedding = _normal(seed, "embedding", vocabulary, shape.width)
        self.readout = _normal(seed, "readout", vocabulary, shape.width)
        if task.positions:
            self.position = _normal(seed, "position", shape.length, shape.width)

    def tokens(self, ids: Ids) -> Tokens:
        """X_0."""
        x = self.embedding[ids]
        return x + self.position if self.task.positions else x

    def answer(self, x: Tokens) -> Float[Tensor, "batch token answer"]:
        """Logits from the tokens that the stack left."""
        return unit_rms(x) @ self.readout.mT

    def forward(self, ids: Ids) -> Float[Tensor, "batch token answer"]:
        x, radius = self.tokens(ids), None
        for layer in self.stack.layers:
            if layer.shape.held == "first" and radius is None:
                radius = squared_radius(*layer.queries_and_keys(x))
            f = layer.factors(x, radius)
            x = layer.move(x, f, attention(f, layer.arm.score))
        return self.answer(x)


def draw_ids(seed: int, name: str, batch: int, length: int, vocabulary: int) -> Ids:
    """Sequences of independent, uniform tokens."""
    return torch.randint(vocabulary, (batch, length), generator=named_generator(seed, name))


def train(model: Learner, seed: int, *, steps: int, batch: int, learning_rate: float) -> None:
    """Adam on the mean cross-entropy over all positions; batches depend on the seed and the step alone.

    The rate falls linearly to a tenth. Gradients are clipped to norm 1.
    """
    vocabulary, length = len(model.embedding), model.stack.layers[0].shape.length
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = learning_rate * (1 - 0.9 * step / steps)
        ids = draw_ids(seed, f"batch.{step}", batch, length, vocabulary).to(model.embedding.device)
        loss, _ = score(model(ids), model.task.answers(ids))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def score(logits: Float[Tensor, "batch token answer"], answers: Ids) -> tuple[Tensor, float]:
    """Cross-entropy in nats, and the share of positions answered rightly."""
    loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
    return loss, float((logits.argmax(-1) == answers).double().mean())


def _normal(seed: int, name: str, rows: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, width, generator=named_generator(seed, name), dtype=torch.float64))
