"""What a model reads: a text, ids where there is no tokenizer, a decoder's own text, or the patches of a picture."""

from __future__ import annotations

import json

from fbt_core.checkpoints import Checkpoint
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.tokenizer import Encoding, IdTokenizer
from fbt_core.trace import Trace

EXAMPLE = "The capital of France is"
"""A better first text than one of the training grammar, for a model of a natural language."""

FEW_IDS = "1 2 3 4 5 6 7 8"
"""An example for a model without a tokenizer."""


def is_foreign(checkpoint: Checkpoint) -> bool:
    """Whether it is a model of the transformers library, and so one that has read more than our grammar."""
    return isinstance(checkpoint.config, HuggingFaceConfig)


def sees_pictures(checkpoint: Checkpoint) -> bool:
    """Whether the model reads an image, and no text."""
    return isinstance(checkpoint.config, HuggingFaceConfig) and checkpoint.config.input == "image"


def reads_ids(checkpoint: Checkpoint) -> bool:
    """Whether it reads text and has no tokenizer for it."""
    bare = checkpoint.tokenizer is None or isinstance(checkpoint.tokenizer, IdTokenizer)
    return bare and checkpoint.config is not None and not sees_pictures(checkpoint)


def stacks_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of its attention stacks; one without a name for most models."""
    return checkpoint.config.stacks if isinstance(checkpoint.config, HuggingFaceConfig) else ("",)


def missing(checkpoint: Checkpoint, encoding: Encoding) -> str:
    """Why there is nothing to trace, a sentence for people; empty where there is."""
    if checkpoint.config is None:
        return "This file holds weights without a config, so there is no model to run."
    if encoding.ids or sees_pictures(checkpoint):
        return ""
    if reads_ids(checkpoint):
        return f"This checkpoint has no tokenizer: write token ids as the text, such as {FEW_IDS}."
    return "Write a text in the sidebar, or sample a sentence, to see what the model makes of it."


def nothing() -> Encoding:
    """No token at all."""
    return Encoding([], [], [], [])


def ids_in(text: str, vocabulary: int) -> Encoding:
    """The whole numbers of a text that are ids of the vocabulary; other words are left out."""
    words = [word for word in text.replace(",", " ").split() if word.isascii() and word.isdecimal()]
    return numbered([int(word) for word in words if len(word) < 10 and int(word) < vocabulary])


def numbered(ids: list[int], labels: list[str] | None = None) -> Encoding:
    """Ids as tokens, of a text that nobody has."""
    labels = labels if labels is not None else [f"id {token}" for token in ids]
    return Encoding(ids, labels, [(0, 0)] * len(ids), [False] * len(ids))


def shifted(encoding: Encoding, checkpoint: Checkpoint, keep_last: bool, limit: int) -> Encoding:
    """The decoder's first token, then the tokens; all of them (``keep_last``), or all but the last as in training."""
    table = json.loads(checkpoint.config.table)
    start = next((table[name] for name in ("decoder_start_token_id", "pad_token_id") if table.get(name) is not None), 0)
    label = f"id {start}" if reads_ids(checkpoint) else checkpoint.tokenizer.label(start)
    kept = encoding if keep_last else encoding.cut(len(encoding.ids) - 1)
    raw = [label, *kept.raw] if kept.raw else []
    both = Encoding(
        [start, *kept.ids], [label, *kept.tokens], [(0, 0), *kept.offsets], [False, *kept.unknown], raw
    )  # fmt: skip
    return both.cut(limit)


def patches(trace: Trace) -> Encoding:
    """The tokens of an image model, which are places and no words."""
    return numbered(list(range(trace.length)), list(trace.tokens))
