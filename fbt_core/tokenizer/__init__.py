"""From text to token ids and back. Each kind of tokenizer labels every token and says where in the text it stands.

A tokenizer comes out of a file: reading one raises nothing but ``CheckpointError``. A new kind is a row of ``KINDS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fbt_core.tokenizer.encoding import BOS, CONTINUATION, Encoding, visible
from fbt_core.tokenizer.file import FileTokenizer
from fbt_core.tokenizer.guard import MAXIMUM_JSON, MAXIMUM_WORDS, fault, guarded, parsed
from fbt_core.tokenizer.huggingface import HuggingFaceTokenizer
from fbt_core.tokenizer.ids import IdTokenizer
from fbt_core.tokenizer.word_byte import WordByteTokenizer

__all__ = [
    "BOS", "CONTINUATION", "KINDS", "Encoding", "FileTokenizer", "HuggingFaceTokenizer", "IdTokenizer", "Tokenizer",
    "WordByteTokenizer", "tokenizer_from_json", "visible",
]  # fmt: skip

Tokenizer = WordByteTokenizer | FileTokenizer | HuggingFaceTokenizer | IdTokenizer
"""Any kind: ``encode``, ``decode``, ``label``, ``policy``, ``vocab_size``, ``bos``, ``to_json``."""


def tokenizer_from_json(text: str) -> Tokenizer:
    """The tokenizer that ``to_json`` wrote. Raises ``CheckpointError`` for anything else."""
    if len(text) > MAXIMUM_JSON:
        raise fault(f"a tokenizer of {len(text)} characters", f"at most {MAXIMUM_JSON}")
    table = parsed(text)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise fault(f"a tokenizer of kind {repr(kind)[:40]}", f"one of {', '.join(map(repr, KINDS))}")
    return KINDS[kind](table)


def _word_byte(table: dict[str, Any]) -> WordByteTokenizer:
    words = table.get("words")
    if not isinstance(words, list):
        raise fault(f"a vocabulary that is a {type(words).__name__}", "a list of words")
    if len(words) > MAXIMUM_WORDS:
        raise fault(f"a vocabulary of {len(words)} words", f"at most {MAXIMUM_WORDS}")
    if not all(isinstance(word, str) for word in words):
        raise fault("a vocabulary that holds other things than strings", "a list of words")
    try:
        return WordByteTokenizer(words)
    except ValueError as error:
        raise fault("a vocabulary that cannot be used", f"plain words, each once ({error})") from error


def _file(table: dict[str, Any]) -> FileTokenizer:
    return FileTokenizer(_inner(table))


def _huggingface(table: dict[str, Any]) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(_inner(table), _rows(table))


def _ids(table: dict[str, Any]) -> IdTokenizer:
    return IdTokenizer(_rows(table))


def _inner(table: dict[str, Any]) -> str:
    return guarded(lambda: json.dumps(table.get("tokenizer"), ensure_ascii=False), "reading")


def _rows(table: dict[str, Any]) -> int:
    rows = table.get("rows")
    if not isinstance(rows, int) or isinstance(rows, bool) or not 0 < rows <= 1 << 24:
        raise fault(f"a tokenizer of {rows!r:.40} rows", "a whole number")
    return rows


KINDS: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
    "word-byte": _word_byte,
    "file": _file,
    "huggingface": _huggingface,
    "ids": _ids,
}
"""From the kind that ``to_json`` writes to what reads it."""
