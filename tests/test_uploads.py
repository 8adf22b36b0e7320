"""Uploaded files: where they go, what they are called, when they leave; the route that takes them; server paths."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from app import intake_desk, intake_names, intake_paths, intake_route, intake_store, leases, server, uploads
from app.intake_desk import Desk
from app.intake_spool import Piece, take
from app.intake_store import Store
from app.run import REFERENCE
from fbt_core.checkpoints.faults import CheckpointError

HOST = "127.0.0.1:8501"
ORIGIN = f"http://{HOST}"


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.clear()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, store: Store) -> Desk:
    """The route's own state, new and empty, and the store that it writes to."""
    monkeypatch.setattr(intake_store, "STORE", store)
    monkeypatch.setattr(server, "SERVED", False)
    monkeypatch.setattr(intake_desk, "DESK", Desk())
    return intake_desk.DESK


def pieces(store: Store, **contents: bytes) -> list[Piece]:
    return [take(store, io.BytesIO(content), name) for name, content in contents.items()]


def on_disk(store: Store) -> list[Path]:
    return sorted(path for path in store.folder.rglob("*") if path.is_file()) if store.folder else []


HOSTILE = ["../../evil.safetensors", "/etc/passwd", "a\x00b", "C:\\x", "", "x" * 5000, ".", "..", "-rf"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_a_path(store: Store, name: str) -> None:
    content = b"some bytes"
    upload = store.hold([take(store, io.BytesIO(content), name)], "one")
    assert upload.path.parent.parent == store.folder and upload.path.name == "file"
    assert upload.path.parent.name == hashlib.sha256(content).hexdigest() == upload.sha256
    assert upload.path.read_bytes() == content


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_several_files_stay_in_their_folder(store: Store, name: str) -> None:
    upload = store.hold(pieces(store, **{"config.json": b"{}", name: b"y"}), "one")
    assert upload.path.is_dir() and upload.path.parent == store.folder
    assert len(on_disk(store)) == 2 and {path.parent for path in on_disk(store)} == {upload.path}
    assert all(intake_names.PLAIN.fullmatch(path.name) for path in on_disk(store))
    assert (upload.path / "config.json").read_bytes() == b"{}"


def test_a_set_is_one_checkpoint_whatever_the_order(store: Store) -> None:
    first = store.hold(pieces(store, **{"config.json": b"{}", "model.safetensors": b"w" * 9}), "one")
    second = store.hold(pieces(store, **{"model.safetensors": b"w" * 9, "config.json": b"{}"}), "two")
    assert first == second and len(store.files) == 1 and store.held() == 11
    renamed = store.hold(pieces(store, **{"other.json": b"{}", "model.safetensors": b"w" * 9}), "one")
    assert renamed.sha256 != first.sha256
    assert REFERENCE.fullmatch(first.reference) and first.name == "model.safetensors and 1 more"


def test_names_that_differ_in_case_alone_are_refused(store: Store) -> None:
    with pytest.raises(CheckpointError, match="two files"):
        store.hold(pieces(store, **{"config.json": b"{}", "Config.JSON": b"[]"}), "one")
    assert on_disk(store) == [] and store.held() == 0


def test_the_same_bytes_are_held_once_and_deleted_by_the_last_to_leave(store: Store) -> None:
    first = store.hold(pieces(store, a=b"same"), "one")
    second = store.hold(pieces(store, b=b"same"), "two")
    store.join(first.sha256, "three")
    assert first.path == second.path and len(store.files) == 1
    (first.path.parent / "made of it").write_bytes(b"a conversion that a reader keeps beside the file")
    for session in ("one", "two"):
        store.leave(session)
        assert first.path.exists()
    store.leave("three")
    assert on_disk(store) == [] and not store.files and not store.holders


def test_clear_leaves_nothing(store: Store) -> None:
    folder = store.hold(pieces(store, x=b"x"), "one").path.parent.parent
    store.clear()
    assert not folder.exists()


def test_what_is_refused_leaves_no_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_store, "MAXIMUM_BYTES", 1000)
    monkeypatch.setattr(intake_store, "MAXIMUM_HELD", 1500)
    with pytest.raises(CheckpointError, match="more than 1,000 bytes"):
        take(store, io.BytesIO(b"y" * 1001), "big")
    with pytest.raises(CheckpointError, match="empty file"):
        take(store, io.BytesIO(b""), "empty")
    store.hold(pieces(store, fits=b"z" * 1000), "one")
    with pytest.raises(CheckpointError, match="1,000 held"):
        take(store, io.BytesIO(b"w" * 1000), "too much in all")
    assert len(on_disk(store)) == len(store.files) == 1 and store.held() == 1000


def test_paths_come_from_references_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.safetensors").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"")
    monkeypatch.setattr(uploads, "ASSETS", tmp_path)
    assert list(uploads.demos()) == ["demo:small"]
    assert uploads.path_of("demo:small") == tmp_path / "small.safetensors"
    for reference in ("demo:notes", "demo:../small", "small", "", "file:/etc/passwd", "path:" + "0" * 16):
        with pytest.raises(CheckpointError, match="small"):
            uploads.path_of(reference)


