"""Per-token metric ellipsoids in three dimensions: which tensor is drawn, and which of its many dimensions.

A metric of d dimensions cannot be drawn; three pictures of it can (docs/mathematics.md, "Ellipsoids"). With P (3 x d,
orthonormal rows) the drawn directions and g = I + U U^T:

    slice          {y: y^T (P g P^T) y <= 1}             the unit ball cut by the drawn space
    shadow         {y: y^T (P g^{-1} P^T)^{-1} y <= 1}   the unit ball projected onto it; the slice lies inside
    metric frame   semi-axes of the three largest eigenvalues of g, turned as their projected eigenvectors

The dual glyph exchanges g and g^{-1}. Nothing here forms g: P g P^T = I + W W^T with W = P U, and by Woodbury
P g^{-1} P^T = I - W (I + U^T U)^{-1} W^T. A metric may be the direct sum of H blocks (the residual stream's); both are
then sums over blocks. When d < 3 the missing rows of P are zero, and the same formulas leave those axes at 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.geometry.drawn_space import SPACES, Basis, Stage, basis, centred, stage
from fbt_core.geometry.metric import LowRankMetric
from fbt_core.trace import Trace

SHAPES: dict[str, str] = {
    "metric frame": "three largest eigenvalues, turned as their projected eigenvectors",
    "slice": "exact cut by the drawn space",
    "shadow": "exact projection onto the drawn space",
}
"""What is drawn of a metric of d dimensions: name -> meaning."""

_EQUATIONS = {
    ("metric frame", False): r"a_m = \lambda_m^{-1/2}\,\hat u_m, \quad g u_m = \lambda_m u_m, \quad m = 1, 2, 3",
    ("metric frame", True): r"a_m = \lambda_m^{1/2}\,\hat u_m, \quad g u_m = \lambda_m u_m, \quad m = 1, 2, 3",
    ("slice", False): r"\{y : y^\top (P g P^\top)\, y \le 1\}",
    ("slice", True): r"\{y : y^\top (P g^{-1} P^\top)\, y \le 1\}",
    ("shadow", False): r"\{y : y^\top (P g^{-1} P^\top)^{-1}\, y \le 1\}",
    ("shadow", True): r"\{y : y^\top (P g P^\top)^{-1}\, y \le 1\}",
}


@dataclass(frozen=True)
class EllipsoidField:
    """Ellipsoids of n tokens in a frame of three equal axes. Plain numpy: it pickles.

    ``eigenvalues`` are those of the metric that is drawn, one a column of ``axes``, descending: a column has length
    lambda^{-1/2} for the unit ball, lambda^{1/2} for the dual glyph. A token with a number that is not finite has NaN
    for its centre, axes and eigenvalues, and is counted by ``missing``.
    """

    centres: Float[np.ndarray, "token 3"]  # relative to the mean token
    axes: Float[np.ndarray, "token 3 3"]  # columns are the semi-axes, before the scale
    eigenvalues: Float[np.ndarray, "token 3"]
    in_view: Float[np.ndarray, " token"]  # ||P u_1||^2 of the leading eigenvector, in [0, 1]; 0 where g = I
    axis_names: tuple[str, str, str]
    share: Float[np.ndarray, " 3"]  # of these positions' variance along each drawn axis, in [0, 1]
    shape: str
    dual: bool
    base: str
    stage: Stage  # the glyphs' scale and the room for them, the same in all layers
    where: str  # whose metric, such as "layer 2, head 1, keys"
    has_metric: bool

    @property
    def drawn_axes(self) -> Float[np.ndarray, "token 3 3"]:
        """Semi-axes as drawn: ``axes`` times the stage's scale, in the units of ``centres``."""
        return self.stage.scale * self.axes

    @property
    def witness_radius(self) -> float:
        """The radius at which the unit ball of g = I is drawn."""
        return self.stage.scale

    @property
    def missing(self) -> int:
        """How many tokens cannot be drawn, because a number of theirs is not finite."""
        return int(np.isnan(self.eigenvalues).any(1).sum())

    @property
    def equation(self) -> str:
        """LaTeX of what is drawn."""
        return _EQUATIONS[self.shape, self.dual]

    @property
    def description(self) -> str:
        """What is drawn, in words: it is printed on the figure."""
        if not self.has_metric:
            drawn = "No metric here, g = I: every glyph is the unit sphere."
        else:
            ball = "Dual glyph {v: vᵀg⁻¹v ≤ 1}, long where attention is sensitive" if self.dual else (
                "Unit ball {v: vᵀgv ≤ 1}, short where distance is expensive")  # fmt: skip
            drawn = f"{ball}; {self.shape}: {SHAPES[self.shape]}."
        held = f"{100 * float(self.share.sum()):.0f} % of this layer's position variance"
        alike = "alike in all layers" if self.stage.alike else "the scale of this layer alone"
        missing = f" Not finite, so not drawn: {self.missing} of {len(self.centres)} tokens." if self.missing else ""
        return f"{drawn} Base: {self.base} ({held}). Glyphs ×{self.stage.scale:.3g}, {alike}.{missing}"

    def on(self, stage: Stage) -> EllipsoidField:
        """The same field drawn on another stage."""
        return replace(self, stage=stage)


