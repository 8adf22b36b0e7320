"""What the user gave, as base names and real files: one file, several, a folder, or an archive."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fbt_core.checkpoints.archives import NAMED, is_archive, unpack
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.strict_json import strict_json

SUFFIXES = (".safetensors", ".bin", ".pth", ".pt", ".ckpt", ".gguf")
"""How files of weights are called, the kind to prefer first. What they are is decided by their content."""

BESIDE = re.compile(r"(optimizer|scheduler|scaler|rng_state|training_args|random_states|sampler|trainer_state).*")
"""Files of a training run with such a suffix that are not the model."""

MOST_JSON = 4 << 20
MOST_ENTRIES = 5000
MOST_UNPACKED, SPARE = 64 << 30, 1 << 30  # bytes of an archive's files, and of the disk that they leave free
Source = Path | str | Sequence[Path] | Mapping[str, Path]


@dataclass(frozen=True)
class Files:
    """Files of one checkpoint: ``paths`` from base name to where it lies. ``label`` is what people call the whole."""

    label: str
    paths: Mapping[str, Path]

    def weights(self) -> list[str]:
        """Base names of the files of weights, of the best kind that is there."""
        if len(self.paths) == 1:
            return [*self.paths]
        names = [name for name in self.paths if name not in NAMED and not name.endswith(".json")]
        adapters = [name for name in names if name.startswith("adapter_model.")]
        names = adapters or [name for name in names if not BESIDE.fullmatch(name)]
        for kinds in ((".safetensors",), SUFFIXES[1:5], (".gguf",), None):
            found = sorted(name for name in names if kinds is None or name.endswith(kinds))
            for usual in ("model.safetensors", "pytorch_model.bin"):
                if usual in found:
                    return [usual]
            if found:
                return found
        return []

    def text(self, name: str, most: int = MOST_JSON) -> str:
        """A file as text; "" if it is not there. Raises ``CheckpointError`` if it is too long or not UTF-8."""
        if name not in self.paths:
            return ""
        with self.paths[name].open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise CheckpointError(f"a {name[:80]!r} of more than {most:,} bytes", f"at most {most:,}", "Shorten it.")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as fault:
            raise CheckpointError(
                f"a {name[:80]!r} that is not UTF-8 text", "JSON text", "Download it again."
            ) from fault

    def json(self, name: str, most: int = MOST_JSON) -> dict[str, Any]:
        """A file's JSON object; empty if it is not there. Raises ``CheckpointError`` for anything else."""
        if name not in self.paths:
            return {}
        try:
            table = strict_json(self.text(name, most))
        except ValueError as fault:
            got = f"a {name[:80]!r} that is not JSON ({str(fault)[:80]!r})"
            raise CheckpointError(got, "a JSON object", "Download or save it again.") from fault
        if not isinstance(table, dict):
            raise CheckpointError(f"a {name[:80]!r} that is a JSON {type(table).__name__}", "an object", "Replace it.")
        return table


@contextmanager
def gathered(source: Source, name: str | None = None) -> Iterator[Files]:
    """The files of a source for as long as the context lasts; members of an archive are deleted at its end.

    ``source`` is a file, a folder, several files, or names with files. Raises ``CheckpointError``.
    """
    if isinstance(source, Mapping):
        paths = {base: Path(path) for base, path in source.items()}
    elif isinstance(source, (str, Path)):
        paths = _of_path(Path(source))
    else:
        paths = {Path(path).name: Path(path) for path in source}
        if len(paths) < len(source):
            raise CheckpointError("two files of one name", "files of one checkpoint", "Choose one checkpoint's alone.")
    for path in paths.values():
        if not path.is_file():
            raise CheckpointError(f"no file at {str(path)[:200]!r}", "a checkpoint file", "Check the path.")
    label = name or (Path(source).name if isinstance(source, (str, Path)) else " + ".join(sorted(paths))[:120])
    if len(paths) != 1 or not is_archive(next(iter(paths.values()))):
        yield Files(label, paths)
        return
    folder = Path(tempfile.mkdtemp(prefix="fiberscope-archive-"))
    try:
        budget = min(MOST_UNPACKED, shutil.disk_usage(folder).free - SPARE)
        yield Files(label, unpack(next(iter(paths.values())), folder, budget).paths)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _of_path(path: Path) -> dict[str, Path]:
    """A file, or what of a folder a checkpoint may consist of: regular files of known names that stay inside it."""
    if not path.is_dir():
        return {path.name: path}
    found = {}
    for count, entry in enumerate(sorted(path.iterdir())):
        if count >= MOST_ENTRIES:
            raise CheckpointError(f"a folder of more than {MOST_ENTRIES} entries", "a checkpoint's", "Choose another.")
        if not _is_wanted(entry.name) or not entry.is_file():
            continue
        if entry.is_symlink() and not _stays(entry, path):
            raise CheckpointError(
                f"a link {entry.name[:80]!r} that leaves its folder",
                "files of the folder itself",
                "Copy the file there.",
            )
        found[entry.name] = entry
    if not found:
        raise CheckpointError(
            f"a folder {path.name[:80]!r} without a checkpoint", "config.json and weights, or a file of weights",
            "Choose the folder that holds them.",
        )  # fmt: skip
    return found


def _is_wanted(name: str) -> bool:
    """Whether a checkpoint's reader looks at a file of this name; ``file-3`` is what an upload is held under."""
    return name in NAMED or name.endswith((*SUFFIXES, ".index.json")) or re.fullmatch(r"file(-\d+)?", name) is not None


def _stays(entry: Path, folder: Path) -> bool:
    """Whether a link ends in its folder or, for a snapshot of the Hugging Face cache, among that model's blobs."""
    real, folder = entry.resolve(), folder.resolve()
    blobs = folder.parent.parent / "blobs"
    return real.is_relative_to(folder) or (folder.parent.name == "snapshots" and real.parent == blobs)
