"""GGUF files: checked by their header, converted by the libraries in a child process, and then read as a folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path

from fbt_core.checkpoints import gguf_convert, huggingface
from fbt_core.checkpoints.case import GGUF, Case, open_case
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.checkpoints.child import Limits, run_python
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import gathered
from fbt_core.checkpoints.inspection import MODEL, Inspection, counted
from fbt_core.checkpoints.memory import check_fits

OTHER = "Open the original Hugging Face model."
LIBRARIES = 8 << 30  # of address space, which torch and transformers map before they do anything
LEAST_SECONDS, BYTES_A_SECOND = 120.0, 4 << 20
FLOAT32 = 4
"""Bytes of a number that the blocks were turned into: exact for every type of block."""


def accepts(case: Case) -> bool:
    """Whether the weights are a GGUF file's."""
    return case.weights.format == GGUF


def read(case: Case) -> Checkpoint:
    """The model of a GGUF file in float32, with its tokenizer. Raises ``CheckpointError``."""
    check_fits(needed_bytes(case))
    path = next(path for name, path in case.files.paths.items() if name in case.files.weights())
    with _converted(path, needed_bytes(case)) as folder, gathered(folder, case.files.label) as files:
        inner = open_case(files)
        if not huggingface.accepts(inner):
            raise CheckpointError(f"a GGUF file of {architecture(case)!r}", "a model type of transformers", OTHER)
        found = huggingface.read(inner)
    origin = replace(found.origin, format=f"{GGUF} ({blocks(case)})", sha256=_sum(path), bytes=case.weights.bytes)
    notice = f"The blocks ({blocks(case)}) were turned into the float32 numbers that they stand for."
    return replace(found, origin=origin, notices=(notice, *found.notices))


def architecture(case: Case) -> str:
    """What llama.cpp calls the model."""
    return case.weights.metadata.get("architecture", "")[:60]


def blocks(case: Case) -> str:
    """The types of blocks of most numbers, such as "Q4_1, F32"."""
    counts: Counter[str] = Counter()
    for entry in case.weights.entries.values():
        counts[entry.dtype] += prod(entry.shape)
    return ", ".join(name for name, _ in counts.most_common(3))


def needed_bytes(case: Case) -> int:
    """Memory that the model takes once its blocks are numbers."""
    return FLOAT32 * sum(prod(entry.shape) for entry in case.weights.entries.values())


@contextmanager
def _converted(path: Path, size: int) -> Iterator[Path]:
    """A folder of ours with the converted model, while the context lasts."""
    folder = Path(tempfile.mkdtemp(prefix="fiberscope-gguf-"))
    try:
        if shutil.disk_usage(folder).free < size + (1 << 28):
            raise CheckpointError(f"a model of {size:,} bytes", "as much free disk", "Free some disk.")
        (folder / "model.gguf").symlink_to(path.resolve())
        out = folder / "converted"
        out.mkdir()
        limits = Limits(memory=LIBRARIES + 4 * size, seconds=LEAST_SECONDS + size / BYTES_A_SECOND, output=1 << 20)
        script = str(Path(gguf_convert.__file__).resolve())
        command = ["-I", script, str(folder / "model.gguf"), str(out)]
        answer = run_python(command, "convert", limits, {"TMPDIR": str(folder)})  # what a library leaves, goes with it
        if fault := json.loads(answer)["fault"]:
            got = f"a GGUF file that the libraries cannot convert ({str(fault)[:300]!r})"
            raise CheckpointError(got, "one that transformers and gguf can", OTHER)
        yield out
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def look(found: Inspection, case: Case) -> Inspection:
    """What the header tells; whether the libraries can convert it shows only then."""
    what = f"GGUF of {architecture(case)!r}, to be converted to float32"
    return replace(
        found, message=counted(found, what), architecture=architecture(case), needed_bytes=needed_bytes(case),
        quantisation=blocks(case), can=MODEL,
    )  # fmt: skip
