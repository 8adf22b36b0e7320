"""The sidebar: it builds the ``Run``, keeps it in step with the URL, and opens the sides of the view."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from app import encodings, input_choices, inputs, intake, leases, loading, metric_choices, traces, uploads
from app.request import Request
from app.run import MATCHES, Run
from app.run_state import begin, number, settle, value
from app.side import Side
from app.view import View
from app.widgets import PENDING
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.tokenizer import Encoding

Opened = tuple[str, str, Checkpoint]
"""A side's name, its reference, what was read."""


def draw() -> View | None:
    """Everything in the sidebar. None when there is nothing to show; the reason is then on the page."""
    run = begin()
    with st.sidebar:
        run = _checkpoints(run)
        intake.draw()
        after = st.container()  # the rest stands here, once it is known what the checkpoints are
    settle(run)
    intake.show_problem()
    opened = _opened(run)
    with after:
        run = input_choices.draw(run, [loaded for *_, loaded in opened])
    settle(run)
    if not opened or opened[0][0] != "A":
        return None
    with after:
        run, sides, note = _sides(run, opened)
    settle(run)
    return View(run, tuple(sides), *note)


def _opened(run: Run) -> list[Opened]:
    """The checkpoints that can be read; the others' reasons are on the page."""
    shown = tuple(map(uploads.stamped, run.references))
    adapter = run.source.partition(":")[2]
    leases.show(intake.session(), (*shown, adapter) if adapter else shown)
    found = [(name, reference, _load(name, reference)) for name, reference in zip("AB", shown, strict=False)]
    return [(name, reference, loaded) for name, reference, loaded in found if loaded is not None]


def _sides(run: Run, opened: list[Opened]) -> tuple[Run, list[Side], tuple[Any, Any]]:
    """The choices that need the checkpoints, and what they make of them."""
    if len(opened) > 1:
        counts = " · ".join(f"{name} {loaded.parameters:,}" for name, _, loaded in opened)
        st.caption(f"Parameters: {counts}")
    models = [one for one in opened if one[2].config is not None]
    encoded = [_encoded(run, *one[1:]) for one in opened]
    _notices(run, opened, encoded)
    run, notes = _place(run, models) if models else (run, (None, None))
    if models:
        run = _token(run, next((tokens.tokens for tokens, _ in encoded), []))
        _marks(run, min(len(tokens.tokens) for tokens, _ in encoded))
        run = _rest(run, models)
    first = opened[0][2]
    sides = [_side(run, one, rows, why, first) for one, (rows, why) in zip(opened, encoded, strict=True)]
    return run, sides, notes


def _checkpoints(run: Run) -> Run:
    """Checkpoint A, and B or nothing. A link's unknown file stays an option, so that nothing is lost."""
    options = list(dict.fromkeys([*intake.references(), *run.references]))
    label = uploads.label_of
    a = st.selectbox("Checkpoint A", options, key=value(run, "a", options), format_func=label)
    b = st.selectbox(
        "Compare with checkpoint B", ["", *options], key=value(run, "b", ["", *options]),
        format_func=lambda reference: label(reference) if reference else "nothing",
    )  # fmt: skip
    return run.change(a=a, b=b)


def _load(name: str, reference: str) -> Checkpoint | None:
    """A checkpoint, or None and the reason on the page: a faulty B must not take A away."""
    try:
        return loading.checkpoint(reference)
    except CheckpointError as fault:
        intake.show_missing(name, reference, fault)
        return None


def _notices(run: Run, opened: list[Opened], encoded: list[tuple[Encoding, str]]) -> None:
    """What of the text each checkpoint's tokenizer cut or did not know."""
    reading = [
        (name, reference) for (name, reference, loaded), (_, why) in zip(opened, encoded, strict=True)
        if not why and not inputs.sees_pictures(loaded)
    ]  # fmt: skip
    texts = [encodings.encoding(reference, run.text) for _, reference in reading]
    input_choices.notices(run.text, [name for name, _ in reading], texts)


def _place(run: Run, models: list[Opened]) -> tuple[Run, tuple[Any, Any]]:
    """Layer and head of A, the metric; and the places for what is known of both once the model has run."""
    loaded = [checkpoint for *_, checkpoint in models]
    layers, heads = depth(loaded[0], run.stack)
    layer = _number(run, "layer", "Layer", layers)
    layer_note = st.empty()
    run = run.change(layer=layer, head=_number(run, "head", "Head", heads))
    run, source_note = metric_choices.draw(run, loaded)
    return run, (layer_note, source_note)


