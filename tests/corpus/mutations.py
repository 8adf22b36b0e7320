"""Ways to damage a file: bits, bytes, cuts, splices, length fields and JSON values, each from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

EDGES = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 33,
    (1 << 63) - 1,
    1 << 63,
)
"""Numbers at which a length field turns from small to large to negative."""

WORDS = ("0", "-1", "1e999", "null", "true", '""', "[]", "{}", "9" * 15, "9" * 4400, '"\\ud800"', "0.5", '"os.system"')
"""What a JSON value is replaced by."""

Mutation = Callable[[bytearray, random.Random, int], None]


def place(raw: bytearray, dice: random.Random, head: int) -> int:
    """A position: mostly within the first ``head`` bytes, sometimes anywhere, sometimes near the end."""
    where = dice.random()
    if where < 0.7:
        return dice.randrange(min(head, len(raw)))
    return dice.randrange(len(raw)) if where < 0.85 else dice.randrange(max(0, len(raw) - 256), len(raw))


def flip(raw: bytearray, dice: random.Random, head: int) -> None:
    """One to four bits."""
    for _ in range(dice.randint(1, 4)):
        raw[place(raw, dice, head)] ^= 1 << dice.randrange(8)


def overwrite(raw: bytearray, dice: random.Random, head: int) -> None:
    """One to three bytes."""
    for _ in range(dice.randint(1, 3)):
        raw[place(raw, dice, head)] = dice.randrange(256)


def cut(raw: bytearray, dice: random.Random, head: int) -> None:
    """The end off."""
    del raw[place(raw, dice, head) :]


def insert(raw: bytearray, dice: random.Random, head: int) -> None:
    """A few random bytes, or a piece of the file itself, in between."""
    at, start = place(raw, dice, head), place(raw, dice, head)
    piece = (
        dice.randbytes(dice.randint(1, 8)) if dice.random() < 0.5 else bytes(raw[start : start + dice.randint(1, 64)])
    )
    raw[at:at] = piece


def remove(raw: bytearray, dice: random.Random, head: int) -> None:
    """A few bytes out of the middle."""
    at = place(raw, dice, head)
    del raw[at : at + dice.randint(1, 16)]


def length_field(raw: bytearray, dice: random.Random, head: int) -> None:
    """A number of 1, 2, 4 or 8 bytes set to an edge, or moved by a little."""
    width = dice.choice((1, 2, 4, 8))
    at = place(raw, dice, head)
    if at + width > len(raw):
        return
    value = int.from_bytes(raw[at : at + width], "little")
    value = dice.choice(EDGES) if dice.random() < 0.7 else value + dice.randint(-16, 16)
    raw[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def json_value(raw: bytearray, dice: random.Random, head: int) -> None:
    """A number or string of JSON replaced by another value; of a file without JSON, a few bits."""
    found = list(re.finditer(rb'-?\d+(?:\.\d+)?|"[^"\\]{0,64}"|true|false|null', bytes(raw[:head])))
    if not found:
        return flip(raw, dice, head)
    span = dice.choice(found).span()
    raw[span[0] : span[1]] = dice.choice(WORDS).encode()


MUTATIONS: tuple[Mutation, ...] = (flip, overwrite, cut, insert, remove, length_field, json_value)


def mutant(good: bytes, seed: str, head: int) -> bytes:
    """The mutant of a seed, never equal to the good file; the header's own length follows what was done to a header."""
    dice, raw = random.Random(seed), bytearray(good)
    while bytes(raw) == good:
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            if raw:
                dice.choice(MUTATIONS)(raw, dice, head)
    return bytes(raw)


def resized(good: bytes, seed: str, head: int) -> bytes:
    """As ``mutant``, but within the JSON of a safetensors header, whose length is put right again."""
    changed = mutant(good[8:head], seed, head)
    return len(changed).to_bytes(8, "little") + changed + good[head:]
