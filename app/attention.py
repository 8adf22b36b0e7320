"""What the attention page shows: its choices, and how a side's maps become panels. The drawing is in components."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from app import attention_tiles
from app.attention_tiles import Half, Pair
from app.choices import pick
from app.figures.maps import COLOURS, SHORT_UNIT, UNIT, MapPanels
from app.view import Side, View
from fbt_core.attention.scores import SCORES
from fbt_core.attention.tiles import PooledPair
from fbt_core.attention.views import VIEWS, one_map, unmatched
from fbt_core.trace import Trace
from fbt_core.training.grammar import dependencies

WHOLE = 1024
"""The most tokens whose maps are sent whole; longer ones are sent pooled, and their parts when one looks closer."""

TILES = {"left": "left score", "right": "right score", "difference": "difference", "variation": "total variation"}
"""What a tile of the atlas may show."""

EXPECTED = "what the next token depends on, by the training grammar"

WIDE = 14
"""Layers above which the atlas takes the whole width."""

LEAST_LOST = 1e-4
"""Of a row: what a sink must take to be spoken of."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    left: str  # keys of SCORES
    right: str
    alpha: float | None  # of the blended score; None is the model's own
    view: str  # a key of VIEWS
    colour: str  # a key of COLOURS
    matched: bool = False  # the left score at the temperature that gives it the right one's mean entropy

    def title(self, side: Side, score: str) -> str:
        """The score's name, its alpha with it."""
        known = f" (alpha {self.alpha:g})" if score == "blended" and self.alpha is not None else ""
        return side.score_title(score) + known

    @property
    def single(self) -> bool:
        """Whether both scores are one, so that there is nothing to compare."""
        return self.left == self.right

    def match(self, score: str) -> str | None:
        """Whose entropy a score's map is brought to, if anyone's."""
        return self.right if self.matched and score == self.left != self.right else None


def choose(view: View) -> Choice:
    """The toolbar. Its choices are in the URL, so a copied link shows the same maps."""
    scores, usable = offered(view), lambda score: not any(unmatched(side.block, score) for side in view.sides)
    title = view.a.score_title if not view.compare else lambda name: SCORES[name].title
    views = [name for name in VIEWS if name != "rollout" or not any(side.key_tokens for side in view.sides)]
    usual = next(name for name in ("riemannian", "l2", scores[0]) if name in scores)
    usual = "l2" if usual == "riemannian" and not any(side.has_metric for side in view.sides) else usual
    with st.container(horizontal=True, vertical_alignment="bottom"):
        left = pick("Left score", "left", scores, scores[0] if "euclidean" not in scores else "euclidean", 200, title)
        right = pick("Right score", "right", scores, usual, 200, title)
        shown = pick("Map", "map", views, "head", 200, VIEWS.__getitem__)
        colour = pick("Colour scale", "colour", COLOURS, "sqrt", 200, COLOURS.__getitem__)
        matched = left != right and shown != "rollout" and usable(left) and st.toggle(
            "Match entropies", key="matched", bind="query-params", persist_state="session",
            help="The left score at the temperature that gives it the mean row entropy of the right one: what is then "
            "left of the difference is no mere sharpening.",
        )  # fmt: skip
    alpha = None
    if "blended" in (left, right):
        own = view.a.checkpoint.config.alpha if view.a.checkpoint.config.has_metric else 1.0
        help_ = "0 is the Euclidean score, 1 the Riemannian one. Alpha is fixed at training: another is a what-if."
        alpha = st.slider("Alpha of the blended score", 0.0, 1.0, float(own), 0.05, key="alpha", help=help_)
    return Choice(left, right, alpha, shown, colour, matched)


def offered(view: View) -> list[str]:
    """The scores that every side has at its layer; those that read a metric only where there is one."""
    metric = any(side.has_metric for side in view.sides)
    blocks = [side.block for side in view.sides if side.block.heads]
    own = {side.score for side in view.sides}
    found = [
        name for name, score in SCORES.items()
        if (metric or not score.reads_metric) and not any(block.unavailable(name) for block in blocks)
    ]  # fmt: skip
    return found or [name for name in SCORES if name in own]


def wanted(view: View, what: str) -> bool:
    """Whether to compute what takes the square of the text for every head or term: of a long text when asked for."""
    longest = max(max(len(side.tokens), len(side.key_tokens)) for side in view.sides)
    return longest <= WHOLE or st.toggle(f"{what}: compute for {longest:,} tokens", key=f"want-{what}")


def pick_tile(choice: Choice) -> str:
    """What the atlas's tiles show: of one score, its maps."""
    if choice.single:
        return "left"
    shown = st.segmented_control(
        "Every head at once", list(TILES), default="difference", required=True, key="tile",
        format_func=TILES.__getitem__, bind="query-params", persist_state="session",
    )  # fmt: skip
    return shown or "difference"


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
    if max(len(left.tokens), len(left.key_tokens)) > WHOLE:
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
        single=choice.single, heading=f"{side.title} · {_place(side, choice)}",
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


def note(side: Side, choice: Choice, *scores: str) -> str | None:
    """Every reason why these maps are not what the model ran."""
    others = [SCORES[score].title for score in dict.fromkeys(scores) if score != side.score]
    reads = any(SCORES[score].reads_metric for score in scores)
    notes = [side.what_if if reads else side.what_if_forward]
    if others:
        runs = "its own dot product" if side.foreign else SCORES[side.score].title
        notes.append(f"what-if: {' and '.join(others)} score; the model runs {runs}")
    if not side.has_metric and reads:
        notes.append("without a metric the Riemannian score is L2")
    if choice.match(choice.left) and choice.left in scores:
        notes.append(f"{choice.title(side, choice.left)} at the temperature of equal mean row entropy, head by head")
    config = side.checkpoint.config
    if (
        "blended" in scores
        and choice.alpha is not None
        and config.has_metric
        and abs(choice.alpha - config.alpha) > 1e-9
    ):
        notes.append(f"what-if: alpha {choice.alpha:g}, trained at {config.alpha:g}")
    return "; ".join(text for text in notes if text) or None


def _place(side: Side, choice: Choice) -> str:
    where = {"head": f"layer {side.layer}, head {side.head}", "mean": f"layer {side.layer}, mean over heads"}
    return where.get(choice.view, f"rollout through layers 0 to {side.layer}")


def same_scales(several: list[MapPanels]) -> list[MapPanels]:
    """The same figures with the largest ceilings among them, so that a colour means one number."""
    top, wide = max(one.top() for one in several), max(one.difference_top() for one in several)
    return [replace(one, ceiling=top, difference_ceiling=wide) for one in several]
