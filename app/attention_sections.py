"""The maps on the attention page, with their captions and exports; every head and the terms stand beside this file."""

from __future__ import annotations

import streamlit as st

from app import widgets
from app.attention import lost, own_panels
from app.attention_choice import Choice
from app.attention_words import HOW, between, formula
from app.components.attention_maps import attention_maps
from app.figures.map_figures import attention_figure, entropy_figure
from app.figures.map_patches import patch_grid, patches_figure
from app.figures.maps import MapPanels, table
from app.side import Side
from app.view import View

NONE = "no layer of this model has attention; its depth, and its weights, can be looked at"


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
