"""What is to be read: files of one checkpoint, their weights by header, and what was asked about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fbt_core.checkpoints.checkpoint import Checkpoint, Origin
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Files
from fbt_core.checkpoints.gguf_header import read_gguf_header
from fbt_core.checkpoints.header import TensorEntry
from fbt_core.checkpoints.sniff import identify
from fbt_core.checkpoints.state_dicts import pytorch_weights
from fbt_core.checkpoints.weights import Weights, safetensors_weights, weight_files

GGUF = "GGUF"


@dataclass(frozen=True)
class Case:
    """One checkpoint before it is read. ``table`` is its config.json, empty without one."""

    files: Files
    weights: Weights
    table: Mapping[str, Any]
    part: str | None = None
    base: Checkpoint | None = None  # that an adapter is put on

    def origin(self, digest: str) -> Origin:
        """Where it came from, once its sum is known."""
        return Origin(self.files.label, self.weights.format, digest, self.weights.bytes)


def open_case(files: Files, part: str | None = None, base: Checkpoint | None = None) -> Case:
    """The case of these files, from headers alone.

    Raises ``CheckpointError``; of several state dicts without a choice, ``SeveralParts``.
    """
    paths, index = weight_files(files)
    weights = _weights(paths, index, part)
    if part is not None and part not in weights.parts and weights.parts:
        raise CheckpointError(f"the part {part[:80]!r}", "one that is there", "Choose another part.")
    return Case(files, weights, files.json("config.json"), part, base)


def kind_of(files: Files) -> str:
    """A noun phrase for the first of the weights, or of all files, by its content."""
    name = next(iter(files.weights() or files.paths))
    return identify(files.paths[name]).phrase


def _weights(paths: Mapping[str, Path], index: Mapping[str, str] | None, part: str | None) -> Weights:
    """By the first file's content: all shards are of one kind, and each kind's reader refuses another."""
    first = next(iter(paths.values()))
    found = identify(first)
    if found.kind == "safetensors":
        return safetensors_weights(paths, index)
    if found.kind == "gguf":
        return _gguf(first)
    if found.kind in ("torch", "torch-legacy", "torchscript", "pickle"):
        return pytorch_weights(paths, index, part)
    raise CheckpointError(found.phrase, "weights: safetensors, PyTorch or GGUF", "Choose the weights themselves.")


def _gguf(path: Path) -> Weights:
    """A GGUF file by its header; its numbers come by a conversion only."""
    header = read_gguf_header(path)
    entries = {name: TensorEntry(t.type, t.shape, t.start, t.start + t.bytes) for name, t in header.tensors.items()}
    return Weights(GGUF, entries, path.stat().st_size, _unread, {"architecture": header.architecture})


def _unread() -> Any:
    raise AssertionError("a GGUF file is converted before it is read")
