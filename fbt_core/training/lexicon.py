"""The words of the training language, and what each one is: part of speech, number, gender, the other number's form.

No word has two readings, so that a word says which rule wrote it: that is what makes every probability exact.
"""

from __future__ import annotations

SINGULAR, PLURAL = 0, 1
"""Grammatical number, and the index into a (singular, plural) pair."""


def _pairs(words: str) -> tuple[tuple[str, str], ...]:
    """(singular, plural) from "boy child/children"; the regular plural is spelt by rule."""
    forms = [word.partition("/") for word in words.split()]
    return tuple((stem, plural or stem + ("es" if stem[-1] in "sx" else "s")) for stem, _, plural in forms)


def _verbs(words: str) -> tuple[tuple[str, str], ...]:
    """(singular, plural) from the plural forms: "sing" gives ("sings", "sing")."""

    def third_person(stem: str) -> str:
        if stem.endswith("ry"):
            return stem[:-1] + "ies"
        return stem + ("es" if stem.endswith(("sh", "ch", "s")) else "s")

    return tuple((third_person(stem), stem) for stem in words.split())


FEMALE_NAMES = ("anna", "clara", "elena", "greta", "ida", "nora", "olga", "vera")
MALE_NAMES = ("boris", "david", "felix", "hugo", "ivan", "oscar", "simon", "viktor")
NAMES = tuple(sorted(FEMALE_NAMES + MALE_NAMES))

MEN = _pairs("king boy uncle prince monk")
WOMEN = _pairs("queen girl aunt princess nun")
PEOPLE = _pairs("sailor captain farmer teacher doctor poet guard child/children student baker")
HUMANS = MEN + WOMEN + PEOPLE
THINGS = _pairs("ship house tower garden bridge river tree lamp wall bell")
BELONGINGS = _pairs("boat coat drum kite clock chair cup book hat ring")

COLOURS = tuple("red blue green white black yellow brown grey purple orange pink golden".split())
CITIES = tuple("rome paris london berlin cairo lima oslo delhi".split())
HUMAN_ADJECTIVES = tuple("old young tall proud tired brave kind famous".split())
THING_ADJECTIVES = tuple("large ancient broken heavy empty lovely".split())

EITHER_DETERMINER = ("the",)
SINGULAR_DETERMINERS = ("every", "this", "one")
PLURAL_DETERMINERS = ("many", "these", "two")
PREPOSITIONS = ("near", "behind", "beside", "with")
ADVERBS = ("always", "never", "often", "rarely")
LINKS = ("because", "while")

ACTIONS = _verbs("sing wait laugh sleep smile dance whistle pray rest shout")  # a person, no object
DEALINGS = _verbs("see know like help follow admire fear watch trust praise")  # a person, and an object
HAPPENINGS = _verbs("stand fall shine burn shake vanish")  # a thing, no object
OWNING = (("has", "have"), *_verbs("own keep"))  # binds a belonging to a name
HANDLING = _verbs("sell clean hide carry polish repair")  # of one's own belonging: recalls it
PAINT, BELONG, LIVE, RETURN = (_verbs(stem)[0] for stem in ("paint", "belong", "live", "return"))
BE, DO = ("is", "are"), "does"

PRONOUNS = ("he", "she", "it", "they")
REFLEXIVES = ("himself", "herself", "themselves")
END_OF_PASSAGE = "¶"
_SMALL_WORDS = ("that", "and", "of", "to", "in", "who", "what", "where", "does", ".", "?", END_OF_PASSAGE)

VERBS = (*ACTIONS, *DEALINGS, *HAPPENINGS, *OWNING, *HANDLING, PAINT, BELONG, LIVE, RETURN, BE)
NOUNS = HUMANS + THINGS + BELONGINGS

OTHER_NUMBER = {form: pair[1 - number] for pair in VERBS + NOUNS for number, form in enumerate(pair)}
"""A noun's or verb's form -> its form of the other number."""

NUMBER = {form: number for pair in NOUNS for number, form in enumerate(pair)}
NUMBER |= dict.fromkeys((*NAMES, "he", "she", "it"), SINGULAR) | {"they": PLURAL}
"""A noun, name or pronoun -> SINGULAR or PLURAL: all words that can be a verb's subject."""

GENDER = {form: "neuter" for pair in NOUNS for form in pair} | {"it": "neuter", "they": "either"}
GENDER |= {form: "either" for pair in PEOPLE for form in pair}
GENDER |= {form: "male" for pair in MEN for form in pair} | dict.fromkeys((*MALE_NAMES, "he", "himself"), "male")
GENDER |= {form: "female" for pair in WOMEN for form in pair} | dict.fromkeys(
    (*FEMALE_NAMES, "she", "herself"), "female"
)
"""A noun, name or pronoun -> male, female, either (a sailor may be she or he) or neuter."""


def pronouns(number: int, gender: str) -> tuple[str, ...]:
    """The subject pronouns that may stand for something of this number and gender: one, or two for "either"."""
    if number == PLURAL:
        return ("they",)
    return {"male": ("he",), "female": ("she",), "either": ("he", "she"), "neuter": ("it",)}[gender]


def reflexives(number: int, gender: str) -> tuple[str, ...]:
    """The reflexives that a person of this number and gender may take."""
    if number == PLURAL:
        return ("themselves",)
    return {"male": ("himself",), "female": ("herself",), "either": ("himself", "herself")}[gender]


WORDS: tuple[str, ...] = (
    *_SMALL_WORDS, *EITHER_DETERMINER, *SINGULAR_DETERMINERS, *PLURAL_DETERMINERS, *PREPOSITIONS, *ADVERBS, *LINKS,
    *PRONOUNS, *REFLEXIVES, *NAMES, *COLOURS, *CITIES, *HUMAN_ADJECTIVES, *THING_ADJECTIVES,
    *(form for pair in NOUNS + VERBS for form in pair),
)  # fmt: skip
"""The vocabulary in its fixed order: a model's token ids follow it, so words are only ever appended."""
