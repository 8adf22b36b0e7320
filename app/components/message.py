"""What goes to a canvas component in one piece: words as JSON and cells as bytes. ``messages.js`` reads it."""

from __future__ import annotations

import json
import struct
from typing import Any


def message(words: dict[str, Any], body: bytes) -> bytes:
    """Four bytes of length, little-endian, the words as JSON, the body as it is."""
    header = json.dumps(words, separators=(",", ":")).encode()
    return struct.pack("<I", len(header)) + header + body
