"""What is loaded, the text as its tokens, what the model expects next, and a small picture of every other page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import answers, frame, inputs, inspection, multiples, summary, token_measures, traces, widgets
from app.choices import start
from app.components.token_strip import token_strip
from app.figures.tokens import Scale, bars, scale_of
from app.predictions import predictions
from app.side import Side
from app.view import View
from fbt_core.tokenizer import Tokenizer

NOTICES = 3
"""Sentences about a file that stand on the page; the rest are among everything about it."""

SPACES = "Ġ▁"
"""How byte-level and SentencePiece vocabularies write a leading space."""


def loaded(view: View) -> None:
    """A row of large numbers a side, and everything else on demand."""
    for side in view.sides:
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                head = widgets.plain(summary.headline(side.checkpoint))
                st.markdown(f"**{widgets.plain(side.title)}** · {head}", width="content")
                with st.popover(
                    "Everything about it", type="tertiary", key=f"about-{side.name}", on_change="rerun"
                ) as about:
                    if about.open:
                        everything(side)
            numbers = summary.figures(side.checkpoint)
            with st.container(horizontal=True, gap="large"):
                for title, (value, beside) in numbers.items():
                    with st.container(width="content", gap=None):
                        st.metric(title, value, width="content")
                        st.caption(beside, width="content")
            if side.what_if_forward:
                st.caption("These figures are the training's own, at metric strength 1.")
            for notice in summary.notices(side.checkpoint)[:NOTICES]:
                st.caption(widgets.plain(notice))


def everything(side: Side) -> None:
    """All that is known of a checkpoint: its model, its training, its file's headers."""
    check = traces.self_check(side.request.bare) if side.foreign else None
    rows = summary.describe(side.checkpoint, check)
    table = pd.DataFrame({"property": rows.keys(), "value": rows.values()})
    st.dataframe(table, hide_index=True, width=620, height=36 * min(len(table) + 1, 15))
    for notice in summary.notices(side.checkpoint)[NOTICES:]:
        st.caption(widgets.plain(notice))
    inspection.card(side.request.reference, f"overview-{side.name}")


def checked(view: View) -> None:
    """How far each traced pass is from the library's own: wrong numbers would otherwise be silent."""
    for side in view.sides:
        if side.foreign and (check := traces.self_check(side.request.bare)) is not None:
            name = f"{side.name}: " if view.compare else ""
            apart = "are equal to the last bit"
            if check.difference:
                apart = f"differ by at most {check.difference:.1e}, where the largest value is {check.largest:.3g}"
            st.caption(
                f"{name}Self-check: on {check.tokens} tokens the traced {check.of} and the library's own forward "
                f"pass ({check.way} attention) {apart}."
            )


@st.fragment
def text(view: View) -> None:
    """The token strips, one colour scale for both sides."""
    with frame.guard():
        choices = token_measures.choices(view)
        name = st.selectbox(
            "Colour tokens by", choices, index=start("colour", choices, token_measures.usual(view)),
            key="colour", format_func=token_measures.CHOICES.__getitem__, bind="query-params", width=360,
        )  # fmt: skip
        values = [token_measures.values(side, name) for side in view.sides]
        scale = scale_of(*values)
        for side, numbers in zip(view.sides, values, strict=True):
            where = "" if name == token_measures.LOSS else f", layer {side.layer}, head {side.head}"
            labelled = token_measures.what_if(side, name)
            title = " · ".join(filter(None, [f"{side.title}: {token_measures.CHOICES[name]}{where}", labelled]))
            strip(view, side, numbers, scale, title, f"strip-{side.name}")
            st.caption(widgets.plain(read_as(side)))
        if view.compare and view.mismatch is None:
            difference = values[1] - values[0]
            notes = dict.fromkeys(token_measures.what_if(side, name) for side in view.sides)
            title = " · ".join(filter(None, [f"B − A: {token_measures.CHOICES[name]}", *notes]))
            strip(view, view.a, difference, scale_of(difference, diverging=True), title, "strip-difference")
        elif view.compare:
            st.caption(f"No difference: {view.mismatch}.")
        titles = [" · ".join(filter(None, [side.title, token_measures.what_if(side, name)])) for side in view.sides]
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
        side.tokens, encoding.ids, encoding.unknown, values, scale, title=title, selected=view.token, key=key,
        raw=encoding.raw, marked=view.marked,
    )  # fmt: skip
    if picked is not None:
        widgets.select_token(picked)


