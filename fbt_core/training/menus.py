"""What may come next, and how probable it is: every weight of the training language stands in this file.

A ``Menu`` is the distribution of one word given the narrator's state. No word stands in a menu twice, so a word that
was chosen says which branch was taken: hence the probability of a whole text is the exact product over its words.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate

from fbt_core.training import lexicon

MAXIMUM_LEVEL = 5
"""Clauses inside one another: a matrix clause is level 0, so a noun may wait for its verb over five others."""

PLURAL_SHARE = {"even": 0.55, "plural": 0.7, "singular": 0.35}
"""How often a common noun is plural. A noun inside a waiting subject leans to the number that subject has not."""

Words = tuple[str, ...]
Branch = tuple[float, Words | str, str]
"""(weight, words with equal shares | the name of a slot, tag). A slot's words depend on the passage so far."""


class Menu:
    """A distribution over next words, as parallel tuples; a slot is one entry, named "{slot}", and filled later."""

    __slots__ = ("cumulative", "logs", "tags", "words")

    def __init__(self, *branches: Branch) -> None:
        entries = [
            (weight / len(words), word, tag)
            for weight, choices, tag in branches
            if weight > 0
            for words in [choices if isinstance(choices, tuple) else (f"{{{choices}}}",)]
            for word in words
        ]
        total = math.fsum(weight for weight, _, _ in entries)
        self.words = tuple(word for _, word, _ in entries)
        self.tags = tuple(tag for _, _, tag in entries)
        self.logs = tuple(math.log(weight / total) for weight, _, _ in entries)
        # The last bound is infinite, so that rounding never leaves a random number without an entry.
        self.cumulative = (*accumulate(weight / total for weight, _, _ in entries[:-1]), math.inf)


def forms(pairs: tuple[tuple[str, str], ...], number: int) -> Words:
    """The singular or the plural forms of (singular, plural) pairs."""
    return tuple(pair[number] for pair in pairs)


@cache
def certain(word: str) -> Menu:
    """A word that is determined by what stands before it."""
    return Menu((1.0, (word,), word))


@cache
def slot(name: str) -> Menu:
    """One of a slot's words, all equally probable."""
    return Menu((1.0, name, name))


@cache
def alternatives(*words: str) -> Menu:
    """One of these words, all equally probable, each its own tag."""
    return Menu(*((1.0, (word,), word) for word in words))


@cache
def sentence_start(facts: int, may_end: bool, must_end: bool, referent: bool, owned: bool, housed: bool) -> Menu:
    """The first word of a sentence, given how many facts are bound and whether the last sentence left a referent."""
    if must_end:
        return certain(lexicon.END_OF_PASSAGE)
    new_name = 3.0 if facts < 4 else 1.2 if facts < 6 else 0.5 if facts < MAXIMUM_FACTS else 0.0
    question = 0.45 if facts >= 2 else 0.0
    return Menu(
        (1.5, ("the",), "the"),
        (0.2, lexicon.SINGULAR_DETERMINERS, "singular"),
        (0.3, lexicon.PLURAL_DETERMINERS, "plural"),
        (new_name, "new names", "name"),
        (0.0 if not facts else 0.8 if facts < 4 else 1.8, "bound names", "name"),
        (1.4 if referent else 0.0, "pronoun", "pronoun"),
        (question, ("who",), "who"),
        (question if owned else 0.0, ("what",), "what"),
        (question if housed else 0.0, ("where",), "where"),
        (2.5 if may_end else 0.0, (lexicon.END_OF_PASSAGE,), lexicon.END_OF_PASSAGE),
    )


MAXIMUM_FACTS = 8
"""Belongings and homes in one passage; mostly four are bound before much else is told."""


def _determiners(lean: str) -> tuple[Branch, ...]:
    """The first word of a common noun's phrase; the weights sum to 1."""
    plural = PLURAL_SHARE[lean]
    return (
        (0.66, ("the",), "the"),
        (0.34 * (1 - plural), lexicon.SINGULAR_DETERMINERS, "singular"),
        (0.34 * plural, lexicon.PLURAL_DETERMINERS, "plural"),
    )


@cache
def noun_phrase(lean: str, names: float, extra: str = "", weight: float = 0.0) -> Menu:
    """A determiner or a name, or else a word of the slot ``extra`` (a reflexive, a pronoun) with a given weight."""
    return Menu(*_determiners(lean), (names, "cast", "name"), (weight, extra, extra))


