"""The tensors of a checkpoint before they are read: names, dtypes and shapes from headers, and how to read them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Files
from fbt_core.checkpoints.header import Header, TensorEntry
from fbt_core.checkpoints.health import few
from fbt_core.checkpoints.tensors import open_header, read_tensors

MOST_SHARDS = 1000
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin|pt|pth)")


@dataclass(frozen=True)
class Weights:
    """Tensors known by their headers alone. ``read`` gives them, and the SHA-256 of the file or of all shards."""

    format: str
    entries: Mapping[str, TensorEntry]
    bytes: int  # of the files
    read: Callable[[], tuple[dict[str, Tensor], str]]
    metadata: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # state dicts to choose from, the chosen one included; () for one alone
    ignored: tuple[str, ...] = ()  # objects of a pickle that were left as they are
    training: Mapping[str, Any] = field(default_factory=dict)  # plain values that stand beside the weights


def safetensors_weights(paths: Mapping[str, Path], index: Mapping[str, str] | None = None) -> Weights:
    """One safetensors file or all shards of one checkpoint. Raises ``CheckpointError``."""
    headers = {name: open_header(path) for name, path in paths.items()}
    entries = merged({name: header.tensors for name, header in headers.items()}, index)
    metadata = next(iter(headers.values())).metadata if len(headers) == 1 else {}
    many = f" in {len(paths)} shards" if len(paths) > 1 else ""
    size = sum(path.stat().st_size for path in paths.values())
    return Weights(f"safetensors{many}", entries, size, lambda: _read(paths, headers), metadata)


def merged(
    shards: Mapping[str, Mapping[str, TensorEntry]], index: Mapping[str, str] | None = None
) -> dict[str, TensorEntry]:
    """The tensors of all shards. Raises ``CheckpointError`` for one that two shards hold, or that its shard lacks."""
    found: dict[str, TensorEntry] = {}
    for shard, entries in shards.items():
        if twice := [name for name in entries if name in found]:
            got = f"{few(twice)} in {shard[:80]!r} and in another shard"
            raise CheckpointError(got, "each tensor once", "Use the shards of one checkpoint.")
        found.update(entries)
    if lost := [name for name, shard in (index or {}).items() if name not in shards[shard]]:
        raise CheckpointError(
            f"shards without {few(lost)}", "what the index lists", "Download or save the shards again."
        )
    return found


def together(digests: Mapping[str, str]) -> str:
    """One SHA-256: the file's own, or for several files that of the lines "sum  name" in the order of the names."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def weight_files(files: Files) -> tuple[dict[str, Path], dict[str, str] | None]:
    """The files that hold the weights, by base name, and the index from tensor to file where there is one.

    Raises ``CheckpointError`` if there are none, if shards are missing, or if several files could be meant.
    """
    indices = [name for name in files.paths if name.endswith(".index.json") and "model.safetensors" not in files.paths]
    if indices:
        chosen = sorted(indices, key=lambda name: (not name.endswith(".safetensors.index.json"), name))[0]
        return _indexed(files, chosen)
    names = files.weights()
    shards = [name for name in names if SHARD.fullmatch(name)]
    if shards and len(shards) == len(names):
        _check_complete(shards)
        return {name: files.paths[name] for name in sorted(shards)}, None
    if len(names) > 1:
        raise CheckpointError(
            f"{len(names)} files of weights: {few(names, 5)}", "one, or the shards of one", "Choose one of them."
        )
    if not names:
        raise CheckpointError(
            f"no weights among {few(sorted(files.paths), 5) or 'these files'}",
            "a .safetensors, .bin, .pt, .pth, .ckpt or .gguf file", "Choose the file with the weights, too.",
        )  # fmt: skip
    return {names[0]: files.paths[names[0]]}, None


def _indexed(files: Files, index: str) -> tuple[dict[str, Path], dict[str, str]]:
    table = files.json(index)
    shards = table.get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise CheckpointError(
            f"{index[:80]!r} without a weight_map", "tensor names to file names", "Download it again."
        )
    needed = sorted({*shards.values()})
    if bad := [name for name in needed if not re.fullmatch(r"[\w][\w.-]{0,200}", name)]:
        raise CheckpointError(
            f"an index that points to {bad[0][:80]!r}", "bare file names beside it", "Do not use this checkpoint."
        )
    if len(needed) > MOST_SHARDS:
        raise CheckpointError(f"an index of {len(needed)} shards", f"at most {MOST_SHARDS}", "Merge the shards.")
    if lost := [name for name in needed if name not in files.paths]:
        raise _missing(lost, len(needed))
    return {name: files.paths[name] for name in needed}, shards


def _check_complete(shards: list[str]) -> None:
    """Shards whose index is not there say in their names how many they should be."""
    parts = [match.groups() for name in shards if (match := SHARD.fullmatch(name))]
    if len({(stem, total, suffix) for stem, _, total, suffix in parts}) > 1:
        raise CheckpointError(f"shards of several checkpoints: {few(shards)}", "those of one", "Choose one's alone.")
    stem, _, total, suffix = parts[0]
    if int(total) > MOST_SHARDS:
        raise CheckpointError(f"a shard of {int(total)}", f"at most {MOST_SHARDS}", "Merge the shards.")
    wanted = [f"{stem}-{number:05d}-of-{total}.{suffix}" for number in range(1, int(total) + 1)]
    if lost := [name for name in wanted if name not in shards]:
        raise _missing(lost, len(wanted))


def _missing(lost: list[str], needed: int) -> CheckpointError:
    return CheckpointError(
        f"{needed - len(lost)} of {needed} shards, without {few(lost, 20)}",
        "all of them",
        "Put the missing files beside the others, or choose them as well.",
    )


def _read(paths: Mapping[str, Path], headers: Mapping[str, Header]) -> tuple[dict[str, Tensor], str]:
    found: dict[str, Tensor] = {}
    digests = {}
    for name, path in paths.items():
        tensors, digests[name] = read_tensors(path, headers[name])
        found.update(tensors)
    return found, together(digests)
