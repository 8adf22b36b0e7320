"""What is loaded, the text as its tokens, what the model expects next, and a small picture of every other page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import frame, multiples, summary, token_measures, widgets
from app.components.token_strip import token_strip
from app.figures.tokens import Scale, bars, scale_of
from app.predictions import predictions
from app.view import Side, View


def loaded(view: View) -> None:
    """A row of large numbers a side, and everything else on demand."""
    for side in view.sides:
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                st.markdown(f"**{widgets.plain(side.title)}** · {summary.headline(side.checkpoint)}", width="content")
                with st.popover("Everything about it", type="tertiary"):
                    rows = summary.describe(side.checkpoint)
                    table = pd.DataFrame({"property": rows.keys(), "value": rows.values()})
                    st.dataframe(table, hide_index=True, width=620, height=36 * min(len(table) + 1, 15))
            numbers = summary.figures(side.checkpoint)
            with st.container(horizontal=True, gap="large"):
                for title, (value, beside) in numbers.items():
                    with st.container(width="content", gap=None):
                        st.metric(title, value, width="content")
                        st.caption(beside, width="content")
            if side.what_if:
                st.caption("These figures are the training's own, at metric strength 1.")


@st.fragment
def text(view: View) -> None:
    """The token strips, one colour scale for both sides."""
    with frame.guard():
        choices = list(token_measures.CHOICES)
        default = choices.index("trace_k") if view.a.has_metric else 0
        name = st.selectbox(
            "Colour tokens by", choices, index=default, key="colour", format_func=token_measures.CHOICES.__getitem__,
            bind="query-params", width=360,
        )  # fmt: skip
        values = [token_measures.values(side, name) for side in view.sides]
        scale = scale_of(*values)
        for side, numbers in zip(view.sides, values, strict=True):
            where = "" if name == token_measures.LOSS else f", layer {side.layer}, head {side.head}"
            title = " · ".join(filter(None, [f"{side.title}: {token_measures.CHOICES[name]}{where}", side.what_if]))
            strip(view, side, numbers, scale, title, f"strip-{side.name}")
        if view.compare and view.mismatch is None:
            difference = values[1] - values[0]
            title = " · ".join(filter(None, [f"B − A: {token_measures.CHOICES[name]}", view.what_if]))
            strip(view, view.a, difference, scale_of(difference, diverging=True), title, "strip-difference")
        elif view.compare:
            st.caption(f"No difference: {view.mismatch}.")
        titles = [" · ".join(filter(None, [side.title, side.what_if])) for side in view.sides]
        drawn = dict(zip(titles, values, strict=True))
        shared = view.a.tokens if not view.compare or view.mismatch is None else ()
        where = "" if name == token_measures.LOSS else f"layer {view.a.layer}, head {view.a.head} of A"
        below = " ".join(filter(None, [token_measures.caption(name), view.mapping]))
        widgets.below(
            "strip", lambda: bars(shared, drawn, where, token_measures.CHOICES[name]),
            lambda: token_measures.table(view, drawn), below, f"tokens-{name}", seen=False,
        )  # fmt: skip


def strip(view: View, side: Side, values: np.ndarray, scale: Scale, title: str, key: str) -> None:
    """One strip; a click selects the token on every page."""
    encoding = side.encoding
    picked = token_strip(
        side.tokens, encoding.ids, encoding.unknown, values, scale, title=title, selected=view.token, key=key
    )
    if picked is not None:
        widgets.select_token(picked)


def expected(view: View) -> None:
    """The likeliest continuations of every prefix and the loss of every token."""
    st.subheader("What the model expects next", anchor=False)
    found = [side.derived(predictions, count=5) for side in view.sides]
    for column, side, guess in zip(st.columns(len(found)), view.sides, found, strict=True):
        with column:
            mean = f"{guess.mean_loss:.3f} nats a token" if len(guess.loss) > 1 else "needs two tokens"
            note = f" · :orange[{side.what_if}]" if side.what_if else ""
            st.markdown(f"**{widgets.plain(side.title)}** · mean loss {mean}{note}")
            label = side.checkpoint.tokenizer.label
            rows = {"token": side.tokens, "loss (nats)": guess.loss}
            if side.name == "B" and view.mismatch is None:
                rows["B − A"] = guess.loss - found[0].loss
            for rank in range(guess.ids.shape[1]):
                pairs = zip(guess.ids[:, rank], guess.probabilities[:, rank], strict=True)
                rows[f"next {rank + 1}"] = [f"{label(int(index))}  {chance:.3f}" for index, chance in pairs]
            table = pd.DataFrame(rows)
            st.dataframe(table, height=35 * (min(len(table), 12) + 1) + 3, key=f"next-{side.name}")
    if not view.a.checkpoint.config.causal:
        st.caption("This model reads in both directions: a token may see itself, so these are no forecasts.")
    st.caption(f"{token_measures.LOSS_CAPTION} `next k`: the k-th likeliest token after this one, and its probability.")


view = frame.open_page("Overview")
loaded(view)
text(view)
multiples.draw(view)
expected(view)
st.page_link("pages/glossary.py", label="What each symbol means →")
