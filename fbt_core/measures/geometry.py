"""Measures of the metric as a function of the residual stream, for which the model is asked again, not the trace alone.

They stand beside the proxies of ``field``: what those are called is what these are. A reading of a head's metric as one
on the stream is chosen by name (``READINGS``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from fbt_core.geometry.fisher_field import fisher_field
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.geometry.model_field import (
    FLAT,
    ONE_SPACE,
    field_heads,
    field_points,
    field_unavailable,
    model_field,
)
from fbt_core.geometry.readout import Readout
from fbt_core.geometry.source_factors import readout_of
from fbt_core.geometry.survey import Survey, survey
from fbt_core.measures.field import logdet_g
from fbt_core.measures.geometry_notes import of_method, of_points, remarks
from fbt_core.measures.options import resolve
from fbt_core.measures.table import Measure, Measured, Reading
from fbt_core.measures.tokens import to_float64, to_numpy, token_labels
from fbt_core.trace import Trace

SHARED_LABEL = "all"
"""Of the one entry on the head axis, where all heads share a metric."""

KEPT: dict[tuple[Any, ...], Survey] = {}
"""Surveys of traces that are still in use: one gives every measure of its layer and head."""


def read_geometry(model: Any, trace: Trace, name: str, **options: Any) -> Reading:
    """The measure ``name`` of ``GEOMETRY``, float64, over (layer, head, token); the head axis has one entry, ``all``,
    where all heads share a metric.

    ``options`` are rows of ``OPTIONS``: layer, head, reading, planes, seed. Where the metric is the same everywhere
    every curvature is 0, with a note that says so; where it is no function of a point, and at tokens that are not
    finite, it is NaN, with the reason. Deterministic; what one measure computed the next one takes. Raises
    ``ValueError`` for an unknown measure or option, and for a layer, head or reading that the trace does not have.
    """
    if name not in GEOMETRY:
        raise ValueError(f"got measure {name!r}, expected one of {', '.join(GEOMETRY)}")
    row = GEOMETRY[name]
    chosen = resolve(row, options)
    found = row.function(model, trace, **chosen)
    layers = [trace.layers[place] for place in _places(trace, chosen["layer"])]
    heads = _heads(trace, chosen["head"], chosen["reading"])
    labels = {
        "layer": tuple(str(layer.index) for layer in layers),
        "head": tuple(SHARED_LABEL if head is None else str(head) for head in heads),
        "token": token_labels(trace),
    }
    missing = int(np.isnan(found.values).sum())
    counted = (f"{missing} of {found.values.size} values are nan",) if missing else ()
    return Reading(row, found.values, labels, chosen, (*counted, *found.notes))


def _measured(
    field: str, model: Any, trace: Trace, *, layer: int | None, head: int | None, reading: str, planes: int, seed: int
) -> Measured:
    """One field of the surveys of some layers and heads."""
    places, heads = _places(trace, layer), _heads(trace, head, reading)
    values, notes = np.full((len(places), len(heads), trace.length), np.nan), []
    for i, place in enumerate(places):
        if why := field_unavailable(model, trace, place):
            notes.append(why)
            values[i] = _without_function(field, trace, place, len(heads), why)
            continue
        for j, one in enumerate(heads):
            if one is None or one < trace.layers[place].heads:
                found = _survey(model, trace, place, one, reading, planes, seed)
                values[i, j] = to_numpy(getattr(found, field))
                notes += remarks(found, field, trace, place, one)
        notes += of_points(trace, place)
    notes += of_method(model, trace, places, heads, reading, planes, field)
    return Measured(values, tuple(dict.fromkeys(notes)))


def _without_function(field: str, trace: Trace, place: int, heads: int, why: str) -> np.ndarray | float:
    """What is known where the metric is no function of the point: 0 curvature where it is constant, and the volume."""
    layer = trace.layers[place]
    if layer.factors is None:
        return float("nan")
    if layer.heads == heads and field in ("log_volume", "condition"):
        U = to_float64(layer.given.U)
        values = LowRankMetric(U).eigenvalues()
        return to_numpy(logdet_g(U) / 2 if field == "log_volume" else values[..., 0] / values[..., -1])
    curvature = field not in ("log_volume", "condition")
    return 0.0 if curvature and why in FLAT.values() and trace.source != "local" else float("nan")


def _survey(model: Any, trace: Trace, place: int, head: int | None, reading: str, planes: int, seed: int) -> Survey:
    """The survey of a layer and head, kept for as long as the trace is."""
    key = (id(trace), id(model), place, head, reading, planes, seed)
    if key not in KEPT:
        weakref.finalize(trace, KEPT.pop, key, None)
        KEPT[key] = _surveyed(model, trace, place, head, reading, planes, seed)
    return KEPT[key]


def _surveyed(model: Any, trace: Trace, place: int, head: int | None, reading: str, planes: int, seed: int) -> Survey:
    points = field_points(trace, place)
    if trace.source in ONE_SPACE:  # a slice a token
        readout = readout_of(model)
        parts = [_of_token(readout, trace, place, token, planes, seed) for token in range(trace.length)]
        return Survey(**{name: torch.cat([getattr(part, name) for part in parts]) for name, _ in parts[0].items()})
    g = model_field(model, trace, place, head or 0, reading)
    given = trace.layers[place].given
    pair = tuple(
        to_float64(vector.transpose(0, 1).flatten(1) if head is None else vector[head]).to(points.device)
        for vector in (given.q, given.k)
    )
    return survey(g, points, planes, seed, pair)


def _of_token(readout: Readout, trace: Trace, place: int, token: int, planes: int, seed: int) -> Survey:
    """On the slice of one token; NaN where it has none."""
    point = field_points(trace, place)[token : token + 1]
    try:
        return survey(fisher_field(readout, trace.layers[place], token), point, planes, seed)
    except ValueError:
        nothing = torch.full_like(point[:, 0], torch.nan)
        return Survey(*[nothing] * 10)


def _places(trace: Trace, layer: int | None) -> list[int]:
    if layer is not None and layer >= len(trace.layers):
        raise ValueError(f"got layer {layer}, expected 0 to {len(trace.layers) - 1}")
    return list(range(len(trace.layers))) if layer is None else [layer]


def _heads(trace: Trace, head: int | None, reading: str) -> list[int | None]:
    count = field_heads(trace, reading)
    if count is None:
        return [None]
    if head is not None and head >= count:
        raise ValueError(f"got head {head}, expected 0 to {count - 1}")
    return list(range(count)) if head is None else [head]


_AXES = ("layer", "head", "token")
_OPTIONS = ("layer", "head", "reading", "planes", "seed")
_UNIT = "1 / length², lengths under g"
_SOURCE = "docs/mathematics.md, Geometry of the field"


def _row(name: str, symbol: str, title: str, unit: str, range_: str, equation: str, field: str) -> Measure:
    function: Callable[..., Measured] = partial(_measured, field)
    return Measure(name, symbol, title, _AXES, unit, range_, equation, _SOURCE, function, _OPTIONS)


GEOMETRY: dict[str, Measure] = {
    row.name: row
    for row in (
        _row("scalar_curvature", "S", "Scalar curvature", _UNIT, "(-inf, inf)",
             r"\sum_{i \ne j} K(e_i, e_j) = d(d-1)\, \mathbb{E}\, K,\quad e_i \ \text{orthonormal under}\ g", "scalar"),
        _row("scalar_error", r"\delta S", "Error of the scalar curvature", _UNIT, "[0, inf)",
             r"\text{rounding where exact, else}\ d(d-1)\, \operatorname{sd}(K) / \sqrt{n}", "scalar_error"),
        _row("scalar_sampled", r"\hat S", "Scalar curvature from random planes", _UNIT, "(-inf, inf)",
             r"\tfrac{d(d-1)}{n} \textstyle\sum_{p=1}^n K(u_p, v_p)", "sampled"),
        _row("sampling_error", r"\operatorname{se} \hat S", "Standard error of the sampled scalar curvature", _UNIT,
             "[0, inf)", r"d(d-1)\, \operatorname{sd}(K) / \sqrt{n}", "sampling_error"),
        _row("sectional_max", r"K_{\max}", "Largest sectional curvature found", _UNIT, "(-inf, inf)",
             r"\max_{u, v} \frac{R(u, v, v, u)}{\lVert u \rVert_g^2 \lVert v \rVert_g^2 - \langle u, v \rangle_g^2}",
             "largest"),
        _row("sectional_min", r"K_{\min}", "Smallest sectional curvature found", _UNIT, "(-inf, inf)",
             r"\min_{u, v} \frac{R(u, v, v, u)}{\lVert u \rVert_g^2 \lVert v \rVert_g^2 - \langle u, v \rangle_g^2}",
             "smallest"),
        _row("sectional_top", r"K(e_1, e_2)", "Curvature of the metric's two top directions", _UNIT, "(-inf, inf)",
             r"K(e_1, e_2),\quad g\, e_i = \lambda_i e_i,\ \lambda_1 \ge \lambda_2 \ge \dots", "top"),
        _row("sectional_qk", r"K(q, k)", "Curvature of the plane of query and key", _UNIT, "(-inf, inf)",
             r"K(q_t, k_t)", "qk"),
        _row("volume", r"\ln \sqrt{\det g}", "Log volume element", "nats", "[0, inf)",
             r"\tfrac12 \ln \det g = \tfrac12 \ln \det (I_r + U^\top U)", "log_volume"),
        _row("condition", r"\kappa(g)", "Condition number of the metric", "", "[1, inf)",
             r"\lambda_{\max}(g) / \lambda_{\min}(g)", "condition"),
    )
}  # fmt: skip
"""All measures of the field by name. ``function(model, trace, **options)``."""
