"""C9: the checkpoint's own attention without skips and feed-forward, beside g = I of the same entropy."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from fbt_core.attention.matching import matched_to, mean_entropy
from fbt_core.claims.chart import Chart, Curve, Mark
from fbt_core.claims.evidence import Evidence, Unavailable, positions
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.measures import read
from fbt_core.model.ablation import VARIANTS
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.trace import Trace

THRESHOLD = 1.5
WINDOWS, WINDOW = 4, 64
"""Rows of the text, one after another, and their tokens."""

ARMS = ("own metrics", "g = I, entropy matched", "g = I, trained temperature")


def by_depth(trace: Trace, name: str, **options: str) -> Float64[np.ndarray, " depth"]:
    """A measure of the residual stream before the first block and after each."""
    start, after = (read(trace, name, stage=stage, **options).values for stage in ("in", "out"))
    return np.concatenate([start[:1], after])


def matched_control(
    model: FiberBundleTransformer, ids: Int[Tensor, " token"], own: Trace
) -> tuple[Trace, Float64[np.ndarray, "layer head"]]:
    """The attention-only trace of g = I with every head's temperature set, layer by layer from the bottom, so that its
    mean row entropy is that of ``own``; and the multipliers of its logits, NaN where no temperature gives it."""
    control, multipliers = deepcopy(model), []
    for layer, block in enumerate(control.blocks):
        trace = _alone(control, ids, 0.0)
        wanted = mean_entropy(own.layers[layer].given, own.layers[layer].score)
        _, multiplier = matched_to(trace.layers[layer].given, "l2", wanted)
        multipliers.append(multiplier)
        block.log_tau.data -= multiplier.nan_to_num(1.0).log().to(block.log_tau)
    return _alone(control, ids, 0.0), torch.stack(multipliers).cpu().numpy()


def _alone(model: FiberBundleTransformer, ids: Int[Tensor, " token"], strength: float, variant: str = "san") -> Trace:
    if model.config.pure_stack:
        return model.trace(ids, strength)
    return model.traces(ids, strength, variant=variant)[""]


def checked(evidence: Evidence) -> Finding:
    """The effective rank that attention alone leaves, over the best control's; geometric mean over windows."""
    model, rows = _model(evidence), _rows(evidence)
    own = [_alone(model, row, evidence.trace.strength) for row in rows]
    controls = [matched_control(model, row, trace) for row, trace in zip(rows, own, strict=True)]
    plain = [_alone(model, row, 0.0) for row in rows]
    arms = dict(zip(ARMS, (own, [trace for trace, _ in controls], plain), strict=True))
    ranks = {arm: np.array([by_depth(one, "effective_rank")[-1] for one in found]) for arm, found in arms.items()}
    ratios = ranks[ARMS[0]] / np.maximum(ranks[ARMS[1]], ranks[ARMS[2]])
    value = float(np.exp(np.log(ratios).mean()))
    multipliers = np.array([found for _, found in controls])
    return Finding(
        HOLDS if value > THRESHOLD else FAILS,
        value,
        f"Attention alone leaves an effective rank of {ranks[ARMS[0]].mean():.3g} with the checkpoint's metrics, "
        f"{ranks[ARMS[1]].mean():.3g} with g = I as sharp and {ranks[ARMS[2]].mean():.3g} with g = I at the trained "
        f"temperature: {value:.3g} times the better control (windows {ratios.min():.3g} to {ratios.max():.3g}).",
        f"An effective rank more than {THRESHOLD} times that of an identity metric whose attention is as sharp.",
        grid=np.exp(np.log(multipliers).mean(0)),
        grid_title="multiplier of 1/τ that makes g = I as sharp",
        numbers=(("effective rank over the better control's", value, ""), *_numbers(arms, ranks)),
        charts=(_by_arm(arms), *_ablations(evidence, model, rows)),
        notes=(
            f"{len(rows)} windows of {len(rows[0])} tokens, attention alone; norms, embedding and the torsion's "
            "rotations, where there are any, stay in all arms.",
            *_unmatched(multipliers),
            "What-if: the model was trained with skips and feed-forward. Stacks trained without them are what the "
            "collapse experiment is about.",
        ),
    )  # fmt: skip