def test_a_missing_upload_is_named_by_its_sha() -> None:
    digest = "0" * 64
    with pytest.raises(CheckpointError, match=digest):
        uploads.path_of(f"sha256:{digest}+ema")
    assert uploads.label_of(f"sha256:{digest}") == "missing file 00000000"
    assert uploads.label_of(f"sha256:{digest}+ema@demo:l2") == "missing file 00000000 · ema on l2"


def test_what_no_session_shows_is_let_go_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(leases, "STORE", store)
    monkeypatch.setattr(leases, "OPEN", {})
    monkeypatch.setattr(leases, "WAITING", {})  # else models of other tests' sessions go with these
    monkeypatch.setattr(leases.loading, "release", released.append)
    upload = store.hold(pieces(store, mine=b"weights"), "one")
    both = (upload.reference, f"path:{'0' * 16}@{upload.reference}")
    leases.show("one", both)
    leases.show("two", (upload.reference,))  # by a link: it holds the file from now on
    leases.show("one", ("demo:l2",))
    assert released == [both[1]], "the other one shows the upload still"
    leases.leave("one")
    assert upload.path.exists()
    leases.leave("two")
    assert released == [both[1], upload.reference] and not upload.path.exists() and leases.OPEN == {}


# The route.


def put(
    token: str, number: int = 0, body: bytes | list[bytes] = b"bytes", *, origin: str | None = ORIGIN, length: int = -1,
    cut: bool = False, stall: bool = False, between: Callable[[], None] | None = None,
) -> int:  # fmt: skip
    """What the route answers to a raw request.

    ``cut`` ends the connection in place of the last piece, ``stall`` keeps it and sends no more, and ``between`` is
    called after the first piece.
    """
    chunks = [body] if isinstance(body, bytes) else list(body)
    size = length if length >= 0 else sum(map(len, chunks))
    headers = [(b"host", HOST.encode()), (b"content-length", str(size).encode())]
    headers += [(b"origin", origin.encode())] if origin is not None else []
    path = f"/upload/{token}/{number}"
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": headers, "http_version": "1.1", "scheme": "http", "root_path": ""}  # fmt: skip
    events = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    events.append({"type": "http.disconnect"} if cut else {"type": "http.request", "body": b"", "more_body": False})
    said: list[Any] = []

    async def receive() -> Any:
        if between is not None and len(events) == len(chunks):
            between()
        if stall and len(events) == 1:
            await asyncio.sleep(60)
        return events.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    async def ask() -> None:
        route = server.routes()[0]
        _, found = route.matches(scope)
        await route.handle(scope | found, receive, send)

    asyncio.run(ask())
    return said[0]["status"]


def test_a_file_reaches_the_disk_and_its_session(desk: Desk, store: Store) -> None:
    token = desk.issue("one")
    assert put(token, 0, [b"a" * 700_000, b"b" * 700_000]) == 200
    assert put(token, 1, b"{}") == 200
    assert desk.claim(token, "two") == []
    first, second = desk.claim(token, "one")
    content = b"a" * 700_000 + b"b" * 700_000
    assert first.path.read_bytes() == content and first.sha256 == hashlib.sha256(content).hexdigest()
    assert second.bytes == 2 and store.held() == len(content) + 2
    assert desk.claim(token, "one") == [] and put(token, 2) == 403, "a ticket is good once"


@pytest.mark.parametrize(
    "origin",
    ["http://" + "evil.example", "http://127.0.0.1:9999", "null", "", None, "http://["],
    ids=["other", "port", "null", "empty", "none", "malformed"],
)
def test_another_origin_is_refused(desk: Desk, store: Store, origin: str | None) -> None:
    assert put(desk.issue("one"), origin=origin) == 403
    assert on_disk(store) == []


def test_a_wrong_an_expired_and_a_repeated_number_are_refused(desk: Desk, store: Store) -> None:
    token = desk.issue("one")
    assert put("guess") == 403 and on_disk(store) == []
    assert put(token) == 200 and put(token) == 403
    desk.tickets[token].expires = 0.0
    assert put(token, 1) == 403
    desk.issue("two")
    assert on_disk(store) == [], "an expired ticket takes along what was sent under it"


def test_too_large_is_refused_before_and_while_it_comes(
    desk: Desk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_store, "MAXIMUM_BYTES", 2_000_000)
    token = desk.issue("one")
    assert put(token, 0, b"", length=2_000_001) == 413
    assert put(token, 0, [b"x" * 1_100_000] * 2, length=10) == 413, "a length that lies"
    assert put(token, 0, b"") == 422
    assert on_disk(store) == [] and store.held() == 0
    assert put(token, 0, b"fits") == 200


@pytest.mark.parametrize("number", ["-1", "1.5", "\u0663", "x", "9" * 5000, "..", "%2e%2e"])
def test_what_is_no_number_of_a_file_is_refused(desk: Desk, store: Store, number: str) -> None:
    assert put(desk.issue("one"), number) == 404
    assert on_disk(store) == []


