"""The toolbar of the attention page: which scores, which map, which colours."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app.choices import pick
from app.figures.colour_scales import COLOURS
from app.side import Side
from app.view import View
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import VIEWS, unmatched

WHOLE = 1024
"""The most tokens whose maps are sent whole; longer ones are sent pooled, and their parts when one looks closer."""

TILES = {"left": "left score", "right": "right score", "difference": "difference", "variation": "total variation"}
"""What a tile of the atlas may show."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    left: str  # keys of SCORES
    right: str
    alpha: float | None  # of the blended score; None is the model's own
    view: str  # a key of VIEWS
    colour: str  # a key of COLOURS
    matched: bool = False  # the left score at the temperature that gives it the right one's mean entropy

    @property
    def given(self) -> dict[str, float]:
        """Alpha as an option of maps and measures; empty where the model's own holds."""
        return {} if self.alpha is None else {"alpha": self.alpha}

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
