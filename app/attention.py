"""What the attention page shows: its choices, and how a side's maps become panels. The drawing is in components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from app.figures.atlas import HeadAtlas
from app.figures.maps import COLOURS, UNIT, MapPanels, cut, pooled
from app.view import Side, View
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import VIEWS, ShownMap, all_heads, one_map
from fbt_core.measures import Reading
from fbt_core.trace import Trace
from fbt_core.training.grammar import dependencies

WINDOW = 1024
"""The most tokens that the component gets exactly; more are max-pooled to this many."""

TILES = {"left": "left score", "right": "right score", "difference": "difference", "variation": "total variation"}
"""What a tile of the atlas may show."""

EXPECTED = "what the next token depends on, by the training grammar"

BINS = 48
"""Cells a side of an atlas tile; 32 in a model of many heads."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    left: str  # keys of SCORES
    right: str
    alpha: float | None  # of the blended score; None is the model's own
    view: str  # a key of VIEWS
    colour: str  # a key of COLOURS

    def title(self, score: str) -> str:
        """The score's name, its alpha with it."""
        known = f" (alpha {self.alpha:g})" if score == "blended" and self.alpha is not None else ""
        return SCORES[score].title + known


def choose(view: View) -> Choice:
    """The toolbar. Its choices are in the URL, so a copied link shows the same maps."""
    metric = any(side.has_metric for side in view.sides)
    scores = [name for name, score in SCORES.items() if metric or not score.reads_metric]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        left = _pick("Left score", "left", scores, "euclidean", lambda name: SCORES[name].title)
        right = _pick("Right score", "right", scores, "riemannian" if metric else "l2", lambda name: SCORES[name].title)
        shown = _pick("Map", "map", list(VIEWS), "head", VIEWS.__getitem__)
        colour = _pick("Colour scale", "colour", list(COLOURS), "sqrt", COLOURS.__getitem__)
    alpha = None
    if "blended" in (left, right):
        own = view.a.checkpoint.config.alpha if view.a.has_metric else 1.0
        help_ = "0 is the Euclidean score, 1 the Riemannian one. Alpha is fixed at training: another is a what-if."
        alpha = st.slider("Alpha of the blended score", 0.0, 1.0, float(own), 0.05, key="alpha", help=help_)
    return Choice(left, right, alpha, shown, colour)


def _pick(label: str, key: str, options: list[str], default: str, title: Callable[[str], str]) -> str:
    """A select box bound to the URL; a value that this model does not offer falls back to the default."""
    if st.session_state.get(key, default) not in options:
        del st.session_state[key]
    return st.selectbox(
        label, options, index=options.index(default), key=key, format_func=title, bind="query-params", width=200,
        persist_state="session",
    )  # fmt: skip


def pick_tile() -> str:
    """What the atlas's tiles show."""
    shown = st.segmented_control(
        "Every head at once", list(TILES), default="difference", required=True, key="tile",
        format_func=TILES.__getitem__, bind="query-params", persist_state="session",
    )  # fmt: skip
    return shown or "difference"


def shown_map(side: Side, choice: Choice, score: str) -> ShownMap:
    """One map of a side, cached."""
    options = {"alpha": choice.alpha} if score == "blended" and choice.alpha is not None else {}
    return side.derived(one_map, score=score, layer=side.layer, head=side.head, view=choice.view, **options)


def panels(side: Side, choice: Choice, token: int) -> MapPanels:
    """Left, right and difference of one side."""
    left, right = (shown_map(side, choice, score) for score in (choice.left, choice.right))
    return MapPanels(
        left=left.cells, right=right.cells, titles=(choice.title(choice.left), choice.title(choice.right)),
        tokens=side.tokens, causal=side.checkpoint.config.causal, entropy=(left.entropy, right.entropy),
        heading=f"{side.title} · {_place(side, choice)}", name=f"attention-{side.name}-{choice.left}-{choice.right}",
        note=note(side, choice, choice.left, choice.right) or "", colour=choice.colour, selected=token,
        expected=side.derived(expected), expected_name=EXPECTED,
    )  # fmt: skip


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
    if a.checkpoint.config.causal != b.checkpoint.config.causal:
        return "one of the models is causal, the other is not"
    own = replace(choice, alpha=None)
    left, right = (shown_map(side, own, side.score) for side in (a, b))
    titles = (f"A · {a.label} ({SCORES[a.score].title})", f"B · {b.label} ({SCORES[b.score].title})")
    return MapPanels(
        left=left.cells, right=right.cells, titles=titles, tokens=a.tokens, causal=a.checkpoint.config.causal,
        entropy=(left.entropy, right.entropy), colour=choice.colour, selected=token, name="attention-A-B",
        difference_title="B − A",
        heading=f"Each model's own score · {VIEWS[choice.view]} · {view.mapping}",
        expected=a.derived(expected), expected_name=EXPECTED,
        note="; ".join(note for note in (a.what_if, b.what_if) if note),
    )  # fmt: skip


