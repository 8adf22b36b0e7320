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


def predictions(trace: Trace, count: int = 5) -> Predictions:
    """The ``count`` likeliest next tokens at every position of a trace, in float64."""
    logs = trace.logits.double().log_softmax(-1)
    top = logs.topk(min(count, logs.shape[-1]), dim=-1)
    loss = torch.full((trace.length,), torch.nan, dtype=torch.float64)
    loss[1:] = -logs[:-1].gather(-1, trace.ids[1:, None])[:, 0].cpu()
    return Predictions(top.indices.cpu().numpy(), top.values.exp().cpu().numpy(), loss.numpy())
