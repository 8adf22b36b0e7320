"""Packed folders and what files are: read as zipfile and tarfile read them, and nothing written outside or unasked."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from fbt_core.checkpoints import archives, tars
from fbt_core.checkpoints.archives import is_archive, unpack
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.sniff import identify, sniff
from fbt_core.checkpoints.unpacking import MOST_RATIO
from fbt_core.checkpoints.zips import DEFLATED, read_directory

BUDGET = 64 << 20
FOLDER: dict[str, bytes] = {
    "config.json": b'{"model_type": "gpt2"}',
    "tokenizer.json": b"{}" * 5000,
    "model.safetensors": save({"w": torch.arange(300_000, dtype=torch.float32).sin()}),
}
OTHERS = {
    "README.md": b"# hello",
    "train.py": b"raise SystemExit",
    "generation_config.json": b"{}",
    "._config.json": b"",
}


def zipped(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def tarred(path: Path, members: dict[str, bytes], kind: str = "", layout: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, f"w:{kind}", format=layout) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def below(prefix: str, members: dict[str, bytes] = FOLDER) -> dict[str, bytes]:
    return {prefix + name: data for name, data in members.items()}


def unpacked(path: Path, budget: int = BUDGET) -> dict[str, bytes]:
    """Contents by base name; every file written lies in the folder under a name of ours."""
    folder = path.parent / "out"
    folder.mkdir()
    found = unpack(path, folder, budget)
    assert all(place.parent == folder and re.fullmatch(r"member-\d+", place.name) for place in found.paths.values())
    return {name: place.read_bytes() for name, place in found.paths.items()}


def refused(path: Path, *words: str, budget: int = BUDGET) -> None:
    """Refused with these words, and at most the budget was written, into the folder alone."""
    folder = path.parent / "out"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = set(path.parent.iterdir())
    with pytest.raises(CheckpointError) as caught:
        unpack(path, folder, budget)
    assert all(re.search(word, str(caught.value)) for word in words), str(caught.value)
    assert set(path.parent.iterdir()) == before
    assert sum(file.stat().st_size for file in folder.iterdir()) <= budget


WRITERS: dict[str, Callable[[Path, dict[str, bytes]], Path]] = {
    "zip": zipped,
    "zip stored": lambda path, members: zipped(path, members, zipfile.ZIP_STORED),
    "tar": tarred,
    "tar.gz": lambda path, members: tarred(path, members, "gz"),
    "tar.bz2": lambda path, members: tarred(path, members, "bz2"),
    "tar.xz": lambda path, members: tarred(path, members, "xz"),
    "ustar": lambda path, members: tarred(path, members, "", tarfile.USTAR_FORMAT),
    "gnu": lambda path, members: tarred(path, members, "gz", tarfile.GNU_FORMAT),
}
written = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())


@written
@pytest.mark.parametrize("prefix", ["", "./", "my model é/", "a/b/c/", "l" * 90 + "/" + "m" * 60 + "/"])
def test_a_packed_folder_comes_out_as_it_went_in(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], Path], prefix: str
) -> None:
    path = write(tmp_path / "x", below(prefix, OTHERS) | below(prefix))
    assert is_archive(path)
    assert unpacked(path) == FOLDER


def test_what_was_left_out_is_told(tmp_path: Path) -> None:
    path = zipped(
        tmp_path / "x", {**FOLDER, **OTHERS, "onnx/model.bin": b"1", "1_Pooling/config.json": b"{}", "d/": b""}
    )
    (tmp_path / "out").mkdir()
    found = unpack(path, tmp_path / "out", BUDGET)
    assert set(found.paths) == set(FOLDER)
    assert set(found.left_out) == {*OTHERS, "onnx/model.bin", "1_Pooling/config.json"}


FOLDERS: dict[str, tuple[list[str], list[str]]] = {
    "sentence transformer": (["config.json", "model.safetensors", "1_Pooling/config.json", "2_Dense/model.safetensors"],
                             ["config.json", "model.safetensors"]),
    "in a folder": (["m/config.json", "m/model.safetensors", "m/onnx/config.json", "notes/vocab.txt"],
                    ["config.json", "model.safetensors"]),
    "no config": (["a/b/weights.pt", "a/b/merges.txt", "vocab.json"], ["weights.pt", "merges.txt"]),
    "all below original": (["original/model.bin"], ["model.bin"]),
    "tokenizer alone": (["tokenizer.json"], ["tokenizer.json"]),
    "shards": (["a-1.safetensors", "a-2.safetensors", "a.safetensors.index.json"],
               ["a-1.safetensors", "a-2.safetensors", "a.safetensors.index.json"]),
}  # fmt: skip


@pytest.mark.parametrize(("names", "chosen"), FOLDERS.values(), ids=FOLDERS.keys())
def test_which_folder_is_the_checkpoint(tmp_path: Path, names: list[str], chosen: list[str]) -> None:
    assert unpacked(zipped(tmp_path / "x", {name: name.encode() for name in names})) == {
        name: next(full for full in names if full.endswith(name)).encode() for name in chosen
    }


def test_two_checkpoints_in_one_archive_are_named(tmp_path: Path) -> None:
    refused(zipped(tmp_path / "x", below("unet/") | below("vae/")), "'unet' and 'vae'")
    refused(zipped(tmp_path / "x", {"a/vocab.txt": b"1", "b/vocab.txt": b"2"}), "'a' and 'b'")


def test_a_runs_folder_is_opened_at_its_top(tmp_path: Path) -> None:
    earlier = {name: b"earlier" for name in below("checkpoint-500/")}
    path = tarred(tmp_path / "x", FOLDER | earlier)
    assert unpacked(path) == FOLDER
    assert set(unpack(path, tmp_path, BUDGET).left_out) == set(earlier)


@written
@pytest.mark.parametrize("name", ["../evil.bin", "a/../../evil.bin", "/etc/config.json", "C:\\a\\config.json",
                                  "..\\config.json", "\\\\host\\config.json", "../README"])  # fmt: skip
def test_names_that_lead_elsewhere_refuse_the_archive(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], Path], name: str
) -> None:
    refused(write(tmp_path / "x", {"config.json": b"{}", name: b"evil"}), re.escape(f"a member {name!r}"))


KINDS = {tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link", tarfile.FIFOTYPE: "pipe",
         tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", b"S": "sparse", b"Z": "special"}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_tar_with_anything_but_files_is_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "x", "w") as file:
        info = tarfile.TarInfo("config.json")
        info.type, info.linkname = kind, "/etc/passwd"
        file.addfile(info)
    refused(tmp_path / "x", KINDS[kind], "config.json")


def test_a_zip_with_a_link_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as file:
        info = zipfile.ZipInfo("config.json")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    refused(tmp_path / "x", "link")


@pytest.mark.parametrize("kind", ["zip", "gz", "bz2", "xz"])
def test_a_bomb_is_refused_before_it_unfolds(tmp_path: Path, kind: str) -> None:
    members = {"config.json": b"{}", "model.safetensors": bytes(40 << 20)}
    path = zipped(tmp_path / "x", members) if kind == "zip" else tarred(tmp_path / "x", members, kind)
    assert path.stat().st_size * MOST_RATIO < 40 << 20
    refused(path, r"\d+ times the size")
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) <= 2 << 20


def test_the_budget_holds_for_all_members_together(tmp_path: Path) -> None:
    members = {f"model-{n}.bin": random.Random(n).randbytes(40_000) for n in range(4)}
    for name, write in WRITERS.items():
        refused(write(tmp_path / "x", members), "larger than 100000 bytes", budget=100_000)
        assert len(list((tmp_path / "out").iterdir())) == 2, name


def directory_changed(path: Path, at: int, layout: str, value: int) -> Path:
    """A field of the last row of a zip's directory set to something else."""
    content = bytearray(path.read_bytes())
    struct.pack_into(layout, content, content.rindex(b"PK\x01\x02") + at, value)
    path.write_bytes(content)
    return path


