"""Known words and, for all else, bytes: the tokenizer of the models that are trained here."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable

from fbt_core.tokenizer.encoding import BOS, CONTINUATION, Encoding, visible

MAXIMUM_WORD_LENGTH = 64


class WordByteTokenizer:
    """A vocabulary of ``<s>``, the 256 bytes and then ``words``: exact for every text, one token for every known word.

    A known word is one token if one space stands before it (the token holds that space) or if it starts the text, and
    if white space, ASCII punctuation or the end follows. Everything else, further spaces included, is bytes of UTF-8.
    Raises ``ValueError`` (got, expected) for a word that could not be told apart from its surroundings.
    """

    policy = "adds <s> in front"

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        for word in self.words:
            if not 0 < len(word) <= MAXIMUM_WORD_LENGTH or any(c.isspace() for c in word) or word == BOS:
                shown = repr(word[:MAXIMUM_WORD_LENGTH])
                raise ValueError(
                    f"got the word {shown}, expected 1 to {MAXIMUM_WORD_LENGTH} characters, no white space"
                )
            word.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        self._ids = {word: 257 + index for index, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            raise ValueError(f"got {len(self.words)} words of which {len(self._ids)} differ, expected no word twice")
        self._longest = max(map(len, self.words), default=0)

    @property
    def bos(self) -> int:
        """The id of ``<s>``."""
        return 0

    @property
    def vocab_size(self) -> int:
        """1 + 256 + the number of words."""
        return 257 + len(self.words)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """The ids of words that are known to be in the vocabulary (or ``<s>``): the fast way for generated text."""
        return [self._ids[token] if token != BOS else 0 for token in tokens]

    def label(self, token: int) -> str:
        """How to write token id ``token`` (0 to vocab_size - 1) when it stands alone, as in a list of predictions."""
        if token == 0:
            return BOS
        if token > 256:
            return self.words[token - 257]
        return visible(chr(token - 1)) if token <= 128 else f"0x{token - 1:02X}"

    def encode(self, text: str) -> Encoding:
        """Any text, lone surrogates included, as tokens that ``decode`` turns back into it exactly."""
        encoding = Encoding([0], [BOS], [(0, 0)], [False])
        position = 0
        while position < len(text):
            start = position + (position > 0 and text[position] == " ")
            # A word at the very start carries no space, so a text that starts with a space cannot use it.
            word = self._word_at(text, start) if start > position or position == 0 else ""
            if word:
                self._append(encoding, self._ids[word], word, (start, start + len(word)), False)
                position = start + len(word)
                continue
            for index, byte in enumerate(text[position].encode("utf-8", "surrogatepass")):
                label = CONTINUATION if index else visible(text[position])
                self._append(encoding, 1 + byte, label, (position, position + 1), True)
            position += 1
        return encoding

    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids, ``<s>`` left out; bytes that are not UTF-8 read as ``\\xff``, never as U+FFFD."""
        data = bytearray()
        for place, token in enumerate(i for i in ids if i != 0):
            if not 0 < token < self.vocab_size:
                raise ValueError(f"got token id {token}, expected 0 to {self.vocab_size - 1}")
            if token <= 256:
                data.append(token - 1)
            else:
                data += (" " if place else "").encode() + self.words[token - 257].encode()
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "backslashreplace")

    def to_json(self) -> str:
        """What ``tokenizer_from_json`` reads."""
        return json.dumps({"kind": "word-byte", "words": self.words}, ensure_ascii=False)

    def _word_at(self, text: str, start: int) -> str:
        """The longest known word that starts here and ends at a boundary, or ""."""
        for end in range(min(len(text), start + self._longest), start, -1):
            bounded = end == len(text) or text[end].isspace() or text[end] in string.punctuation
            if bounded and text[start:end] in self._ids:
                return text[start:end]
        return ""

    @staticmethod
    def _append(encoding: Encoding, token: int, label: str, offset: tuple[int, int], unknown: bool) -> None:
        encoding.ids.append(token)
        encoding.tokens.append(label)
        encoding.offsets.append(offset)
        encoding.unknown.append(unknown)
