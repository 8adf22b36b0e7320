"""Tokens of all layers as points in two or three dimensions, in one frame.

``CLOUDS`` holds the methods, ``cloud`` runs one: it says in notes what was done, and left out, and why.
"""

from __future__ import annotations

from fbt_core.cloud.jacobian import Jacobians, jacobians, picture_axes
from fbt_core.cloud.points import SCALES, Cloud, stages
from fbt_core.cloud.procrustes import Alignment, procrustes
from fbt_core.cloud.table import CLOUDS, Method, cloud

__all__ = [
    "CLOUDS", "SCALES", "Alignment", "Cloud", "Jacobians", "Method", "cloud", "jacobians", "picture_axes", "procrustes",
    "stages",
]  # fmt: skip
