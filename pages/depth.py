"""Rank and spread of the residual stream, attention and metric by depth: what the layers make of the tokens."""

from __future__ import annotations

import streamlit as st

from app import ablation, depth, depth_results, frame, uploads, widgets
from app.depth_panels import difference_panel, residual_panel, spread_panel
from app.view import View
from fbt_core.measures import MEASURES

ATTENTION = [name for name in depth.SPREAD if "score" in MEASURES[name].options or "score_a" in MEASURES[name].options]
METRIC = [name for name in depth.SPREAD if name not in ATTENTION]


def title_of(name: str) -> str:
    """The measure's name for people."""
    return MEASURES[name].title


@st.fragment
def residual(view: View) -> None:
    """The residual stream: one chosen measure, and Dong's residual on a log axis, under the same choices."""
    with frame.guard():
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.selectbox(
                "Measure of the residual stream", depth.RESIDUAL, key="measure", bind="query-params", width=260,
                format_func=title_of,
            )  # fmt: skip
            tokens = st.segmented_control(
                "Tokens", ["raw", "centred", "unit"], default="raw", required=True, key="tokens", bind="query-params"
            )
            sinks = st.segmented_control(
                "Sink tokens", ["kept", "left out"], default="kept", required=True, key="sinks", bind="query-params",
                help="A sink's norm exceeds 5 times the median norm of its layer: it can make rank look collapsed.",
            )  # fmt: skip
            stage = st.segmented_control(
                "Read", list(depth.STAGES), default="out", required=True, key="stage", bind="query-params",
                format_func=depth.STAGES.__getitem__,
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="bottom"):
            others = [reference for reference in uploads.demos() if reference not in view.run.references]
            also = st.multiselect(
                "Also draw", others, key="also", format_func=uploads.label_of, width=420, bind="query-params",
                placeholder="bundled checkpoints",
            )  # fmt: skip
            texts = st.number_input(
                "Sampled texts for a band", 0, 64, 0, step=8, key="texts", bind="query-params", width=220,
                help="0 draws your text; else the mean over that many sampled passages and its bootstrap interval.",
            )  # fmt: skip
        options = {"tokens": tokens, "sinks": sinks}
        left, right = st.columns(2)
        with left:
            residual_panel(view, tuple(also), name, stage, int(texts), options, key="residual")
        with right:
            residual_panel(view, tuple(also), "dong_residual", stage, int(texts), options, key="dong", log=True)
        if view.compare:
            difference_panel(view, name, stage, options)


@st.fragment
def spread(view: View) -> None:
    """Attention and the metric: mean and spread over heads and tokens."""
    with frame.guard():
        left, right = st.columns(2)
        with left:
            name = st.selectbox(
                "Attention", ATTENTION, key="attention", format_func=title_of, bind="query-params", width=320
            )
            spread_panel(view, name, key="attention-by-layer")
        with right:
            if not any(side.has_metric for side in view.sides):
                st.caption("No metric here, $g = I$. Choose one in the sidebar, under Metric, for a what-if.")
                return
            name = st.selectbox("Metric", METRIC, key="metric", format_func=title_of, bind="query-params", width=320)
            spread_panel(view, name, key="metric-by-layer")


@st.fragment
def ablated(view: View) -> None:
    """What is left of the model's depth when parts of it are left out."""
    with frame.guard():
        tokens, sinks = (st.session_state.get(key, usual) for key, usual in (("tokens", "raw"), ("sinks", "kept")))
        ablation.draw(view, {"tokens": tokens, "sinks": sinks})


@st.fragment
def many() -> None:
    """A results file of many checkpoints, as one figure."""
    with frame.guard():
        depth_results.draw()


view = frame.open_page("Depth")
residual(view)
spread(view)
ablated(view)
many()
widgets.footnotes(view)
