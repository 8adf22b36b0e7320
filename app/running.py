"""From a view that was asked for to one that can be drawn: its models run, or the page says in a sentence why not."""

from __future__ import annotations

import logging
from dataclasses import replace

import streamlit as st
import torch

from app import inspection, metric_choices, metrics, traces, widgets
from app.side import Side
from app.view import View
from fbt_core.checkpoints import CheckpointError
from fbt_core.checkpoints.memory import give_back

LONGEST = 600
"""Characters of a fault's message that are shown."""


def ran(view: View) -> View | None:
    """The view with the sides that could be run, each inside the layers and heads that it truly has; None without A."""
    sides = []
    for side in view.sides:
        if side.missing:
            why, detail = side.missing, ""
        else:
            found, why, detail = _ran(side)
            if found is not None:
                sides.append(found)
                continue
        _refused(side, why, detail, view.compare)
        if side.name == "A":
            return None
    view = replace(view, sides=tuple(sides))
    _tell(view)
    return view


def _ran(side: Side) -> tuple[Side | None, str, str | BaseException]:
    """The side once its model has run, or None, why not, and the fault: its own words, or that memory ran out."""
    try:
        trace = side.forward
    except ValueError as fault:
        return None, "The model cannot run on this input.", str(fault)
    except (MemoryError, torch.OutOfMemoryError) as fault:
        return None, "There is not enough memory to run the model.", fault
    except Exception as fault:  # whatever the model's own code may raise
        logging.getLogger(__name__).exception("a model failed")
        return None, "The model could not be run.", f"{type(fault).__name__}: {fault}"
    layer = min(side.layer, len(trace.layers) - 1)
    head = min(side.head, max(trace.layers[layer].heads - 1, 0))
    return _with_source(replace(side, layer=layer, head=head)), "", ""


def _with_source(side: Side) -> Side:
    """The side with its metric made, or without one and the reason on the page."""
    if not side.request.source:
        return side
    bare = replace(side, request=side.request.bare)
    reason = traces.reasons(bare.request).get(metrics.kind(side.request.source), "")
    try:
        if not reason:
            traces.trace(side.request)
            return side
    except (ValueError, CheckpointError) as fault:
        reason = str(fault)
    st.info(
        widgets.plain(
            f"{side.title} stands without the {metrics.title(metrics.kind(side.request.source))} metric: {reason}."
        )
    )
    return bare


def _refused(side: Side, why: str, detail: str | BaseException, compare: bool) -> None:
    """Why a side is not drawn. Weights can be looked at all the same."""
    name = f"Checkpoint {side.name}, {widgets.plain(side.label)}: " if compare else ""
    st.info(f"{name}{widgets.plain(why)}")
    if isinstance(detail, BaseException):
        short_of_memory(detail)
    elif detail:
        st.text(detail[:LONGEST])
    if side.checkpoint.config is None or detail:
        st.page_link("pages/weights.py", label="Its weights: tensors, spectra, norms →")
    if side.checkpoint.config is None:
        inspection.card(side.request.reference, f"weights-{side.name}")


def short_of_memory(fault: BaseException) -> None:
    """What was asked for, what helps, and what was taken in vain given back."""
    st.text(f"{str(fault)[:LONGEST]}\nShorten the text, or open a smaller checkpoint.")
    if st.session_state.get("run-device", "cpu") != "cpu":
        st.button("Run on the CPU", on_click=_on_the_cpu)
    give_back()


def _on_the_cpu() -> None:
    st.session_state[widgets.PENDING] = {"device": "cpu"}


def _tell(view: View) -> None:
    """In the sidebar: what the chosen layer is, where layers differ, and which metrics cannot be had."""
    notes = [f"{side.name + ': ' if view.compare else ''}{kind_of(side)}" for side in view.sides if _varied(side)]
    if notes and view.layer_note is not None:
        view.layer_note.caption(widgets.plain("; ".join(notes)))
    bare = next((side for side in view.sides if not side.checkpoint.config.has_metric), None)
    if bare is not None and view.source_note is not None:
        metric_choices.tell(view.source_note, traces.reasons(bare.request.bare))


def _varied(side: Side) -> bool:
    """Whether the layers are not all alike."""
    return side.foreign and len({(layer.kind, layer.heads) for layer in side.forward.layers}) > 1


def kind_of(side: Side) -> str:
    """``layer 3: mamba``, ``layer 4: attention, 8 heads``."""
    block = side.forward.layers[side.layer]
    heads = f", {block.heads} heads" if block.heads else ""
    return f"layer {block.index}: {block.kind}{heads}"
