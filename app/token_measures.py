"""One number a token, for colouring: the rows of MEASURES that have one, the true scalar curvature, and the loss."""

from __future__ import annotations

import numpy as np
import pandas as pd

from app import answers, curvature
from app.figures import theme
from app.predictions import predictions
from app.side import READS_METRIC, Side, reads_metric
from app.view import View
from fbt_core.measures import MEASURES
from fbt_core.measures.geometry import GEOMETRY

LOSS = "loss"
CURVED = "scalar_curvature"
PER_TOKEN = {name: row for name, row in MEASURES.items() if row.axes == ("layer", "head", "token")} | {
    CURVED: GEOMETRY[CURVED]
}
CHOICES = {LOSS: "Loss of this token (nats)"} | {
    name: f"{row.title} ({row.unit or 'dimensionless'})" for name, row in PER_TOKEN.items()
}
"""What a token may be coloured by: name to title with unit."""

METRIC_FREE = "entropy"
"""The usual colour where there is neither a metric nor a prediction."""

LOSS_CAPTION = r"$-\ln p(t_i \mid t_{<i})$ in nats; the first token is given, not predicted."


def choices(view: View) -> list[str]:
    """What some side has to tell: no loss where a model predicts no token, nothing of a metric where there is none, and
    no true curvature where it would take long."""
    missing = set()
    if any(side.forward.logits is None for side in view.sides):
        missing.add(LOSS)
    metrics = [side for side in view.sides if side.has_metric]
    if not metrics:
        missing |= READS_METRIC
    if not metrics or not all(curvature.quick(side) for side in metrics):
        missing.add(CURVED)
    return [name for name in CHOICES if name not in missing]


def usual(view: View) -> str:
    """What to show first."""
    if view.a.has_metric:
        return "trace_k"
    return LOSS if LOSS in choices(view) else METRIC_FREE


def values(side: Side, name: str) -> np.ndarray:
    """(L,): the loss, or the measure at this side's layer and head; NaN where that layer has no attention."""
    if name == LOSS:
        return answers.derived(side.request.bare, predictions, count=5).loss
    if not side.block.heads:
        return np.full(len(side.tokens), np.nan)
    return side.reading(name, layer=side.layer, head=side.head).values[0, 0]


def what_if(side: Side, name: str) -> str | None:
    """The label of a colour: the metric touches some measures, and what changed the forward pass all."""
    return side.what_if if name != LOSS and reads_metric(name) else side.what_if_forward


def caption(name: str) -> str:
    """The equation of what the tokens are coloured by."""
    return LOSS_CAPTION if name == LOSS else theme.caption(PER_TOKEN[name])


def table(view: View, drawn: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row a token and checkpoint, what-if in the checkpoint's name."""
    frames = [
        pd.DataFrame({"checkpoint": title, "index": range(len(values)), "token": side.tokens, "value": values})
        for side, (title, values) in zip(view.sides, drawn.items(), strict=True)
    ]
    return pd.concat(frames, ignore_index=True)
