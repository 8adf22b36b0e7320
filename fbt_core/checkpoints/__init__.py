"""From what the user has to a ``Checkpoint``: find its files, check their headers, find its reader.

A new format is one row of ``READERS``. Nothing in a file is executed or imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fbt_core.checkpoints import gguf, huggingface, lora, native, weights_only
from fbt_core.checkpoints.case import Case, kind_of, open_case
from fbt_core.checkpoints.checkpoint import Checkpoint, Origin
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Source, gathered
from fbt_core.checkpoints.inspection import Inspection, line, of_weights
from fbt_core.checkpoints.memory import check_fits
from fbt_core.checkpoints.state_dicts import SeveralParts

__all__ = [
    "READERS",
    "Checkpoint",
    "CheckpointError",
    "Inspection",
    "Origin",
    "Reader",
    "SeveralParts",
    "inspect",
    "load",
]


@dataclass(frozen=True)
class Reader:
    """One format: ``accepts`` looks at headers and config.json only, ``read`` gives the checkpoint, ``look`` what
    is known without it."""

    name: str
    suffix: str  # what such files are usually called, for a file chooser; never trusted
    accepts: Callable[[Case], bool]
    read: Callable[[Case], Checkpoint]
    look: Callable[[Inspection, Case], Inspection]


READERS: dict[str, Reader] = {
    "gguf": Reader("GGUF", ".gguf", gguf.accepts, gguf.read, gguf.look),
    "fiberscope": Reader("Fiberscope checkpoint", ".safetensors", native.is_native, native.read, native.look),
    "lora": Reader("LoRA adapter", "folder", lora.accepts, lora.read, lora.look),
    "huggingface": Reader("Hugging Face model", "folder", huggingface.accepts, huggingface.read, huggingface.look),
    "weights": Reader("weights", ".safetensors, .pt, .bin", weights_only.accepts, weights_only.read, weights_only.look),
}
"""The first that accepts a case reads it."""


def load(
    source: Source, name: str | None = None, part: str | None = None, base: Checkpoint | None = None
) -> Checkpoint:
    """The checkpoint of a file, a folder, an archive, or several files.

    ``name`` is what to call it (default: the file's own name), ``part`` which of several state dicts in a file, and
    ``base`` what an adapter is put on. Raises ``CheckpointError`` (got, expected, remedy) for everything that cannot
    be used, and ``OSError`` for a file that cannot be read. All tensors are read into memory: a file that is
    overwritten meanwhile can give an error but not a crash.
    """
    with gathered(source, name) as files:
        case = open_case(files, part, base)
        return _reader(case).read(case)


def inspect(source: Source, name: str | None = None, part: str | None = None) -> Inspection:
    """What a source holds, from headers alone. Never raises for a bad file: ``ok`` is False, ``message`` says why."""
    path = name or (str(source) if isinstance(source, (str, Path)) else " + ".join(map(str, source)))
    found = Inspection(path, False, "unknown", "")
    try:
        with gathered(source, name) as files:
            sizes = [file.stat().st_size for file in files.paths.values()]
            found = replace(found, format=kind_of(files), bytes=sum(sizes))
            case = open_case(files, part)
            found = replace(of_weights(path, case), ok=False)
            found = _reader(case).look(replace(found, ok=True), case)
            if found.ok:
                check_fits(found.needed_bytes)
            return found
    except SeveralParts as fault:
        can = (f"Open one of its {len(fault.parts)} state dicts, when one is chosen.",)
        return replace(found, ok=True, message=line(fault), parts=fault.parts, can=can)
    except CheckpointError as fault:
        return replace(found, ok=False, message=line(fault), can=())
    except OSError as fault:
        return replace(found, ok=False, message=f"cannot be read: {fault.strerror or type(fault).__name__}", can=())


def _reader(case: Case) -> Reader:
    return next(reader for reader in READERS.values() if reader.accepts(case))
