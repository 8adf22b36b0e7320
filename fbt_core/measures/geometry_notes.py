"""What a reader of the field's measures must know: where numbers cannot be trusted, and how they were come by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fbt_core.geometry.curvature import EXACT_DIM, TENSOR_DIM
from fbt_core.geometry.model_field import ONE_SPACE, field_unavailable, model_field
from fbt_core.geometry.survey import ILL_CONDITIONED, Survey
from fbt_core.measures.tokens import describe_nonfinite, to_numpy, token_labels
from fbt_core.trace import Trace


def of_points(trace: Trace, place: int) -> Iterator[str]:
    """Tokens whose residual is not finite."""
    points = to_numpy(trace.layers[place].residual_in)
    if not np.isfinite(points).all():
        yield f"layer {trace.layers[place].index}: {describe_nonfinite(points, token_labels(trace))}"


def remarks(found: Survey, field: str, trace: Trace, place: int, head: int | None) -> Iterator[str]:
    """Where the numbers of a survey cannot be trusted, or are not there."""
    where = f"layer {trace.layers[place].index}" + ("" if head is None else f", head {head}")
    condition = to_numpy(found.condition)
    if (bad := condition > ILL_CONDITIONED).any():
        yield f"{where}: g is ill-conditioned at {bad.sum()} tokens (up to {condition[bad].max():.1e}): few digits hold"
    curvature, error = to_numpy(found.scalar), to_numpy(found.scalar_error)
    if field != "log_volume" and (lost := error > 1e-6 * np.maximum(np.abs(curvature), 1e-12)).any():
        if field == "scalar":
            yield f"{where}: at {lost.sum()} tokens the scalar curvature's error exceeds a millionth of it"
    if field == "qk" and np.isnan(to_numpy(found.qk)).any() and np.isfinite(curvature).any():
        yield f"{where}: q and k span no plane at some tokens, or are no vectors of this space"


def of_method(
    model: Any, trace: Trace, places: list[int], heads: list[int | None], reading: str, planes: int, field: str
) -> Iterator[str]:
    """How the numbers were come by, of the first layer that has any: all have the same dimension."""
    place = next((place for place in places if not field_unavailable(model, trace, place)), None)
    if place is None or field == "log_volume":
        return
    try:
        g = model_field(model, trace, place, heads[0] or 0, reading)
    except ValueError:
        return
    exact = g.dim <= TENSOR_DIM or (g.factor is not None and g.dim <= EXACT_DIM)
    if trace.source in ONE_SPACE:
        yield f"on the slice of the {g.dim} directions in which the metric is largest at each token"
    if field in ("scalar", "scalar_error"):
        yield "exact up to rounding" if exact else f"the mean over {planes} random planes, with its standard error"
    if field in ("smallest", "largest"):
        more = ", each gone on from to a local extreme" if g.dim <= TENSOR_DIM else " only"
        yield f"a bound from inside: of {planes} random planes{more}; the true extreme may lie beyond"
