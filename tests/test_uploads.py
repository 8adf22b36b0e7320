"""Uploaded files: where they go, what they are called, when they leave."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from app import uploads
from app.uploads import Store
from fbt_core.checkpoints.faults import CheckpointError


@pytest.fixture
def store() -> Store:
    store = Store()
    yield store
    store.clear()


@pytest.mark.parametrize("name", ["../../evil.safetensors", "/etc/passwd", "a\x00b", "C:\\x", "", "x" * 5000])
def test_a_name_is_never_a_path(store: Store, name: str) -> None:
    content = b"some bytes"
    upload = store.take(io.BytesIO(content), name, "one")
    assert upload.path.parent == store.folder
    assert upload.path.name == hashlib.sha256(content).hexdigest() == upload.sha256
    assert upload.path.read_bytes() == content
    assert upload.name == name


def test_the_same_bytes_are_held_once_and_deleted_by_the_last_to_leave(store: Store) -> None:
    first = store.take(io.BytesIO(b"same"), "a", "one")
    second = store.take(io.BytesIO(b"same"), "b", "two")
    assert first.path == second.path and len(store.files) == 1
    store.leave("one")
    assert first.path.exists()
    store.leave("two")
    assert not first.path.exists() and not store.files and not store.holders


def test_clear_leaves_nothing(store: Store) -> None:
    folder = store.take(io.BytesIO(b"x"), "x", "one").path.parent
    store.clear()
    assert not folder.exists()


def test_what_is_refused_leaves_no_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAXIMUM_BYTES", 1000)
    monkeypatch.setattr(uploads, "MAXIMUM_HELD", 1500)
    with pytest.raises(CheckpointError, match="more than 1,000 bytes"):
        store.take(io.BytesIO(b"y" * 1001), "big", "one")
    with pytest.raises(CheckpointError, match="empty file"):
        store.take(io.BytesIO(b""), "empty", "one")
    store.take(io.BytesIO(b"z" * 1000), "fits", "one")
    with pytest.raises(CheckpointError, match="1,000 held"):
        store.take(io.BytesIO(b"w" * 1000), "too much in all", "two")
    assert store.folder is not None
    assert len(list(store.folder.iterdir())) == len(store.files) == 1


def test_paths_come_from_references_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    monkeypatch.setattr(uploads, "ASSETS", tmp_path)
    assert list(uploads.demos()) == ["demo:small"]
    assert uploads.path_of("demo:small") == tmp_path / "small.safetensors"
    for reference in ("demo:notes", "demo:../small", "small", "", "file:/etc/passwd"):
        with pytest.raises(CheckpointError, match="small"):
            uploads.path_of(reference)


def test_a_missing_upload_is_named_by_its_sha() -> None:
    digest = "0" * 64
    with pytest.raises(CheckpointError, match=digest):
        uploads.path_of(f"sha256:{digest}")
    assert uploads.label_of(f"sha256:{digest}") == "missing file 00000000"
