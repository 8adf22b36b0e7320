"""The sidebar: it builds the ``Run``, keeps it in step with the URL, and opens the sides of the view."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import cache, intake, uploads
from app.run import DEFAULT_TEXT, MATCHES, MAXIMUM_STRENGTH, Run
from app.view import Side, View
from app.widgets import PENDING
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.tokenizer import Encoding, visible

RUN = "run"
"""Session state: the run of this session, whether or not its widgets are drawn."""


def draw() -> View | None:
    """Everything in the sidebar. None when there is nothing to show; the reason is then on the page."""
    run = _begin()
    with st.sidebar:
        run = _checkpoints(run)
        intake.draw()
        run = _text(run)
    _settle(run)
    intake.show_problem()
    opened = [(name, reference, _load(name, reference)) for name, reference in zip("AB", run.references, strict=False)]
    if opened[0][2] is None:
        return None
    sides = [(name, reference, loaded) for name, reference, loaded in opened if loaded is not None]
    encoded = [cache.encoding(reference, run.text) for _, reference, _ in sides]
    with st.sidebar:
        if len(sides) > 1:
            counts = " · ".join(f"{name} {loaded.parameters:,}" for name, _, loaded in sides)
            st.caption(f"Parameters: {counts}")
        _notices(run.text, [encoding for encoding, _ in encoded], [total for _, total in encoded])
        run = _place(run, [loaded for *_, loaded in sides], encoded[0][0].tokens)
    _settle(run)
    if not run.text.strip():
        st.info("Write a text in the sidebar, or sample a sentence, to see what the model makes of it.")
        return None
    first = sides[0][2]
    return View(
        run, tuple(_side(run, *side, encoding, first) for side, (encoding, _) in zip(sides, encoded, strict=True))
    )


def _begin() -> Run:
    """The run so far: of the URL in a new session or after the back button, else the last one with what was picked."""
    context = get_script_run_ctx()
    back = context is not None and getattr(context, "is_history_navigation", False)
    if RUN not in st.session_state or back:
        run = Run.from_query(st.query_params.to_dict())
        _write(run)
    else:
        run = st.session_state[RUN]
    picked = st.session_state.pop(PENDING, {})
    if picked:
        run = run.change(**picked)
        _write(run)
    return run


def _write(run: Run) -> None:
    """Make every widget show the run, and forget what it showed."""
    for name, value in vars(run).items():
        st.session_state[f"run-{name}"] = value


def _settle(run: Run) -> None:
    """Remember the run and put it in the URL; parameters of a page's own stay."""
    st.session_state[RUN] = run
    query, shown = run.to_query(), st.query_params.to_dict()
    for name in vars(run):
        if shown.get(name) != query.get(name):
            if name in query:
                st.query_params[name] = query[name]
            else:
                st.query_params.pop(name, None)


def _value(run: Run, name: str, allowed: list[Any] | tuple[Any, ...] | None = None) -> str:
    """The widget key of a field, its state made valid: what the user just set, else the run's."""
    key = f"run-{name}"
    value = st.session_state.get(key, getattr(run, name))
    if allowed is not None and value not in allowed:
        value = getattr(run, name) if getattr(run, name) in allowed else allowed[0]
    st.session_state[key] = value
    return key


def _checkpoints(run: Run) -> Run:
    """Checkpoint A, and B or nothing. A link's unknown file stays an option, so that nothing is lost."""
    known = [*uploads.demos(), *(upload.reference for upload in intake.mine())]
    options = list(dict.fromkeys([*known, *run.references]))
    label = uploads.label_of
    a = st.selectbox("Checkpoint A", options, key=_value(run, "a", options), format_func=label)
    b = st.selectbox(
        "Compare with checkpoint B", ["", *options], key=_value(run, "b", ["", *options]),
        format_func=lambda reference: label(reference) if reference else "nothing",
    )  # fmt: skip
    return run.change(a=a, b=b)


def _text(run: Run) -> Run:
    """The text, and a sentence of the training grammar at a click."""
    text = st.text_area("Text", key=_value(run, "text"), height=110, max_chars=40_000, placeholder=DEFAULT_TEXT)
    with st.container(horizontal=True, gap="xsmall"):
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


def _load(name: str, reference: str) -> Checkpoint | None:
    """A checkpoint, or None and the reason on the page: a faulty B must not take A away."""
    try:
        return cache.checkpoint(reference)
    except CheckpointError as fault:
        intake.show_missing(name, reference, fault)
        return None


def _notices(text: str, encoded: list[Encoding], totals: list[int]) -> None:
    """Under the text: what was cut, and which words a tokenizer does not know."""
    for name, encoding, total in zip("AB", encoded, totals, strict=False):
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


def _place(run: Run, loaded: list[Checkpoint], tokens: list[str]) -> Run:
    """Layer, head and token of A, the metric's strength, how B follows, the device."""
    layer = _number(run, "layer", "Layer", loaded[0].config.layers)
    head = _number(run, "head", "Head", loaded[0].config.heads)
    token = _number(run, "token", "Token", len(tokens))
    st.text(f"token {token}: {tokens[token]}" if tokens else "no token")
    run = run.change(layer=layer, head=head, token=token)
    if any(checkpoint.config.has_metric for checkpoint in loaded):
        run = run.change(strength=_strength(run))
    if len(loaded) > 1:
        match = st.segmented_control(
            "Layers and heads of B follow A", list(MATCHES), key=_value(run, "match", list(MATCHES)),
            format_func=MATCHES.__getitem__, required=True,
        )  # fmt: skip
        run = run.change(match=match or run.match)
    devices = cache.devices()
    if len(devices) == 1:
        return run.change(device="cpu")
    return run.change(device=st.selectbox("Device", devices, key=_value(run, "device", devices)))


def _number(run: Run, name: str, label: str, count: int) -> int:
    """A slider over 0 .. count - 1, or its only value said in words."""
    if count < 2:
        st.caption(f"{label} 0, the only one")
        return 0
    key = f"run-{name}"
    st.session_state[key] = min(max(st.session_state.get(key, getattr(run, name)), 0), count - 1)
    return st.slider(label, 0, count - 1, key=key)


def _strength(run: Run) -> float:
    """c of U <- c U."""
    key = "run-strength"
    st.session_state[key] = min(max(float(st.session_state.get(key, run.strength)), 0.0), MAXIMUM_STRENGTH)
    help_text = "U is multiplied by this. 1 is the metric as trained; anything else is a what-if, and figures say so."
    value = st.slider("Metric strength", 0.0, MAXIMUM_STRENGTH, step=0.05, key=key, help=help_text)
    if value != 1.0:
        st.caption(f"What-if: the metric at {value:g} of its trained strength.")
    return value


def _side(run: Run, name: str, reference: str, checkpoint: Checkpoint, encoding: Encoding, first: Checkpoint) -> Side:
    """One side, its layer and head mapped from the run's. No forward pass yet: that waits for a page to ask."""
    config = checkpoint.config
    request = cache.Request(reference, run.text, run.strength if config.has_metric else 1.0, run.device)
    layer = partner(run.layer, first.config.layers, config.layers, run.match)
    head = partner(run.head, first.config.heads, config.heads, run.match)
    return Side(name, uploads.label_of(reference), request, checkpoint, encoding, layer, head)


def partner(index: int, count: int, other: int, match: str) -> int:
    """The layer or head of the other model that goes with ``index`` of ``count``: by number (the last one when there
    are fewer) or by relative depth (first to first, last to last, rounded)."""
    if match == "depth" and count > 1:
        return round(index * (other - 1) / (count - 1))
    return min(index, other - 1)
