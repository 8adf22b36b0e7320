"""What a passage has bound to its names so far: belongings with their colours, and homes."""

from __future__ import annotations

from dataclasses import dataclass

from fbt_core.training.lexicon import BELONGINGS, CITIES, COLOURS, NAMES
from fbt_core.training.menus import MAXIMUM_FACTS

MAXIMUM_REPAINTS = 3
"""Colours painted over in one passage: few enough that a fresh colour is always left."""

Slots = dict[str, list[str]]


@dataclass(slots=True)
class Word:
    """A word of a fact and the positions that state it: where it was bound, then every repetition."""

    text: str
    stated: list[int]


@dataclass(slots=True)
class Fact:
    """A name and what is bound to it, in sentence number ``sentence`` of the passage."""

    name: Word
    value: Word  # a colour, or a city
    noun: Word | None  # the belonging that has this colour; None for a home
    sentence: int


class Memory:
    """The facts of one passage, and the words that they leave to choose from, as slots of the menus.

    A name has at most one belonging and one home. No two facts share a colour, a belonging or a city, and a colour that
    was painted over never comes back: so every question has one answer.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.belongings: dict[str, Fact] = {}  # by name
        self.homes: dict[str, Fact] = {}
        self.stale: list[str] = []  # colours painted over
        self.slots: Slots = {}
        self._refresh()

    @property
    def room(self) -> bool:
        """Whether the passage may bind another fact."""
        return len(self.facts) < MAXIMUM_FACTS

    def bind(self, fact: Fact) -> None:
        """Adds a fact."""
        (self.belongings if fact.noun else self.homes)[fact.name.text] = fact
        self.facts.append(fact)
        self._refresh()

    def repaint(self, fact: Fact, colour: Word) -> None:
        """Gives a belonging a new colour, the only one that counts from here on."""
        self.stale.append(fact.value.text)
        fact.value = colour
        self._refresh()

    def find(self, part: str, text: str) -> Fact:
        """The fact whose ``part`` (value | noun) reads ``text``."""
        return next(f for f in self.facts if (word := getattr(f, part)) is not None and word.text == text)

    def rivals(self, fact: Fact, part: str) -> tuple[str, ...]:
        """What else this passage has bound that could stand where ``part`` (name | value | noun) of the fact stands."""
        right = getattr(fact, part).text
        if part == "name":
            return tuple(name for name in self.slots["bound names"] if name != right)
        alike = self.belongings if fact.noun else self.homes
        stale = self.stale if fact.noun and part == "value" else []
        return (*(text for f in alike.values() if (text := getattr(f, part).text) != right), *stale)

    def verbs(self, name: str) -> tuple[str, ...]:
        """Tags of the verbs with which a sentence about this name can bind or recall a fact."""
        owned, housed = name in self.belongings, name in self.homes
        return (
            *(("handle",) if owned else ("own",) if self.room else ()),
            *(("paint",) if owned and len(self.stale) < MAXIMUM_REPAINTS else ()),
            *(("return",) if housed else ("live",) if self.room else ()),
        )

    def _refresh(self) -> None:
        owned = list(self.belongings.values())
        bound = list(dict.fromkeys(fact.name.text for fact in self.facts))
        colours = [fact.value.text for fact in owned]
        nouns = [fact.noun.text for fact in owned if fact.noun]
        cities = [fact.value.text for fact in self.homes.values()]
        self.slots |= {
            "bound names": bound,
            "new names": [name for name in NAMES if name not in bound],
            "cast": bound if len(bound) > 1 else list(NAMES),
            "owners": list(self.belongings),
            "dwellers": list(self.homes),
            "ownerless": [name for name in NAMES if name not in self.belongings],
            "colours": colours,
            "fresh colours": [colour for colour in COLOURS if colour not in colours and colour not in self.stale],
            "belongings": nouns,
            "fresh belongings": [form for pair in BELONGINGS if not set(pair) & set(nouns) for form in pair],
            "cities": cities,
            "fresh cities": [city for city in CITIES if city not in cities],
        }