def ellipsoid_field(
    positions: Float[Tensor, "token width"],
    metric: LowRankMetric,
    basis: Basis,
    shape: str = "metric frame",
    dual: bool = False,
    stage: Stage | None = None,
    where: str = "",
) -> EllipsoidField:
    """The ellipsoids of ``metric`` at ``positions``, seen along ``basis``. Costs O(token width rank), in float64.

    ``metric.U`` is (token, d, r) with d the width of the positions; or (block, token, d, r) for a direct sum of blocks,
    width = block d. Without a ``stage`` the scale is 1, and the room is that of these tokens.
    Raises ``ValueError`` (got, expected) for an unknown shape or widths that disagree.
    """
    blocks = (metric.U if metric.U.ndim == 4 else metric.U.unsqueeze(0)).detach().to("cpu", torch.float64)
    count, _, dim, _ = blocks.shape
    widths = (positions.shape[1], count * dim, basis.directions.shape[1])
    if shape not in SHAPES:
        raise ValueError(f"got shape {shape!r}, expected one of {', '.join(SHAPES)}")
    if len(set(widths)) > 1:
        raise ValueError("got positions, metric and basis of widths {}, {} and {}, expected one width".format(*widths))
    x = centred(positions)
    finite = x.isfinite().all(1) & blocks.isfinite().all(-1).all(-1).all(0)
    U, drawn = blocks[:, finite], basis.directions.reshape(3, count, dim)
    values, vectors, in_view = _top_three(U, drawn)
    if shape != "metric frame":
        values, vectors = _exact(U, drawn, projected=(shape == "shadow") != dual)
    semi_axes = vectors * values.pow(0.5 if dual else -0.5).unsqueeze(-2)
    y = x[finite] @ basis.directions.mT
    return EllipsoidField(
        centres=_spread(y, finite),
        axes=_spread(semi_axes, finite),
        eigenvalues=_spread(values, finite),
        in_view=_spread(in_view, finite),
        axis_names=basis.names, share=_share(x[finite], basis), shape=shape, dual=dual, base=basis.name,
        stage=stage or _own_stage(y, semi_axes), where=where, has_metric=bool(U.numel() and U.any()),
    )  # fmt: skip


def trace_field(
    trace: Trace,
    layer: int,
    space: str = "keys",
    head: int = 0,
    shape: str = "metric frame",
    dual: bool = False,
    base: str = "shared PCA",
    along: Basis | None = None,
    alike: bool = True,
    roomy: bool = True,
) -> EllipsoidField:
    """The field of one layer of a trace: ``space`` of ``SPACES``, ``base`` of ``BASES``.

    The glyphs' scale is that of all layers if ``alike``, and there is room for all layers if ``roomy``; else this
    layer's own: residuals may grow tenfold from the first layer to the last. ``along`` overrules ``base`` by another
    trace's basis, to draw two models of one width in the same directions.
    """
    chosen = SPACES[space]
    directions = along or basis(trace, base, space, layer, head)
    where = f"layer {trace.layers[layer].index}, " + (f"head {head}, {space}" if chosen.per_head else "residual stream")
    blocks = LowRankMetric(chosen.blocks(trace.layers[layer], head))
    alone = stage((trace.layers[layer],), space, directions, head, dual, alike=False)
    every = stage(trace.layers, space, directions, head, dual) if alike or roomy else alone
    shared = (every if alike else alone).framed(every if roomy else alone)
    return ellipsoid_field(chosen.positions(trace.layers[layer], head), blocks, directions, shape, dual, shared, where)


