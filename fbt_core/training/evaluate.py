"""What a trained model knows: held-out loss against the entropy floor, and questions whose answers are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.model.fiber_bundle import FiberBundleTransformer

Predict = Callable[[Tensor], Tensor]
"""ids (row, token) -> logits (row, token, vocab)."""

TOKENS_AT_ONCE = 4096
"""Tokens of one forward pass of the evaluation."""

BANDS = (1, 64, 128, 256, 512, 1024, 2048, 4096)
"""Bounds of the bands of positions for which the loss is given apart."""


@dataclass(frozen=True)
class Question:
    """A token of a row that has one right form. The model is right if ``right`` outranks every id in ``wrong``.

    ``position`` is the token's own, so the model answers at ``position - 1``. ``form`` is the class of the right answer
    that a majority guess would name ("" where there is no such class); ``nearest`` says whether the rule "agree with
    the nearest noun" gives the right answer, None where it does not apply.
    """

    row: int
    position: int
    kind: str
    right: int
    wrong: tuple[int, ...]
    attractors: int
    depth: int
    form: str = ""
    nearest: bool | None = None


@dataclass(frozen=True)
class HeldOut:
    """Rows that were never trained on. ``floor[i, t]`` is - log p(token t | tokens before) under the true source."""

    ids: Int[np.ndarray, "row token"]
    floor: Float[np.ndarray, "row token"] | None = None
    questions: tuple[Question, ...] = ()

    def first(self, rows: int) -> HeldOut:
        """The first ``rows`` rows with their questions."""
        kept = tuple(question for question in self.questions if question.row < rows)
        return replace(
            self, ids=self.ids[:rows], floor=None if self.floor is None else self.floor[:rows], questions=kept
        )


def evaluate(predict: Predict, held: HeldOut, device: str = "cpu") -> dict[str, Any]:
    """Losses in nats a token (position 0 is given, not predicted) and the share of questions answered right.

    Standard errors are over rows, which are independent. ``above_floor`` is the mean of the differences token by token,
    whose standard error is far smaller than that of either mean. Plain JSON values.
    """
    losses, answers = _run(predict, held, device)
    floor = None if held.floor is None else held.floor[:, 1:]
    result = _loss_table(losses, floor)
    result["by_position"] = [
        {"from": start, "below": stop, **_loss_table(losses[:, start - 1 : stop - 1], _cut(floor, start, stop))}
        for start, stop in _bands(held.ids.shape[1])
    ]
    for kind in sorted({question.kind for question in held.questions}):
        chosen = [(q, right) for q, right in zip(held.questions, answers, strict=True) if q.kind == kind]
        result[kind] = _accuracy_table([q for q, _ in chosen], [right for _, right in chosen])
    return result


@torch.no_grad()
def _run(predict: Predict, held: HeldOut, device: str) -> tuple[Float[np.ndarray, "row token"], list[bool]]:
    """- log p of every token but the first, and whether each question was answered right."""
    rows_at_once = max(1, TOKENS_AT_ONCE // held.ids.shape[1])
    losses, right = [], {}
    by_row: dict[int, list[int]] = {}
    for index, question in enumerate(held.questions):
        by_row.setdefault(question.row, []).append(index)
    for start in range(0, len(held.ids), rows_at_once):
        ids = torch.from_numpy(held.ids[start : start + rows_at_once].astype(np.int64)).to(device)
        logits = predict(ids)
        logs = logits[:, :-1].double().log_softmax(-1)
        losses.append(-logs.gather(-1, ids[:, 1:, None])[..., 0].cpu().numpy())
        for row in range(start, start + len(ids)):
            for index in by_row.get(row, ()):
                question = held.questions[index]
                ranks = logs[row - start, question.position - 1]
                right[index] = bool(ranks[question.right] > ranks[list(question.wrong)].max())
    return np.concatenate(losses), [right[index] for index in range(len(held.questions))]


def _bands(length: int) -> list[tuple[int, int]]:
    bounds = [*(bound for bound in BANDS if bound < length), length]
    return list(itertools.pairwise(bounds))


def _cut(floor: np.ndarray | None, start: int, stop: int) -> np.ndarray | None:
    return None if floor is None else floor[:, start - 1 : stop - 1]


def _loss_table(losses: np.ndarray, floor: np.ndarray | None) -> dict[str, Any]:
    table = {"loss": float(losses.mean()), "standard_error": _standard_error(losses.mean(1)), "tokens": losses.size}
    if floor is not None:
        excess = (losses - floor).mean(1)
        table |= {"floor": float(floor.mean()), "above_floor": float(excess.mean())}
        table["above_floor_standard_error"] = _standard_error(excess)
    return table


def _standard_error(values: np.ndarray) -> float | None:
    """Of the mean of independent values; None where one value says nothing about spread."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None


