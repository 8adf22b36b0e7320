"""Two maps of a side, or of both, as the panels that the attention page draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app import attention_choice, attention_tiles
from app.attention_choice import Choice
from app.attention_tiles import Half, Pair
from app.attention_words import note, place
from app.figures.maps import SHORT_UNIT, UNIT, MapPanels
from app.side import Side
from app.view import View
from fbt_core.attention.tiles import PooledPair
from fbt_core.attention.views import VIEWS, one_map
from fbt_core.trace import Trace
from fbt_core.training.grammar import dependencies

EXPECTED = "what the next token depends on, by the training grammar"

LEAST_LOST = 1e-4
"""Of a row: what a sink must take to be spoken of."""


@dataclass(frozen=True)
class TwoMaps:
    """What two maps are, whole or pooled: cells, entropies and lost shares by row, and what they were matched by."""

    pair: Pair
    left: np.ndarray
    right: np.ndarray
    entropy: tuple[np.ndarray, np.ndarray]
    lost: tuple[np.ndarray, np.ndarray]
    hidden: np.ndarray | None
    multipliers: tuple[float, float]  # the least and the largest of the left one's heads; NaN where none matches
    pooled: PooledPair | None = None

    def drawn(self, token: int) -> dict[str, Any]:
        """The fields of ``MapPanels`` that are theirs; ``token`` is the selected row."""
        exact = attention_tiles.selected_row(self.pair, token) if self.pooled else None
        return {
            "left": self.left, "right": self.right, "entropy": self.entropy, "hidden": self.hidden, "selected": token,
            "pooled": self.pooled, "exact": exact, "tiles": attention_tiles.address(self.pair),
            "unit": SHORT_UNIT if max(share.max() for share in self.lost) > LEAST_LOST else UNIT,
        }  # fmt: skip


def two_maps(left: Side, right: Side, choice: Choice) -> TwoMaps:
    """The left score's map of one side and the right score's of another, or of the same one; cached."""
    pair = Pair(half(left, choice, choice.left), half(right, choice, choice.right))
    if max(len(left.tokens), len(left.key_tokens)) > attention_choice.WHOLE:
        both, multiplied = attention_tiles.overview(pair), pair.left.multiplied
        found = (1.0, 1.0) if multiplied is None else (float(multiplied.min()), float(multiplied.max()))
        return TwoMaps(pair, both.left, both.right, both.entropy, both.lost, both.hidden, found, both)
    one, other = (side.derived(one_map, **part.options) for side, part in ((left, pair.left), (right, pair.right)))
    hidden = None if one.hidden is None or other.hidden is None else one.hidden & other.hidden
    return TwoMaps(
        pair, one.cells, other.cells, (one.entropy, other.entropy), (one.lost, other.lost), hidden, one.multipliers
    )


def half(side: Side, choice: Choice, score: str) -> Half:
    """Which map of a side a score gives."""
    alpha = choice.alpha if score == "blended" else None
    head = side.head if choice.view == "head" else 0
    return Half(side.request, score, side.layer, head, choice.view, alpha, choice.match(score))


def panels(side: Side, choice: Choice, token: int, marked: tuple[int, ...] = ()) -> MapPanels:
    """Left, right and difference of one side."""
    both = two_maps(side, side, choice)
    titles = (choice.title(side, choice.left) + times(both), choice.title(side, choice.right))
    return MapPanels(
        **both.drawn(token), titles=titles, tokens=side.tokens, causal=side.causal, key_tokens=side.key_tokens,
        single=choice.single, heading=f"{side.title} · {place(side, choice)}",
        name=f"attention-{side.name}-{choice.left}-{choice.right}",
        note=note(side, choice, choice.left, choice.right) or "", colour=choice.colour,
        expected=() if side.foreign else side.derived(expected), expected_name=EXPECTED, marked=marked,
    )  # fmt: skip


def times(shown: TwoMaps) -> str:
    """By what a matched map's scores were multiplied, for its title; empty for any other."""
    least, most = shown.multipliers
    if least == most == 1.0:
        return ""
    if least != least:
        return " (no temperature matches)"
    return f" × {least:.3g}" if f"{least:.3g}" == f"{most:.3g}" else f" × {least:.3g} to {most:.3g}"


def lost(side: Side, choice: Choice) -> str:
    """How much of the rows a sink takes, a sentence; empty where there is none."""
    for score, share in zip((choice.left, choice.right), two_maps(side, side, choice).lost, strict=True):
        if share.max() > LEAST_LOST:
            return (
                f" Rows of {choice.title(side, score)} are not renormalised: a sink that is no token takes "
                f"{share.mean():.1%} of a row on average, at most {share.max():.1%}."
            )
    return ""


def expected(trace: Trace) -> tuple[tuple[int, int], ...]:
    """(query, key) pairs that the training grammar calls for: where token i + 1 is predicted, and what it depends on.

    Empty for a text of another kind; where a text leaves the grammar the pairs end.
    """
    needs = dependencies(trace.tokens[1:])  # without <s>: word w is token w + 1 and is predicted at token w
    return tuple((word, needed + 1) for word, several in enumerate(needs) for needed in several)


def own_panels(view: View, choice: Choice, token: int) -> MapPanels | str:
    """A's own attention, B's own, and B minus A; or the reason why there is no such difference."""
    a, b = view.a, view.b
    if b is None or view.mismatch:
        return view.mismatch or "one checkpoint is open"
    if a.causal != b.causal:
        return "one of the models is causal, the other is not"
    if not (a.block.heads and b.block.heads):
        return "one of the two layers has no attention"
    both = two_maps(a, b, replace(choice, left=a.score, right=b.score, alpha=None, matched=False))
    titles = (f"A · {a.label} ({a.score_title(a.score)})", f"B · {b.label} ({b.score_title(b.score)})")
    return MapPanels(
        **both.drawn(token), titles=titles, tokens=a.tokens, causal=a.causal, colour=choice.colour,
        name="attention-A-B", difference_title="B − A", key_tokens=a.key_tokens,
        heading=f"Each model's own score · {VIEWS[choice.view]} · {view.mapping}",
        expected=() if a.foreign else a.derived(expected), expected_name=EXPECTED,
        note="; ".join(note for note in (a.what_if_forward, b.what_if_forward) if note), marked=view.marked,
    )  # fmt: skip


def same_scales(several: list[MapPanels]) -> list[MapPanels]:
    """The same figures with the largest ceilings among them, so that a colour means one number."""
    top, wide = max(one.top() for one in several), max(one.difference_top() for one in several)
    return [replace(one, ceiling=top, difference_ceiling=wide) for one in several]
