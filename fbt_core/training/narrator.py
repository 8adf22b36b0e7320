"""Writes one passage of the training language from left to right.

All that the narrator knows follows from the words written so far. So the same code samples a passage and reads a given
one: only the script's ``choose`` differs.
"""

from __future__ import annotations

from fbt_core.training import menus
from fbt_core.training.lexicon import (
    END_OF_PASSAGE,
    HUMAN_ADJECTIVES,
    PLURAL,
    PRONOUNS,
    REFLEXIVES,
    THING_ADJECTIVES,
    pronouns,
    reflexives,
)
from fbt_core.training.menus import Menu
from fbt_core.training.script import Referent, Script
from fbt_core.training.teller import Teller

LONGEST = 140
"""Words after which a passage ends with its current sentence."""

MAXIMUM_MODIFIERS = 7
"""Prepositional phrases and relative clauses in one main clause."""


class Narrator:
    """One passage in the writing, appended to a script."""

    def __init__(self, script: Script) -> None:
        self.script, self.teller = script, Teller(script)
        self.memory, self._say = self.teller.memory, self.teller.say
        self.start = len(script.words)
        self.modifiers = 0
        self.subject: Referent | None = None  # of the last main clause: what a pronoun stands for

    def write(self) -> None:
        """The whole passage, up to and including its end mark."""
        while self._sentence():
            self.teller.sentence += 1

    def _sentence(self) -> bool:
        memory = self.memory
        may_end = len(memory.facts) >= 4 and self.teller.recalls >= 5
        must_end = len(self.script.words) - self.start > LONGEST
        known = self.subject is not None, bool(memory.belongings), bool(memory.homes)
        tag = self._say(menus.sentence_start(len(memory.facts), may_end, must_end, *known))
        if tag == END_OF_PASSAGE:
            return False
        if tag in ("who", "what", "where"):
            self._take_as_subject(self.teller.question(tag))
            return True
        subject = self._noun_phrase(tag, "even", 0, opening=True)
        self._take_as_subject(subject)
        if self._finish(subject, couple=tag == "name", link=True) == "link":
            self._take_as_subject(subject)  # a couple or a reflexive may have changed its form
            self._finish(self._noun_phrase(self._say(menus.noun_phrase("even", 0.15, "pronoun", 1.2)), "even", 0))
        self._take_as_subject(subject)
        return True

    def _take_as_subject(self, subject: Referent) -> None:
        self.subject = subject
        self.memory.slots["pronoun"] = list(pronouns(subject.number, subject.gender))

    def _finish(self, subject: Referent, couple: bool = False, link: bool = False) -> str:
        """Goes on until all waiting subjects, the last one first, have their verbs; returns "." or "link".

        A modifier always hangs on the noun just written, ``noun``, so that a reader is never in doubt.
        """
        waiting, noun, adverb, self.modifiers = [subject], self._modifiable(subject), True, 0
        while True:
            attached = noun is not None and self.modifiers < MAXIMUM_MODIFIERS
            level = noun.level if noun and attached else 0
            if waiting:
                tag = self._say(self._verbs(waiting[-1], level, attached, adverb, couple))
            else:
                tag = self._say(menus.clause_end(level, attached, link))
            couple = False
            if tag in (".", "link"):
                return tag
            if tag in ("place", "that") and noun:
                self.modifiers += 1
                noun = (self._place if tag == "place" else self._relative)(noun, waiting)
                adverb = True
            elif tag == "adverb":
                noun, adverb = None, False
            elif tag == "and":
                self._couple(waiting[-1])
            else:
                noun, adverb = self._verb_phrase(tag, waiting.pop(), waiting), True

    def _verbs(self, top: Referent, level: int, attached: bool, adverb: bool, couple: bool) -> Menu:
        if top.gap:
            return menus.verb("gap", top.number, level, attached, adverb)
        facts = self.memory.verbs(top.name) if top.name else ()
        return menus.verb(top.kind, top.number, level, attached, adverb, couple, bool(top.name), facts)

    def _noun_phrase(self, tag: str, lean: str, level: int, people: float = 0.75, opening: bool = False) -> Referent:
        """A noun phrase whose first word is written: a name, a pronoun or a determiner."""
        if tag == "name":
            return self.teller.name(level)
        if tag == "pronoun":
            return self._pronoun()
        owned = opening and tag == "the" and bool(self.memory.belongings)
        fresh = opening and tag == "the" and self.memory.room
        kind = self._say(menus.noun(tag, lean, people, "", owned, fresh))
        if kind.endswith("adjective"):
            kind = self._say(menus.noun(tag, lean, people, kind.split()[0]))
        if kind == "colour":
            self.teller.recall(self.teller.mentioned("value"), "noun")
            kind = "belonging"
        elif kind == "fresh colour":
            self._say(menus.slot("fresh belongings"))
            kind = "unowned"
        head = self.script.refer(kind, level)
        if kind == "possessed":
            fact = self.teller.mentioned("noun")
            self.script.must("of")
            self.teller.recall(fact, "name")
            self.teller.name(level)
        return head

    @staticmethod
    def _modifiable(noun: Referent) -> Referent | None:
        """Names and pronouns take no modifiers."""
        return None if noun.bare else noun

    def _place(self, noun: Referent, waiting: list[Referent]) -> Referent | None:
        """The noun phrase after a preposition."""
        lean = self._lean(waiting)
        return self._modifiable(self._noun_phrase(self._say(menus.noun_phrase(lean, 0.12)), lean, noun.level))

    def _relative(self, noun: Referent, waiting: list[Referent]) -> Referent | None:
        """What follows "that", up to the clause's first noun or its end."""
        level = noun.level + 1
        self.script.marks.append((-1, (), level))
        lean = self._lean(waiting or [noun])
        tag = self._say(menus.relative(noun.kind == "human", noun.number, level, lean))
        if tag in ("action", "happening", "dealing"):
            inner = Referent(noun.number, noun.gender, noun.kind, noun.positions, noun.mark, level)
            last = self._verb_phrase(tag, inner, waiting)
            noun.gender = inner.gender
            return last
        inner = self._noun_phrase(tag, lean, level, people=1.0)
        inner.gap = True
        waiting.append(inner)
        return self._modifiable(inner)

    @staticmethod
    def _lean(waiting: list[Referent]) -> str:
        """Towards the number that the subject waiting for its verb has not: that makes an attractor."""
        if not waiting:
            return "even"
        return "singular" if waiting[-1].number == PLURAL else "plural"

    def _couple(self, first: Referent) -> None:
        """Makes the waiting name one of two. The second, a singular noun beside a plural verb, is an attractor."""
        slots = self.memory.slots
        slots["partners"] = [name for name in slots["cast"] if name != first.name]
        self._say(menus.slot("partners"))
        self.teller.name(0)
        first.number, first.gender, first.name = PLURAL, "either", ""
        first.positions = (*first.positions, self.script.here)

    def _pronoun(self) -> Referent:
        """The pronoun just written, which stands for the last main clause's subject."""
        antecedent = self.subject
        assert antecedent is not None
        self.script.pronoun(antecedent, pronouns(antecedent.number, antecedent.gender), PRONOUNS)
        referent = self.script.refer("human" if antecedent.kind == "human" else "thing", 0)
        referent.gender, referent.name, referent.bare = antecedent.gender, antecedent.name, True
        return referent

    def _verb_phrase(self, tag: str, subject: Referent, waiting: list[Referent]) -> Referent | None:
        """Notes the agreement of the verb just written and ends its clause; returns a noun that can be modified."""
        self.script.agreement(subject)
        if tag == "dealing":
            return self._object(subject, self._lean(waiting))
        if tag == "tend":
            lean = self._lean(waiting)
            return self._noun_phrase(self._say(menus.noun_phrase(lean, 0.0)), lean, subject.level, people=0.0)
        if tag == "be human":
            self._say(menus.alternatives(*HUMAN_ADJECTIVES))
        elif tag == "be thing":
            self._say(menus.alternatives(*THING_ADJECTIVES))
        elif tag in ("own", "live", "bind owner"):
            self.teller.bind(tag, subject)
        elif tag not in ("action", "happening", "gap"):
            self.teller.repeat(tag, subject)
        return None

    def _object(self, subject: Referent, lean: str) -> Referent | None:
        """A noun phrase, or the subject's reflexive."""
        fitting = reflexives(subject.number, subject.gender)
        self.memory.slots["reflexive"] = list(fitting)
        first = self._say(menus.noun_phrase(lean, 0.15, "reflexive", 0.12))
        if first != "reflexive":
            return self._modifiable(self._noun_phrase(first, lean, subject.level))
        self.script.pronoun(subject, fitting, REFLEXIVES)
        return None
