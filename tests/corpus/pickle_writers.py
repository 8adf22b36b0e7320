"""Writers of PyTorch's own files: zip, the older form without a zip, bare pickles; good, unusual and evil."""

from __future__ import annotations

import argparse
import io
import os
import pathlib
import pickle
import struct
import sys
import types
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._utils import _rebuild_tensor_v2

from tests.corpus.case import FOREIGN, state, touching

ZERO_DATE = (1980, 1, 1, 0, 0, 0)


class Called:
    """Pickles as a call of ``function``: what a file makes of its reader when nothing stops it."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def zipped(value: Any, **options: Any) -> Callable[[Path], object]:
    return lambda path: torch.save(value, path, **options)


def legacy(value: Any, **options: Any) -> Callable[[Path], object]:
    """The older form. It calls storages by their addresses, and so differs a little at each call."""
    return zipped(value, _use_new_zipfile_serialization=False, **options)


def evil(save: Callable[[Any], Callable[[Path], object]], **beside: Any) -> Callable[[Path], object]:
    """A file that runs a shell command when it is unpickled."""
    return lambda path: save({**beside, "hook": Called(os.system, touching(path))})(path)


def bare(value: Any, protocol: int = 2) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(pickle.dumps(value, protocol))


def opcodes(make: Callable[[str], bytes]) -> Callable[[Path], object]:
    """A bare pickle that ``make`` writes by hand around the shell command."""
    return lambda path: path.write_bytes(make(touching(path)))


def quoted(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


class Storage:
    """A storage record that a hand-made archive refers to."""

    def __init__(self, key: str, numel: int, kind: Any = torch.FloatStorage) -> None:
        self.reference = ("storage", kind, key, "cpu", numel)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.reference if isinstance(value, Storage) else None


def view(storage: Storage, shape: tuple[int, ...], stride: tuple[int, ...] = (1,), offset: int = 0) -> Called:
    """A tensor that lies in a storage as told, true or not."""
    return Called(_rebuild_tensor_v2, storage, offset, shape, stride, False, OrderedDict())


def archive(
    value: Any, records: Mapping[str, bytes], more: Mapping[str, bytes] | None = None
) -> Callable[[Path], object]:
    """A hand-made zip checkpoint: any object, any records."""

    def write(path: Path) -> None:
        buffer = io.BytesIO()
        _Pickler(buffer, 2).dump(value)
        parts = {"data.pkl": buffer.getvalue(), "byteorder": b"little", "version": b"3\n"}
        parts |= {f"data/{key}": data for key, data in records.items()} | dict(more or {})
        write_zip(path, [(f"archive/{name}", data) for name, data in parts.items()])

    return write


def write_zip(path: Path, entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> None:
    """A zip of these entries, names repeated where the list repeats them, the same at each call."""
    import warnings

    with zipfile.ZipFile(path, "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that stands there twice: that is the point
        for name, data in entries:
            file.writestr(zipfile.ZipInfo(name, ZERO_DATE), data, method)


def rewritten(
    write: Callable[[Path], object], change: Callable[[list[tuple[str, bytes]]], None]
) -> Callable[[Path], object]:
    """The zip that ``write`` writes, its entries changed."""

    def again(path: Path) -> None:
        write(path)
        with zipfile.ZipFile(path) as file:
            entries = [(info.filename, file.read(info)) for info in file.infolist()]
        change(entries)
        write_zip(path, entries)

    return again


def inflating(path: Path, mebibytes: int = 1024) -> None:
    """A torch zip whose one record is deflated from ``mebibytes`` of zeros to a thousandth; built without them."""
    block, packer = bytes(1 << 20), zlib.compressobj(9, zlib.DEFLATED, -15)
    packer.compress(block)
    packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # stands for itself after a full flush
    checksum = 0
    for _ in range(mebibytes):
        checksum = zlib.crc32(block, checksum)
    numel = mebibytes << 18
    archive({"w": view(Storage("0", numel), (numel,))}, {})(path)
    name, data, size = b"archive/data/0", piece * mebibytes + packer.flush(), mebibytes << 20
    with path.open("rb") as file, zipfile.ZipFile(file) as whole:
        start, count = whole.start_dir, len(whole.infolist())
    raw = path.read_bytes()
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, checksum, len(data), size, len(name), 0)
    local = b"PK\x03\x04" + fields + name + data
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, start) + name
    directory = raw[start : raw.rindex(b"PK\x05\x06")] + central
    end = struct.pack("<HHHHIIH", 0, 0, count + 1, count + 1, len(directory), start + len(local), 0)
    path.write_bytes(raw[:start] + local + directory + b"PK\x05\x06" + end)


def laughing(seed: Any = "ha", levels: int = 40) -> Any:
    """Lists of lists, two to the ``levels`` of them when walked, a few bytes in the file."""
    value = seed
    for _ in range(levels):
        value = [value, value]
    return value


def views_of_one(count: int = 10_000, numel: int = 1 << 16) -> dict[str, Any]:
    """So many tensors that all lie on one storage of 256 KB: gigabytes, once something copies them."""
    one = torch.ones(numel)
    return {f"{i}.weight": one.view(-1, 256) for i in range(count)}


def laughing_tables(levels: int = 40) -> dict[str, Any]:
    """Tables of tables, with a tensor at the bottom of each of two to the ``levels`` ways."""
    value: Any = torch.ones(2)
    for _ in range(levels):
        value = {"a": value, "b": value}
    return value


def containing_itself() -> dict[str, Any]:
    table: dict[str, Any] = {"model": state()}
    table["self"] = table
    return table


def nested(levels: int) -> bytes:
    """A bare pickle of lists within lists, deeper than any recursion allows."""
    return b"\x80\x02" + b"]" * levels + b"a" * (levels - 1) + b"."


HASHED = b"\x80\x02}" + b"X\x01\x00\x00\x00a" + b"2\x86" * 60 + b"K\x01s."
"""A dictionary whose key is a pair of pairs, 60 deep: to hash it takes 2^60 steps."""


def foreign_module(path: Path) -> None:
    """A whole module of a class that is ours nowhere, as ``torch.save(model)`` writes it."""
    module = types.ModuleType(FOREIGN)
    net = type("Net", (nn.Module,), {"__module__": FOREIGN})
    module.Net = net  # type: ignore[attr-defined]
    sys.modules[FOREIGN] = module
    try:
        model = net()
        model.first, model.second = nn.Linear(4, 6), nn.Linear(6, 3)
        model.load_state_dict(state())
        torch.save(model, path)
    finally:
        del sys.modules[FOREIGN]


def plain_module() -> nn.Module:
    model = nn.Sequential(OrderedDict(first=nn.Linear(4, 6), second=nn.Linear(6, 3)))
    model.load_state_dict(state())
    return model


def foreign_global(path: Path) -> None:
    """A bare pickle that only names a class of the module that must not be imported."""
    path.write_bytes(b"\x80\x02c" + FOREIGN.encode() + b"\nNet\n.")


def training(**more: Any) -> dict[str, Any]:
    """What a training loop saves: weights, their average, moments of the optimizer, counters."""
    moments = {i: {"exp_avg": t.clone(), "exp_avg_sq": t.clone()} for i, t in enumerate(state(2).values())}
    groups = [{"lr": 1e-3, "params": list(moments)}]
    return {"model": state(), "optimizer": {"state": moments, "param_groups": groups}, "epoch": 3,
            "rng": torch.arange(16, dtype=torch.uint8), **more}  # fmt: skip


def prefixed(*prefixes: str) -> dict[str, Tensor]:
    return {prefixes[i % len(prefixes)] + name: tensor for i, (name, tensor) in enumerate(state().items())}


def numpy_file(path: Path) -> None:
    with path.open("wb") as file:  # given a name, numpy would append its own ending
        np.savez(file, w=np.zeros((2, 2)))


def gzipped(path: Path) -> None:
    import gzip

    torch.save(state(), buffer := io.BytesIO())
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def short(path: Path) -> None:
    """The largest record holds half of what its tensor needs."""
    archive({"w": view(Storage("0", 64), (8, 8), (8, 1))}, {"0": bytes(128)})(path)


def sparse_tensor() -> dict[str, Any]:
    return {**state(), "extra": torch.eye(4).to_sparse()}


def owned(save: Callable[[Any], Callable[[Path], object]]) -> Callable[[Path], object]:
    value = training(best=np.float64(0.5), args=argparse.Namespace(lr=1e-3), out=pathlib.PosixPath("runs/1"))
    return save(value)


def system(protocol: int) -> Callable[[Path], object]:
    return lambda path: bare({"hook": Called(os.system, touching(path))}, protocol)(path)


def doubled(entries: list[tuple[str, bytes]]) -> None:
    pickled = next(data for name, data in entries if name.endswith("data.pkl"))
    name = next(name for name, _ in entries if name.endswith("data.pkl"))
    entries.append((name, pickled))


def recased(entries: list[tuple[str, bytes]]) -> None:
    entries.append((entries[0][0].upper(), entries[0][1]))