def _token(run: Run, tokens: list[str]) -> Run:
    """The selected token."""
    token = _number(run, "token", "Token", len(tokens))
    st.text(f"token {token}: {tokens[token]}" if tokens else "no token")
    return run.change(token=token)


def _marks(run: Run, count: int) -> None:
    """How many of ``count`` tokens are marked, and a way to have none: the cloud's page is where one marks them."""
    marked = [token for token in run.marks if token < count]
    if marked:
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            st.text(f"{len(marked)} token{'s' * (len(marked) > 1)} marked:")
            st.button("clear", key="unmark", type="tertiary", on_click=_unmark)


def _unmark() -> None:
    st.session_state[PENDING] = {"marked": ""}


def _rest(run: Run, models: list[Opened]) -> Run:
    """How B follows, the device."""
    if len(models) > 1:
        match = st.segmented_control(
            "Layers and heads of B follow A", list(MATCHES), key=value(run, "match", list(MATCHES)),
            format_func=MATCHES.__getitem__, required=True,
        )  # fmt: skip
        run = run.change(match=match or run.match)
    devices = loading.devices()
    if len(devices) == 1:
        return run.change(device="cpu")
    name = {"auto": "auto: all GPUs together"}
    picked = st.selectbox(
        "Device", devices, key=value(run, "device", devices), format_func=lambda device: name.get(device, device)
    )
    return run.change(device=picked)


def _number(run: Run, name: str, label: str, count: int) -> int:
    """A slider over 0 .. count - 1, or its only value said in words."""
    if count < 2:
        st.caption(f"{label} 0, the only one")
        return 0
    return st.slider(label, 0, count - 1, key=number(run, name, 0, count - 1))


def depth(checkpoint: Checkpoint, stack: str) -> tuple[int, int]:
    """(layers, heads) of a stack, as the config has them; a decoder may have numbers of its own."""
    config = checkpoint.config
    if stack not in ("decoder", "cross") or stack not in inputs.stacks_of(checkpoint):
        return config.layers, config.heads
    table = json.loads(config.table)
    layers = next((table[name] for name in ("num_decoder_layers", "decoder_layers") if table.get(name)), config.layers)
    return layers, table.get("decoder_attention_heads") or config.heads


def request_of(run: Run, reference: str, checkpoint: Checkpoint) -> Request:
    """What of the run reaches this checkpoint: nothing else may make its model run again."""
    own = checkpoint.config is not None and checkpoint.config.has_metric
    source = "" if own or checkpoint.config is None else run.source
    stacks, sees = inputs.stacks_of(checkpoint), inputs.sees_pictures(checkpoint)
    several = len(stacks) > 1
    return Request(
        reference, "" if sees else run.text, run.strength if own or source else 1.0, run.device, source,
        rank=run.rank if source not in ("", "identity") else 4,
        stack=(run.stack or stacks[0]) if several else "", target=run.target if several else "",
        image=run.image if sees else "",
    )  # fmt: skip


def _encoded(run: Run, reference: str, checkpoint: Checkpoint) -> tuple[Encoding, str]:
    """The tokens of the rows, and why there are none. Only an image model has to run for them."""
    if checkpoint.config is None:
        return inputs.nothing(), inputs.missing(checkpoint, inputs.nothing())
    request = request_of(run, reference, checkpoint)
    try:
        if inputs.sees_pictures(checkpoint):
            return traces.rows(request), ""
        text = encodings.encoding(reference, run.text)[0] if run.text.strip() else inputs.nothing()
        why = inputs.missing(checkpoint, text)
        return (inputs.nothing(), why) if why else (traces.rows(request), "")
    except ValueError as fault:
        return inputs.nothing(), f"This input cannot be read: {fault}"


def _side(run: Run, one: Opened, rows: Encoding, why: str, first: Checkpoint) -> Side:
    """One side, its layer and head mapped from the run's. No forward pass yet: that waits for a page to ask."""
    name, reference, checkpoint = one
    request, layer, head = request_of(run, reference, checkpoint), 0, 0
    if checkpoint.config is not None and first.config is not None:
        pairs = zip(depth(first, run.stack), depth(checkpoint, run.stack), (run.layer, run.head), strict=True)
        layer, head = (partner(index, count, other, run.match) for count, other, index in pairs)
    return Side(name, uploads.label_of(reference), request, rows, layer, head, why)


def partner(index: int, count: int, other: int, match: str) -> int:
    """The layer or head of the other model that goes with ``index`` of ``count``: by number (the last one when there
    are fewer) or by relative depth (first to first, last to last, rounded)."""
    if match == "depth" and count > 1:
        return round(index * (other - 1) / (count - 1))
    return min(index, max(other - 1, 0))
