"""What has arrived: the card that says what it is, the questions that only its owner can answer, and any fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import inspection, loading, uploads
from app.intake_spool import Piece
from app.intake_store import STORE
from app.leases import session
from app.run import PART
from app.widgets import PENDING, plain
from fbt_core.checkpoints import adapter
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import read_header

PROBLEM = "_upload_problem"
INCOMING = "_incoming"
MINE = "_uploads"
"""Session state: references of what this session uploaded and opened."""

ADAPTERS = "_adapters"
"""Session state: references of its metric adapters, each with the SHA-256 of its base and a label."""


@dataclass(frozen=True)
class Incoming:
    """An upload that is held and not yet open. ``side`` is where it will open: A or B."""

    reference: str
    side: str
    is_adapter: bool = False


def receive(side: str, names: list[str], pieces: Callable[[], list[Piece]], label: str = "") -> None:
    """Hold what came and look at its headers. What is no checkpoint goes at once; what was open stays."""
    st.session_state.pop(PROBLEM, None)
    _turn_away()
    upload = None
    try:
        upload = STORE.hold(pieces(), session(), label)
        if _keep_adapter(upload):
            st.session_state[INCOMING] = Incoming(upload.reference, side, is_adapter=True)
            return
        found = loading.inspection(upload.reference)
        if not found.ok:
            loading.checkpoint(upload.reference)  # says the same in three parts
            raise CheckpointError(found.message, "a checkpoint that can be opened", "Choose another file.")
    except CheckpointError as fault:
        if upload is not None:
            _drop(upload.reference)
        st.session_state[PROBLEM] = (", ".join(names[:5]), fault)
        return
    st.session_state[INCOMING] = Incoming(upload.reference, side)


def show() -> None:
    """What was wrong with the last upload, until another one or until dismissed; or the card of what has arrived."""
    if PROBLEM in st.session_state:
        name, fault = st.session_state[PROBLEM]
        with st.container(border=True, key="upload-problem"):
            st.error("The upload is not a checkpoint that can be opened. Everything that was open still is.")
            st.text(f"File: {name[:400]}\n{described(fault)}")
            st.button("Dismiss", on_click=lambda: st.session_state.pop(PROBLEM, None), key="dismiss")
    if INCOMING in st.session_state:
        incoming = st.session_state[INCOMING]
        with st.container(border=True, key="incoming"):
            st.text(f"Arrived: {uploads.label_of(incoming.reference)}")
            if incoming.is_adapter:
                _offer(incoming)
            elif (reference := _decided(incoming)) is not None:
                _open(incoming, reference)


def _decided(incoming: Incoming) -> str | None:
    """The reference to open, asking what only its owner knows; None while that is open."""
    found = loading.inspection(incoming.reference)
    reference = incoming.reference
    wanted = getattr(st.session_state["run"], incoming.side.lower())
    if uploads.parsed(wanted).name == uploads.parsed(reference).name:
        inspection.card(wanted, "incoming")
        return wanted  # the file that a link asked for, with the part that it named
    if not found.parts:
        inspection.card(reference, "incoming")
    if found.parts:
        place = st.radio("It holds several state dicts. Which one?", range(len(found.parts)), key="incoming-part",
                         format_func=lambda index: plain(str(found.parts[index])[:120]), horizontal=True)  # fmt: skip
        reference += f"+{part_key(found.parts[place], place)}"
        inspection.card(reference, "incoming")
    elif _is_lora(found):
        open_now = st.session_state["run"].a
        alone, on = "alone: the spectra of its changes", f"on checkpoint A: {plain(uploads.label_of(open_now))}"
        choice = st.radio("A LoRA adapter. How?", [on, alone], key="incoming-lora")
        reference += f"@{open_now}" if choice == on and "@" not in open_now else ""
    else:
        return reference
    with st.container(horizontal=True):
        agreed = st.button("Open", type="primary", key="incoming-open")
        st.button("Discard", on_click=_turn_away, key="incoming-discard")
    return reference if agreed else None


def part_key(name: str, index: int) -> str:
    """How a reference names a state dict: by its name where that is plain, else by its number."""
    return name if PART.fullmatch(name) else f"~{index}"


def _is_lora(found: Any) -> bool:
    return "lora" in str(found.format).lower()


def _open(incoming: Incoming, reference: str) -> None:
    """Load it and show it; when that fails, say why and keep nothing of it."""
    try:
        with st.spinner("Opening the checkpoint"):
            loading.checkpoint(uploads.stamped(reference))
    except CheckpointError as fault:
        _refuse(incoming, fault)
    except (MemoryError, OSError, RuntimeError, ValueError) as fault:
        said = f"{type(fault).__name__}: {str(fault)[:200]!r}"
        _refuse(incoming, CheckpointError(said, "a checkpoint that loads", "Try a smaller one, or another format."))
    del st.session_state[INCOMING]
    st.session_state[MINE] = [*dict.fromkeys([*st.session_state.get(MINE, ()), reference])]
    st.session_state[PENDING] = {**st.session_state.get(PENDING, {}), incoming.side.lower(): reference}
    st.rerun()


def _keep_adapter(upload: uploads.Upload) -> bool:
    """Whether it is a metric for a model, and no model; it is then held until a source is chosen."""
    if not upload.path.is_file():
        return False
    try:
        with upload.path.open("rb") as file:
            header = read_header(file, upload.bytes)
    except CheckpointError:
        return False
    if not adapter.is_adapter(header):
        return False
    found = adapter.open_adapter(upload.path)
    kept = dict(st.session_state.get(ADAPTERS, {}))
    kept[upload.reference] = (found.base_sha256, uploads.label_of(upload.reference))
    st.session_state[ADAPTERS] = kept
    return True


def _offer(incoming: Incoming) -> None:
    """A metric adapter is a source of the metric, on the model that it was trained on."""
    base, _ = st.session_state[ADAPTERS][incoming.reference]
    st.text(f"A metric adapter, trained on the model with SHA-256 {base[:64]}.")
    with st.container(horizontal=True):
        use = st.button("Use it as the metric", type="primary", key="incoming-open")
        later = st.button("Later", key="incoming-later")
    if use or later:
        del st.session_state[INCOMING]
        if use:
            st.session_state[PENDING] = {"source": f"adapter:{incoming.reference}"}
        st.rerun()


def adapters_for(base_sha256: str) -> list[tuple[str, str]]:
    """Reference and label of each metric adapter that this session holds for a base model."""
    kept = st.session_state.get(ADAPTERS, {})
    return [(reference, label) for reference, (base, label) in kept.items() if base == base_sha256]


def _refuse(incoming: Incoming, fault: CheckpointError) -> None:
    label = uploads.label_of(incoming.reference)
    _turn_away()
    st.session_state[PROBLEM] = (label, fault)
    st.rerun()


def _turn_away() -> None:
    """Keep nothing of what arrived and was not opened."""
    incoming = st.session_state.pop(INCOMING, None)
    if incoming is not None:
        _drop(incoming.reference)


def _drop(reference: str) -> None:
    """Delete an upload, unless it is in use from an earlier time."""
    used = [*st.session_state.get(MINE, ()), *st.session_state.get(ADAPTERS, ())]
    opened = {uploads.parsed(name).name for name in used}
    if (digest := uploads.parsed(reference).name) not in opened:
        loading.release(reference)
        STORE.drop(digest, session())


def described(fault: CheckpointError) -> str:
    """Got, expected, remedy as plain text: a file may have chosen some of its words."""
    return f"Got: {fault.got}\nExpected: {fault.expected}\nRemedy: {fault.remedy}"
