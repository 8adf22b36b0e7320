"""C12: one metric for all tokens is dot-product attention in other coordinates, and a bias on the keys."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from fbt_core.attention.scores import Factors, attention, bias
from fbt_core.claims.chart import Chart, Curve
from fbt_core.claims.evidence import Evidence
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding

THRESHOLD = 1e-9

Rows = Float64[Tensor, "row column"]


def dot_product(f: Factors, key_bias: bool = True) -> Rows:
    """softmax(2 q'.k' / tau - ||k'||^2 / tau) of one head, q' = g^{1/2} q, k' = g^{1/2} k, g = I + mean_t A_t.

    The root is that of the dense matrix, and the score is a plain product: nothing is shared with ``homogeneous``.
    Without ``key_bias`` the second term is left out. Mask and position bias are the model's own.
    """
    root = dense_root(f.U[0])
    q, k, tau = f.q[0] @ root, f.k[0] @ root, f.tau[0]
    logits = 2 * q @ k.mT / tau
    if key_bias:
        logits = logits - k.square().sum(-1) / tau
    extra = bias(f, slice(0, len(q)), slice(0, len(k)))
    return (logits if extra is None else logits + extra.reshape(-1, *extra.shape[-2:])[0]).softmax(-1)


def dense_root(U: Float64[Tensor, "token dim rank"]) -> Float64[Tensor, "dim dim"]:
    """The symmetric root of I + mean_t U_t U_t^T."""
    values, vectors = torch.linalg.eigh(torch.eye(U.shape[1]).to(U) + (U @ U.mT).mean(0))
    return (vectors * values.clamp_min(0).sqrt()) @ vectors.mT


def variation(a: Rows, b: Rows) -> Float64[np.ndarray, " row"]:
    """Total variation of each row, in [0, 1]; 1 where either is no distribution."""
    return ((a - b).abs().sum(-1) / 2).nan_to_num(1.0).cpu().numpy()


def equal(evidence: Evidence) -> Finding:
    """The largest total variation between the two forms, all rows of all heads."""
    heads = evidence.heads
    exact, bare, own = {}, {}, {}
    for one in heads:
        target = attention(one.factors, "homogeneous")[0]
        place = (one.place, one.head)
        exact[place] = float(variation(target, dot_product(one.factors)).max())
        bare[place] = variation(target, dot_product(one.factors, key_bias=False))
        own[place] = float(variation(target, attention(one.factors, one.own)[0]).mean())
    value = max(exact.values())
    without = float(np.mean([rows.mean() for rows in bare.values()]))
    return Finding(
        HOLDS if value <= THRESHOLD else FAILS,
        value,
        f"One metric for all tokens and dot-product attention with a key bias differ by {value:.1e} at most, in total "
        f"variation of a row, over {len(heads)} heads; without the key bias by {without:.3f} in the mean.",
        "Queries and keys so far from zero, beside how far apart they are, that float64 loses their distances."
        if value <= THRESHOLD
        else "Queries and keys nearer to zero, so that float64 keeps their distances.",
        grid=evidence.grid(exact),
        grid_title="largest total variation of a row between the two forms",
        numbers=(
            ("largest total variation between the forms", value, ""),
            ("mean total variation without the key bias", without, ""),
            ("largest without the key bias", float(max(rows.max() for rows in bare.values())), ""),
            ("mean total variation from the checkpoint's own attention", float(np.mean(list(own.values()))), ""),
        ),
        charts=(_sorted(bare, own),),
        notes=(
            "The one metric is the mean over the text's tokens. Standard attention is this only up to the key bias "
            "−‖k'‖²/τ, which nothing in a dot product of q' and k' makes up for unless all keys are equally long.",
        ),
    )  # fmt: skip


def _sorted(bare: dict[tuple[int, int], np.ndarray], own: dict[tuple[int, int], float]) -> Chart:
    """Of every head, sorted: what the key bias is worth, and how far the checkpoint is from one metric."""
    curves = [
        Curve(name, np.linspace(0, 100, len(values)), np.sort(values))
        for name, values in (
            ("key bias left out", np.array([rows.mean() for rows in bare.values()])),
            ("the checkpoint's own attention", np.array(list(own.values()))),
        )
    ]
    return Chart("How far one metric for all tokens is from ...", "heads with at most this (%)",
                 "total variation of a row, mean over rows", tuple(curves), note="a head a point, sorted")  # fmt: skip


CLAIM = Claim(
    id="C12",
    title="One metric for all tokens is standard attention",
    statement="Where every token has the same metric g, attention by distance is dot-product attention of g^(1/2) q "
    "and g^(1/2) k, with logits doubled over τ and a bias on every key.",
    equation=r"-\tfrac1\tau (q - k)^\top g\, (q - k) \equiv \tfrac2\tau\, (g^{1/2} q) \cdot (g^{1/2} k) "
    r"- \tfrac1\tau \lVert g^{1/2} k \rVert^2 \pmod{\text{row}}",
    source="docs/mathematics.md, items 4 and 5",
    statistic="Largest total variation of a row of attention between the two forms, over all heads, each with the mean "
    "metric of its tokens. Holds where it is at most 1e-9.",
    threshold=THRESHOLD,
    unit="",
    reason="It is an identity, so all that may differ is rounding; in float64 that is near 1e-14 for logits of some "
    "tens.",
    says_paper="Says that a homogeneous metric gives standard attention back. That is so only with the key bias.",
    function=equal,
)