LIES: dict[str, tuple[int, str, int, str]] = {
    "smaller": (24, "<I", 1, "other size or sum"),
    "larger": (24, "<I", 500_000, "other size or sum"),
    "sum": (16, "<I", 7, "other size or sum"),
    "packed beyond the file": (20, "<I", 1 << 30, "claims more bytes"),
    "encrypted": (8, "<H", 1, "encrypted"),
    "place": (42, "<I", 3, "contradicts itself"),
    "place of another": (42, "<I", 0, "share"),
    "method": (10, "<H", 99, "method 99"),
    "length of the name": (28, "<H", 3, "contradicts itself"),
    "comment": (32, "<H", 9, "contradicts itself"),
}


@pytest.mark.parametrize(("at", "layout", "value", "words"), LIES.values(), ids=LIES.keys())
def test_a_zip_that_lies_is_refused(tmp_path: Path, at: int, layout: str, value: int, words: str) -> None:
    path = zipped(tmp_path / "x", {"config.json": b"{}" * 9, "tokenizer.json": bytes(range(250)) * 1000})
    refused(directory_changed(path, at, layout, value), words)


def test_a_zip_must_begin_and_end_as_one(tmp_path: Path) -> None:
    content = zipped(tmp_path / "x", FOLDER).read_bytes()
    for changed in (content + b"tail", b"PK\x03\x04 head" + content, content + content, content[:-1]):
        (tmp_path / "x").write_bytes(changed)
        refused(tmp_path / "x", "contradicts itself|cut short")
    (tmp_path / "x").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "x", "cut short")


