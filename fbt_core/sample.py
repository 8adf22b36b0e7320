"""The bundled text: some 3,300 words of English prose of our own, read where a user names no text.

It begins with a page in the words that the bundled twins know, one line of their own spelling, longer than 256 tokens:
what is measured on them is then not measured on bytes. A story, an essay, a dialogue, an explanation and a letter
follow, about the same people and facts, so that attention has something to look back to. ``training.grammar`` writes
texts of the training language instead, as many as there are seeds.
"""

from __future__ import annotations

from pathlib import Path

SAMPLE = Path(__file__).parent.parent / "assets" / "texts" / "sample.txt"
"""Where the text lies, in a checkout."""


def sample_text() -> str:
    """The whole text. Raises ``ValueError`` where the package was installed without the assets."""
    try:
        return SAMPLE.read_text(encoding="utf-8")
    except FileNotFoundError as fault:
        raise ValueError(f"got no bundled text at {SAMPLE}, expected a checkout: name a text of your own") from fault
