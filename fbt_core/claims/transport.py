"""C11: whether FiberTransport turns values without stretching them, and whether that changes anything."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.fields import chosen
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.loops import GaugeHolonomy, gauge_holonomy
from fbt_core.geometry.torsion_planes import torsion_planes, turned_share
from fbt_core.measures.tokens import to_numpy
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.model.hollow import hollow
from fbt_core.trace import LayerTrace

THRESHOLD = 0.01
ORTHOGONAL = 1e-9
"""Largest entry of P^T g_i P - g_j that still counts as rounding."""

LOOP = 8
"""Tokens of the loop that is gone around, evenly spread over the text."""


def around(layer: LayerTrace, compatible: bool) -> tuple[GaugeHolonomy, float]:
    """FiberTransport around a loop of tokens, and how far its legs are from isometries: the largest entry of
    P^T g_i P - g_j, over what is largest in g; g = I unless the transport is metric-compatible."""
    if layer.torsion is None:
        raise Unavailable(f"layer {layer.index} has no torsion")
    tokens = chosen(layer.given.q.shape[-2], LOOP)
    metric = layer.metric if compatible else None
    found = gauge_holonomy(*layer.torsion, tokens, metric)
    dim = found.matrix.shape[-1]
    g = torch.eye(dim).to(found.legs).expand(len(tokens), layer.heads, -1, -1)
    if compatible:
        g = layer.metric.dense()[:, tokens].double().transpose(0, 1)
    moved = found.legs.mT @ g.roll(-1, 0) @ found.legs  # leg j -> i: the next token's metric pulled back to this one's
    return found, float((moved - g).abs().max() / g.abs().max())


def without(model: FiberBundleTransformer) -> FiberBundleTransformer:
    """The same parameters with every value left where it is; not retrained."""
    copy = hollow(replace(model.config, transport="none", metric_compatible=False))
    copy.load_state_dict(model.state_dict(), assign=True)
    return copy.eval().requires_grad_(False)


def turned(evidence: Evidence) -> Finding:
    """The share of the value output that the transport changes, median over heads; a stretching transport fails."""
    config, layers = _config(evidence)
    shares = np.array([to_numpy(turned_share(one, config.transport, config.metric_compatible)) for one in layers])
    loops = [around(layer, config.metric_compatible) for layer in layers]
    stretch = max(error for _, error in loops)
    holonomy = max(float(found.error.max()) for found, _ in loops)
    angles = np.concatenate([to_numpy(torsion_planes(*_torsion(layer)).angles).ravel() for layer in layers])
    grid = shares.mean(-1)
    value = float(np.median(grid))
    told, numbers = _loss(evidence)
    isometric = stretch <= ORTHOGONAL
    return Finding(
        HOLDS if isometric and value >= THRESHOLD else FAILS,
        value,
        f"The transport {'is orthogonal' if isometric else 'is not orthogonal'} to {stretch:.1e} and changes "
        f"{value:.2%} of the median head's output ({grid.min():.2%} to {grid.max():.2%}){told}; around a loop of "
        f"tokens it is the identity to {holonomy:.1e}: it has no holonomy.",
        f"{'A torsion so small' if value >= THRESHOLD else 'A torsion so large'} that the median head's output changes "
        f"by {'less' if value >= THRESHOLD else 'more'} than {THRESHOLD:.0%}"
        + ("" if isometric else ", and finite torsion factors, for rotations that are orthogonal to rounding")
        + ".",
        grid=grid,
        grid_title="share of the value output that the transport changes",
        numbers=(
            ("share of the output changed, median head", value, ""),
            ("largest entry of Pᵀ g P − g, relative", stretch, ""),
            ("largest entry of the holonomy − I", holonomy, ""),
            ("median angle of a rotation", float(np.degrees(np.median(angles))), "degrees"),
            ("largest angle of a rotation", float(np.degrees(angles.max())), "degrees"),
            *numbers,
        ),
        charts=(_by_layer(shares), _angles(angles)),
        notes=(
            f"Transport of mode {config.transport}{', metric-compatible' if config.metric_compatible else ''}. Share: "
            "‖y − y'‖ / (‖y‖ + ‖y'‖) of each head's output before W_O, y' without the transport; mean over tokens.",
            "No holonomy is by construction: C_iᵀ C_j depends on each token by itself, so around a loop all rotations "
            "cancel. This connection is pure gauge.",
        ),
    )  # fmt: skip


def _config(evidence: Evidence) -> tuple[FiberBundleConfig, list[LayerTrace]]:
    config = evidence.native.config
    if not config.torsion_rank:
        raise Unavailable("this checkpoint has no torsion")
    if config.transport == "none":
        raise Unavailable("this checkpoint has a torsion but transports nothing by it")
    if evidence.native.config.head_width < 2:
        raise Unavailable("a head of width 1 has no plane to turn in")
    return config, list(evidence.trace.layers)


def _torsion(layer: LayerTrace) -> tuple[torch.Tensor, torch.Tensor]:
    assert layer.torsion is not None  # ``_config`` looked
    return layer.torsion


def _loss(evidence: Evidence) -> tuple[str, tuple[tuple[str, float, str], ...]]:
    """What leaving the transport out costs, where the text is long enough to tell."""
    try:
        change = evidence.losses(without(evidence.native)) - evidence.base_losses
    except Unavailable:
        return "", ()
    mean = float(change.mean())
    error = float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else float("nan")
    numbers = (("loss added without the transport, not retrained", mean, "nats a token"),
               ("its standard error over rows", error, "nats a token"))  # fmt: skip
    return f", and leaving it out costs {mean:+.3f} nats a token", numbers


def _by_layer(shares: np.ndarray) -> Chart:
    """Mean over tokens of each head, a curve a head."""
    x = np.arange(len(shares), dtype=float)
    heads = shares.mean(-1)
    curves = (Curve("median head", x, 100 * np.median(heads, 1), 100 * heads.min(1), 100 * heads.max(1)),)
    return Chart("Output that the transport changes", "layer (counted from 0)", "share of the output (%)", curves,
                 (Mark("y", 100 * THRESHOLD, "threshold"),), note="band: all heads; mean over tokens")  # fmt: skip


def _angles(angles: np.ndarray) -> Chart:
    found = np.sort(np.degrees(angles))[:: max(1, len(angles) // 500)]
    share = np.linspace(0, 100, len(found))
    return Chart("Angles of the rotations", "planes with at most this angle (%)", "angle (degrees)",
                 (Curve("all layers, heads and tokens", share, found),), note="an angle has no sign")  # fmt: skip


CLAIM = Claim(
    id="C11",
    title="Torsion transports values as a connection",
    statement="Values are carried from token to token by rotations that the torsion makes. They stretch nothing, and "
    "they change what attention puts out.",
    equation=r"y_i = C_i^\top \sum_j a_{ij}\, C_j v_j,\quad C^\top C = I, \qquad "
    r"\frac{\lVert y - y' \rVert}{\lVert y \rVert + \lVert y' \rVert} \ge 0.01, \qquad "
    r"\prod_{\text{loop}} C_i^\top C_j = I",
    source="the paper's torsion and FiberTransport; docs/mathematics.md, item 7",
    statistic="Share of a head's value output that the transport changes, mean over tokens, median over heads. Holds "
    "where it is at least 0.01 and every map is an isometry to 1e-9.",
    threshold=THRESHOLD,
    unit="",
    reason="A hundredth is about what rounding to bfloat16 changes: below it the transport could be left out unseen.",
    says_paper="Names a torsion and a transport by it. Holonomy is told beside it: it is zero whatever was learned.",
    function=turned,
)
