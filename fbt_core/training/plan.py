"""A training plan: everything, besides the model's own config, that decides what a trained checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

DTYPES = ("float32", "float64", "bfloat16")
"""Arithmetic of the forward and backward pass. bfloat16 is autocast over float32 weights."""


@dataclass(frozen=True)
class TrainingPlan:
    """One schedule, shared by all twins: same data, same order, same learning rates.

    ``long_rows`` holds pairs (every, length): every so many steps the rows are that long and correspondingly fewer, so
    that the tokens a step stay the same and positions beyond ``length`` are trained as well; the longest length that
    falls on a step wins. Raises ``ValueError`` (got, expected) when a number is out of its range.
    """

    preset: str
    steps: int
    batch: int  # rows a step
    length: int  # tokens a row
    source: str = "grammar"  # or the name of a text file
    long_rows: tuple[tuple[int, int], ...] = ()
    learning_rate: float = 3e-3  # the peak, at the end of the warm-up; small models bear a large one
    warm_up: int = 100  # steps of linear rise
    floor: float = 0.05  # the cosine ends at this fraction of the peak
    beta_1: float = 0.9
    beta_2: float = 0.95
    weight_decay: float = 0.1  # on matrices only: gains, temperatures and biases have no reason to be small
    clip: float = 1.0  # of the gradient's norm
    seed: int = 0
    evaluation_rows: int = 200  # held-out rows, of ``length`` tokens
    checkpoint_every: int = 100
    device: str = "cpu"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "checkpoint_every", "evaluation_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"got {name} = {getattr(self, name)}, expected at least 1")
        if self.length < 2:
            raise ValueError(f"got length = {self.length}, expected at least 2: a token and the one to predict")
        if self.seed < 0:
            raise ValueError(f"got seed = {self.seed}, expected 0 or more")
        if self.dtype not in DTYPES:
            raise ValueError(f"got dtype {self.dtype!r}, expected one of {', '.join(DTYPES)}")
        for every, length in self.long_rows:
            if every < 1 or length <= self.length:
                raise ValueError(f"got long rows of {length} tokens every {every} steps, expected above {self.length}")

    def shape(self, step: int) -> tuple[int, int]:
        """(rows, tokens a row) of step ``step``, which counts from 0."""
        due = [length for every, length in self.long_rows if (step + 1) % every == 0]
        length = max(due, default=self.length)
        return max(1, self.batch * self.length // length), length

    def rate(self, step: int) -> float:
        """The learning rate of step ``step``: linear warm-up, then a cosine down to ``floor`` of the peak."""
        warm_up = min(self.warm_up, self.steps // 4)
        if step < warm_up:
            return self.learning_rate * (step + 1) / warm_up
        done = (step - warm_up) / max(1, self.steps - warm_up)
        return self.learning_rate * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))

    def tokens(self, steps: int) -> int:
        """Tokens fed to the model in the first ``steps`` steps."""
        return sum(math.prod(self.shape(step)) for step in range(steps))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, one a field."""
        return {**asdict(self), "long_rows": [list(pair) for pair in self.long_rows]}
