"""A passage as it is written: its words, how probable each was, what each depends on, and which have one right form."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fbt_core.training.lexicon import GENDER, NAMES, NUMBER, OTHER_NUMBER, PRONOUNS, pronouns
from fbt_core.training.memory import Slots
from fbt_core.training.menus import Menu, certain

Choose = Callable[[Menu, Slots], tuple[str, str, float]]
"""(menu, slots) -> (word, tag, natural logarithm of the word's probability)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A token with one right form. A model gets it right if ``right`` is more probable than each of ``wrong``.

    ``position`` is the token's own index; the model predicts it at ``position - 1``. By kind:

    - agreement: a verb; wrong is its form of the other number; attractors are the nouns of the other number since its
      head; depth is how many clauses lie inside one another at most from head to verb (0: the matrix clause alone).
    - recall: a word bound to a name; wrong are the passage's other bindings of its kind, colours painted over included;
      attractors are their number; depth is how many sentences ago it was bound.
    - pronoun: the form written; wrong are all forms that do not fit the antecedent; attractors are the nouns since the
      antecedent that need another form; depth as for agreement.
    """

    position: int
    kind: str
    right: str
    wrong: tuple[str, ...]
    attractors: int
    depth: int


@dataclass(slots=True)
class Referent:
    """A noun phrase: what a verb agrees with and a pronoun stands for."""

    number: int
    gender: str  # male | female | either | neuter; a pronoun settles "either"
    kind: str  # human | thing | belonging | possessed | unowned
    positions: tuple[int, ...]  # of its head word, or of both names of a couple
    mark: int  # its place in the script's list of marks
    level: int  # how many clauses it stands in, 0 in the matrix clause
    name: str = ""
    bare: bool = False  # a name or a pronoun, which nothing can be hung on
    gap: bool = False  # its verb's object is the noun before "that"


def sampler(uniforms: Iterator[float]) -> Choose:
    """Chooses by random numbers in [0, 1): one for a menu, and one more if it led to a slot."""

    def choose(menu: Menu, slots: Slots) -> tuple[str, str, float]:
        if len(menu.words) == 1 and menu.words[0][0] != "{":
            return menu.words[0], menu.tags[0], 0.0
        index = bisect_right(menu.cumulative, next(uniforms))
        word = menu.words[index]
        if word[0] != "{":
            return word, menu.tags[index], menu.logs[index]
        words = slots[word[1:-1]]
        return words[int(next(uniforms) * len(words))], menu.tags[index], menu.logs[index] - math.log(len(words))

    return choose


class Script:
    """Parallel lists over the tokens of a sequence; passages are appended, and all positions count from its start."""

    def __init__(self, choose: Choose, words: tuple[str, ...] = ()) -> None:
        self.choose = choose
        self.words = list(words)
        self.logs = [0.0] * len(words)
        self.attends: list[tuple[int, ...]] = [()] * len(words)
        self.probes: list[Probe] = []
        self.marks: list[tuple[int, tuple[str, ...], int]] = []  # of a noun or a "that": number, its pronouns, level

    @property
    def here(self) -> int:
        """The position of the word just written."""
        return len(self.words) - 1

    def say(self, menu: Menu, slots: Slots) -> str:
        """Writes one word and returns its tag."""
        word, tag, log = self.choose(menu, slots)
        self.words.append(word)
        self.logs.append(log)
        self.attends.append(())
        return tag

    def must(self, word: str) -> None:
        """Writes a word that leaves no choice."""
        self.say(certain(word), {})

    def refer(self, kind: str, level: int) -> Referent:
        """The referent of the noun or name just written."""
        word = self.words[-1]
        number, gender = NUMBER[word], GENDER[word]
        self.marks.append((number, pronouns(number, gender), level))
        name = word if kind == "name" else ""
        kind = "human" if name else kind
        return Referent(number, gender, kind, (self.here,), len(self.marks) - 1, level, name, bool(name))

    def agreement(self, subject: Referent) -> None:
        """Notes that the verb just written agrees with ``subject``. A verb next to a name or pronoun is no question."""
        self.attends[-1] = subject.positions
        if subject.positions == (self.here - 1,) and (self.words[-2] in NAMES or self.words[-2] in PRONOUNS):
            return
        between = self.marks[subject.mark + 1 :]
        attractors = sum(number == 1 - subject.number for number, _, _ in between)
        depth = max((level for _, _, level in between), default=0)
        verb = self.words[-1]
        wrong = (OTHER_NUMBER[verb],)
        self.probes.append(Probe(self.here, "agreement", verb, wrong, attractors, max(depth, subject.level)))

    def pronoun(self, antecedent: Referent, fitting: tuple[str, ...], all_forms: tuple[str, ...]) -> None:
        """Notes that the pronoun just written stands for ``antecedent``, and what that tells about its gender."""
        word = self.words[-1]
        self.attends[-1] = antecedent.positions
        between = self.marks[antecedent.mark + 1 :]
        needed = pronouns(antecedent.number, antecedent.gender)
        attractors = sum(number >= 0 and not set(forms) & set(needed) for number, forms, _ in between)
        depth = max((level for _, _, level in between), default=0)
        wrong = tuple(form for form in all_forms if form not in fitting)
        self.probes.append(Probe(self.here, "pronoun", word, wrong, attractors, max(depth, antecedent.level)))
        antecedent.gender = GENDER.get(word, antecedent.gender)

    def recall(self, word: str, stated: list[int], rivals: tuple[str, ...], age: int) -> None:
        """Writes the word that was bound at ``stated``, and adds this place to those that state it."""
        self.must(word)
        self.attends[-1] = tuple(stated)
        if rivals:
            self.probes.append(Probe(self.here, "recall", word, rivals, len(rivals), age))
        stated.append(self.here)
