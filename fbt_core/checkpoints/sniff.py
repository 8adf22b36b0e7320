"""What a file truly is, from its first bytes and never from its name."""

from __future__ import annotations

import json

SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the weights"),
    (b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint or a zipped folder"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"GGUF", "a GGUF file"),
    (b"\x80\x02", "a pickle, such as an old PyTorch checkpoint"),
    (b"\x80\x03", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x89HDF", "an HDF5 file"),
    (b"%PDF", "a PDF document"),
)


def sniff(head: bytes, size: int) -> str:
    """A noun phrase for the file whose first bytes are ``head``: "safetensors", or what it is instead.

    ``size`` is the whole file's, in bytes. Reads nothing else, and raises nothing.
    """
    if size == 0:
        return "an empty file"
    for magic, name in SIGNATURES:
        if head.startswith(magic):
            return f"{name} ({size} bytes)"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<")):
        return f"a web page or XML ({size} bytes), perhaps an error page saved in place of the file"
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < 1 << 40:
        return "safetensors"
    if text.startswith((b"{", b"[")):
        return f"JSON text ({size} bytes): {_message(head)}"
    return f"a file of {size} bytes of no known format"


def _message(head: bytes) -> str:
    """The keys of a small JSON object, quoted, so that an error page saved as a file is known for one."""
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        return "not a checkpoint"
    keys = sorted(value)[:4] if isinstance(value, dict) else []
    return f"an object with keys {[key[:40] for key in keys]}" if keys else "not a checkpoint"
