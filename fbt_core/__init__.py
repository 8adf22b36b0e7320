"""The geometry inside a transformer: models whose tokens carry metrics, their traces, and what can be measured on them.

Axis names, everywhere in this order: ``batch`` (B sequences), ``layer``, ``head`` (H), ``token`` or ``row`` (L; a query
i), ``column`` (a key j), ``width`` (D = H d, of the residual stream) or ``dim`` (d, of a head), ``rank`` (r, columns of
U), ``atom`` (m, of a dictionary), ``torsion`` (r', columns of L and R). Layers, heads and tokens count from 0.

Symbols: g = I + U U^T a token's metric; A = U U^T; K = U^T U; tau the temperature of squared distance; Omega the
curvature proxy; T = L R^T - R L^T the torsion proxy; C(T) its Cayley rotation; alpha the blending weight. The numbered
items are those of ``docs/mathematics.md``. Lengths and distances are in units of the residual stream, entropies and
losses in nats.

In a notebook: ``load`` a file, ``build`` its model, ``model.trace(ids)``, ``read(trace, measure)``.
"""

from __future__ import annotations

from fbt_core.attention.scores import SCORES, Factors
from fbt_core.checkpoints import Checkpoint, CheckpointError, load
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric
from fbt_core.measures import MEASURES, Measure, Reading, read
from fbt_core.model import FiberBundleTransformer, build
from fbt_core.trace import LayerTrace, Trace

__all__ = [
    "MEASURES",
    "SCORES",
    "Checkpoint",
    "CheckpointError",
    "DictionaryMetric",
    "Factors",
    "FiberBundleConfig",
    "FiberBundleTransformer",
    "LayerTrace",
    "LowRankMetric",
    "Measure",
    "Reading",
    "Trace",
    "build",
    "load",
    "read",
]
