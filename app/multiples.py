"""The small multiple of the overview: one card a measure, each leading to the page that shows it whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import streamlit as st

from app import widgets
from app.components.small_chart import small_chart
from app.figures.sparkline import sparkline
from app.figures.tokens import STEADY
from app.side import Side
from app.view import View
from fbt_core.attention.scores import SCORES
from fbt_core.measures import MEASURES


@dataclass(frozen=True)
class Card:
    """``values`` gives one number a layer (or a head of the chosen layer, when ``by_head``) of a side."""

    measure: str
    title: str
    page: str
    link: str
    values: Callable[[Side], np.ndarray]
    by_head: bool = False
    of_metric: bool = False  # it says nothing of a model without one

    @property
    def costly(self) -> bool:
        """Whether it needs attention maps, whose cost grows with the square of the text."""
        return bool({"score", "score_a"} & set(MEASURES[self.measure].options))


COSTLY = 1024
"""Tokens above which attention is computed only when asked for."""


def _by_layer(name: str, **options: str) -> Callable[[Side], np.ndarray]:
    """The mean over heads and tokens, where there are any."""
    reads_attention = "score" in MEASURES[name].options
    return lambda side: _mean((side.by_layer if reads_attention else side.reading)(name, **options).values)


def _steady(values: np.ndarray) -> np.ndarray:
    """The values, or their mean at every place where they differ by rounding only: a chart would show noise."""
    finite = values[np.isfinite(values)]
    if finite.size and np.ptp(finite) < STEADY * np.abs(finite).max():
        return np.where(np.isfinite(values), finite.mean(), np.nan)
    return values


def _said(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "none"


def _mean(values: np.ndarray) -> np.ndarray:
    """Over all axes but the first; nan entries do not count, and nan where nothing else is there."""
    flat = values.reshape(len(values), -1)
    good = np.isfinite(flat)
    total = np.where(good, flat, 0.0).sum(1)
    return np.where(good.any(1), total / np.maximum(good.sum(1), 1), np.nan)


def _by_head(name: str, **options: str) -> Callable[[Side], np.ndarray]:
    """The mean over tokens, a head of the chosen layer."""

    def values(side: Side) -> np.ndarray:
        if side.block.factors is None:
            return np.full(1, np.nan)
        return _mean(side.reading(name, layer=side.layer, **options).values[0])

    return values


DEPTH = ("pages/depth.py", "Depth")
FIELD = ("pages/ellipsoids.py", "Ellipsoid field")
ATTENTION = ("pages/attention.py", "Attention")

CARDS = (
    Card("effective_rank", "Effective rank after each layer", *DEPTH, _by_layer("effective_rank")),
    Card("trace_k", "Metric trace tr K by layer, mean", *FIELD, _by_layer("trace_k"), of_metric=True),
    Card("anisotropy", "Anisotropy of g by layer, mean", *FIELD, _by_layer("anisotropy"), of_metric=True),
    Card("dong_residual", "Dong residual after each layer", *DEPTH, _by_layer("dong_residual")),
    Card("entropy", "Attention entropy by layer, mean", *ATTENTION, _by_layer("entropy")),
    Card("total_variation", "TV Euclidean–Riemannian by head", *ATTENTION, _by_head("total_variation"), by_head=True),
)
"""To add a card: one row."""


def draw(view: View) -> None:
    """All cards, three in a row."""
    for start in range(0, len(CARDS), 3):
        for column, card in zip(st.columns(3), CARDS[start : start + 3], strict=True):
            with column.container(border=True, gap="xsmall", height="stretch"):
                _card(view, card)


def _card(view: View, card: Card) -> None:
    metric = any(side.has_metric for side in view.sides)
    title = card.title if metric else card.title.replace("Riemannian", SCORES["l2"].title)  # which it is where g = I
    st.markdown(title + (f", layer {view.a.layer}" if card.by_head else ""))
    if card.of_metric and not metric:
        st.caption("No metric here, $g = I$. Choose one in the sidebar, under Metric, for a what-if.")
        st.page_link(card.page, label=f"{card.link} →")
        return
    if note := view.what_if_of(card.measure):
        st.markdown(f":orange[{widgets.plain(note)}]")
    length = max(len(side.tokens) for side in view.sides)
    if card.costly and length > COSTLY and not st.toggle(f"Compute for {length:,} tokens", key=f"want-{card.measure}"):
        st.page_link(card.page, label=f"{card.link} →")
        return
    series = [_steady(card.values(side)) for side in view.sides]
    marks = [
        min(side.head if card.by_head else side.layer, len(values) - 1)
        for side, values in zip(view.sides, series, strict=True)
    ]  # fmt: skip
    unit = MEASURES[card.measure].unit
    at = "head" if card.by_head else "layer"
    shown = " · ".join(
        f"{side.name if view.compare else ''} {_said(values[mark])}".strip()
        for side, values, mark in zip(view.sides, series, marks, strict=True)
    )
    st.markdown(f"**{shown}** {unit} at {at} {marks[0]}" + (" of A" if view.compare else ""))
    count = max(len(values) for values in series)
    svg = sparkline(
        series, marks, bars=card.by_head, first=f"{at} 0", last=str(count - 1), dark=widgets.is_dark()
    )  # fmt: skip
    small_chart(svg, key=f"card-{card.measure}")
    st.page_link(card.page, label=f"{card.link} →")