def test_a_zip_with_two_directories_is_refused(tmp_path: Path) -> None:
    """The large record and the small one may not tell of different ones: readers differ in which they follow."""
    content = bytearray(_torch())
    end = content.rindex(b"PK\x05\x06")
    count = struct.unpack_from("<H", content, end + 10)[0]
    for at, value in ((8, count - 1), (10, count - 1), (16, 5)):
        changed = content.copy()
        struct.pack_into("<H", changed, end + at, value)
        (tmp_path / "x").write_bytes(changed)
        with (tmp_path / "x").open("rb") as file, pytest.raises(CheckpointError, match="contradicts itself"):
            read_directory(file, len(content))


def test_a_comment_and_large_fields_are_understood(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as file:
        file.comment = b"PK\x05\x06 a comment that looks like an end"
        with file.open("config.json", "w", force_zip64=True) as member:
            member.write(b"{}")
    with (tmp_path / "x").open("rb") as file, pytest.raises(CheckpointError):  # two readings of where it ends
        read_directory(file, (tmp_path / "x").stat().st_size)
    with zipfile.ZipFile(tmp_path / "y", "w") as file:
        file.comment = b"a comment"
        with file.open("config.json", "w", force_zip64=True) as member:
            member.write(b"{}")
    assert unpacked(tmp_path / "y") == {"config.json": b"{}"}


def test_the_directory_is_what_zipfile_reads(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x", FOLDER | OTHERS)
    torch.save({"w": torch.ones(3)}, tmp_path / "y")  # with the large end record that torch always writes
    for place in (path, tmp_path / "y"):
        with place.open("rb") as file, zipfile.ZipFile(place) as oracle:
            ours = read_directory(file, place.stat().st_size)
            assert [(e.name, e.method, e.packed, e.bytes, e.crc) for e in ours] == [
                (e.filename, e.compress_type, e.compress_size, e.file_size, e.CRC) for e in oracle.infolist()
            ]
    assert all(entry.method == DEFLATED for entry in ours[:0])


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 3)
    monkeypatch.setattr(tars, "MOST_MEMBERS", 3)
    refused(zipped(tmp_path / "x", FOLDER | OTHERS), "7 members")
    refused(tarred(tmp_path / "x", OTHERS), "more than 3 members")


@pytest.mark.parametrize("kind", ["", "gz", "bz2", "xz"])
def test_a_tar_cut_anywhere_is_refused_or_whole(tmp_path: Path, kind: str) -> None:
    members = {"config.json": random.Random(0).randbytes(3000), "vocab.txt": random.Random(1).randbytes(3000)}
    content = tarred(tmp_path / "x", members, kind).read_bytes()
    for keep in range(1, len(content), len(content) // 25):
        (tmp_path / "x").write_bytes(content[:keep])
        for place in (tmp_path / "out").iterdir() if (tmp_path / "out").exists() else ():
            place.unlink()
        (tmp_path / "out").mkdir(exist_ok=True)
        try:
            found = unpack(tmp_path / "x", tmp_path / "out", BUDGET)
        except CheckpointError:
            continue
        assert all(place.read_bytes() == members[name] for name, place in found.paths.items())


def test_a_thousand_mutations_raise_nothing_else(tmp_path: Path) -> None:
    generator, opened = random.Random(0), 0
    members = {"config.json": b"{}" * 40, "vocab.txt": generator.randbytes(300)}
    contents = [write(tmp_path / "x", members).read_bytes() for write in WRITERS.values()]
    for n in range(1000):
        mutated = bytearray(contents[n % len(contents)])
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(mutated))
            mutated[at : at + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
        folder = tmp_path / f"out{n}"
        folder.mkdir()
        (tmp_path / "x").write_bytes(mutated)
        try:
            opened += bool(unpack(tmp_path / "x", folder, BUDGET).paths)
        except CheckpointError:
            pass
    assert 50 < opened < 950


# What a file is


def _torch(**how: object) -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2)}, buffer, **how)
    return buffer.getvalue()


