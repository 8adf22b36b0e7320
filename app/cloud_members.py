"""Which tokens of which texts and checkpoints are in a cloud, and the numbers and kinds that colour them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from app import token_kinds, token_measures, traces
from app.cloud_choices import OWN, Choice
from app.cloud_fit import Fit, Piece
from app.side import Side
from app.sidebar import partner
from app.view import View
from fbt_core.cloud import CLOUDS


@dataclass(frozen=True)
class Member:
    """Tokens of one text and checkpoint in a cloud."""

    side: Side
    label: str  # which text or checkpoint
    tokens: tuple[int, ...]  # those that are drawn
    piece: Piece
    own: bool = True  # of the sidebar's text: its tokens can be marked


def clouds(view: View, choice: Choice) -> list[list[Member]]:
    """The members of each cloud on the page: one cloud a side, or one of both."""
    if choice.together:
        a, b = view.sides
        share = 2 + len(choice.texts)
        first = _member(a, a.title, choice, share)
        count = len(a.trace.layers) + 1, len(b.trace.layers) + 1
        onto = tuple(partner(stage, *count, view.run.match) for stage in range(count[0]))
        second = replace(_member(b, b.title, choice, share), tokens=first.tokens)
        piece = replace(second.piece, tokens=first.tokens, onto=onto)
        return [[first, *_others(a, choice, share), replace(second, piece=piece)]]
    share = 1 + len(choice.texts)
    several = choice.texts or None
    return [
        [_member(side, "the text" if several else side.title, choice, share), *_others(side, choice, share)]
        for side in view.sides
    ]


def _others(side: Side, choice: Choice, share: int) -> list[Member]:
    """The other texts on this side's checkpoint. What its tokenizer makes nothing of is left out."""
    found = []
    for place, text in enumerate(choice.texts, start=2):
        request = replace(side.request, text=text, target="")
        rows = traces.rows(request)
        if rows.ids:
            other = replace(side, request=request, encoding=rows)
            found.append(replace(_member(other, f"text {place}: {text[:24]}", choice, share), own=False))
    return found


def _member(side: Side, label: str, choice: Choice, share: int) -> Member:
    """The tokens that are drawn: all, or of a long text evenly many, so that the method stays within its points."""
    most = max(8, CLOUDS[choice.method].most // (len(side.trace.layers) + 1) // share)
    count = len(side.tokens)
    step = -(-count // most)
    tokens = tuple(range(0, count, step))
    return Member(side, label, tokens, Piece(side.request.bare, tokens))


def fit_of(members: list[Member], choice: Choice) -> Fit:
    """What the cloud of these members depends on. UMAP's numbers count only where there is a UMAP."""
    fit = Fit(
        tuple(member.piece for member in members), choice.method, choice.dims, choice.scale, choice.seed,
        choice.neighbours, choice.min_dist,
    )  # fmt: skip
    return fit.plain if choice.method == "pca" else fit


def coloured(members: list[Member], choice: Choice) -> tuple[np.ndarray, tuple[str, ...]]:
    """(stage, token) values, and their names where they are categories."""
    stages = len(members[0].side.trace.layers) + 1
    if choice.colour == "stage":
        count = sum(len(member.tokens) for member in members)
        return np.repeat(np.arange(float(stages))[:, None], count, 1), ()
    if choice.colour in OWN:
        names, codes = _categories(members, choice.colour)
        return np.repeat(codes[None].astype(float), stages, 0), names
    return np.concatenate([_measured(member, choice.colour, stages) for member in members], 1), ()


def limits(groups: list[list[Member]], choice: Choice) -> tuple[float, float]:
    """The range of the colour over all stages and both sides: a colour means one number."""
    values = np.concatenate([coloured(members, choice)[0].ravel() for members in groups])
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _categories(members: list[Member], colour: str) -> tuple[tuple[str, ...], np.ndarray]:
    if colour == "of":
        names = tuple(member.label for member in members)
        return names, np.repeat(np.arange(len(members)), [len(member.tokens) for member in members])
    kinds = [token_kinds.kinds(member.side.encoding) for member in members]
    codes = [token_kinds.KINDS.index(kinds[place][token]) for place, member in enumerate(members)
             for token in member.tokens]  # fmt: skip
    return token_kinds.KINDS, np.array(codes)


def _measured(member: Member, name: str, stages: int) -> np.ndarray:
    """(stage, token): the measure of the block that a stage enters, at the chosen head; NaN where there is none.

    A loss is a token's at all stages. Another model's stages are those that go with the first one's.
    """
    side = member.side
    own = [_of_layer(side, name, layer) for layer in range(len(side.trace.layers))]
    last = own[-1] if name == token_measures.LOSS else np.full(len(side.tokens), np.nan)
    rows = np.stack([*own, last])[:, list(member.tokens)]
    return rows[list(member.piece.onto)] if member.piece.onto else rows[:stages]


def _of_layer(side: Side, name: str, layer: int) -> np.ndarray:
    heads = side.trace.layers[layer].heads
    if heads and name in token_measures.PER_TOKEN and side.key_tokens:
        return np.full(len(side.tokens), np.nan)
    return token_measures.values(replace(side, layer=layer, head=min(side.head, max(heads - 1, 0))), name)
