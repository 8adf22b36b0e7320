"""A packed folder (zip, tar, tar.gz, tar.bz2, tar.xz): the files of one checkpoint, streamed out under names of ours.

Nothing is extracted by a library. Only regular members with a base name of ``NAMED`` or ``SUFFIXES`` are read; names
that climb or are absolute, links, devices and pipes refuse the whole archive, since no honest tool writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.sniff import identify, is_tar
from fbt_core.checkpoints.tars import members
from fbt_core.checkpoints.unpacking import CHUNK, DAMAGED, PACKED, Unpacking, check_ratio, unzipped
from fbt_core.checkpoints.zips import read_directory

MOST_ENTRIES = 10_000
MOST_LEFT_OUT = 50
NAMED = frozenset((
    "config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json",
    "merges.txt", "special_tokens_map.json", "added_tokens.json", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model", "adapter_config.json",
))  # fmt: skip
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
SUFFIXES = (*WEIGHTS, ".index.json")
SIDE_FOLDERS = re.compile(r"\d+_[A-Za-z]\w*|onnx|openvino|original|coreml|flax|tf|runs|logs|__MACOSX|\..*")
"""Folders inside a model's folder that hold parts or copies of it, such as 1_Pooling of sentence-transformers."""

HOSTILE = "It may be made to do harm: unpack it yourself with care, and choose the files."


@dataclass(frozen=True)
class Unpacked:
    """``paths``: base name to where that file was written. ``left_out``: other members, the first of them."""

    paths: dict[str, Path]
    left_out: tuple[str, ...]


def is_archive(path: Path) -> bool:
    """Whether a file is a folder packed into one, by its content; a PyTorch or NumPy zip is not, nor a lone .gz."""
    return _kind(path) != ""


def _kind(path: Path) -> str:
    """The kind of archive, "" if it is none. Whether a packed file is a tar shows in its first unpacked block."""
    kind = identify(path).kind
    if kind not in ("zip", "tar", *PACKED):
        return ""
    if kind in PACKED:
        with path.open("rb") as file:
            try:
                first = Unpacking(file, path.stat().st_size, kind).take(512)
            except CheckpointError:
                return ""
        return kind if is_tar(first) else ""
    return kind


def unpack(path: Path, folder: Path, budget: int) -> Unpacked:
    """The files of the one checkpoint in an archive, written into ``folder``, together at most ``budget`` bytes.

    Raises ``CheckpointError`` for an archive that is damaged or dangerous, holds two checkpoints or none, or grows
    beyond the budget or more than weights can, and ``OSError`` when ``folder`` cannot be written. What was
    written up to then is left there for the caller to delete.
    """
    kind, size = _kind(path), path.stat().st_size
    if not kind:
        raise CheckpointError(identify(path).phrase, "a zip or tar archive of a folder", "Pack the folder as zip.")
    sink = _Sink(folder, budget)
    with path.open("rb") as file:
        left_out = _unzip(file, size, sink) if kind == "zip" else _untar(file, size, kind, sink)
    written = sink.written
    if not written:
        inside = f" (it holds {', '.join(repr(name[:60]) for name in left_out[:5])})" if left_out else ""
        got = f"an archive with no file of a checkpoint in it{inside}"
        raise CheckpointError(got, "config.json, weights and a tokenizer", "Pack the folder that holds them.")
    chosen = _one_folder(written)
    paths = {PurePosixPath(name).name: place for name, place in written.items() if name in chosen}
    others = [name for name in written if name not in chosen]
    return Unpacked(paths, (*others, *left_out)[:MOST_LEFT_OUT])


class _Sink:
    """Where members go: numbered files, and a budget that counts every byte of them."""

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.left, self.budget = folder, budget, budget
        self.written: dict[str, Path] = {}
        self.taken: set[str] = set()

    def wants(self, name: str) -> bool:
        """Whether a member is to be read. Raises ``CheckpointError`` for a name that no honest tool writes."""
        parts = re.split(r"[/\\]", name)
        if ".." in parts or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or "\0" in name:
            raise CheckpointError(f"an archive with a member {name[:120]!r}", "names inside its folder", HOSTILE)
        base, above = parts[-1], parts[:-1]
        wanted = base in NAMED or base.lower().endswith(SUFFIXES)
        return wanted and not base.startswith(".") and not {"__MACOSX"} & set(above) and "\\" not in name

    def write(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        name = str(PurePosixPath(name))
        if name.casefold() in self.taken:
            raise CheckpointError(f"{name[:120]!r} twice in an archive", "each name once, whatever its case", DAMAGED)
        self.taken.add(name.casefold())
        if size > self.left:
            raise CheckpointError(
                f"an archive whose files are larger than {self.budget} bytes ({name[:120]!r})", "at most that",
                "Choose the files of the checkpoint themselves.",
            )  # fmt: skip
        self.left -= size
        self.written[name] = self.folder / f"member-{len(self.written)}"
        with self.written[name].open("xb") as file:
            for chunk in chunks:
                file.write(chunk)


def _unzip(file: BufferedIOBase, size: int, sink: _Sink) -> list[str]:
    left_out = []
    for entry in read_directory(file, size, MOST_ENTRIES):
        if not entry.regular and not entry.name.endswith("/"):
            raise CheckpointError(
                f"a link or device {entry.name[:120]!r} in a zip file", "regular files", "Pack the files themselves."
            )
        if not sink.wants(entry.name):
            left_out += [entry.name] * (not entry.name.endswith("/"))
            continue
        check_ratio(entry.name, entry.bytes, entry.packed)
        sink.write(entry.name, entry.bytes, unzipped(file, entry))
    return left_out


def _untar(file: BufferedIOBase, size: int, kind: str, sink: _Sink) -> list[str]:
    stream, left_out = Unpacking(file, size, kind), []
    for member in members(stream.take):
        stream.check(stream.at + member.bytes)
        wanted = sink.wants(member.name) and not member.folder
        if wanted:
            sink.write(member.name, member.bytes, _pieces(stream, member.bytes))
        else:
            left_out += [member.name] * (not member.folder)
        for _ in _pieces(stream, member.padded - member.bytes * wanted):
            pass
    return left_out


def _pieces(stream: Unpacking, count: int) -> Iterator[bytes]:
    while count:
        piece = stream.take(min(count, CHUNK))
        if not piece:
            raise CheckpointError(f"a tar file cut short: {count} bytes are missing", "the whole file", DAMAGED)
        count -= len(piece)
        yield piece


def _one_folder(names: Iterable[str]) -> set[str]:
    """The names in the folder of the checkpoint: the one that holds weights or a config, side folders left aside.

    Of several, the one that all others are in.
    """
    folders: dict[PurePosixPath, set[str]] = {}
    for name in names:
        folders.setdefault(PurePosixPath(name).parent, set()).add(name)
    main = [folder for folder in folders if not any(SIDE_FOLDERS.fullmatch(part) for part in folder.parts)]
    main = main or list(folders)
    holding = [folder for folder in main if any(_counts(name) for name in folders[folder])] or main
    outer = min(holding, key=lambda folder: len(folder.parts))  # a run's folder holds its earlier steps' folders
    if all(outer == folder or outer in folder.parents for folder in holding):
        return folders[outer]
    shown = " and ".join(repr(str(folder)[:80]) for folder in sorted(holding)[:4])
    raise CheckpointError(
        f"an archive with a checkpoint in each of the folders {shown}", "one folder of one", "Pack one folder alone."
    )


def _counts(name: str) -> bool:
    base = PurePosixPath(name).name
    return base == "config.json" or base.lower().endswith(WEIGHTS)
