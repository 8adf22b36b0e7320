"""What the cloud page shows: a cloud with its colours and ellipsoids as a ``CloudView``, and the words to it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from app import cloud_fit, ellipsoids, token_measures
from app.cloud_choices import Choice, colour_title
from app.cloud_fit import Fit, Glyphs, glyphs
from app.cloud_members import Member, coloured
from app.figures.cloud_view import LABELLED, CloudView
from app.side import Side
from app.view import View
from fbt_core.cloud import CLOUDS, SCALES, Cloud
from fbt_core.cloud.jacobian import TRUSTED

GLYPHS = 96
"""Tokens up to which every ellipsoid is drawn; of more, those of the marked ones and the selected one."""


def view_of(
    view: View, choice: Choice, members: list[Member], found: Cloud, fit: Fit, name: str, limits: tuple[float, float]
) -> CloudView:
    """Words and colours added to a cloud."""
    first = members[0]
    values, names = coloured(members, choice)
    ball = balls(first, choice, fit) if choice.ball != "none" else None
    places = {token: place for place, token in enumerate(first.tokens)}
    marked = tuple(places[token] for token in view.marked if token in places)
    selected = places.get(view.token, -1)
    axes, plain = _drawn(ball, marked, selected)
    labels = choice.labels and sum(len(member.tokens) for member in members) <= LABELLED
    title = first.side.title if not choice.together else f"{members[0].side.title} and {members[-1].side.title}"
    return CloudView(
        positions=found.positions, stages=stage_names(first.side), axes=found.axes,
        tokens=tuple(member.side.tokens[token] for member in members for token in member.tokens),
        values=values, value_title=colour_title(choice.colour), limits=limits, names=names,
        title=f"{title} · {CLOUDS[found.method].title} of the residual stream",
        description=_description(members, choice, ball, axes, found),
        origin=tuple(member.label for member in members for _ in member.tokens) if len(members) > 1 else (),
        index=tuple(token for member in members for token in member.tokens), marked=marked,
        selected=selected, labels=labels, ways=choice.ways, glyphs=axes, plain=plain, stage=first.side.layer,
        narrow=view.compare and not choice.together,
        note=_note(members, choice), name=f"cloud-{name}-{found.method}-{found.dims}d",
        facts=_facts(first, choice, found),
    )  # fmt: skip


def stage_names(side: Side) -> tuple[str, ...]:
    """``enters block 0`` and so on; the last stage leaves the last block."""
    numbers = [layer.index for layer in side.forward.layers]
    return (*(f"enters block {number}" for number in numbers), f"leaves block {numbers[-1]}")


def balls(first: Member, choice: Choice, fit: Fit) -> Glyphs | str:
    """The metric's ellipsoids in the picture, or why there are none."""
    side = first.side
    reasons = {ellipsoids.unavailable(replace(side, layer=n), "residual") for n in range(len(side.trace.layers))}
    if not side.has_metric:
        return "no metric here, g = I"
    if "" not in reasons:
        return next(iter(reasons))
    return glyphs(fit, side.request, choice.ball == "dual glyph")


def _drawn(ball: Glyphs | str | None, marked: tuple[int, ...], selected: int) -> tuple[np.ndarray | None, ...]:
    """The semi-axes that are drawn: all, or of many tokens those of the marked and the selected one."""
    if not isinstance(ball, Glyphs) or not ball.shown.any():
        return None, None
    axes, plain = ball.axes, ball.plain
    if axes.shape[1] > GLYPHS:
        hidden = np.setdiff1d(np.arange(axes.shape[1]), [*marked, selected])
        axes, plain = axes.copy(), plain.copy()
        axes[:, hidden], plain[:, hidden] = np.nan, np.nan
    return axes, plain


def _description(
    members: list[Member], choice: Choice, ball: Glyphs | str | None, axes: np.ndarray | None, found: Cloud
) -> str:
    """One line under the title: which points, and which ellipsoids."""
    told = [
        f"{sum(len(member.tokens) for member in members):,} tokens × {len(members[0].side.trace.layers) + 1} stages"
    ]
    thinned = [member for member in members if len(member.tokens) < len(member.side.tokens)]
    if thinned:
        told.append(f"every {thinned[0].tokens[1]}th token")
    told += [] if choice.scale == "raw" else [SCALES[choice.scale]]
    told += [note for note in found.notes if note.startswith(cloud_fit.ALIGNED)]
    if isinstance(ball, str):
        told.append(f"no ellipsoids: {ball}")
    elif ball is not None:
        there = np.isfinite(ball.r2[:-1])
        good = int((np.nan_to_num(ball.r2[:-1], nan=-1) >= TRUSTED).sum())
        told.append(
            f"ellipsoids where R² ≥ {TRUSTED:g}: {good:,} of {there.sum():,}" if ball.directions else "ellipsoids exact"
        )
        if axes is not None and ball.axes.shape[1] > GLYPHS:
            told.append("of marked tokens only")
    return "; ".join(told)


def _note(members: list[Member], choice: Choice) -> str | None:
    """What is not as trained, of everything that enters the picture."""
    metric = choice.ball != "none"
    notes = []
    for member in members:
        side = member.side
        label = side.what_if if metric and member is members[0] else side.what_if_forward
        if choice.colour in token_measures.CHOICES:
            label = label or token_measures.what_if(side, choice.colour)
        if label:
            notes.append(f"{side.name}: {label}" if choice.together else label)
    return "; ".join(dict.fromkeys(notes)) or None


def _facts(first: Member, choice: Choice, found: Cloud) -> dict[str, object]:
    """Constant columns of the table: enough to make the picture again."""
    side = first.side
    label = re.sub(r"[^\w.-]+", "-", side.label)[:60]
    facts: dict[str, object] = {
        "checkpoint": label, "strength": side.request.strength, "what_if": side.what_if or "",
        "method": found.method, "scale": choice.scale,
    }  # fmt: skip
    umap = {"seed": choice.seed, "neighbours": choice.neighbours, "min_dist": choice.min_dist}
    return facts | (umap if found.method != "pca" else {})


def caption(choice: Choice, found: Cloud, ball: bool) -> str:
    """What is drawn, with its source."""
    row = CLOUDS[found.method]
    parts = [f"{row.says} Source: {row.source}."]
    if choice.colour in token_measures.CHOICES:
        parts.append(
            f"Colour: {token_measures.caption(choice.colour)} Of the block that the stage enters; grey after the last."
        )
    if choice.ways != "none" and choice.shown == "depth":
        parts.append("Lines: ways through depth, from the small square, where a token enters the first block.")
    if ball:
        drawn = r"J g J^\top" if choice.ball == "dual glyph" else r"J g^{-1} J^\top"
        parts.append(
            rf"Ellipsoids: $\{{y : y^\top ({drawn})^{{-1}} y \le 1\}}$, "
            r"$g = I + \mathrm{blockdiag}_h(U_h U_h^\top)$ over all heads $h$, $J$ the local map from the residual "
            "stream to the picture; dotted or faint, the same for $g = I$. All are enlarged alike."
        )
    parts.append(
        "A click marks a token on every page, the next one more; lasso and box, in the figure's toolbar, mark anew."
        if choice.dims == 2
        else "Tokens are marked in the 2-D picture."
    )
    return " ".join(parts)
