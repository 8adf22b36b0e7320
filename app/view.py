"""What a page draws: one side, or two when comparing. A page reads everything from here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.run import MATCHES, Run
from app.side import Side, reads_metric
from fbt_core.measures import MEASURES


@dataclass(frozen=True)
class View:
    """What a page draws: the run and one side, or two when comparing."""

    run: Run
    sides: tuple[Side, ...]
    layer_note: Any = field(default=None, compare=False, repr=False)  # the sidebar's place for a layer's kind
    source_note: Any = field(default=None, compare=False, repr=False)  # and for the sources that cannot be had

    @property
    def a(self) -> Side:
        """The first side."""
        return self.sides[0]

    @property
    def b(self) -> Side | None:
        """The second side, when comparing."""
        return self.sides[1] if len(self.sides) > 1 else None

    @property
    def compare(self) -> bool:
        """Whether there are two sides."""
        return len(self.sides) > 1

    @property
    def token(self) -> int:
        """The selected token, inside the text of every side."""
        return min([self.run.token, *(len(side.tokens) - 1 for side in self.sides)])

    @property
    def marked(self) -> tuple[int, ...]:
        """The marked tokens, in order, inside the text of every side."""
        shortest = min(len(side.tokens) for side in self.sides)
        return tuple(token for token in self.run.marks if token < shortest)

    @property
    def mismatch(self) -> str | None:
        """Why no difference between the sides can be drawn, or None when it can (tokens match one to one)."""
        if self.b is None:
            return "one checkpoint is open"
        if bool(self.a.key_tokens) != bool(self.b.key_tokens) or self.a.key_tokens != self.b.key_tokens:
            return "their keys are different tokens"
        if self.a.tokens != self.b.tokens:
            return f"the tokenizers differ: {len(self.a.tokens)} tokens in A, {len(self.b.tokens)} in B"
        return None

    @property
    def what_if(self) -> str | None:
        """Every side's label for a metric that is not as trained: to be said on every figure that it enters."""
        return self.told({side.name: side.what_if for side in self.sides})

    @property
    def what_if_forward(self) -> str | None:
        """The same for what made the model run otherwise, and so is to be said on every figure."""
        return self.told({side.name: side.what_if_forward for side in self.sides})

    def told(self, labels: dict[str, str | None]) -> str | None:
        """The sides' labels as one, each with its side's name where there are two."""
        found = [f"{name}: {label}" if self.compare else label for name, label in labels.items() if label]
        return "; ".join(found) or None

    def what_if_of(self, name: str) -> str | None:
        """The label of a measure's figure; for one of two scores also that the model runs but one of them."""
        notes = [self.what_if if reads_metric(name) else self.what_if_forward]
        if "score_a" in MEASURES[name].options:
            notes.append("what-if: both scores on the same factors, the model runs one of them")
        return "; ".join(filter(None, notes)) or None

    @property
    def mapping(self) -> str | None:
        """How layer and head of A became those of B: to be said on every figure of one layer or head."""
        if self.b is None:
            return None
        how = MATCHES[self.run.match]
        return f"A layer {self.a.layer}, head {self.a.head}; B layer {self.b.layer}, head {self.b.head} ({how})"
