"""The sections of the attention page: each draws one thing, its caption and its exports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import widgets
from app.attention import Choice, lost, note, own_panels
from app.attention_atlas import variation, variation_table
from app.components.attention_maps import attention_maps
from app.components.head_atlas import head_atlas
from app.figures.atlas import HeadAtlas, atlas_figure, ranked, shares_figure, terms_figure
from app.figures.maps import MapPanels, attention_figure, entropy_figure, patch_grid, patches_figure, table
from app.view import Side, View
from fbt_core.attention.decompose import TERMS
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import term_maps

NONE = "no layer of this model has attention; its depth, and its weights, can be looked at"

TERM_BINS = 96
"""Cells a side of a term's map."""

ROUNDING = 1e-5
"""Of the largest term: what is below in a term's map is float32's rounding of a constant."""

HOW = {
    "head": "",
    "mean": r" Shown is the mean over heads, $\bar A = \frac1H \sum_h A_h$.",
    "rollout": r" Shown is the rollout $\hat A_l \cdots \hat A_0$ of $\hat A = \frac12 (\bar A + I)$ "
    "(Abnar & Zuidema 2020): an accounting of paths, not a measurement.",
}


def attending(view: View) -> tuple[Side, ...]:
    """The sides whose chosen layer has attention. For the others the reason stands on the page, and a way on."""
    for side in view.sides:
        if side.block.heads:
            continue
        why = side.block.unavailable(side.score) if any(map(side.attends, range(side.layers))) else NONE
        st.info(f"{widgets.plain(side.title)}: {widgets.plain(why)}.")
        near = min((n for n in range(side.layers) if side.attends(n)), key=lambda n: abs(n - side.layer), default=None)
        if near is not None and st.button(f"Go to layer {near}, which has attention", key=f"near-{side.name}"):
            widgets.open_head(view, side, near, 0)
    return tuple(side for side in view.sides if side.block.heads)


def missing_scores(side: Side) -> str:
    """Why only the model's own attention is offered; empty where every score can be had."""
    why = side.block.unavailable("riemannian")
    return f"Only {side.score_title(side.score)} attention can be shown here: {why}." if why else ""


def draw_maps(side: Side, panels: MapPanels, choice: Choice, key: str) -> None:
    """The component, its caption with the equations, the exports of its twin, and the entropy curves."""
    picked = attention_maps(panels, key=key)
    formulas = "; ".join(
        f"{side.score_title(name)}: $s_{{ij}} = {formula(side, name)}$"
        for name in dict.fromkeys((choice.left, choice.right))
    )
    caption = (
        rf"$a_{{ij}} = \operatorname{{softmax}}_j s_{{ij}}$, rows $i$ are queries, columns $j$ keys. {formulas}."
        f"{HOW[choice.view]}{between(choice)} Beside each map the entropy of its rows. Wheel zooms, drag pans, double "
        f"click shows all, a click selects the query everywhere.{widgets.plain(lost(side, choice))}"
    )
    if panels.pooled:
        caption += f" The exports hold the largest of each {panels.factor} × {panels.factor} token pairs."
    _below(panels, key, caption)
    draw_patches(panels, key)
    if picked:
        widgets.select_token(picked[0])


def between(choice: Choice) -> str:
    """What else than the metric stands between two scores, a sentence; empty where nothing does."""
    if {choice.left, choice.right} != {"euclidean", "riemannian"}:
        return ""
    return (
        r" Between these two stands the key's norm, $-\lVert k_j \rVert^2 / \tau$, as well as the metric: "
        "against L2, the same score with $g = I$, the metric stands alone."
    )


def formula(side: Side, score: str) -> str:
    """The score's equation; of a model of the library, with what it adds to its dot product."""
    factors = side.block.factors
    if not side.foreign or score != side.score:
        return SCORES[score].formula
    if factors is None:
        return r"\text{what the model computes}"
    dot = r"c\, q_i \cdot k_j" if factors.softcap is None else r"b \tanh(c\, q_i \cdot k_j / b)"
    values = "" if factors.scale is None else rf",\ c = {float(factors.scale[side.head]):.4g}"
    values += "" if factors.softcap is None else rf",\ b = {factors.softcap:g}"
    finite = factors.mask is not None and bool((factors.mask.isfinite() & (factors.mask != 0)).any())
    return dot + (" + m_{ij}" if finite else "") + values


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


def draw_patches(panels: MapPanels, key: str) -> None:
    """The selected query's row on the picture, for a model that sees one."""
    if patch_grid(panels.columns) is None or panels.selected is None or panels.pooled:
        return
    widgets.show(
        patches_figure(panels, panels.selected, widgets.is_dark()), lambda: table(panels), f"{key}-patches",
        "The selected row of the maps above, each key at its patch's place; tokens before the patches are left out, so "
        "the cells need not sum to 1. A click on a row above chooses another query.",
        f"{panels.name}-patches",
    )  # fmt: skip


def draw_own(view: View, choice: Choice) -> None:
    """Each model's own attention and B minus A, or why there is none."""
    st.subheader("A against B, each with its own score", anchor=False)
    panels = own_panels(view, choice, view.token)
    if isinstance(panels, str):
        st.info(f"No difference between A and B: {panels}. Their maps stand below, on the same scales.")
        return
    picked = attention_maps(panels, key="maps-own")
    text = "Each model's attention under its own score, and B minus A. Equal head numbers need not mean equal roles."
    _below(panels, "maps-own", text)
    if picked:
        widgets.select_token(picked[0])


def draw_atlas(view: View, side: Side, choice: Choice, shown: HeadAtlas) -> None:
    """All heads of a side; a click opens one."""
    picked = head_atlas(shown, key=f"atlas-{side.name}")
    caption = "Every head of every layer, max-pooled so that no hot cell is lost; masked cells have the page's colour."
    dark = widgets.is_dark()
    widgets.below(
        f"atlas-{side.name}", lambda: atlas_figure(shown, dark), lambda: variation_table(side, choice), caption,
        shown.name, seen=False,
    )  # fmt: skip
    if picked:
        widgets.open_head(view, side, *picked)


def draw_ranking(view: View, side: Side, choice: Choice) -> None:
    """Heads by how far the two scores lead them apart; choosing a row opens that head."""
    rows = variation(side, choice)
    largest = np.where(np.isnan(rows), -1.0, rows).argmax(-1)
    frame = ranked({"mean": rows.mean(-1), "largest": rows.max(-1), "at query": largest})
    there = [head < side.trace.layers[layer].heads for layer, head in zip(frame["layer"], frame["head"], strict=True)]
    frame = frame[np.array(there)].reset_index(drop=True)
    names = [widgets.plain(choice.title(side, score)) for score in (choice.left, choice.right)]
    st.markdown(f"**Heads by total variation**, {names[0]} against {names[1]}")
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
        widgets.open_head(view, side, int(row["layer"]), int(row["head"]))
    if not chosen:
        st.session_state.pop(f"{key}-opened", None)


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
