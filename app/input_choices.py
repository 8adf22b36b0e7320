"""What the models read: the sidebar's text, a decoder's own text, a picture, and what a tokenizer made of it."""

from __future__ import annotations

import streamlit as st

from app import inputs, pictures
from app.inputs import EXAMPLE, FEW_IDS
from app.run import DEFAULT_TEXT, STACKS, Run
from app.run_state import value
from fbt_core.checkpoints import Checkpoint
from fbt_core.tokenizer import Encoding, visible

TAKEN = "_picture"
"""Session state: the last uploaded picture's name in Streamlit, so that it is chosen once."""

STACK_TITLES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross"}


def draw(run: Run, loaded: list[Checkpoint]) -> Run:
    """Text or picture, as the models that are open read it."""
    seeing = [checkpoint for checkpoint in loaded if inputs.sees_pictures(checkpoint)]
    if not loaded or any(checkpoint.config is not None for checkpoint in loaded if checkpoint not in seeing):
        run = _text(run, loaded)
    if seeing:
        run = _picture(run)
    if any(len(inputs.stacks_of(checkpoint)) > 1 for checkpoint in loaded):
        run = _stack(run)
    return run


def _text(run: Run, loaded: list[Checkpoint]) -> Run:
    """The text, and a sentence of the training grammar, or a plain one, at a click."""
    bare = bool(loaded) and inputs.reads_ids(loaded[0])
    foreign = bool(loaded) and inputs.is_foreign(loaded[0])
    text = st.text_area(
        "Token ids" if bare else "Text", key=value(run, "text"), height=110, max_chars=40_000,
        placeholder=FEW_IDS if bare else DEFAULT_TEXT,
    )  # fmt: skip
    with st.container(horizontal=True, gap="xsmall"):
        if bare:
            st.button("Use a few ids", on_click=_set_text, args=(FEW_IDS,), key="sample")
        elif foreign:
            st.button("Use an example", on_click=_set_text, args=(EXAMPLE,), key="sample", help=f"“{EXAMPLE}”")
        else:
            st.button("Sample a sentence", on_click=_sample, key="sample")
        st.button("Clear", on_click=_set_text, args=("",), key="clear")
    run = run.change(text=text)
    if not run.text_fits:
        st.caption("This text is too long for a URL: a copied link opens everything but the text.")
    return run


def _sample() -> None:
    from fbt_core.training.grammar import sample_text

    seed = st.session_state.get("_samples", 0)
    st.session_state["_samples"] = seed + 1
    _set_text(sample_text(seed))


def _set_text(text: str) -> None:
    st.session_state["run-text"] = text


def _stack(run: Run) -> Run:
    """Which attention of an encoder-decoder, and what its decoder reads."""
    chosen = st.segmented_control(
        "Attention", list(STACKS[1:]), key=value(run, "stack", STACKS[1:]), format_func=STACK_TITLES.__getitem__,
        required=True, width="stretch",
    )  # fmt: skip
    target = st.text_area(
        "Text of the decoder", key=value(run, "target"), height=70, max_chars=20_000,
        placeholder="the text itself, shifted right",
    )  # fmt: skip
    return run.change(stack=chosen or run.stack, target=target)


def _picture(run: Run) -> Run:
    """An uploaded picture, or one that the app draws."""
    uploaded = st.session_state.get("picture")
    if uploaded is not None and st.session_state.get(TAKEN) != uploaded.file_id:
        st.session_state[TAKEN] = uploaded.file_id
        try:
            st.session_state["run-image"] = pictures.take(uploaded.getvalue())
        except ValueError as fault:
            st.caption(str(fault))
    now = st.session_state.get("run-image") or run.image or next(iter(pictures.SAMPLES))
    options = list(dict.fromkeys([*pictures.SAMPLES, now]))
    st.session_state["run-image"] = now
    titles = {name: pictures.SAMPLES.get(name, "the uploaded picture") for name in options}
    chosen = st.selectbox("Picture", options, key="run-image", format_func=titles.__getitem__)
    if not pictures.known(chosen):
        st.caption("The picture of this link is not on this server: upload it; until then a sample stands in for it.")
    st.image(pictures.picture(chosen), width=150)
    st.file_uploader("Another picture", type=["png", "jpg", "jpeg"], key="picture", max_upload_size=8)
    return run.change(image=chosen)


def notices(text: str, names: list[str], encoded: list[tuple[Encoding, int]]) -> None:
    """Under the text: what was cut, and which words a tokenizer does not know."""
    for name, (encoding, total) in zip(names, encoded, strict=True):
        if total > len(encoding.tokens):
            st.warning(f"{name}: the first {len(encoding.tokens):,} of {total:,} tokens are used.")
        words = unknown_words(text, encoding)
        if words:
            st.caption(f"{name} has no word for these, and spells them:")
            st.text(" ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else ""))


def unknown_words(text: str, encoding: Encoding) -> list[str]:
    """The stretches of the text that this tokenizer spells in pieces, each once, in order."""
    stretches: list[list[int]] = []
    for (start, end), new in zip(encoding.offsets, encoding.unknown, strict=True):
        if new and stretches and stretches[-1][1] >= start:
            stretches[-1][1] = end
        elif new:
            stretches.append([start, end])
    words = " ".join(text[start:end] for start, end in stretches).split()
    return list(dict.fromkeys("".join(map(visible, word)) for word in words))
