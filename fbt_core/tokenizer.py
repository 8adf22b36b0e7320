"""From text to token ids and back: known words with bytes for all else, or a given ``tokenizer.json``.

Both kinds put ``<s>`` in front, label every token for drawing, and say where in the text it stands. A tokenizer comes
out of a file, so reading one raises nothing but ``CheckpointError``.
"""

from __future__ import annotations

import json
import math
import string
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import tokenizers

from fbt_core.strict_json import strict_json

BOS = "<s>"
"""The label of the token that starts every sequence. Typed into a text, these are three ordinary characters."""

CONTINUATION = "·"
"""The label of a token that holds the later bytes of a character whose first byte is in a token before it."""

MAXIMUM_WORDS = 1_000_000
"""The largest vocabulary read from a file; the largest in use today have about 260,000 entries."""

MAXIMUM_GROWTH = 64
"""Of a text by a file's own replacements; a known file's make it a few times longer at most."""

MAXIMUM_WORD_LENGTH = 64
MAXIMUM_JSON = 64 << 20  # characters; a vocabulary of 260,000 with its merges takes about 33 million

REMEDY = "Save the checkpoint again with the tokenizer that it was trained with."

Result = TypeVar("Result")


@dataclass(frozen=True)
class Encoding:
    """One text as L tokens, ``<s>`` first. ``offsets`` are [start, end) characters of the text, (0, 0) for ``<s>``.

    ``tokens`` are labels for drawing and may repeat; ``unknown`` marks what the vocabulary has no word for.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    unknown: list[bool]


def visible(character: str) -> str:
    """A label for one character: itself if it can be seen, else a picture of it or its code point.

    A space becomes "␣", a control character its Unicode control picture, a combining mark sits on a dotted circle, and
    format characters (bidirectional overrides, joiners) and lone surrogates read as "U+202E".
    """
    code = ord(character)
    if code <= 0x20:
        return chr(0x2400 + code) if code < 0x20 else "␣"
    if code == 0x7F:
        return "␡"
    if unicodedata.category(character).startswith("M"):
        return "◌" + character
    return character if character.isprintable() and code != 0xFFFD else f"U+{code:04X}"


class WordByteTokenizer:
    """A vocabulary of ``<s>``, the 256 bytes and then ``words``: exact for every text, one token for every known word.

    A known word is one token if one space stands before it (the token holds that space) or if it starts the text, and
    if white space, ASCII punctuation or the end follows. Everything else, further spaces included, is bytes of UTF-8.
    Raises ``ValueError`` (got, expected) for a word that could not be told apart from its surroundings.
    """

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


class FileTokenizer:
    """A ``tokenizer.json`` read by the ``tokenizers`` package. Raises ``CheckpointError`` if that cannot be done.

    If its vocabulary has no ``<s>``, that gets the id after the last one. Special tokens are never made from a text's
    own characters. ``decode`` is as exact as the file's own normaliser and decoder are.
    """

    def __init__(self, json_text: str) -> None:
        if len(json_text) > MAXIMUM_JSON:
            raise _fault(f"a tokenizer.json of {len(json_text)} characters", f"at most {MAXIMUM_JSON}")
        self._table = _parsed(json_text)
        if (growth := _growth(self._table)) > MAXIMUM_GROWTH:
            raise _fault(
                f"a tokenizer.json that can make a text {growth:.3g} times as long", f"at most {MAXIMUM_GROWTH}"
            )
        self._tokenizer = _guarded(lambda: tokenizers.Tokenizer.from_str(json_text), "reading")
        # At once: a file may ask for padding to 10^9 tokens, which would end the process at the first text.
        _guarded(self._tokenizer.no_padding, "reading")
        _guarded(self._tokenizer.no_truncation, "reading")
        self._tokenizer.encode_special_tokens = True
        vocabulary: dict[str, int] = _guarded(lambda: self._tokenizer.get_vocab(with_added_tokens=True), "reading")
        largest = max(vocabulary.values(), default=-1)
        if not 0 <= largest < MAXIMUM_WORDS:
            raise _fault(f"token ids up to {largest}", f"ids from 0 to below {MAXIMUM_WORDS}")
        self.bos: int = vocabulary.get(BOS, largest + 1)
        self.vocab_size: int = max(largest + 1, self.bos + 1)
        model = self._table.get("model")
        unknown = model.get("unk_token") if isinstance(model, dict) else None
        self._unknown = vocabulary.get(unknown) if isinstance(unknown, str) else None
        self._labels = {index: token for token, index in vocabulary.items()} | {self.bos: BOS}

    def label(self, token: int) -> str:
        """How the file itself writes token id ``token``: byte-level files write a leading space as "Ġ"."""
        return "".join(map(visible, self._labels.get(token, f"id {token}")))

    def encode(self, text: str) -> Encoding:
        """The text as the file splits it. Tokens that are parts of one character are labelled as its continuation."""
        safe = text.encode("utf-8", "replace").decode()  # Rust strings hold no lone surrogates
        found = _guarded(lambda: self._tokenizer.encode(safe, add_special_tokens=False), "applying")
        labels, reached = [], 0
        for token, (start, end) in zip(found.ids, found.offsets, strict=True):
            shown = "".join(map(visible, text[start:end].removeprefix(" ") or text[start:end]))
            labels.append(CONTINUATION if shown and end <= reached else shown or self.label(token))
            reached = max(reached, end)
        unknown = [token == self._unknown for token in found.ids]
        return Encoding([self.bos, *found.ids], [BOS, *labels], [(0, 0), *found.offsets], [False, *unknown])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids, ``<s>`` left out."""
        kept = [token for token in ids if token != self.bos]
        if any(not 0 <= token < self.vocab_size for token in kept):
            raise ValueError(f"got token ids up to {max(kept)}, expected 0 to {self.vocab_size - 1}")
        return _guarded(lambda: self._tokenizer.decode(kept, skip_special_tokens=False), "applying")

    def to_json(self) -> str:
        """What ``tokenizer_from_json`` reads: the file as it was given."""
        return json.dumps({"kind": "file", "tokenizer": self._table}, ensure_ascii=False)


