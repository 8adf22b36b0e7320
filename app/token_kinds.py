"""What kind of token each is, by how it is written: for colouring."""

from __future__ import annotations

import re

from fbt_core.tokenizer import CONTINUATION, Encoding

KINDS = ("word", "subword", "number", "punctuation", "special")
"""``subword``: it goes on a word that a token before it began. ``punctuation``: it has neither letter nor digit."""

SPECIAL = re.compile(r"<[^<>\s]{1,40}>|\[[A-Z]{2,12}\d*\]|id \d+")
"""``<s>``, ``<|endoftext|>``, ``[CLS]``."""

STARTS = ("Ġ", "▁", "␣", " ")
"""How a vocabulary writes that a word begins: the space before it."""


def kinds(encoding: Encoding) -> tuple[str, ...]:
    """One of ``KINDS`` a token."""
    raw = encoding.raw or encoding.tokens
    spaced = any(written.startswith(STARTS) for written in encoding.raw)
    found: list[str] = []
    for place, (label, written) in enumerate(zip(encoding.tokens, raw, strict=True)):
        follows = place > 0 and encoding.tokens[place - 1][-1:].isalnum() and _touches(encoding, place)
        found.append(_kind(label, written, follows and not (spaced and written.startswith(STARTS))))
    return tuple(found)


def _touches(encoding: Encoding, place: int) -> bool:
    """Whether no character stands between a token and the one before it."""
    (_, end), (start, stop) = encoding.offsets[place - 1 : place + 1]
    return start <= end and stop > 0


def _kind(label: str, raw: str, follows: bool) -> str:
    if SPECIAL.fullmatch(label):
        return "special"
    letters = [character for character in label.removeprefix(CONTINUATION) if character.isalnum()]
    if not letters:
        return "subword" if label.startswith(CONTINUATION) else "punctuation"
    if all(character.isnumeric() for character in letters):
        return "number"
    return "subword" if raw.startswith("##") or label.startswith(CONTINUATION) or follows else "word"
