"""From chosen files to files on disk: the chooser, and the request for one that a link names and nobody holds.

What becomes of them then is in ``intake_arrival``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import intake_arrival, intake_desk, intake_hub, intake_names, intake_store, leases, server, uploads
from app.components.file_drop import file_drop
from app.intake_arrival import MINE, described
from app.intake_spool import Piece, take
from app.intake_store import STORE
from app.leases import session
from fbt_core.checkpoints.faults import CheckpointError

HELP = "safetensors, PyTorch, GGUF, a Hugging Face folder or its archive; files chosen together are one checkpoint."

show_problem = intake_arrival.show
adapters_for = intake_arrival.adapters_for


def references() -> list[str]:
    """All that this session can choose: what is here for everyone, then its own uploads."""
    mine = [name for name in st.session_state.get(MINE, ()) if uploads.parsed(name).name in STORE.files]
    return [*uploads.known(), *mine]


def draw() -> None:
    """The chooser in the sidebar."""
    _attend(session())
    with st.expander("Upload a checkpoint"):
        st.segmented_control("Open it as", ["A", "B"], key="upload-side", default="A", required=True)
        chooser("upload")
        intake_hub.draw(partial(_fetched, _side("upload")))


def chooser(name: str) -> None:
    """Where files are chosen or dropped. Without our own route, Streamlit's uploader, which holds them in memory."""
    if server.SERVED:
        key = f"{name}-drop"
        limit, most = intake_store.MAXIMUM_BYTES, intake_names.MAXIMUM_FILES
        file_drop(key, f"{server.base()}/upload", _token(name, key), limit, most, partial(_sent, name, key))
        return
    key = f"{name}-{st.session_state.get(f'_{name}_round', 0)}"
    st.file_uploader(
        "Checkpoint file", key=key, label_visibility="collapsed", on_change=_chosen, args=(name, key), help=HELP,
        accept_multiple_files=True,
    )  # fmt: skip


def _token(name: str, key: str) -> str:
    """This chooser's ticket; a new one when the last was used, refused or has expired."""
    token = st.session_state.get(f"_{name}_ticket", "")
    if st.session_state.get(key, {}).get("stale") == token:
        intake_desk.DESK.close(token)
    if not intake_desk.DESK.valid(token):
        token = st.session_state[f"_{name}_ticket"] = intake_desk.DESK.issue(session())
    return token


def _sent(name: str, key: str) -> None:
    """All files of the drop zone have arrived on disk."""
    sent = st.session_state[key].get("sent")
    if not isinstance(sent, dict):
        return
    pieces = intake_desk.DESK.claim(str(sent.get("token")), session())
    names = [str(label) for label in sent.get("names", ())]
    if len(names) != len(pieces):
        STORE.discard(pieces)
        return
    named = [
        Piece(piece.path, piece.sha256, piece.bytes, label) for piece, label in zip(pieces, names, strict=True)
    ]  # fmt: skip
    intake_arrival.receive(_side(name), names, lambda: named, str(sent.get("folder", ""))[:200])


def _chosen(name: str, key: str) -> None:
    """Files are in Streamlit's uploader: copy them to disk, and let go of its copies under a key that now changes."""
    chosen = st.session_state.get(key)
    if not chosen:
        return
    st.session_state[f"_{name}_round"] = st.session_state.get(f"_{name}_round", 0) + 1
    try:
        intake_arrival.receive(_side(name), [file.name for file in chosen], partial(_copied, chosen))
    finally:
        _forget(chosen)


def _copied(chosen: Sequence[Any]) -> list[Piece]:
    pieces: list[Piece] = []
    try:
        for file in chosen:
            pieces.append(take(STORE, file, file.name))
    except BaseException:
        STORE.discard(pieces)
        raise
    return pieces


def _fetched(side: str, names: list[str], pieces: Callable[[], list[Piece]]) -> None:
    """A model of the hub is on disk, or is not."""
    intake_arrival.receive(side, names, pieces, label=names[0])
    st.rerun()


def _side(name: str) -> str:
    """Where what a chooser brings is to open: as asked beside it, or where it is missing."""
    return st.session_state.get("upload-side", "A") if name == "upload" else name[-1]


def show_missing(side: str, reference: str, fault: CheckpointError) -> None:
    """A checkpoint that cannot be opened; for an uploaded one that is gone, the place to give it again."""
    with st.container(border=True, key=f"missing-{side}"):
        st.error(f"Checkpoint {side} cannot be opened.")
        st.text(described(fault))
        if reference.startswith("sha256:"):
            chooser(f"missing-{side}")


def _forget(chosen: Sequence[Any]) -> None:
    """Drop Streamlit's own copies of the bytes, which it would keep in memory and copy at every rerun."""
    context = get_script_run_ctx()
    if context is not None and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        for file in chosen:
            context.uploaded_file_mgr.remove_file(context.session_id, file.file_id)


@st.cache_resource(max_entries=1, scope="session", on_release=leases.leave, show_spinner=False)
def _attend(session: str) -> str:
    """A session-long resource: its release, when the browser goes, deletes the session's files."""
    return session