Tokenizer = WordByteTokenizer | FileTokenizer
"""Either kind: ``encode``, ``decode``, ``label``, ``vocab_size``, ``bos``, ``to_json``."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """The tokenizer that ``to_json`` wrote. Raises ``CheckpointError`` for anything else."""
    if len(text) > MAXIMUM_JSON:
        raise _fault(f"a tokenizer of {len(text)} characters", f"at most {MAXIMUM_JSON}")
    table = _parsed(text)
    kind = table.get("kind")
    if kind == "word-byte":
        return _word_byte(table.get("words"))
    if kind == "file":
        return FileTokenizer(_guarded(lambda: json.dumps(table.get("tokenizer"), ensure_ascii=False), "reading"))
    raise _fault(f"a tokenizer of kind {repr(kind)[:40]}", "'word-byte' or 'file'")


def _fault(got: str, expected: str) -> Exception:
    """The error of a tokenizer that cannot be used. Its class is looked up late, since checkpoints hold tokenizers."""
    from fbt_core.checkpoints.faults import CheckpointError

    return CheckpointError(got, expected, REMEDY)


def _word_byte(words: object) -> WordByteTokenizer:
    if not isinstance(words, list):
        raise _fault(f"a vocabulary that is a {type(words).__name__}", "a list of words")
    if len(words) > MAXIMUM_WORDS:
        raise _fault(f"a vocabulary of {len(words)} words", f"at most {MAXIMUM_WORDS}")
    if not all(isinstance(word, str) for word in words):
        raise _fault("a vocabulary that holds other things than strings", "a list of words")
    try:
        return WordByteTokenizer(words)
    except ValueError as fault:
        raise _fault("a vocabulary that cannot be used", f"plain words, each once ({fault})") from fault


def _parsed(text: str) -> dict[str, Any]:
    """A JSON object, or a ``CheckpointError``: nesting and integers without end are the file's fault as well."""
    try:
        table = strict_json(text)
    except ValueError as fault:
        raise _fault(f"a tokenizer that is not JSON ({str(fault)[:80]!r})", "a JSON object") from fault
    if not isinstance(table, dict):
        raise _fault(f"a tokenizer that is a JSON {type(table).__name__}", "a JSON object")
    return table


def _growth(step: object) -> float:
    """The most times longer that a tokenizer.json's replacements can make a text: each multiplies those before it."""
    if isinstance(step, list):
        return math.prod(map(_growth, step))
    if not isinstance(step, dict):
        return 1.0
    pattern, content = step.get("pattern"), step.get("content")
    own = 1.0
    if step.get("type") == "Replace" and isinstance(content, str):
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        own = max(1.0, len(content) / max(1, len(replaced) if isinstance(replaced, str) else 1))
    elif step.get("type") == "Prepend":
        own = 1.0 + len(str(step.get("prepend")))
    parts = ("normalizer", "normalizers", "pre_tokenizer", "pretokenizers", "decoder", "decoders")
    return own * math.prod(_growth(step[part]) for part in parts if part in step)


def _guarded(call: Callable[[], Result], what: str) -> Result:
    """``call()``, with every failure of the ``tokenizers`` package, Rust panics included, as a ``CheckpointError``."""
    try:
        return call()
    except BaseException as fault:
        # A panic derives from BaseException alone, and its class cannot be imported by name.
        if not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
            raise
        got = f"a tokenizer.json that failed in {what} ({type(fault).__name__}: {repr(str(fault))[:120]})"
        raise _fault(got, "one that the tokenizers package can use") from fault
