"""A ``tokenizer.json`` that a model was trained with here: ``<s>`` in front, special tokens never out of a text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fbt_core.tokenizer.encoding import BOS, Encoding, labels, visible
from fbt_core.tokenizer.guard import guarded, opened, unknown_id


class FileTokenizer:
    """A ``tokenizer.json`` read by the ``tokenizers`` package. Raises ``CheckpointError`` if that cannot be done.

    If its vocabulary has no ``<s>``, that gets the id after the last one. Special tokens are never made from a text's
    own characters. ``decode`` is as exact as the file's own normaliser and decoder are.
    """

    policy = "adds <s> in front"

    def __init__(self, json_text: str) -> None:
        self._table, self._tokenizer, vocabulary = opened(json_text)
        self._tokenizer.encode_special_tokens = True
        largest = max(vocabulary.values())
        self.bos: int = vocabulary.get(BOS, largest + 1)
        self.vocab_size: int = max(largest + 1, self.bos + 1)
        self._unknown = unknown_id(self._table, vocabulary)
        self._labels = {index: token for token, index in vocabulary.items()} | {self.bos: BOS}

    def label(self, token: int) -> str:
        """How the file itself writes token id ``token``: byte-level files write a leading space as "Ġ"."""
        return "".join(map(visible, self._labels[token])) or "empty" if token in self._labels else f"id {token}"

    def encode(self, text: str) -> Encoding:
        """The text as the file splits it. Tokens that are parts of one character are labelled as its continuation."""
        safe = text.encode("utf-8", "replace").decode()  # Rust strings hold no lone surrogates
        found = guarded(lambda: self._tokenizer.encode(safe, add_special_tokens=False), "applying")
        written = labels(text, found.offsets, [self.label(token) for token in found.ids])
        unknown = [token == self._unknown for token in found.ids]
        return Encoding(
            [self.bos, *found.ids], [BOS, *written], [(0, 0), *found.offsets], [False, *unknown], [BOS, *found.tokens]
        )

    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids, ``<s>`` left out."""
        kept = [token for token in ids if token != self.bos]
        if any(not 0 <= token < self.vocab_size for token in kept):
            raise ValueError(f"got token ids up to {max(kept)}, expected 0 to {self.vocab_size - 1}")
        return guarded(lambda: self._tokenizer.decode(kept, skip_special_tokens=False), "applying")

    def to_json(self) -> str:
        """What ``tokenizer_from_json`` reads: the file as it was given."""
        return json.dumps({"kind": "file", "tokenizer": self._table}, ensure_ascii=False)
