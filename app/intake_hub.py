"""A model from the Hugging Face hub: offered where ``FIBERSCOPE_HUB=1``, and fetched when its button is pressed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from app.intake_spool import CHUNK, Piece
from app.intake_store import STORE

VARIABLE = "FIBERSCOPE_HUB"


def draw(receive: Callable[[list[str], Callable[[], list[Piece]]], None]) -> None:
    """The id and its button; nothing where the owner of the server did not allow it."""
    if os.environ.get(VARIABLE) != "1":
        return
    with st.form("hub", border=False):
        asked = st.text_input("Or a model of the Hugging Face hub", placeholder="owner/name", max_chars=200)
        if st.form_submit_button("Fetch over the network") and asked.strip():
            with st.spinner("Fetching from the hub"):
                receive([asked.strip()], partial(fetched, asked.strip()))


def fetched(model_id: str) -> list[Piece]:
    """The files of a model, on this server's disk. Raises ``CheckpointError``, and keeps nothing then."""
    from fbt_core.checkpoints.hub import download

    folder = STORE.place()
    try:
        download(model_id, folder)
        return [_piece(path) for path in sorted(folder.iterdir()) if path.is_file() and path.stat().st_size]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _piece(path: Path) -> Piece:
    """A fetched file as a spooled one, by the same limits."""
    spool = STORE.spool()
    try:
        with path.open("rb") as file:
            while part := file.read(CHUNK):
                spool.write(part)
    except BaseException:
        spool.abandon()
        raise
    path.unlink()
    return spool.finish(path.name)