def note(side: Side, choice: Choice, *scores: str) -> str | None:
    """Every reason why these maps are not what the model ran."""
    foreign = [SCORES[score].title for score in dict.fromkeys(scores) if score != side.score]
    notes = [side.what_if]
    if foreign:
        notes.append(f"what-if: {' and '.join(foreign)} score; the model runs {SCORES[side.score].title}")
    if not side.has_metric and any(SCORES[score].reads_metric for score in scores):
        notes.append("without a metric the Riemannian score is L2")
    own = side.checkpoint.config.alpha
    if "blended" in scores and choice.alpha is not None and side.has_metric and abs(choice.alpha - own) > 1e-9:
        notes.append(f"what-if: alpha {choice.alpha:g}, trained at {own:g}")
    return "; ".join(text for text in notes if text) or None


def _place(side: Side, choice: Choice) -> str:
    where = {"head": f"layer {side.layer}, head {side.head}", "mean": f"layer {side.layer}, mean over heads"}
    return where.get(choice.view, f"rollout through layers 0 to {side.layer}")


def atlases(view: View, choice: Choice, tile: str) -> list[HeadAtlas]:
    """The atlas of every side, on one scale."""
    several = [atlas(side, choice, tile) for side in view.sides]
    top = max(one.top() for one in several)
    return [replace(one, ceiling=top) for one in several]


def same_scales(several: list[MapPanels]) -> list[MapPanels]:
    """The same figures with the largest ceilings among them, so that a colour means one number."""
    top, wide = max(one.top() for one in several), max(one.difference_top() for one in several)
    return [replace(one, ceiling=top, difference_ceiling=wide) for one in several]


def windowed(panels_: MapPanels, key: str) -> MapPanels:
    """All tokens where that is fluid; of a longer text those that a slider chooses, max-pooled beyond ``WINDOW``."""
    length = len(panels_.tokens)
    if length <= WINDOW:
        return panels_
    text = f"Tokens shown (up to {WINDOW} exactly, more max-pooled)"
    start, stop = st.slider(text, 0, length, (0, length), key=key)
    return pooled(cut(panels_, start, max(stop, start + 1)), WINDOW)


def variation(side: Side, choice: Choice) -> Reading:
    """(layer, head, token): total variation between the two scores, row by row."""
    options = {"alpha": choice.alpha} if choice.alpha is not None else {}
    return side.by_layer("total_variation", score_a=choice.left, score_b=choice.right, **options)


def atlas(side: Side, choice: Choice, tile: str) -> HeadAtlas:
    """Every head of a side: a score's maps, their difference, or the mean total variation as one colour a head."""
    means = variation(side, choice).values.mean(-1)
    names = (choice.title(choice.left), choice.title(choice.right))
    shared = {
        "causal": side.checkpoint.config.causal, "readings": means, "readings_name": "mean total variation",
        "chosen": (side.layer, side.head), "colour": choice.colour, "name": f"heads-{side.name}",
    }  # fmt: skip
    if tile == "variation":
        cells = means.astype(np.float32)[..., None, None]
        title = f"{side.title} · total variation, {names[0]} against {names[1]}"
        why = note(side, choice, choice.left, choice.right) or ""
        shown = shared | {"colour": "linear", "causal": False, "note": why}
        return HeadAtlas(cells, title=title, unit="mean over rows, 0 to 1", **shown)
    scores = {"left": (choice.left,), "right": (choice.right,)}.get(tile, (choice.left, choice.right))
    options = {"alpha": choice.alpha} if choice.alpha is not None else {}
    options |= {"other": scores[1]} if len(scores) > 1 else {}
    bins = BINS if side.layers * side.heads <= 144 else 32
    options |= {"score": scores[0], "bins": bins}
    cells = np.stack(side.each_layer("maps", lambda layer: side.derived(all_heads, layer=layer, **options)))
    title = choice.title(scores[0]) if len(scores) == 1 else f"{names[1]} − {names[0]}"
    return HeadAtlas(
        cells, title=f"{side.title} · {title}", unit=UNIT if len(scores) == 1 else "difference",
        diverging=len(scores) > 1, note=note(side, choice, *scores) or "", **shared,
    )  # fmt: skip