def _numbers(
    arms: dict[str, list[Trace]], ranks: dict[str, Float64[np.ndarray, " window"]]
) -> tuple[tuple[str, float, str], ...]:
    found = []
    for arm, traces in arms.items():
        centred = [by_depth(one, "effective_rank", tokens="centred")[-1] for one in traces]
        residual = [by_depth(one, "dong_residual")[-1] for one in traces]
        found += [
            (f"effective rank at the end, {arm}", float(ranks[arm].mean()), ""),
            (f"of centred tokens, {arm}", float(np.mean(centred)), ""),
            (f"Dong residual at the end, {arm}", float(np.mean(residual)), ""),
        ]
    return tuple(found)


def _model(evidence: Evidence) -> FiberBundleTransformer:
    model = evidence.learned
    if model.config.own_score != "riemannian":
        raise Unavailable("a blended score has no one temperature by which its entropy could be matched")
    return model


def _rows(evidence: Evidence) -> list[Tensor]:
    """Windows of the text, no longer than the model has positions; one shorter window of a short text."""
    window = min(WINDOW, positions(evidence.native.config))
    ids = evidence.ids if len(evidence.ids) >= window else evidence.trace.ids
    if min(len(ids), window) < 8:
        raise Unavailable(f"rank collapse needs at least 8 tokens, and there are {min(len(ids), window)}")
    return list(ids[: max(1, len(ids) // window) * window].split(window)[:WINDOWS])


def _unmatched(multipliers: np.ndarray) -> tuple[str, ...]:
    lost = int(np.isnan(multipliers).sum())
    if not lost:
        return ()
    return (f"For {lost} of {multipliers.size} heads no temperature of g = I is as sharp; they keep their own.",)


def _by_arm(arms: dict[str, list[Trace]]) -> Chart:
    curves = []
    for arm, traces in arms.items():
        found = np.array([by_depth(one, "effective_rank") for one in traces])
        x = np.arange(found.shape[1], dtype=float)
        curves.append(Curve(arm, x, found.mean(0), found.min(0), found.max(0)))
    count = len(arms[ARMS[0]])
    return Chart("Attention alone: own metrics and controls", "layers passed", "effective rank of the tokens",
                 tuple(curves), log_y=True,
                 note=f"what-if: no skips, no feed-forward; band: all of {count} windows")  # fmt: skip


def _ablations(evidence: Evidence, model: FiberBundleTransformer, rows: list[Tensor]) -> tuple[Chart, ...]:
    if model.config.pure_stack:
        return ()
    curves = []
    for name, variant in VARIANTS.items():
        found = by_depth(_alone(model, rows[0], evidence.trace.strength, name), "dong_residual")
        curves.append(Curve(variant.title, np.arange(len(found), dtype=float), found))
    return (Chart("Dong's four ablations", "layers passed", "Dong residual", tuple(curves),
                  (Mark("y", 1e-3, "collapsed: 1e-3"),), log_y=True,
                  note="what-if: only the full model was trained; first window"),)  # fmt: skip


CLAIM = Claim(
    id="C9",
    title="Heterogeneous metrics keep rank from collapsing",
    statement="Without skips and feed-forward, attention makes all tokens alike. A metric of their own for every token "
    "keeps them further apart than the identity metric does, at the same sharpness of attention.",
    equation=r"\frac{\operatorname{erank}(X_{\text{own}})}"
    r"{\max\{\operatorname{erank}(X_{g = I,\ \bar H \text{ matched}}),\ \operatorname{erank}(X_{g = I})\}}"
    r"\overset{?}{>} 1.5, \qquad X \leftarrow A(X)\, X\, W_V W_O",
    source="the paper's open conjecture; Dong et al., arXiv 2103.03404; Roy & Vetterli 2007",
    statistic="Effective rank of the tokens after the attention-only stack over that of the better of two controls: "
    "g = I with every head's temperature solved for the same mean row entropy, and g = I as it is; geometric mean over "
    "windows of the text. Holds above 1.5.",
    threshold=THRESHOLD,
    unit="times",
    reason="The decision rule T3 of the collapse experiment, at the depth that this checkpoint has. Sharper attention "
    "alone delays collapse, so without the entropy-matched control one would call sharpness geometry.",
    says_paper="Conjectures that heterogeneous metrics prevent rank collapse; no experiment.",
    function=checked,
)
