"""All that a trace depends on: a plain value, by which what was found is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Request:
    """All that a trace depends on."""

    reference: str
    text: str
    strength: float = 1.0
    device: str = "cpu"
    source: str = ""  # of the metric, for a model that has none
    rank: int = 4  # of that metric
    stack: str = ""  # of a model that has several
    target: str = ""  # what its decoder reads
    image: str = ""

    @property
    def forward(self) -> Request:
        """What the model runs on: neither where a metric comes from nor which stack is shown makes it run again."""
        strength = 1.0 if self.source else self.strength
        return replace(self, strength=strength, source="", rank=4, stack="")

    @property
    def bare(self) -> Request:
        """The same stack without a metric from elsewhere: what no such metric touches depends on this alone."""
        return replace(self.forward, stack=self.stack)


def references(key: Any) -> Iterator[str]:
    """Every checkpoint that a key speaks of."""
    if isinstance(key, str):
        yield key
    elif isinstance(key, Request):
        yield key.reference
        yield key.source.partition(":")[2]  # an adapter's
    elif isinstance(key, tuple):
        for part in key:
            yield from references(part)
    elif is_dataclass(key):
        for part in fields(key):
            yield from references(getattr(key, part.name))
