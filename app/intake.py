"""The upload: its chooser, what became of it, and the request for a file that a link names and nobody holds."""

from __future__ import annotations

from typing import Any

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import cache, uploads
from fbt_core.checkpoints import READERS
from fbt_core.checkpoints.faults import CheckpointError

FORMATS = ", ".join(f"{reader.name} ({reader.suffix})" for reader in READERS.values())
PROBLEM = "_upload_problem"
MINE = "_uploads"


def mine() -> list[uploads.Upload]:
    """The files that this session uploaded and this server still holds."""
    return [uploads.STORE.files[digest] for digest in st.session_state.get(MINE, ()) if digest in uploads.STORE.files]


def draw() -> None:
    """The chooser in the sidebar."""
    with st.expander("Upload a checkpoint"):
        st.segmented_control("Open it as", ["A", "B"], key="upload-side", default="A", required=True)
        chooser("upload")


def chooser(name: str) -> None:
    """A file chooser under a key that changes with each file taken, so that Streamlit lets go of the last one."""
    key = f"{name}-{st.session_state.get(f'_{name}_round', 0)}"
    st.file_uploader(
        "Checkpoint file", key=key, label_visibility="collapsed", on_change=_take, args=(name, key),
        help=f"{FORMATS}. The file stays on this server until the session ends.",
    )  # fmt: skip


def _take(name: str, key: str) -> None:
    """Spool the chosen file, let go of the upload, open it; what was open stays when it is no checkpoint."""
    chosen = st.session_state.get(key)
    if chosen is None:
        return
    st.session_state[f"_{name}_round"] = st.session_state.get(f"_{name}_round", 0) + 1
    session = _session()
    st.session_state.pop(PROBLEM, None)
    try:
        upload = _opened(chosen, session)
    except CheckpointError as fault:
        st.session_state[PROBLEM] = (chosen.name, fault)
        return
    finally:
        _forget(chosen)
    _hold(session)
    st.session_state[MINE] = [*dict.fromkeys([*st.session_state.get(MINE, ()), upload.sha256])]
    if name == "upload":
        st.session_state[f"run-{st.session_state.get('upload-side', 'A').lower()}"] = upload.reference


def _opened(chosen: Any, session: str) -> uploads.Upload:
    """The upload on disk, after it was opened once; whatever goes wrong, nothing of it is kept."""
    upload = uploads.STORE.take(chosen, chosen.name, session)
    try:
        cache.checkpoint(upload.reference)
    except BaseException:
        uploads.STORE.drop(upload.sha256, session)
        raise
    return upload


def show_problem() -> None:
    """What was wrong with the last upload, until another one or until dismissed."""
    if PROBLEM not in st.session_state:
        return
    name, fault = st.session_state[PROBLEM]
    with st.container(border=True, key="upload-problem"):
        st.error("The upload is not a checkpoint that can be opened. Everything that was open still is.")
        st.text(f"File: {name}\n{described(fault)}")
        st.button("Dismiss", on_click=lambda: st.session_state.pop(PROBLEM, None), key="dismiss")


def show_missing(side: str, reference: str, fault: CheckpointError) -> None:
    """A checkpoint that cannot be opened; for an uploaded one that is gone, the place to give it again."""
    with st.container(border=True, key=f"missing-{side}"):
        st.error(f"Checkpoint {side} cannot be opened.")
        st.text(described(fault))
        if reference.startswith("sha256:"):
            chooser(f"missing-{side}")


def described(fault: CheckpointError) -> str:
    """Got, expected, remedy as plain text: a file may have chosen some of its words."""
    return f"Got: {fault.got}\nExpected: {fault.expected}\nRemedy: {fault.remedy}"


def _session() -> str:
    context = get_script_run_ctx()
    return context.session_id if context else "none"


def _forget(chosen: Any) -> None:
    """Drop Streamlit's own copy of the bytes, which it would keep in memory and copy at every rerun."""
    context = get_script_run_ctx()
    if context is not None and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        context.uploaded_file_mgr.remove_file(context.session_id, chosen.file_id)


def _leave(session: str) -> None:
    uploads.STORE.leave(session)


@st.cache_resource(max_entries=1, scope="session", on_release=_leave, show_spinner=False)
def _hold(session: str) -> str:
    """A session-long resource: its release, when the browser goes, deletes the session's files."""
    return session
