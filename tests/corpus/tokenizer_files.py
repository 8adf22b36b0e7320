"""The tiny GPT-2 with a tokenizer.json that is missing, broken or dangerous: the weights must still be seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.case import Case, loads
from tests.corpus.folder_writers import folder, put, tokenizer_table

IDS = "ids"
"""What the notice says when tokens are shown as their ids."""


def tokenized(**changes: Any) -> Callable[[Path], object]:
    return folder("gpt2", put("tokenizer.json", json.dumps(tokenizer_table() | changes)))


def vocabulary(**words: int) -> Callable[[Path], object]:
    return tokenized(added_tokens=[], model={"type": "WordLevel", "vocab": words, "unk_token": next(iter(words))})


def split(regex: str) -> Callable[[Path], object]:
    pattern = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return tokenized(pre_tokenizer=pattern)


def replacing(rounds: int) -> Callable[[Path], object]:
    row = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    return tokenized(normalizer={"type": "Sequence", "normalizers": [row] * rounds})


PADDING = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
           "pad_type_id": 0, "pad_token": "[UNK]"}  # fmt: skip
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
MARKUP = [
    {"id": 97 + i, "content": text, **SPECIAL}
    for i, text in enumerate(("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u202e", "\0"))
]
CHAT = {"chat_template": "{{ ''.__class__.__mro__[1].__subclasses__() }}", "tokenizer_class": "os.system",
        "auto_map": {"AutoTokenizer": ["modeling_evil.Net", None]}}  # fmt: skip

CASES: dict[str, Case] = {
    "tokenizer-empty": loads(30, folder("gpt2", put("tokenizer.json", "")), IDS),
    "tokenizer-page": loads(30, folder("gpt2", put("tokenizer.json", "<html>404</html>")), IDS),
    "tokenizer-not-utf8": loads(30, folder("gpt2", put("tokenizer.json", b"\xff\xfe{}")), IDS),
    "tokenizer-deep": loads(30, folder("gpt2", put("tokenizer.json", "[" * 100_000)), IDS),
    "tokenizer-unknown-model": loads(30, tokenized(model={"type": "Mystery"}), IDS),
    "tokenizer-padding": loads(30, tokenized(padding=PADDING), "GPT2|gpt2"),
    "tokenizer-bad-regex": loads(30, split("(a+"), IDS),
    "tokenizer-slow-regex": loads(30, split("(a+)+$"), "GPT2|gpt2"),
    "tokenizer-ids-twice": loads(30, vocabulary(the=0, capital=0, of=1), "GPT2|gpt2"),
    "tokenizer-id-2-31": loads(30, vocabulary(the=1 << 31), IDS),
    "tokenizer-id-beyond-rows": loads(30, vocabulary(the=0, far=5000), IDS),
    "tokenizer-growth": loads(30, replacing(10), IDS),
    "tokenizer-markup": loads(30, tokenized(added_tokens=MARKUP), "GPT2|gpt2"),
    "tokenizer-chat": loads(30, folder("gpt2", put("tokenizer_config.json", json.dumps(CHAT))), "GPT2|gpt2"),
    "tokenizer-config-broken": loads(30, folder("gpt2", put("tokenizer_config.json", "{")), "GPT2|gpt2"),
}
