"""Read a ``tokenizer.json`` and use it, as a script for a child process: whatever that does, it does there.

``python -I probe.py PATH`` prints one JSON object: ``{}``, or ``{"fault": why}``. Nothing of ``fbt_core`` is imported.
"""

from __future__ import annotations

import json
import sys

TEXTS = ("", "a", "The capital of France is Paris.", " " * 64, "a" * 200 + "!", "漢字 🧑‍🚀 שלום e\u0301 \x00", "1" * 64)
MOST_TOKENS = 100_000


def use(path: str) -> dict[str, str]:
    """Everything that a page does with a tokenizer, once."""
    import tokenizers

    made = tokenizers.Tokenizer.from_file(path)
    made.no_padding()
    made.no_truncation()
    if not made.get_vocab(with_added_tokens=True):
        return {"fault": "an empty vocabulary"}
    for text in TEXTS:
        found = made.encode(text)
        if len(found.ids) > MOST_TOKENS:
            return {"fault": f"{len(found.ids)} tokens of {len(text)} characters"}
        made.decode(found.ids, skip_special_tokens=False)
    return {}


if __name__ == "__main__":
    try:
        answer = use(sys.argv[1])
    except BaseException as error:  # a panic of the library is no Exception
        answer = {"fault": f"{type(error).__name__}: {error}"[:400]}
    sys.stdout.write(json.dumps(answer))