def _written(write: Callable[[Path, dict[str, bytes]], Path], members: dict[str, bytes]) -> Callable[[Path], bytes]:
    return lambda folder: write(folder / "made", members).read_bytes()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548118077\n"
KNOWN: dict[str, tuple[bytes | Callable[[Path], bytes], str, str]] = {
    "torch": (_torch(), "torch", "PyTorch"),
    "torch legacy": (_torch(_use_new_zipfile_serialization=False), "torch-legacy", "PyTorch"),
    "torch legacy 4": (_torch(_use_new_zipfile_serialization=False, pickle_protocol=4), "torch-legacy", "PyTorch"),
    "pickle 0": (b"cposix\nsystem\n(S'id'\ntR.", "pickle", "pickle"),
    "pickle 1": (b"}q\x00.", "pickle", "pickle"),
    "pickle 4": (b"\x80\x04K\x01.", "pickle", "pickle"),
    "safetensors": (FOLDER["model.safetensors"], "safetensors", "safetensors"),
    "lfs": (LFS, "lfs", "a Git LFS pointer of 134 bytes, not the weights (which are 548,118,077 bytes)"),
    "web page": (b"\n<!DOCTYPE html><html>", "html", "web page"),
    "json": (json.dumps({"error": "not found"}).encode(), "json", "'error'"),
    "zip": (_written(zipped, FOLDER), "zip", "zipped folder"),
    "empty zip": (_written(zipped, {}), "zip", "zip"),
    "npz": (_written(zipped, {"a.npy": b""}), "npz", "NumPy"),
    "script": (_written(zipped, {"x/data.pkl": b"", "x/constants.pkl": b""}), "torchscript", "TorchScript"),
    "cut torch": (_torch()[:900], "torch", "zip"),
    "tar": (_written(tarred, FOLDER), "tar", "tar archive"),
    "gzip": (gzip.compress(b"x"), "gzip", "gzip"),
    "bzip2": (bz2.compress(b"x"), "bzip2", "bzip2"),
    "xz": (lzma.compress(b"x"), "xz", "xz"),
    "gguf": (b"GGUF" + bytes(20), "gguf", "GGUF"),
    "empty": (b"", "empty", "empty"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "hdf5", "HDF5"),
    "noise": (bytes(range(1, 200)), "unknown", "no known format"),
}


@pytest.mark.parametrize(("content", "kind", "words"), KNOWN.values(), ids=KNOWN.keys())
def test_a_file_is_called_what_it_is(
    tmp_path: Path, content: bytes | Callable[[Path], bytes], kind: str, words: str
) -> None:
    content = content if isinstance(content, bytes) else content(tmp_path)
    (tmp_path / "x").write_bytes(content)
    found = identify(tmp_path / "x")
    assert found.kind == kind and words in found.phrase
    if kind not in ("torch", "torchscript", "npz", "zip"):
        assert found.phrase == sniff(content[:4096], len(content))
    assert is_archive(tmp_path / "x") == (kind in ("zip", "tar"))


def test_a_numpy_archive_of_numpy_is_known(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.ones(3))
    assert identify(tmp_path / "x.npz").kind == "npz"
