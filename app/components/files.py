"""The text of a component's own files, one after the other: the browser gets one module, and one style sheet."""

from __future__ import annotations

from pathlib import Path

PENS = Path(__file__).parent / "pens"
"""What several components draw with."""

DRAWING = tuple(PENS / name for name in ("page.js", "pens.js", "scales.js", "words.js", "messages.js", "exports.js"))
"""Of the two canvases of attention: pens, colours, labels, messages, exports."""

FRAMING = PENS / "pens.css"
"""What such a canvas has around it."""


def joined(*paths: Path) -> str:
    """The files in this order; a later one may use what an earlier one defines."""
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