def _accuracy_table(questions: Sequence[Question], right: Sequence[bool]) -> dict[str, Any]:
    table = _accuracy(questions, right)
    for name in ("attractors", "depth"):
        groups: dict[str, dict[str, Any]] = {}
        for value in sorted({getattr(question, name) for question in questions}):
            chosen = [index for index, question in enumerate(questions) if getattr(question, name) == value]
            groups[str(value)] = _accuracy([questions[i] for i in chosen], [right[i] for i in chosen])
        table[f"by_{name}"] = groups
    return table


def _accuracy(questions: Sequence[Question], right: Sequence[bool]) -> dict[str, Any]:
    """Accuracy in [0, 1] beside its baselines: one uniform guess, the commonest form always, the nearest noun."""
    share = sum(right) / len(right)
    table: dict[str, Any] = {
        "items": len(right),
        "accuracy": share,
        "standard_error": math.sqrt(share * (1 - share) / len(right)),  # binomial
        "chance": sum(1 / (1 + len(question.wrong)) for question in questions) / len(questions),
    }
    forms = [question.form for question in questions if question.form]
    if forms:
        table["majority"] = max(forms.count(form) for form in set(forms)) / len(forms)
    nearest = [question.nearest for question in questions if question.nearest is not None]
    if nearest:
        table["nearest_noun"] = sum(nearest) / len(nearest)
    return table


def metric_statistics(model: FiberBundleTransformer, ids: Int[np.ndarray, "row token"], device: str) -> dict[str, Any]:
    """Per layer, over the tokens of ``ids``: whether the metric collapsed to the identity or to one constant.

    ``trace_k`` is the mean of tr K over tokens and heads, ``trace_k_spread`` its standard deviation over tokens (a mean
    over heads), ``anisotropy`` the mean fractional anisotropy of g's d eigenvalues. Empty for a model without a metric.
    """
    if not model.config.has_metric:
        return {}
    traces = [model.trace(torch.from_numpy(row.astype(np.int64)).to(device)) for row in ids]
    table: dict[str, list[float]] = {"trace_k": [], "trace_k_spread": [], "anisotropy": []}
    for layer in range(model.config.layers):
        U = torch.cat([trace.layers[layer].given.U for trace in traces], dim=1).double()  # head token dim rank
        strength = U.square().sum((-2, -1))
        table["trace_k"].append(float(strength.mean()))
        table["trace_k_spread"].append(float(strength.std(1, correction=0).mean()))
        table["anisotropy"].append(float(_anisotropy(U, strength).mean()))
    return table


def _anisotropy(U: Tensor, strength: Tensor) -> Tensor:
    """sqrt(d / (d - 1)) ||l - mean|| / ||l|| of l = the eigenvalues of I + U U^T, without finding them.

    With k = tr K: ||l - mean||^2 = ||K||_F^2 - k^2 / d, and ||l||^2 = d + 2 k + ||K||_F^2.
    """
    d = U.shape[-2]
    square = (U.mT @ U).square().sum((-2, -1))
    spread = (square - strength.square() / d).clamp_min(0)
    return (spread / (d + 2 * strength + square) * d / max(1, d - 1)).sqrt()