def read_as(side: Side) -> str:
    """What the model was given: how many tokens, and what its tokenizer adds of its own."""
    count = f"{len(side.tokens):,} tokens"
    if inputs.sees_pictures(side.checkpoint):
        return f"{count}: the patches of the picture, row by row, and what the model puts before them."
    if inputs.reads_ids(side.checkpoint):
        return f"{count}, typed as ids: this checkpoint has no tokenizer."
    first = " Its decoder begins with the first token shown." if side.request.stack in ("decoder", "cross") else ""
    return f"{count}; the tokenizer {side.checkpoint.tokenizer.policy}.{first} Hover for ids and raw tokens."


def expected(view: View) -> None:
    """The likeliest continuations of every prefix and the loss of every token."""
    st.subheader("What the model expects next", anchor=False)
    for column, side in zip(st.columns(len(view.sides)), view.sides, strict=True):
        with column:
            if side.forward.logits is None:
                who = "the encoder predicts no token: look at the decoder"
                why = who if side.request.stack == "encoder" else "this model predicts no token: nothing to expect"
                st.caption(widgets.plain(f"{side.title}: {why}."))
            else:
                continuations(view, side)
    if any(side.forward.logits is not None for side in view.sides):
        if not all(side.causal for side in view.sides if side.forward.logits is not None and side.block.factors):
            st.caption("A model that reads in both directions lets a token see itself: these are no forecasts.")
        st.caption(
            f"{token_measures.LOSS_CAPTION} `next k`: the k-th likeliest token after this one, and its probability."
        )


def continuations(view: View, side: Side) -> None:
    """One side's table."""
    guess = answers.derived(side.request.bare, predictions, count=5)
    mean = f"{guess.mean_loss:.3f} nats a token" if len(guess.loss) > 1 else "needs two tokens"
    note = f" · :orange[{side.what_if_forward}]" if side.what_if_forward else ""
    st.markdown(f"**{widgets.plain(side.title)}** · mean loss {mean}{note}")
    tokenizer = side.checkpoint.tokenizer
    rows = {"token": side.tokens, "loss (nats)": guess.loss}
    if side.name == "B" and view.mismatch is None and view.a.forward.logits is not None:
        rows["B − A"] = guess.loss - answers.derived(view.a.request.bare, predictions, count=5).loss
    for rank in range(guess.ids.shape[1]):
        pairs = zip(guess.ids[:, rank], guess.probabilities[:, rank], strict=True)
        rows[f"next {rank + 1}"] = [f"{label_of(tokenizer, int(index))}  {chance:.3f}" for index, chance in pairs]
    table = pd.DataFrame(rows)
    st.dataframe(table, height=35 * (min(len(table), 12) + 1) + 3, key=f"next-{side.name}")


def label_of(tokenizer: Tokenizer | None, token: int) -> str:
    """A token as the vocabulary writes it, its leading space as one sees it."""
    written = f"id {token}" if tokenizer is None else tokenizer.label(token)
    return f"␣{written[1:]}" if written[:1] in SPACES and len(written) > 1 else written


view = frame.open_page("Overview")
loaded(view)
line = st.container()
text(view)
multiples.draw(view)
expected(view)
with line:  # above on the page, but last: the figures are what one waits for
    checked(view)
widgets.footnotes(view)
st.page_link("pages/glossary.py", label="What each symbol means →")