@cache
def noun(
    determiner: str, lean: str, people: float, adjective: str = "", owned: bool = False, fresh: bool = False
) -> Menu:
    """The noun after a determiner ("the" | "singular" | "plural") and perhaps an adjective ("human" | "thing").

    ``people`` is the share of people among the nouns; ``owned`` and ``fresh`` open the sentence to belongings that are
    bound already, or that are about to be.
    """
    plural = {"the": PLURAL_SHARE[lean], "singular": 0.0, "plural": 1.0}[determiner]
    human = {"": people, "human": 1.0, "thing": 0.0}[adjective]
    adjectives = 0.0 if adjective else 0.3
    return Menu(
        (human * (1 - plural), forms(lexicon.HUMANS, lexicon.SINGULAR), "human"),
        (human * plural, forms(lexicon.HUMANS, lexicon.PLURAL), "human"),
        ((1 - human) * (1 - plural), forms(lexicon.THINGS, lexicon.SINGULAR), "thing"),
        ((1 - human) * plural, forms(lexicon.THINGS, lexicon.PLURAL), "thing"),
        (adjectives * human, lexicon.HUMAN_ADJECTIVES, "human adjective"),
        (adjectives * (1 - human), lexicon.THING_ADJECTIVES, "thing adjective"),
        (0.6 if owned else 0.0, "colours", "colour"),
        (0.4 if owned else 0.0, "belongings", "possessed"),
        (0.3 if fresh else 0.0, "fresh colours", "fresh colour"),
    )


def modifiers(level: int, subject: bool, attached: bool) -> tuple[Branch, ...]:
    """What may be hung on the noun just written: "near ..." and "that ...", likelier inside than outside a clause."""
    if not attached:
        return ()
    relative = 0.0 if level >= MAXIMUM_LEVEL else 0.9 if level else 0.5
    place = (0.5 if subject else 0.15, lexicon.PREPOSITIONS, "place")
    return place, (relative if subject else 0.3 * relative, ("that",), "that")


@cache
def verb(
    kind: str, number: int, level: int, attached: bool, adverb: bool = False, couple: bool = False, named: bool = False,
    facts: Words = (),
) -> Menu:  # fmt: skip
    """The verb of a waiting subject, or what may stand before it. The weights of the plain verbs sum to about 1.

    ``kind`` is the referent's, or "gap" where the verb's object is the noun before "that". ``facts`` are the tags of
    the verbs that bind or recall a fact and are open to this subject. With a name (``named``) the verbs of owning and
    handling speak of what it owns itself, so they need a fact; anybody else may do such things to anything.
    """
    before = (
        *modifiers(level, True, attached),
        (0.06 if adverb else 0.0, lexicon.ADVERBS, "adverb"),
        (0.08 if couple else 0.0, ("and",), "and"),
    )
    if kind == "gap":
        return Menu(*before, (1.0, forms(lexicon.DEALINGS, number), "gap"))
    if kind == "unowned":
        return Menu(*before, (1.0, (lexicon.BELONG[number],), "bind owner"))
    if kind != "human":
        return Menu(
            *before,
            (0.6, forms(lexicon.HAPPENINGS, number), "happening"),
            (0.5 if kind == "possessed" else 0.0, (lexicon.BE[number],), "be colour"),
            (0.0 if kind == "possessed" else 0.25, (lexicon.BE[number],), "be thing"),
            (0.7 if kind == "belonging" else 0.0, (lexicon.BELONG[number],), "recall owner"),
        )
    plain = 0.25 if {"own", "live"} <= set(facts) else 1.0  # a name's first sentence mostly binds something
    return Menu(
        *before,
        (0.4 * plain, forms(lexicon.ACTIONS, number), "action"),
        (0.4 * plain, forms(lexicon.DEALINGS, number), "dealing"),
        (0.15 * plain, (lexicon.BE[number],), "be human"),
        (0.0 if named else 0.15, forms((*lexicon.HANDLING, *lexicon.OWNING, lexicon.PAINT), number), "tend"),
        (0.0 if named else 0.1, forms((lexicon.LIVE, lexicon.RETURN), number), "action"),
        *((weight, forms(pairs, number), tag) for tag, weight, pairs in FACT_VERBS if tag in facts),
    )


FACT_VERBS = (
    ("own", 0.65, lexicon.OWNING),
    ("live", 0.3, (lexicon.LIVE,)),
    ("handle", 1.5, lexicon.HANDLING),
    ("paint", 0.3, (lexicon.PAINT,)),
    ("return", 0.7, (lexicon.RETURN,)),
)
"""(tag, weight beside the plain verbs, verbs) of what a name can do with its belonging or home."""


@cache
def relative(human: bool, number: int, level: int, lean: str) -> Menu:
    """The word after "that": the noun's own verb, or the subject of a clause in which the noun is the object."""
    inside = 1.4 if level < 4 else 0.8
    return Menu(
        (0.25, forms(lexicon.ACTIONS if human else lexicon.HAPPENINGS, number), "action" if human else "happening"),
        (0.45 if human else 0.0, forms(lexicon.DEALINGS, number), "dealing"),
        *((inside * share, words, tag) for share, words, tag in _determiners(lean)),
        (0.15 * inside, "cast", "name"),
    )


@cache
def clause_end(level: int, attached: bool, link: bool) -> Menu:
    """The end of a sentence in which no subject waits for its verb, or what may be added before it."""
    return Menu(*modifiers(level, False, attached), (0.15 if link else 0.0, lexicon.LINKS, "link"), (1.0, (".",), "."))
