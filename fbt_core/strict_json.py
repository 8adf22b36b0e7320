"""JSON as a file from anywhere is allowed to have it: what Python's reader forgives, later code would trip over."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DIGITS = 18
"""Of an integer: a longer one does not fit the numbers of any tensor library, and overflows when made a float."""


def strict_json(text: str) -> Any:
    """The value of a JSON text.

    Raises ``ValueError`` for what is not JSON, a key given twice, an integer of more than ``MOST_DIGITS`` digits, a
    number that is not finite, text that no UTF-8 can hold (a lone surrogate), and nesting too deep to read.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    text.encode()  # UnicodeEncodeError is a ValueError
    if "\\u" in text:  # an escape can hide half a character
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key is given twice")
    return table


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS + 1:  # and a sign
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"the number {literal[:20]}")
    return value
