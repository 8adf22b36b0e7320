"""``Run``: everything that the user asked for, as plain values. It travels in the URL, so a copied link opens it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import quote

DEFAULT_TEXT = "the old sailor near the ships sings"

MATCHES = {"number": "by number", "depth": "by relative depth"}
"""How a layer or head of A finds its partner in B."""

PART = re.compile(r"[\w.-]{1,80}", re.ASCII)
"""A state dict's name that can stand in a reference."""

ONE = r"(?:demo|sample):[\w.-]{1,80}|(?:sha256:[0-9a-f]{64}|path:[0-9a-f]{16})(?:\+[\w.~-]{1,80})?"
REFERENCE = re.compile(rf"(?:{ONE})(?:@(?:{ONE}))?", re.ASCII)
"""A checkpoint is a bundled one or an installed sample by its name, an uploaded one by the SHA-256 of its bytes, or one
of the server's own by a digest of where it lies; ``+part`` is one state dict of several, ``@base`` what an adapter is
put on. Never a path."""

MAXIMUM_STRENGTH = 4.0

MAXIMUM_RANK = 16

STACKS = ("", "encoder", "decoder", "cross")
"""Which attention of a model is shown; the empty one is the model's first, and of most models the only one."""

SOURCE = re.compile(rf"[a-z]{{1,20}}|adapter:{REFERENCE.pattern}", re.ASCII)
"""Where a metric comes from that the model has not: a row of the table of sources, or an adapter by its reference."""

PICTURE = re.compile(r"sample:[a-z]{1,20}|sha256:[0-9a-f]{64}", re.ASCII)
"""A picture is one that the app draws, or an uploaded one by the SHA-256 of its bytes."""

MOST_MARKED = 256
"""Tokens that a run can hold marked: a link must stay a link."""

MARKED = re.compile(rf"\d{{1,4}}(?:,\d{{1,4}}){{0,{MOST_MARKED - 1}}}", re.ASCII)
"""Marked tokens are their numbers, as in ``3,5,9``."""

MAXIMUM_URL = 24_000
"""Of the text in a URL, in percent-encoded characters: servers refuse requests above 64 kB, and a browser repeats the
URL in a second header."""


@dataclass(frozen=True)
class Run:
    """What is shown. ``a`` and ``b`` are checkpoint references; an empty ``b`` compares nothing."""

    a: str = "demo:riemannian"
    b: str = ""
    text: str = DEFAULT_TEXT
    layer: int = 0
    head: int = 0
    token: int = 0
    strength: float = 1.0  # U <- strength U; 1 is as trained
    match: str = "number"  # a key of MATCHES
    device: str = "cpu"
    source: str = ""  # of a metric for models that have none; "" leaves them without
    rank: int = 4  # of that metric
    stack: str = ""  # one of STACKS
    target: str = ""  # what the decoder of an encoder-decoder reads; "" is the text itself, shifted right
    image: str = ""  # what an image model sees; "" is a picture that the app draws
    marked: str = ""  # tokens marked on every page; ``marks`` reads it, ``marking`` writes it

    @property
    def marks(self) -> tuple[int, ...]:
        """The marked tokens, in order, each once; they may be beyond the text."""
        return tuple(sorted({int(token) for token in self.marked.split(",") if token}))

    def marking(self, tokens: Iterable[int]) -> Run:
        """The same run with these tokens marked and no others: the first ``MOST_MARKED`` of them."""
        chosen = sorted({int(token) for token in tokens})[:MOST_MARKED]
        return self.change(marked=",".join(map(str, chosen)))

    @property
    def compare(self) -> bool:
        """Whether there is a second checkpoint."""
        return bool(self.b)

    @property
    def references(self) -> tuple[str, ...]:
        """The one or two checkpoint references."""
        return (self.a, self.b) if self.b else (self.a,)

    def change(self, **values: Any) -> Run:
        """The same run with some fields changed."""
        return replace(self, **values)

    @property
    def text_fits(self) -> bool:
        """Whether the text is short enough for a URL that every server and browser takes."""
        return len(quote(self.text + self.target, errors="replace")) <= MAXIMUM_URL

    def to_query(self) -> dict[str, str]:
        """URL parameters: only what differs from the defaults, and no text that is too long for a URL."""
        default = Run() if self.text_fits else Run(text=self.text, target=self.target)
        return {
            field.name: _write(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != getattr(default, field.name)
        }

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Run:
        """The run of URL parameters. What is unknown or out of range falls back to its default: a link never fails."""
        values = {}
        for field in fields(cls):
            value = _read(field.name, field.default, query.get(field.name))
            values[field.name] = value
        return cls(**values)


def _write(value: str | int | float) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _read(name: str, default: Any, raw: str | None) -> Any:
    """One parameter, checked."""
    if raw is None:
        return default
    try:
        value = type(default)(raw)
    except ValueError:
        return default
    if name in SHAPES:
        empty = not value and name in ("b", "source", "image", "marked")
        return value if empty or SHAPES[name].fullmatch(value) else default
    if name in CHOICES:
        return value if value in CHOICES[name] else default
    if name in LIMITS:
        low, high = LIMITS[name]
        return value if low <= value <= high else default
    return max(value, 0) if isinstance(value, int) else value


SHAPES = {
    "a": REFERENCE, "b": REFERENCE, "source": SOURCE, "image": PICTURE, "marked": MARKED,
    "device": re.compile(r"cpu|auto|cuda(:\d)?"),
}  # fmt: skip
CHOICES = {"match": tuple(MATCHES), "stack": STACKS}
LIMITS = {"strength": (0.0, MAXIMUM_STRENGTH), "rank": (1, MAXIMUM_RANK)}
"""What the fields of a run may be, where not everything is allowed."""
