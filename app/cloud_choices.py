"""The cloud page's own controls. What they say is in the URL, so a copied link shows the same cloud."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app import inputs, token_measures
from app.choices import pick
from app.view import View
from fbt_core.cloud import CLOUDS

SHOWN = {"depth": "a stage, play over depth", "all": "all stages at once"}

SIZES = {"unit": "tokens alike", "layer": "layers alike", "raw": "as it is"}
"""Short names of SCALES."""

DIMS = {2: "2-D", 3: "3-D"}

BALLS = {"none": "none", "unit ball": "unit ball of g", "dual glyph": "dual ball (of g⁻¹)"}

OWN = {"stage": "Stage (blocks passed)", "kind": "Kind of token", "of": "Text or checkpoint"}
"""Colours besides the measures."""

FEW = 200
"""Tokens up to which all their ways are drawn at first."""

TEXTS = 4
"""Other texts in one cloud, at most."""


@dataclass(frozen=True)
class Choice:
    """What the page's own controls say."""

    method: str  # a key of CLOUDS
    dims: int
    shown: str  # a key of SHOWN
    colour: str  # a key of OWN or of token_measures.CHOICES
    together: bool  # A and B in one aligned cloud
    scale: str  # a key of SCALES
    seed: int
    neighbours: int
    min_dist: float
    ball: str  # a key of BALLS
    ways: str
    labels: bool
    texts: tuple[str, ...]  # besides the sidebar's


def choose(view: View) -> Choice:
    """The toolbar."""
    title = lambda name: CLOUDS[name].title  # noqa: E731
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = pick("Positions by", "cloud-by", CLOUDS, "pca", 175, title)
        dims = pick("Dimensions", "cloud-dims", DIMS, 2, 90, DIMS.__getitem__)
        scale = pick("Scale", "cloud-scale", SIZES, "unit", 140, SIZES.__getitem__)
        shown = pick("Show", "cloud-show", SHOWN, "depth", 190, SHOWN.__getitem__)
        colours = [*OWN, *token_measures.choices(view)]
        usual = "stage" if shown == "all" else "kind"
        colour = pick("Colour", f"cloud-tint-{shown}", colours, usual, 220, colour_title)
        together = view.compare and _together(view)
        with st.popover("More"):
            few = max(len(side.tokens) for side in view.sides) <= FEW
            ball = pick("Ellipsoids", "cloud-ball", BALLS, "none", 330, BALLS.__getitem__)
            ways = pick("Ways through depth", "cloud-ways", ("all", "marked", "none"), "all" if few else "marked", 330)
            labels = st.toggle("Token labels", value=True, key="cloud-labels", persist_state="session")
            neighbours = int(_number("Neighbours of UMAP", "cloud-near", 15, 2, 200, 1))
            min_dist = float(_number("Least distance of UMAP", "cloud-apart", 0.1, 0.0, 0.99, 0.05))
            seed = int(_number("Seed of UMAP", "cloud-seed", 0, 0, 9999, 1))
            texts = _texts(view)
    return Choice(
        method, int(dims), shown, colour, bool(together), scale, seed, neighbours, min_dist, ball, ways, labels, texts
    )


def _together(view: View) -> bool:
    """One aligned cloud, where tokens match one to one."""
    if view.mismatch:
        return False
    return st.toggle("A and B in one cloud", key="cloud-together", bind="query-params", persist_state="session")


def _texts(view: View) -> tuple[str, ...]:
    """Other texts whose tokens join the cloud, one a line."""
    if any(inputs.sees_pictures(side.checkpoint) or side.key_tokens for side in view.sides):
        return ()
    written = st.text_area(
        f"Other texts that join the cloud, one a line, at most {TEXTS}", key="cloud-texts", max_chars=2000, height=110,
        bind="query-params", persist_state="session", width=330,
    )  # fmt: skip
    lines = [line.strip() for line in (written or "").splitlines() if line.strip()]
    return tuple(dict.fromkeys(lines))[:TEXTS]


def _number(label: str, key: str, default: float, low: float, high: float, step: float) -> float:
    return st.number_input(
        label, low, high, default, step=step, key=key, bind="query-params", persist_state="session", width=330
    )


def colour_title(name: str) -> str:
    """A colour's name, with its unit."""
    return OWN.get(name) or token_measures.CHOICES[name]