def _exact(U: Tensor, drawn: Tensor, projected: bool) -> tuple[Tensor, Tensor]:
    """Eigenvalues (descending) and vectors of the drawn 3 x 3 metric: P g P^T, or (P g^{-1} P^T)^{-1} if projected."""
    W = torch.einsum("abd,btdr->btar", drawn, U)
    eye = torch.eye(3, dtype=U.dtype)
    if not projected:
        values, vectors = torch.linalg.eigh(eye + (W @ W.mT).sum(0))
        return values.flip(-1), vectors.flip(-1)
    kernel = torch.eye(U.shape[-1], dtype=U.dtype) + U.mT @ U
    inner = torch.linalg.solve(kernel, W.mT) if U.shape[-1] else W.mT
    inverse, vectors = torch.linalg.eigh(eye - (W @ inner).sum(0))
    return 1 / inverse, vectors  # ascending in g^{-1} is descending in the metric


def _top_three(U: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three largest eigenvalues of g (token, 3), a rotation (token, 3, 3) for them, and ||P u_1||^2.

    With u_m the eigenvectors, the columns q_m of the rotation maximise sum_m (lambda_m - 1) q_m . P u_m (Procrustes):
    it is indifferent to the sign of an eigenvector and to the choice of basis where eigenvalues are equal, it yields
    nothing to directions in which g = 1, and gives the eigenvectors themselves when they lie in the drawn space.
    """
    blocks, _, _, rank = U.shape
    excess, right = torch.linalg.eigh(U.mT @ U)  # nonzero eigenvalues of A, and its eigenvectors U v / sqrt(excess)
    excess = excess.clamp_min(0)
    left = torch.einsum("abd,btdr->btar", drawn, U @ right)  # columns sqrt(excess) P u
    excess, left = excess.movedim(0, 1).flatten(1), left.permute(1, 2, 0, 3).flatten(2)  # token (block rank)
    pad = max(0, 3 - blocks * rank)
    excess, left = torch.nn.functional.pad(excess, (0, pad)), torch.nn.functional.pad(left, (0, pad))
    top, order = excess.topk(3, dim=-1)
    picked = left.gather(-1, order.unsqueeze(-2).expand(-1, 3, -1))
    A, _, Bt = torch.linalg.svd(picked * top.sqrt().unsqueeze(-2))  # columns (lambda_m - 1) P u_m
    safe = torch.where(top[:, 0] > 0, top[:, 0], 1.0)
    return 1 + top, A @ Bt, picked[..., 0].square().sum(-1) / safe


def _own_stage(centres: Tensor, semi_axes: Tensor) -> Stage:
    """Scale 1 and the room of these glyphs alone."""
    ends = torch.cat([centres, centres.new_zeros(1, 3)])
    longest = float(semi_axes.norm(dim=1).max()) if len(semi_axes) else 1.0
    return Stage(1.0, (tuple(ends.amin(0).tolist()), tuple(ends.amax(0).tolist())), max(1.0, longest), alike=False)


def _share(x: Tensor, basis: Basis) -> np.ndarray:
    """The share of sum ||x||^2 along each drawn direction; zeros where all positions coincide."""
    total = x.square().sum()
    along = (x @ basis.directions.mT).square().sum(0)
    return (along / total if total > 0 else torch.zeros_like(along)).numpy()


def _spread(values: Tensor, finite: Tensor) -> np.ndarray:
    """The values of the finite tokens at their places, NaN elsewhere."""
    full = values.new_full((len(finite), *values.shape[1:]), float("nan"))
    full[finite] = values
    return full.numpy()
