"""The sections of the attention page: each draws one thing, its caption and its exports."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import widgets
from app.attention import Choice, note, own_panels, variation, windowed
from app.components.attention_maps import attention_maps
from app.components.head_atlas import head_atlas
from app.figures.atlas import HeadAtlas, atlas_figure, ranked, shares_figure, terms_figure
from app.figures.maps import MapPanels, attention_figure, entropy_figure, table
from app.view import Side, View
from fbt_core.attention.decompose import TERMS
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import term_maps

TERM_BINS = 96
"""Cells a side of a term's map."""

HOW = {
    "head": "",
    "mean": r" Shown is the mean over heads, $\bar A = \frac1H \sum_h A_h$.",
    "rollout": r" Shown is the rollout $\hat A_l \cdots \hat A_0$ of $\hat A = \frac12 (\bar A + I)$ "
    "(Abnar & Zuidema 2020): an accounting of paths, not a measurement.",
}


def draw_maps(panels: MapPanels, choice: Choice, key: str) -> None:
    """The component, its caption with the equations, the exports of its twin, and the entropy curves."""
    shown = windowed(panels, f"{key}-window")
    picked = attention_maps(shown, key=key)
    formulas = "; ".join(
        f"{SCORES[name].title}: $s_{{ij}} = {SCORES[name].formula}$"
        for name in dict.fromkeys((choice.left, choice.right))
    )
    caption = (
        rf"$a_{{ij}} = \operatorname{{softmax}}_j s_{{ij}}$, rows $i$ are queries, columns $j$ keys. {formulas}."
        f"{HOW[choice.view]} Beside each map the entropy of its rows. Wheel zooms, drag pans, double click shows all, "
        "a click selects the query everywhere."
    )
    _below(panels, key, caption)
    if picked:
        widgets.select_token(picked[0])


def _below(panels: MapPanels, key: str, caption: str) -> None:
    dark = widgets.is_dark()
    widgets.below(key, lambda: attention_figure(panels, dark), lambda: table(panels), caption, panels.name, seen=False)
    entropies = st.expander("Entropy by row", key=f"{key}-entropy-open", on_change="rerun")
    if not entropies.open:  # a closed chart would still be built and sent
        return
    with entropies:
        widgets.show(
            entropy_figure(panels, dark), lambda: table(panels), f"{key}-entropy",
            r"$H(a_i) = -\sum_j a_{ij} \ln a_{ij}$, in $[0, \ln L]$ nats.", f"{panels.name}-entropy",
        )  # fmt: skip


def draw_own(view: View, choice: Choice) -> None:
    """Each model's own attention and B minus A, or why there is none."""
    st.subheader("A against B, each with its own score", anchor=False)
    panels = own_panels(view, choice, view.token)
    if isinstance(panels, str):
        st.info(f"No difference between A and B: {panels}. Their maps stand below, on the same scales.")
        return
    picked = attention_maps(windowed(panels, "maps-own-window"), key="maps-own")
    text = "Each model's attention under its own score, and B minus A. Equal head numbers need not mean equal roles."
    _below(panels, "maps-own", text)
    if picked:
        widgets.select_token(picked[0])


def draw_atlas(view: View, side: Side, choice: Choice, shown: HeadAtlas) -> None:
    """All heads of a side; a click opens one."""
    picked = head_atlas(shown, key=f"atlas-{side.name}")
    caption = "Every head of every layer, max-pooled so that no hot cell is lost; masked cells have the page's colour."
    readings = variation(side, choice)
    dark = widgets.is_dark()
    widgets.below(f"atlas-{side.name}", lambda: atlas_figure(shown, dark), readings, caption, shown.name, seen=False)
    if picked:
        open_head(view, side, *picked)


