"""What the model expects next at every position, and what the text then cost it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fbt_core.trace import Trace


@dataclass(frozen=True)
class Predictions:
    """For L tokens and the k likeliest continuations of each prefix.

    ``ids`` (L, k) and ``probabilities`` (L, k) belong to the token after position i; ``loss`` (L,) is
    - ln p(token i | tokens before it) in nats, nan for the first token, which nothing predicts.
    """

    ids: np.ndarray
    probabilities: np.ndarray
    loss: np.ndarray

    @property
    def mean_loss(self) -> float:
        """Nats a token, over all but the first; nan for a single token."""
        return float(self.loss[1:].mean()) if len(self.loss) > 1 else float("nan")


ROWS = 256
"""Positions at a time: float64 of every token of a large vocabulary is a lot."""


def predictions(trace: Trace, count: int = 5) -> Predictions:
    """The ``count`` likeliest next tokens at every position of a trace, in float64.

    Raises ``ValueError`` for a model that predicts no token.
    """
    if trace.logits is None:
        raise ValueError("got a model that predicts no token, expected logits")
    ids, chances = [], []
    loss = torch.full((trace.length,), torch.nan, dtype=torch.float64)
    for start in range(0, trace.length, ROWS):
        logs = trace.logits[start : start + ROWS].cpu().double().log_softmax(-1)
        top = logs.topk(min(count, logs.shape[-1]), dim=-1)
        ids.append(top.indices)
        chances.append(top.values.exp())
        following = trace.ids[start + 1 : start + 1 + len(logs)].cpu()
        loss[start + 1 : start + 1 + len(following)] = -logs[: len(following)].gather(-1, following[:, None])[:, 0]
    return Predictions(torch.cat(ids).numpy(), torch.cat(chances).numpy(), loss.numpy())
