"""The sidebar's metric: where it comes from for models that have none, its rank and its strength."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import intake, metrics, uploads
from app.intake_spool import take
from app.intake_store import STORE
from app.run import MAXIMUM_RANK, MAXIMUM_STRENGTH, Run
from app.run_state import number
from app.widgets import plain
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError

FILE = "_adapter_file"
"""Session state: the last adapter file that was taken, so that it is taken once."""

DRAWN = "_drawn_source"
"""Session state: the run's source as this chooser left it."""


def draw(run: Run, loaded: list[Checkpoint]) -> tuple[Run, Any]:
    """The run, and a place for the reasons why a source cannot be had, which are known once the model has run."""
    models = [checkpoint.config for checkpoint in loaded if checkpoint.config is not None]
    place = None
    if any(not config.has_metric for config in models):
        run, place = _source(run)
    if run.source or any(config.has_metric for config in models):
        trained = any(config.has_metric for config in models)
        run = run.change(strength=_strength(run, trained))
    return run, place


def _source(run: Run) -> tuple[Run, Any]:
    st.session_state.setdefault("run-source", run.source)
    options, wanted = ["", *metrics.OFFERED], st.session_state["run-source"]
    if wanted != st.session_state.get(DRAWN) or "metric-source" not in st.session_state:
        now = metrics.kind(wanted)  # of a link or of the back button; else what was just picked stands
        st.session_state["metric-source"] = now if now in options else ""
    name = st.selectbox(
        "Metric, for a model without one", options, key="metric-source", format_func=metrics.title,
        help="Everything but none is a what-if: the model was not trained with this metric, and does not run with it.",
    )  # fmt: skip
    place = st.empty()
    source = name
    if name == metrics.ADAPTER:
        source = _adapter(run)
    st.session_state["run-source"] = st.session_state[DRAWN] = source
    run = run.change(source=source)
    if name and name not in ("identity", metrics.ADAPTER):
        run = run.change(
            rank=st.slider("Rank of the metric", 1, MAXIMUM_RANK, key=number(run, "rank", 1, MAXIMUM_RANK))
        )
    return run, place


def _adapter(run: Run) -> str:
    """The source of an adapter's file, once there is one."""
    uploaded = st.file_uploader(
        "Adapter file", type=["safetensors"], key="adapter-file", help="Made by `python -m fbt_core adapt`."
    )  # fmt: skip
    if uploaded is not None and st.session_state.get(FILE, ("",))[0] != uploaded.file_id:
        try:
            held = STORE.hold([take(STORE, uploaded, uploaded.name)], intake.session())
            st.session_state[FILE] = (uploaded.file_id, held.reference)
        except CheckpointError as fault:
            st.text(intake.described(fault))
    reference = st.session_state.get(FILE, ("", ""))[1] or run.source.partition(":")[2]
    if not reference:
        st.caption("Choose an adapter's file; until then there is no metric.")
        return ""
    st.caption(plain(uploads.label_of(reference)))
    return f"{metrics.ADAPTER}:{reference}"


def _strength(run: Run, trained: bool) -> float:
    """c of U <- c U."""
    run = run.change(strength=float(run.strength))
    usual = "the metric as trained" if trained else "mean tr K = 1 a layer"
    help_text = f"U is multiplied by this. 1 is {usual}; anything else is a what-if, and figures say so."
    shown = st.slider(
        "Metric strength", 0.0, MAXIMUM_STRENGTH, step=0.05, key=number(run, "strength", 0.0, MAXIMUM_STRENGTH),
        help=help_text,
    )  # fmt: skip
    if shown != 1.0 and trained:
        st.caption(f"What-if: the metric at {shown:g} of its trained strength.")
    return shown


def tell(place: Any, reasons: dict[str, str]) -> None:
    """Which sources this model cannot have, and why."""
    if place is not None and reasons:
        names = {why: [metrics.title(name) for name in reasons if reasons[name] == why] for why in reasons.values()}
        words = " ".join(f"{', '.join(titles)}: {why}." for why, titles in names.items())
        place.caption(plain(f"Not to be had here. {words}"))
