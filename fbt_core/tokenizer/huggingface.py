"""The tokenizer of a model from elsewhere, as its own file has it, with the special tokens that this adds."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fbt_core.tokenizer.encoding import Encoding, labels, visible
from fbt_core.tokenizer.guard import guarded, opened, unknown_id

SAMPLE = "a"


class HuggingFaceTokenizer:
    """A ``tokenizer.json`` read by the ``tokenizers`` package, its post-processor included.

    A special token typed into a text is that token, as it is for the library. ``rows`` is how many ids the model has.
    Raises ``CheckpointError`` if the file cannot be read.
    """

    def __init__(self, json_text: str, rows: int = 0) -> None:
        self._table, self._tokenizer, vocabulary = opened(json_text)
        self.vocab_size: int = max(vocabulary.values()) + 1
        self.rows = rows or self.vocab_size
        self._unknown = unknown_id(self._table, vocabulary)
        self._labels = {index: token for token, index in vocabulary.items()}
        self._front, self._behind = self._added()
        self.bos: int | None = self._front[0] if self._front else None

    @property
    def policy(self) -> str:
        """What is added to every text, as a phrase: "adds [CLS] in front and [SEP] behind", "adds nothing"."""
        parts = [
            f"{' '.join(map(self.label, ids))} {where}"
            for ids, where in ((self._front, "in front"), (self._behind, "behind"))
            if ids
        ]
        return f"adds {' and '.join(parts) or 'nothing'}"

    def label(self, token: int) -> str:
        """How the file itself writes token id ``token``: byte-level files write a leading space as "Ġ"."""
        return "".join(map(visible, self._labels[token])) or "empty" if token in self._labels else f"id {token}"

    def encode(self, text: str) -> Encoding:
        """The text as the file splits it. Raises ``ValueError`` for a token that the model has no row for."""
        safe = text.encode("utf-8", "replace").decode()  # Rust strings hold no lone surrogates
        found = guarded(lambda: self._tokenizer.encode(safe), "applying")
        if beyond := [token for token in found.ids if token >= self.rows]:
            raise ValueError(f"got the token {self.label(beyond[0])} of id {beyond[0]}, expected ids below {self.rows}")
        written = labels(text, found.offsets, [self.label(token) for token in found.ids])
        unknown = [token == self._unknown for token in found.ids]
        return Encoding(found.ids, written, found.offsets, unknown, found.tokens)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids of the vocabulary, special tokens included; ids without a token are left out."""
        return guarded(lambda: self._tokenizer.decode(list(ids), skip_special_tokens=False), "applying")

    def to_json(self) -> str:
        """What ``tokenizer_from_json`` reads: the file as it was given."""
        return json.dumps({"kind": "huggingface", "rows": self.rows, "tokenizer": self._table}, ensure_ascii=False)

    def _added(self) -> tuple[list[int], list[int]]:
        """The ids that the post-processor puts in front of a text and behind it."""
        bare: list[int] = guarded(lambda: self._tokenizer.encode(SAMPLE, add_special_tokens=False).ids, "applying")
        full: list[int] = guarded(lambda: self._tokenizer.encode(SAMPLE).ids, "applying")
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start], full[start + len(bare) :]
        return [], []