def test_a_ticket_takes_the_files_of_one_checkpoint_and_no_more(desk: Desk, store: Store) -> None:
    assert put(desk.issue("one"), intake_names.MAXIMUM_FILES) == 413
    assert on_disk(store) == [] and store.held() == 0


def test_a_client_that_stalls_leaves_nothing(desk: Desk, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_route, "STALL", 0.05)
    token = desk.issue("one")
    assert put(token, 0, [b"x" * 2_000_000], length=9_000_000, stall=True) == 499
    assert on_disk(store) == [] and store.held() == 0
    assert put(token, 0, b"again") == 200


def test_a_session_that_ends_ends_what_it_sends(desk: Desk, store: Store) -> None:
    token = desk.issue("one")
    assert put(token, 0, [b"x" * 1_100_000] * 3, between=lambda: desk.leave("one")) == 499
    assert on_disk(store) == [] and store.held() == 0


def test_a_broken_connection_leaves_nothing(desk: Desk, store: Store) -> None:
    token = desk.issue("one")
    assert put(token, 0, [b"x" * 2_000_000], length=9_000_000, cut=True) == 499
    assert on_disk(store) == [] and store.held() == 0
    assert put(token, 0, b"again") == 200


def test_a_session_takes_its_tickets_and_unclaimed_files_along(desk: Desk, store: Store) -> None:
    token, other = desk.issue("one"), desk.issue("two")
    assert put(token) == put(other) == 200
    desk.leave("one")
    assert put(token, 1) == 403
    assert len(on_disk(store)) == 1 and len(desk.claim(other, "two")) == 1


# Paths on the server.


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a folder, a file, notes, and links that lead out; and a secret beside it."""
    root, secret = tmp_path / "models", tmp_path / "secret.safetensors"
    secret.write_bytes(b"secret")
    for name in ("llama", "trap"):
        (root / "deep" / name).mkdir(parents=True)
        (root / "deep" / name / "config.json").write_text("{}")
    (root / "epoch-3.pt").write_bytes(b"three")
    (root / "notes.txt").write_text("no checkpoint")
    (root / "out.safetensors").symlink_to(secret)
    (root / "up").symlink_to(tmp_path)
    (root / "deep" / "trap" / "model.safetensors").symlink_to(secret)
    monkeypatch.setenv(intake_paths.VARIABLE, os.pathsep.join([str(root), ""]))
    monkeypatch.setattr(intake_paths, "_seen", (0.0, "", {}))
    return root


def test_paths_below_the_roots_are_listed_and_links_out_of_them_are_not(models: Path) -> None:
    found = intake_paths.listed()
    assert sorted(path.relative_to(models).as_posix() for path in found.values()) == ["deep/llama", "epoch-3.pt"]
    assert all(REFERENCE.fullmatch(reference) for reference in found)
    for reference, path in found.items():
        assert uploads.path_of(reference) == path
        assert uploads.label_of(reference) == f"models/{path.relative_to(models)}"


def test_no_path_is_served_to_other_machines(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert intake_paths.listed()
    monkeypatch.setattr(st, "get_option", lambda name: "0.0.0.0" if name == "server.address" else None)
    assert intake_paths.listed() == {}


def test_a_file_that_is_written_again_is_another_cache_key(models: Path) -> None:
    (reference,) = (name for name, path in intake_paths.listed().items() if path.name == "epoch-3.pt")
    before = uploads.stamped(reference)
    assert uploads.parsed(before).name == uploads.parsed(reference).name
    assert uploads.path_of(before) == uploads.path_of(reference) and uploads.stamped(reference) == before
    (models / "epoch-3.pt").write_bytes(b"three and a half")
    assert uploads.stamped(reference) != before
    assert uploads.stamped("demo:l2") == "demo:l2"


@pytest.mark.parametrize("reference", uploads.SAMPLES)
def test_samples_are_where_their_package_is(reference: str) -> None:
    package = uploads.SAMPLES[reference][0]
    found = uploads.samples().get(reference)
    assert (found is not None) == (uploads.importlib.util.find_spec(package) is not None)
    assert found is None or (found.exists() and found.is_dir() == (reference == "sample:minilm-l6"))


def test_a_model_waits_for_a_page_that_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(leases, "OPEN", {})
    monkeypatch.setattr(leases, "WAITING", {})  # else models of other tests' sessions go with these
    monkeypatch.setattr(leases, "WAITING", {})
    monkeypatch.setattr(leases.loading, "release", released.append)
    sample, other = "sample:one", "sample:two"
    leases.show("before", (sample,))
    leases.leave("before")
    leases.show("after", (sample,))  # the same page again, a new session
    leases.expire()
    assert released == []
    leases.leave("after")
    assert released == []
    leases.show("someone", (other,))
    assert released == [sample], "who opens something else needs the room"
    leases.leave("someone")
    leases.expire()
    assert released == [sample, other]
