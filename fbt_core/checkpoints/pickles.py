"""PyTorch checkpoints (``.pt``, ``.pth``, ``.bin``, ``.ckpt``): what is in them, and their numbers, running nothing.

``plan`` finds what the file's pickle would build (``pickle_plan``, in a child process) and where each storage's
bytes lie; ``read_tensors`` reads those bytes into memory of its own. Neither ``torch.load`` nor ``pickle`` is used, and
no part of the file is mapped: a file that is overwritten meanwhile gives an error or other numbers, not a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from torch import Tensor

from fbt_core.checkpoints.child import Limits, run_python
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.pickle_plan.names import MOST_PICKLE_BYTES, SIMPLER, SIZES
from fbt_core.checkpoints.sniff import identify
from fbt_core.checkpoints.storages import Place, StoredTensor, read_stored
from fbt_core.checkpoints.zips import STORED, ZipEntry, read_directory

DAMAGED = "The file is damaged or was not written by torch.save: copy, download or save it again."
AGAIN = "Copy or download it again."
LIMITS = Limits(memory=2 << 30, seconds=30.0, output=128 << 20)
PROGRAM = f"""
import gc, sys
gc.disable()
sys.path.append({str(Path(__file__).resolve().parent)!r})
from pickle_plan.__main__ import main
main(*sys.argv[1:])
"""
"""Found by its folder and not as a part of ``fbt_core``, whose import would load torch. What it builds lasts until its
end: to search that for garbage would take as long as to build it.
"""


@dataclass(frozen=True)
class PicklePlan:
    """What a PyTorch file holds, from its pickle and its directory alone: no tensor has been read."""

    form: str  # "zip", or "legacy" for the form without a zip that torch wrote before 1.6
    tensors: tuple[StoredTensor, ...]
    storages: dict[str, tuple[int, int]]  # first byte in the file, number of bytes
    values: dict[Place, Any]  # plain scalars, and short lists of them, by their place: epochs, settings
    unreadable: dict[tuple[Place, str], str]  # container and name of what is a tensor but cannot be read: why
    ignored: tuple[str, ...]  # classes and functions that other objects of the file would have needed

    def containers(self) -> dict[Place, dict[str, StoredTensor]]:
        """The tensors by container, both in the order of the file."""
        found: dict[Place, dict[str, StoredTensor]] = {}
        for tensor in self.tensors:
            found.setdefault(tensor.container, {})[tensor.name] = tensor
        return found


def plan(path: Path) -> PicklePlan:
    """The plan of a PyTorch file, zip or legacy, told apart by its content.

    Raises ``CheckpointError`` for what is damaged, cut short, ambiguous, made to do harm, or not a PyTorch file, and
    ``OSError`` where it cannot be read.
    """
    size, sniffed = path.stat().st_size, identify(path)
    if sniffed.kind not in ("torch", "torchscript", "torch-legacy", "pickle"):
        raise CheckpointError(sniffed.phrase, "a file of torch.save", "Choose the weights themselves.")
    with path.open("rb") as file:
        if sniffed.kind.startswith("torch") and sniffed.kind != "torch-legacy":
            entries, prefix = _records(read_directory(file, size))
            record = entries[f"{prefix}data.pkl"]
            if record.packed > MOST_PICKLE_BYTES:
                raise CheckpointError(f"a pickle of {record.packed} bytes", f"at most {MOST_PICKLE_BYTES}", SIMPLER)
            _check_byte_order(file, entries.get(f"{prefix}byteorder"))
            found = _interpret(path, "zip", record.start, record.start + record.packed)
            places = _zip_places(entries, prefix, found["storages"])
        else:
            found = _interpret(path, "legacy", 0, min(size, MOST_PICKLE_BYTES))
            places = _legacy_places(file, size, found)
    return _plan("zip" if "end" not in found else "legacy", found, places)


def read_tensors(
    path: Path, found: PicklePlan, container: Sequence[str | int] = (), names: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """The tensors of a container (all, or the named ones), bit for bit, with the file's dtypes, shapes and strides.

    Only the part of a storage that they need is read, once: tensors that shared memory share it again, and the sum of
    their sizes can exceed what is allocated. Raises ``CheckpointError`` when the file no longer has those bytes.
    """
    held = found.containers().get(tuple(container), {})
    wanted = [held[name] for name in (held if names is None else names)]
    return read_stored(path, found.storages, wanted)


def _interpret(path: Path, form: str, start: int, stop: int) -> dict[str, Any]:
    arguments = ["-I", "-S", "-c", PROGRAM, str(path.resolve()), form, str(start), str(stop)]
    found = json.loads(run_python(arguments, "scan", LIMITS))
    if "fault" in found:
        raise CheckpointError(*found["fault"])
    return found


def _records(listed: list[ZipEntry]) -> tuple[dict[str, ZipEntry], str]:
    """The members by name, and the folder that all of them are in; none may be compressed."""
    entries = {entry.name: entry for entry in listed}
    pickles = [name for name in entries if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise CheckpointError(
            f"a zip file with {len(pickles)} members data.pkl", "one, as torch.save writes it", DAMAGED
        )
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in entries:
        raise CheckpointError(
            "a TorchScript program (torch.jit.save)", "weights", "Save its state_dict() with torch.save."
        )
    for entry in listed:
        if entry.method != STORED:
            raise CheckpointError(
                f"a PyTorch file with a compressed member {entry.name[:80]!r} ({entry.packed} bytes for {entry.bytes})",
                "members as they are, as torch.save writes them", "Save it again with torch.save.",
            )  # fmt: skip
    return entries, prefix


def _check_byte_order(file: BufferedIOBase, record: ZipEntry | None) -> None:
    if record is None:  # older versions wrote none
        return
    file.seek(record.start)
    if (order := file.read(min(record.packed, 20))) != b"little":
        raise CheckpointError(
            f"numbers in byte order {order.decode('latin-1')!r}", "'little'", "Save it on a little-endian machine."
        )


def _zip_places(
    entries: dict[str, ZipEntry], prefix: str, storages: dict[str, list[Any]]
) -> dict[str, tuple[int, int]]:
    places = {}
    for key, (_, claimed) in storages.items():
        entry = entries.get(f"{prefix}data/{key}")
        held = entry.packed if entry else 0
        if entry is None or held < claimed:
            raise CheckpointError(f"storage {key!r} of {held} bytes, {claimed} claimed", "all of them", AGAIN)
        places[key] = (entry.start, claimed)
    return places


def _legacy_places(file: BufferedIOBase, size: int, found: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The storages stand behind the pickles, each behind a count of its elements."""
    storages, places, at = found["storages"], {}, found["end"]
    if sorted(map(str, found["keys"])) != sorted(storages):
        raise CheckpointError("a list of storages that is not the one in use", "the same storages", DAMAGED)
    whole = at + sum(8 + claimed for _, claimed in storages.values())
    if whole > size:
        raise CheckpointError(f"a PyTorch file cut short: {size} of {whole} bytes", "all of them", AGAIN)
    for key in found["keys"]:
        dtype, claimed = storages[key]
        file.seek(at)
        count = int.from_bytes(file.read(8), "little")
        if count * SIZES[dtype] != claimed:
            raise CheckpointError(f"storage {key!r} with {count} numbers stored", f"{claimed} bytes", DAMAGED)
        places[key] = (at + 8, claimed)
        at += 8 + claimed
    return places


def _plan(form: str, found: dict[str, Any], places: dict[str, tuple[int, int]]) -> PicklePlan:
    tensors = tuple(
        StoredTensor(tuple(container), name, dtype, storage, offset, tuple(shape), tuple(stride))
        for container, name, dtype, storage, offset, shape, stride in found["tensors"]
    )
    seen: set[tuple[Place, str]] = set()
    for tensor in tensors:
        if (tensor.container, tensor.name) in seen:
            raise CheckpointError(f"two tensors named {tensor.name[:120]!r} in one table", "one", DAMAGED)
        seen.add((tensor.container, tensor.name))
    values = {tuple(place): value for place, value in found["values"]}
    unreadable = {(tuple(container), name): why for container, name, why in found["unreadable"]}
    return PicklePlan(form, tensors, places, values, unreadable, tuple(found["ignored"]))