def draw_ranking(view: View, side: Side, choice: Choice) -> None:
    """Heads by how far the two scores lead them apart; choosing a row opens that head."""
    rows = variation(side, choice).values
    frame = ranked({"mean": rows.mean(-1), "largest": rows.max(-1), "at query": rows.argmax(-1)})
    st.markdown(f"**Heads by total variation**, {choice.title(choice.left)} against {choice.title(choice.right)}")
    what_if = note(side, choice, choice.left, choice.right)
    if what_if:
        st.markdown(f":orange[{widgets.plain(what_if)}]")
    key = f"ranking-{side.name}"
    event = st.dataframe(
        frame, hide_index=True, key=key, on_select="rerun", selection_mode="single-row", height=330, width="stretch",
        column_config={
            "layer": st.column_config.NumberColumn(width=50), "head": st.column_config.NumberColumn(width=50),
            "mean": st.column_config.ProgressColumn("mean TV", min_value=0.0, max_value=1.0, format="%.4f", width=110),
            "largest": st.column_config.NumberColumn(format="%.4f", width=65, help="TV of the row where it is largest"),
            "at query": st.column_config.NumberColumn("query", width=55, help="The row of the largest TV"),
        },
    )  # fmt: skip
    st.caption(
        r"$\mathrm{TV}_i = \frac12 \sum_j |a_{ij} - b_{ij}|$, mean over rows, in $[0, 1]$. Choose a row to open it."
    )
    chosen = tuple(event["selection"]["rows"])
    if chosen and st.session_state.get(f"{key}-opened") != chosen:  # a selection lasts; it opens its head once
        st.session_state[f"{key}-opened"] = chosen
        row = frame.iloc[chosen[0]]
        open_head(view, side, int(row["layer"]), int(row["head"]))
    if not chosen:
        st.session_state.pop(f"{key}-opened", None)


def open_head(view: View, side: Side, layer: int, head: int) -> None:
    """Select a side's head everywhere. A head of B selects the head of A that leads to it."""
    if side.name == "B":
        layer, head = _partner(view, layer, side.layers, view.a.layers), _partner(view, head, side.heads, view.a.heads)
    widgets.select(layer=layer, head=head)


def _partner(view: View, index: int, own: int, other: int) -> int:
    if view.run.match == "depth" and own > 1:
        return round(index * (other - 1) / (own - 1))
    return min(index, other - 1)


def draw_terms(view: View) -> None:
    """Shares of the score's terms for the chosen head of each side, and the terms as maps."""
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
    formulas = ", ".join(f"{term.title.lower()} ${term.formula}$" for term in TERMS.values())
    widgets.show(
        shares_figure(shares, titles, f"Share of each term · {where}", _what_ifs(view), dark), readings, "shares",
        r"$\phi_t = \operatorname{cov}(\tilde s_t, \tilde s) / \operatorname{var}(\tilde s)$, $\tilde s$ centred over "
        rf"the keys of each row; covariances split evenly, so a share may be negative. Terms (Eq. 28): {formulas}.",
        "score-shares",
    )  # fmt: skip
    widgets.remarks([f"{title}: {remark}" for title, reading in readings.items() for remark in reading.notes])
    for side in view.sides:
        _draw_term_maps(side, of, dark)


def _what_ifs(view: View) -> str:
    """Why a side's shares are not of what the model ran: the terms are those of the Riemannian score."""
    notes = {side.name: side.what_if_score("riemannian") for side in view.sides}
    told = [f"{name}: {why}" if view.compare else why for name, why in notes.items() if why]
    return "; ".join(told)


def _draw_term_maps(side: Side, of: str, dark: bool) -> None:
    maps = side.derived(term_maps, layer=side.layer, head=side.head, of=of, bins=TERM_BINS)
    size = len(next(iter(maps.values())))
    tokens = tuple(side.tokens[place * len(side.tokens) // size] for place in range(size))  # the first of each bin
    shown = {TERMS[name].title: cells for name, cells in maps.items() if np.nanmax(np.abs(cells), initial=0) > 0}
    heading = f"{side.title} · terms of the score · layer {side.layer}, head {side.head}"
    if not shown:
        st.caption(f"{widgets.plain(heading)}: every term is constant along the rows, so there is no map to draw.")
        return
    caption = (
        "Each term in nats, minus its mean over the keys that the row may see (a constant along a row cancels in the "
        "softmax, so the query's norm is left out); terms that vanish are left out."
    )
    if size < len(side.tokens):
        caption += f" Max-pooled by magnitude to {size} cells a side."
    widgets.show(
        terms_figure(shown, tokens, heading, side.what_if_score("riemannian") or "", dark),
        lambda: _tidy_terms(side, of), f"terms-{side.name}", caption, f"terms-{side.name}",
    )  # fmt: skip


def _tidy_terms(side: Side, of: str) -> pd.DataFrame:
    """The unpooled terms, one (query, key, term) a row: made only when someone downloads it."""
    maps = term_maps(side.trace, layer=side.layer, head=side.head, of=of, bins=len(side.tokens))
    frames = []
    for name, cells in maps.items():
        query, key = np.nonzero(np.isfinite(cells))
        frames.append(pd.DataFrame({"term": name, "query": query, "key": key, "nats": cells[query, key]}))
    return pd.concat(frames, ignore_index=True)
