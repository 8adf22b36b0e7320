"""No tokenizer: a text is the ids themselves, typed as numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from fbt_core.tokenizer.encoding import Encoding

MAXIMUM_ROWS = 1 << 24


class IdTokenizer:
    """Numbers between spaces or commas, each an id from 0 to ``rows`` - 1. Anything else is a ``ValueError``."""

    policy = "adds nothing: type token ids as numbers"
    bos = None

    def __init__(self, rows: int) -> None:
        if not 0 < rows <= MAXIMUM_ROWS:
            raise ValueError(f"got {rows} rows, expected 1 to {MAXIMUM_ROWS}")
        self.rows = self.vocab_size = rows

    def label(self, token: int) -> str:
        """The id itself."""
        return str(token)

    def encode(self, text: str) -> Encoding:
        """The numbers of a text. Raises ``ValueError`` that says what to type."""
        found = list(re.finditer(r"[^\s,]+", text))
        ids = [self._id(match[0]) for match in found]
        words = [str(token) for token in ids]
        return Encoding(ids, words, [match.span() for match in found], [False] * len(ids), list(words))

    def decode(self, ids: Iterable[int]) -> str:
        """The numbers between spaces."""
        return " ".join(map(str, ids))

    def to_json(self) -> str:
        """What ``tokenizer_from_json`` reads."""
        return json.dumps({"kind": "ids", "rows": self.rows})

    def _id(self, word: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", word) or int(word) >= self.rows:
            raise ValueError(
                f"got {word[:40]!r} for a model without a tokenizer, expected token ids as numbers from 0 to "
                f"{self.rows - 1}, such as 0 17 4"
            )
        return int(word)
