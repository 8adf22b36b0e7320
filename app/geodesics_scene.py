"""Where the geodesics and torsion pages draw: the metric of a reading, and the ellipsoids of its space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fbt_core.geometry.drawn_space import shared_pca
from fbt_core.geometry.ellipsoid import EllipsoidField, trace_field
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.model_field import field_points, model_field
from fbt_core.trace import Trace

WHOLE = "whole"
"""The reading of the metric on all of the residual stream."""


@dataclass(frozen=True)
class Scene:
    """The ellipsoids of a reading's space, and how points of the residual stream are seen among them: linearly.

    For the whole stream these are the residuals along the PCA that all layers share. A head's reading is of a slice
    x_i + E a: its tokens stand at their coordinates E^+ x, along the PCA of these, with the head's metric.
    """

    field: EllipsoidField
    mean: np.ndarray  # (D,)
    directions: np.ndarray  # (3, D), of the coordinates the rows of P E^+

    def project(self, points: np.ndarray) -> np.ndarray:
        """(n, D) to (n, 3)."""
        return (points - self.mean) @ self.directions.T

    def turn(self, vectors: np.ndarray) -> np.ndarray:
        """(n, D) vectors, which have no place, to (n, 3)."""
        return vectors @ self.directions.T


def scene(model: Any, trace: Trace, *, layer: int, head: int, reading: str, token: int) -> Scene:
    """The scene of a reading; for a metric that has a slice a token, of the slice of ``token``."""
    g, none = _field(model, trace, layer, head, reading, token)
    x = field_points(trace, layer)
    finite = x.isfinite().all(1)
    mean = x[finite].mean(0) if finite.any() else torch.zeros_like(x[0])
    if g.inclusion is None:
        shown = _flat(trace) if none else trace
        field = trace_field(shown, layer, "residual", alike=False, roomy=False)
        return Scene(field, mean.numpy(force=True), shared_pca(shown, "residual").directions.numpy())
    left = torch.linalg.pinv(g.inclusion)
    alone = _slice(trace, layer, head, x @ left.mT, g.inclusion)
    field = trace_field(alone, 0, "residual")
    field = replace(
        field, base="PCA of the tokens in the coordinates of this reading", stage=replace(field.stage, alike=False)
    )
    directions = shared_pca(alone, "residual").directions.numpy() @ left.numpy(force=True)
    return Scene(field, mean.numpy(force=True), directions)


def _flat(trace: Trace) -> Trace:
    """The same residuals without a metric."""
    return replace(trace, layers=tuple(replace(layer, factors=None, residual_U=None) for layer in trace.layers))


def _slice(trace: Trace, layer: int, head: int, coordinates: Tensor, inclusion: Tensor) -> Trace:
    """One layer whose residual stream is the coordinates, and whose metric is the head's on them."""
    given = trace.layers[layer]
    U = given.given.U[head] if given.residual_U is None else inclusion.mT @ given.residual_U.double()
    stream = {"residual_in": coordinates, "residual_mid": None, "residual_out": coordinates}
    return replace(trace, layers=(replace(given, residual_U=U, **stream),))


def lacking(model: Any, trace: Trace, *, layer: int, head: int, reading: str, token: int) -> str:
    """Why the metric is no function of the point in this reading, a sentence; empty where it is."""
    return _field(model, trace, layer, head, reading, token)[1]


def field_of(model: Any, trace: Trace, layer: int, head: int, reading: str, token: int) -> MetricFunction:
    """The metric; g = I on the whole stream where there is none, so that there is something to draw."""
    return _field(model, trace, layer, head, reading, token)[0]


def _field(model: Any, trace: Trace, layer: int, head: int, reading: str, token: int) -> tuple[MetricFunction, str]:
    """The metric; or g = I, and why."""
    try:
        return model_field(model, trace, layer, head, reading, token), ""
    except ValueError as fault:
        width = trace.layers[layer].residual_in.shape[1]
        return MetricFunction.low_rank(lambda x: x.new_zeros(width, 1), width, name="g = I"), str(fault)
