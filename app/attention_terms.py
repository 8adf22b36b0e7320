"""The terms of the score on the attention page: the share of each, and each as a map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import widgets
from app.figures.atlas import shares_figure, terms_figure
from app.side import Side
from app.view import View
from fbt_core.attention.decompose import TERMS
from fbt_core.attention.views import term_maps

TERM_BINS = 96
"""Cells a side of a term's map."""

ROUNDING = 1e-5
"""Of the largest term: what is below in a term's map is float32's rounding of a constant."""


def draw_terms(view: View) -> None:
    """Shares of the score's terms for the chosen head of each side, and the terms as maps."""
    having = tuple(side for side in view.sides if side.block.factors is not None)
    for side in view.sides:
        if side not in having:
            st.caption(widgets.plain(f"{side.title}: no terms, since {side.block.unavailable('riemannian')}."))
    if not having:
        return
    view = replace(view, sides=having)
    of = st.segmented_control(
        "Terms of", ["riemannian", "difference"], default="riemannian", required=True, key="terms-of",
        format_func={"riemannian": "the Riemannian score", "difference": "Riemannian − Euclidean"}.__getitem__,
    )  # fmt: skip
    dark = widgets.is_dark()
    readings = {
        side.title: side.reading("score_shares", of=of, layer=side.layer, head=side.head) for side in view.sides
    }
    shares = {title: reading.values[0, 0] for title, reading in readings.items()}
    where = view.mapping or f"{view.a.title} · layer {view.a.layer}, head {view.a.head}"
    titles = tuple(term.title for term in TERMS.values())
    what_ifs = view.told({side.name: side.what_if_score("riemannian") for side in view.sides}) or ""
    formulas = ", ".join(f"{term.title.lower()} ${term.formula}$" for term in TERMS.values())
    widgets.show(
        shares_figure(shares, titles, f"Share of each term · {where}", what_ifs, dark), readings, "shares",
        r"$\phi_t = \operatorname{cov}(\tilde s_t, \tilde s) / \operatorname{var}(\tilde s)$, $\tilde s$ centred over "
        rf"the keys of each row; covariances split evenly, so a share may be negative. Terms (Eq. 28): {formulas}.",
        "score-shares",
    )  # fmt: skip
    widgets.remarks([f"{title}: {remark}" for title, reading in readings.items() for remark in reading.notes])
    for side in view.sides:
        _draw_term_maps(side, of, dark)


def _draw_term_maps(side: Side, of: str, dark: bool) -> None:
    maps = side.derived(term_maps, layer=side.layer, head=side.head, of=of, bins=TERM_BINS)
    size, across = next(iter(maps.values())).shape
    keys = side.key_tokens or side.tokens
    tokens, columns = (
        tuple(labels[place * len(labels) // count] for place in range(count))  # the first of each bin
        for labels, count in ((side.tokens, size), (keys, across))
    )
    sizes = {name: float(np.nanmax(np.abs(cells), initial=0)) for name, cells in maps.items()}
    least = ROUNDING * max(sizes.values())
    shown = {TERMS[name].title: cells for name, cells in maps.items() if sizes[name] > least}
    heading = f"{side.title} · terms of the score · layer {side.layer}, head {side.head}"
    if not shown:
        st.caption(f"{widgets.plain(heading)}: every term is constant along the rows, so there is no map to draw.")
        return
    caption = (
        "Each term in nats, minus its mean over the keys that the row may see (a constant along a row cancels in the "
        "softmax, so the query's norm is left out); terms that vanish are left out."
    )
    if size < len(side.tokens) or across < len(keys):
        caption += f" Max-pooled by magnitude to {size} cells a side."
    widgets.show(
        terms_figure(shown, tokens, heading, side.what_if_score("riemannian") or "", dark, columns),
        lambda: _tidy_terms(side, of), f"terms-{side.name}", caption, f"terms-{side.name}",
    )  # fmt: skip


def _tidy_terms(side: Side, of: str) -> pd.DataFrame:
    """The unpooled terms, one (query, key, term) a row: made only when someone downloads it."""
    maps = term_maps(
        side.trace, layer=side.layer, head=side.head, of=of, bins=max(len(side.tokens), len(side.key_tokens))
    )
    frames = []
    for name, cells in maps.items():
        query, key = np.nonzero(np.isfinite(cells))
        frames.append(pd.DataFrame({"term": name, "query": query, "key": key, "nats": cells[query, key]}))
    return pd.concat(frames, ignore_index=True)
