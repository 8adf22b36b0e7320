"""A text as tokens, and how tokens are written: every character of a label can be seen, whatever a file holds."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

BOS = "<s>"
"""The label of the token that starts our own models' sequences. Typed into a text, it is three characters."""

CONTINUATION = "·"
"""The label of a token that holds the later bytes of a character whose first byte is in a token before it."""


@dataclass(frozen=True)
class Encoding:
    """One text as L tokens. ``offsets`` are [start, end) characters of the text, (0, 0) for a token that is not in it.

    ``tokens`` are labels for drawing and may repeat; ``unknown`` marks what the vocabulary has no word for; ``raw`` is
    how the vocabulary itself writes the tokens ("Ġthe", "##ing"), empty where that is the label.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    unknown: list[bool]
    raw: list[str] = field(default_factory=list)

    def cut(self, length: int) -> Encoding:
        """The first ``length`` tokens."""
        return Encoding(
            self.ids[:length], self.tokens[:length], self.offsets[:length], self.unknown[:length], self.raw[:length]
        )


SPACES = {" ": "␣", "\n": "↵", "\t": "⇥"}
"""What stands for the blanks that texts are full of: signs that every font has."""


def visible(character: str) -> str:
    """A label for one character: itself if it can be seen, else a picture of it or its code point.

    A space becomes "␣", a line break "↵" and a tab "⇥", any other control character its Unicode control picture (which
    few fonts have), a combining mark sits on a dotted circle, and format characters (bidirectional overrides, joiners)
    and lone surrogates read as "U+202E".
    """
    code = ord(character)
    if character in SPACES:
        return SPACES[character]
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(character).startswith("M"):
        return "◌" + character
    return character if character.isprintable() and code != 0xFFFD else f"U+{code:04X}"


def labels(text: str, offsets: Sequence[tuple[int, int]], fallback: Sequence[str]) -> list[str]:
    """How to write tokens that stand at ``offsets`` of ``text``: by the characters that no token before them wrote.

    A token in the midst of a character is "·", one that ends a character and goes on is "·" and the rest; one leading
    space is left out. ``fallback`` labels the tokens that stand nowhere in the text.
    """
    written, reached = [], 0
    for (start, end), other in zip(offsets, fallback, strict=True):
        own = text[max(start, reached) : end] if start < end else ""
        shown = "".join(map(visible, own.removeprefix(" ") or own))
        if start >= end:
            written.append(other)
        else:
            written.append(shown if start >= reached else CONTINUATION + shown)
        reached = max(reached, end)
    return written
