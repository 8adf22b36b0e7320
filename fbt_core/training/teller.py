"""Binds facts to names, and repeats them later as the passage so far determines."""

from __future__ import annotations

from fbt_core.training import menus
from fbt_core.training.lexicon import DO, LIVE, OWNING, PLURAL
from fbt_core.training.memory import Fact, Memory, Word
from fbt_core.training.menus import Menu
from fbt_core.training.script import Referent, Script

OWN = OWNING[1]
"""The verb of questions about belongings: (owns, own)."""


class Teller:
    """Writes those parts of a passage that are about its facts."""

    def __init__(self, script: Script) -> None:
        self.script, self.memory = script, Memory()
        self.sentence = self.recalls = 0
        self.named: dict[str, int] = {}  # a name -> where it was last written

    def say(self, menu: Menu) -> str:
        """Writes one word and returns its tag."""
        return self.script.say(menu, self.memory.slots)

    def name(self, level: int) -> Referent:
        """The referent of the name just written."""
        self.named[self.script.words[-1]] = self.script.here
        return self.script.refer("name", level)

    def mentioned(self, part: str, position: int = -1) -> Fact:
        """The fact whose ``part`` (value | noun) stands at ``position``."""
        return self.memory.find(part, self.script.words[position])

    def recall(self, fact: Fact, part: str) -> None:
        """Writes the ``part`` (name | value | noun) of a fact."""
        word: Word = getattr(fact, part)
        self.script.recall(word.text, word.stated, self.memory.rivals(fact, part), self.sentence - fact.sentence)
        self.recalls += 1

    def question(self, tag: str) -> Referent:
        """The rest of a question that starts with who, what or where, and its answer; returns the name in it."""
        name = self._ask_who() if tag == "who" else self._ask_about(tag == "where")
        self.script.must(".")
        return name

    def _ask_who(self) -> Referent:
        """ "owns the red boat ? anna does" or "lives in rome ? anna does"."""
        must, memory = self.script.must, self.memory
        verbs = [verb for verb, known in ((OWN[0], memory.belongings), (LIVE[0], memory.homes)) if known]
        home = self.say(menus.alternatives(*verbs)) == LIVE[0]
        must("in" if home else "the")
        self.say(menus.slot("cities" if home else "colours"))
        fact = self.mentioned("value")
        if not home:
            self.recall(fact, "noun")
        must("?")
        self.recall(fact, "name")
        name = self.name(0)
        must(DO)
        return name

    def _ask_about(self, home: bool) -> Referent:
        """ "does anna own ? the red boat" or "does anna live ? in rome"."""
        must, memory = self.script.must, self.memory
        must(DO)
        self.say(menus.slot("dwellers" if home else "owners"))
        name = self.name(0)
        for word in (LIVE[PLURAL], "?", "in") if home else (OWN[PLURAL], "?", "the"):
            must(word)
        fact = (memory.homes if home else memory.belongings)[name.name]
        self.recall(fact, "value")
        if not home:
            self.recall(fact, "noun")
        return name

    def bind(self, tag: str, subject: Referent) -> None:
        """The rest of a clause that binds a belonging or a home to a name."""
        script = self.script
        script.must({"own": "the", "live": "in", "bind owner": "to"}[tag])
        if tag == "bind owner":
            noun_at = subject.positions[0]
            self.say(menus.slot("ownerless"))
            name = self.name(0).name
        else:
            noun_at, name = script.here + 2, subject.name
            self.say(menus.slot("fresh cities" if tag == "live" else "fresh colours"))
            if tag == "own":
                self.say(menus.slot("fresh belongings"))
        value_at = script.here if tag == "live" else noun_at - 1
        noun = None if tag == "live" else Word(script.words[noun_at], [noun_at])
        value = Word(script.words[value_at], [value_at])
        self.memory.bind(Fact(Word(name, [self.named[name]]), value, noun, self.sentence))

    def repeat(self, tag: str, subject: Referent) -> None:
        """The rest of a clause that repeats what was bound, or gives a belonging a new colour."""
        script, memory = self.script, self.memory
        if tag in ("recall owner", "be colour"):
            fact = self.mentioned("noun", subject.positions[0])
        else:
            fact = (memory.homes if tag == "return" else memory.belongings)[subject.name]
        if tag != "be colour":
            script.must("to" if tag in ("recall owner", "return") else "the")
        self.recall(fact, "name" if tag == "recall owner" else "value")
        if tag == "recall owner":
            self.name(0)
        if tag in ("handle", "paint"):
            self.recall(fact, "noun")
        if tag == "paint":
            self.say(menus.slot("fresh colours"))
            memory.repaint(fact, Word(script.words[-1], [script.here]))
