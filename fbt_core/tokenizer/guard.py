"""What a ``tokenizer.json`` from anywhere may do: be read, be wrong, and never more than that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import tokenizers

from fbt_core.strict_json import strict_json

MAXIMUM_WORDS = 1_000_000
"""The largest vocabulary read from a file; the largest in use today have about 260,000 entries."""

MAXIMUM_GROWTH = 64
"""Of a text by a file's own replacements; a known file's make it a few times longer at most."""

MAXIMUM_JSON = 64 << 20  # characters; a vocabulary of 260,000 with its merges takes about 33 million

REMEDY = "Save the checkpoint again with the tokenizer that it was trained with."

Result = TypeVar("Result")


def fault(got: str, expected: str) -> Exception:
    """The error of a tokenizer that cannot be used. Its class is looked up late, since checkpoints hold tokenizers."""
    from fbt_core.checkpoints.faults import CheckpointError

    return CheckpointError(got, expected, REMEDY)


def parsed(text: str) -> dict[str, Any]:
    """A JSON object, or a ``CheckpointError``: nesting and integers without end are the file's fault as well."""
    try:
        table = strict_json(text)
    except ValueError as error:
        raise fault(f"a tokenizer that is not JSON ({str(error)[:80]!r})", "a JSON object") from error
    if not isinstance(table, dict):
        raise fault(f"a tokenizer that is a JSON {type(table).__name__}", "a JSON object")
    return table


def growth(step: object) -> float:
    """The most times longer that a tokenizer.json's replacements can make a text: each multiplies those before it."""
    if isinstance(step, list):
        return math.prod(map(growth, step))
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
    return own * math.prod(growth(step[part]) for part in parts if part in step)


def guarded(call: Callable[[], Result], what: str) -> Result:
    """``call()``, with every failure of the ``tokenizers`` package, Rust panics included, as a ``CheckpointError``."""
    try:
        return call()
    except BaseException as error:
        # A panic derives from BaseException alone, and its class cannot be imported by name.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        got = f"a tokenizer.json that failed in {what} ({type(error).__name__}: {repr(str(error))[:120]})"
        raise fault(got, "one that the tokenizers package can use") from error


def checked(json_text: str) -> dict[str, Any]:
    """The table of a ``tokenizer.json``. Raises ``CheckpointError`` if it is too large or can make a text endless."""
    if len(json_text) > MAXIMUM_JSON:
        raise fault(f"a tokenizer.json of {len(json_text)} characters", f"at most {MAXIMUM_JSON}")
    table = parsed(json_text)
    if (times := growth(table)) > MAXIMUM_GROWTH:
        raise fault(f"a tokenizer.json that can make a text {times:.3g} times as long", f"at most {MAXIMUM_GROWTH}")
    return table


def opened(json_text: str) -> tuple[dict[str, Any], tokenizers.Tokenizer, dict[str, int]]:
    """A ``tokenizer.json``: its table, the tokenizer without padding or truncation, and its vocabulary.

    Raises ``CheckpointError`` as ``checked`` does, and for what the ``tokenizers`` package refuses.
    """
    table = checked(json_text)
    made = guarded(lambda: tokenizers.Tokenizer.from_str(json_text), "reading")
    # At once: a file may ask for padding to 10^9 tokens, which would end the process at the first text.
    guarded(made.no_padding, "reading")
    guarded(made.no_truncation, "reading")
    vocabulary: dict[str, int] = guarded(lambda: made.get_vocab(with_added_tokens=True), "reading")
    largest = max(vocabulary.values(), default=-1)
    if not 0 <= largest < MAXIMUM_WORDS:
        raise fault(f"token ids up to {largest}", f"ids from 0 to below {MAXIMUM_WORDS}")
    return table, made, vocabulary


def unknown_id(table: dict[str, Any], vocabulary: dict[str, int]) -> int | None:
    """The id for what the vocabulary has no word for; None where the file has none."""
    model = table.get("model")
    name = model.get("unk_token") if isinstance(model, dict) else None
    return vocabulary.get(name) if isinstance(name, str) else None
