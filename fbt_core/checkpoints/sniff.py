"""What a file truly is, from its bytes and never from its name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.zips import read_directory

HEAD_BYTES = 4096
TORCH_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "lfs", "a Git LFS pointer"),
    (b"PK\x03\x04", "zip", "a zip archive, such as a PyTorch checkpoint or a zipped folder"),
    (b"PK\x05\x06", "zip", "an empty zip archive"),
    (b"\x1f\x8b", "gzip", "a gzip archive"),
    (b"BZh", "bzip2", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "xz", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "zstd", "a Zstandard archive"),
    (b"7z\xbc\xaf\x27\x1c", "7z", "a 7-Zip archive"),
    (b"Rar!", "rar", "a RAR archive"),
    (b"GGUF", "gguf", "a GGUF file"),
    (b"lmgg", "ggml", "a GGML file, the predecessor of GGUF"),
    (b"tjgg", "ggml", "a GGJT file, the predecessor of GGUF"),
    (b"\x93NUMPY", "npy", "a NumPy array"),
    (b"\x89PNG", "picture", "a PNG picture"),
    (b"\xff\xd8\xff", "picture", "a JPEG picture"),
    (b"\x89HDF", "hdf5", "an HDF5 file"),
    (b"%PDF", "pdf", "a PDF document"),
    (b"\x7fELF", "program", "a Linux program"),
    (b"MZ", "program", "a Windows program"),
)
"""First bytes, kind, and what people call it. The remaining kinds are in ``_kind``."""

PICKLES = re.compile(rb"\x80[\x02-\x05]|c[\w.]{1,80}\n[\w.]{1,80}\n|\(?[\]}l d]?[dl]p\d|\(?[\]}]q\x00")
"""The start of a pickle: a protocol number, or in protocols 0 and 1 a global, a list or a dict that is memorised."""

ZIP_PHRASES = {
    "torch": "a PyTorch checkpoint (zip)", "torchscript": "a TorchScript program (torch.jit.save), not weights alone",
    "npz": "a NumPy archive (npz)", "zip": "a zipped folder",
}  # fmt: skip


@dataclass(frozen=True)
class Sniffed:
    """``kind`` is for programs, ``phrase`` for people.

    Kinds: "safetensors", "torch" (zip form), "torch-legacy", "torchscript", "pickle", "gguf", "ggml"; archives: "zip",
    "tar", "gzip", "bzip2", "xz", "zstd", "7z", "rar"; not weights: "lfs", "html", "json", "npy", "npz", "hdf5",
    "picture", "pdf", "program", "empty", "unknown".
    """

    kind: str
    phrase: str


def identify(path: Path) -> Sniffed:
    """What a file is: ``sniff`` of its first bytes, and for a zip the names in its directory.

    Raises ``OSError`` when it cannot be read, and nothing else.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        kind = _kind(head, size)
        if kind == "zip":
            try:
                kind = zip_kind([entry.name for entry in read_directory(file, size)])
            except CheckpointError:  # it is told in full by whoever opens it
                return Sniffed("torch" if b"/data.pkl" in head[:600] else "zip", sniff(head, size))
            return Sniffed(kind, f"{ZIP_PHRASES[kind]} ({size} bytes)")
    return Sniffed(kind, sniff(head, size))


def zip_kind(names: list[str]) -> str:
    """ "torch", "torchscript", "npz" or else "zip", from the names of the members."""
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        programs = any(name.endswith("/constants.pkl") or name == "constants.pkl" for name in names)
        return "torchscript" if programs else "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else "zip"


def sniff(head: bytes, size: int) -> str:
    """A noun phrase for the file whose first bytes are ``head``: "safetensors", or what it is instead.

    ``size`` is the whole file's, in bytes. Reads nothing else, and raises nothing.
    """
    kind = _kind(head, size)
    if kind in _SPECIAL:
        return _SPECIAL[kind](head, size)
    phrase = next((phrase for magic, _, phrase in SIGNATURES if head.startswith(magic)), PHRASES.get(kind, ""))
    return f"{phrase} ({size} bytes)"


PHRASES = {
    "torch-legacy": "a PyTorch checkpoint in the form of before 2020, a pickle",
    "pickle": "a pickle, such as an old PyTorch checkpoint",
    "tar": "a tar archive",
}
_SPECIAL = {
    "empty": lambda head, size: "an empty file",
    "safetensors": lambda head, size: "safetensors",
    "lfs": lambda head, size: _pointer(head, size),
    "html": lambda head, size: f"a web page or XML ({size} bytes), perhaps an error page saved in place of the file",
    "json": lambda head, size: f"JSON text ({size} bytes): {_message(head)}",
    "unknown": lambda head, size: f"a file of {size} bytes of no known format",
}


def _kind(head: bytes, size: int) -> str:
    if size == 0:
        return "empty"
    # First, since a header's length can read as the magic of another kind: 60 is "<", 23117 is "MZ".
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < 1 << 40:
        return "safetensors"
    for magic, kind, _ in SIGNATURES:
        if head.startswith(magic):
            return kind
    if TORCH_MAGIC in head[:40]:
        return "torch-legacy"
    if is_tar(head):
        return "tar"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"<"):
        return "html"
    if text.startswith((b"{", b"[")):
        return "json"
    return "pickle" if PICKLES.match(head) else "unknown"


def is_tar(head: bytes) -> bool:
    """Whether 512 bytes are a tar header: the sum of its bytes stands in it, in octal."""
    if len(head) < 512 or not head[0]:
        return False
    told = re.match(rb" *([0-7]+)", head[148:156])
    return told is not None and int(told[1], 8) == sum(head[:148]) + 8 * 32 + sum(head[156:512])


def _pointer(head: bytes, size: int) -> str:
    """A pointer names the size of the file that it stands for."""
    real = re.search(rb"\nsize (\d{1,18})\s", head + b"\n")
    instead = f" (which are {int(real[1]):,} bytes)" if real else ""
    return f"a Git LFS pointer of {size} bytes, not the weights{instead}"


def _message(head: bytes) -> str:
    """The keys of a small JSON object, quoted, so that an error page saved as a file is known for one."""
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        return "not a checkpoint"
    keys = sorted(value)[:4] if isinstance(value, dict) else []
    return f"an object with keys {[key[:40] for key in keys]}" if keys else "not a checkpoint"
