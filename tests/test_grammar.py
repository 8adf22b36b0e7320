"""The training language against an independent reader: a recursive-descent parser that knows only parts of speech.

The parser finds each verb's subject, each clause's depth and each pronoun's antecedent by itself, keeps its own record
of who owns what, and is compared with what the generator says.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from fbt_core.training import lexicon
from fbt_core.training.grammar import (
    WORDS,
    Passage,
    continuations,
    dependencies,
    entropy_floor,
    log_probabilities,
    nearest_noun_is_right,
    passage,
    sample_text,
    stream,
)
from fbt_core.training.menus import Menu
from fbt_core.training.narrator import Narrator
from fbt_core.training.script import Choose, Script, sampler

NAMES = set("anna clara elena greta ida nora olga vera boris david felix hugo ivan oscar simon viktor".split())
WOMEN = set("anna clara elena greta ida nora olga vera queen girl aunt princess nun".split())
MEN = set("boris david felix hugo ivan oscar simon viktor king boy uncle prince monk".split())
PRONOUNS = {"he", "she", "it", "they"}
REFLEXIVES = {"himself", "herself", "themselves"}
DETERMINERS = {"the", "every", "this", "one", "many", "these", "two"}
PREPOSITIONS = {"near", "behind", "beside", "with"}
ADVERBS = {"always", "never", "often", "rarely"}
COLOURS = set("red blue green white black yellow brown grey purple orange pink golden".split())
ADJECTIVES = COLOURS | set(
    "old young tall proud tired brave kind famous large ancient broken heavy empty lovely".split()
)
SINGULAR_NOUNS = {pair[0] for pair in lexicon.NOUNS}
PLURAL_NOUNS = {pair[1] for pair in lexicon.NOUNS}
SINGULAR_VERBS = {pair[0] for pair in lexicon.VERBS}
PLURAL_VERBS = {pair[1] for pair in lexicon.VERBS}
BELONGINGS = {form for pair in lexicon.BELONGINGS for form in pair}
NOUNS, VERBS = SINGULAR_NOUNS | PLURAL_NOUNS, SINGULAR_VERBS | PLURAL_VERBS
OWNING = {"has", "have", "own", "owns", "keep", "keeps"}
WITH_OBJECT = OWNING | {
    form
    for stem in (
        "see know like help follow admire fear watch trust praise sell clean hide carry polish repair paint".split()
    )
    for form in (stem, stem + "s", stem + "es", stem[:-1] + "ies")
}


@dataclass
class Clause:
    """A verb with its subject's head positions, the main verb's clause first among those of its sentence."""

    subject: tuple[int, ...]
    verb: int
    level: int
    main: bool


@dataclass
class Reading:
    """What the parser found in one sentence that is not a question."""

    words: tuple[str, ...]
    at: int
    clauses: list[Clause] = field(default_factory=list)
    nouns: list[tuple[int, int]] = field(default_factory=list)  # position, level, of nouns, names and pronouns
    levels: list[tuple[int, int]] = field(default_factory=list)  # position and level of every "that"
    reflexives: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    def word(self) -> str:
        return self.words[self.at]

    def take(self, *allowed: set[str]) -> int:
        assert any(self.word() in words for words in allowed), f"{self.word()!r} in {' '.join(self.words)}"
        self.at += 1
        return self.at - 1

    def sentence(self) -> int:
        """Reads to the full stop and returns the position after it."""
        self.main_clause()
        if self.word() in ("because", "while"):
            self.at += 1
            self.main_clause()
        return self.take({"."}) + 1

    def main_clause(self) -> None:
        subject = self.noun_phrase(0)
        if self.word() == "and":
            self.at += 1
            subject = (*subject, *self.noun_phrase(0))
        self.verb_phrase(subject, 0, main=True)

    def noun_phrase(self, level: int) -> tuple[int, ...]:
        if self.word() in NAMES | PRONOUNS:
            self.nouns.append((self.at, level))
            return (self.take(NAMES | PRONOUNS),)
        self.take(DETERMINERS)
        while self.word() in ADJECTIVES:
            self.at += 1
        head = self.take(NOUNS)
        self.nouns.append((head, level))
        if self.word() == "of":
            self.at += 1
            self.noun_phrase(level)
        if self.word() in PREPOSITIONS:
            self.at += 1
            self.noun_phrase(level)
        elif self.word() == "that":
            self.levels.append((self.at, level + 1))
            self.at += 1
            if self.word() in VERBS:
                self.verb_phrase((head,), level + 1)
            else:
                self.verb_phrase(self.noun_phrase(level + 1), level + 1, gap=True)
        return (head,)

    def verb_phrase(self, subject: tuple[int, ...], level: int, gap: bool = False, main: bool = False) -> None:
        if self.word() in ADVERBS:
            self.at += 1
        verb = self.take(VERBS)
        self.clauses.append(Clause(subject, verb, level, main))
        if gap:
            return
        if self.word() in REFLEXIVES:
            self.reflexives.append((self.take(REFLEXIVES), subject))
        elif self.words[verb] in WITH_OBJECT:
            self.noun_phrase(level)
            if self.word() in COLOURS:  # painted in another colour
                self.at += 1
        elif self.words[verb] in ("is", "are"):
            self.take(ADJECTIVES)
        elif self.word() in ("in", "to"):
            self.at += 1
            place = self.take(NAMES, set(lexicon.CITIES))
            if self.words[place] in NAMES:
                self.nouns.append((place, level))


def sentences(words: tuple[str, ...]) -> list[tuple[int, int]]:
    """[start, end) of every sentence of a passage; a question and its answer count as one."""
    stops = [i + 1 for i, word in enumerate(words) if word == "."]
    return list(itertools.pairwise([0, *stops]))


def plural(words: tuple[str, ...], heads: tuple[int, ...]) -> bool:
    return len(heads) > 1 or words[heads[0]] == "they" or words[heads[0]] in PLURAL_NOUNS


@pytest.fixture(scope="module")
def passages() -> list[Passage]:
    rng = np.random.default_rng(11)
    return [passage(rng) for _ in range(150)]


def readings(text: Passage) -> list[Reading]:
    """Every sentence but the questions, parsed."""
    found = []
    for start, end in sentences(text.tokens):
        if text.tokens[start] not in ("who", "what", "where"):
            reading = Reading(text.tokens, start)
            assert reading.sentence() == end
            found.append(reading)
    return found


def test_every_verb_agrees_with_the_head_that_an_independent_parser_finds(passages: list[Passage]):
    verbs = 0
    for text in passages:
        expected = {clause.verb: clause.subject for reading in readings(text) for clause in reading.clauses}
        for verb, heads in expected.items():
            forms = PLURAL_VERBS if plural(text.tokens, heads) else SINGULAR_VERBS
            assert text.tokens[verb] in forms, " ".join(text.tokens[verb - 12 : verb + 1])
            assert text.attends[verb] == heads
        verbs += len(expected)
        others = {p.position for p in text.probes if p.kind == "agreement"} - set(expected)
        assert not others
    assert verbs > 2000


def test_attractors_and_depth_of_agreement_are_what_the_parser_counts(passages: list[Passage]):
    seen = Counter()
    for text in passages:
        for reading in readings(text):
            for clause in reading.clauses:
                probe = next((p for p in text.probes if p.position == clause.verb), None)
                trivial = clause.subject == (clause.verb - 1,) and text.tokens[clause.verb - 1] in NAMES | PRONOUNS
                assert (probe is None) == trivial
                if probe is None:
                    continue
                between = [noun for noun, _ in reading.nouns if clause.subject[0] < noun < clause.verb]
                number = plural(text.tokens, clause.subject)
                attractors = sum(plural(text.tokens, (noun,)) != number for noun in between)
                nested = [level for at, level in reading.levels if clause.subject[0] < at < clause.verb]
                assert (probe.attractors, probe.depth) == (attractors, max([clause.level, *nested]))
                seen[min(probe.attractors, 3), min(probe.depth, 4)] += 1
    assert {depth for _, depth in seen} == {0, 1, 2, 3, 4} and {a for a, _ in seen} == {0, 1, 2, 3}


def needed(words: tuple[str, ...], heads: tuple[int, ...]) -> set[str]:
    """The pronouns that may stand for these heads."""
    word = words[heads[0]]
    if plural(words, heads):
        return {"they"}
    if word in PRONOUNS:
        return {word}
    if word in WOMEN or word in MEN:
        return {"she"} if word in WOMEN else {"he"}
    return {"it"} if word in {s for s, _ in lexicon.THINGS + lexicon.BELONGINGS} else {"he", "she"}


def test_pronouns_and_reflexives_have_the_antecedent_that_the_parser_finds(passages: list[Passage]):
    kinds = Counter()
    for text in passages:
        probes = {p.position: p for p in text.probes if p.kind == "pronoun"}
        subject: tuple[int, ...] = ()
        for start, end in sentences(text.tokens):
            if text.tokens[start] in ("who", "what", "where"):
                subject = (max(i for i in range(start, end) if text.tokens[i] in NAMES),)
                continue
            reading = Reading(text.tokens, start)
            reading.sentence()
            for position, antecedent in reading.reflexives:
                assert text.attends[position] == antecedent
                third = {"he": "himself", "she": "herself", "they": "themselves"}
                assert text.tokens[position] in {third[p] for p in needed(text.tokens, antecedent)}
                assert set(probes.pop(position).wrong) < REFLEXIVES
                kinds["reflexive"] += 1
            main = [clause for clause in reading.clauses if clause.main]
            for clause, antecedent in zip(main, (subject, main[0].subject), strict=False):
                head = clause.subject[0]
                if text.tokens[head] in PRONOUNS:
                    assert text.attends[head] == antecedent
                    assert text.tokens[head] in needed(text.tokens, antecedent)
                    # A reflexive or an earlier pronoun may have settled whether a sailor is a he or a she.
                    unsettled, settled = PRONOUNS - needed(text.tokens, antecedent), PRONOUNS - {text.tokens[head]}
                    assert set(probes[head].wrong) in (unsettled, settled)
                    probes.pop(head)
                    kinds["pronoun"] += 1
            subject = main[0].subject
        assert not probes
    assert kinds["pronoun"] > 200 and kinds["reflexive"] > 20


class World:
    """Who owns what and lives where, from the text alone."""

    def __init__(self) -> None:
        self.owned: dict[str, tuple[str, str]] = {}
        self.homes: dict[str, str] = {}
        self.stale: set[str] = set()

    def alike(self, word: str) -> set[str]:
        """All bound words of the kind of ``word``."""
        if word in NAMES:
            return set(self.owned) | set(self.homes)
        if word in COLOURS:
            return {colour for colour, _ in self.owned.values()} | self.stale
        return {noun for _, noun in self.owned.values()} if word in BELONGINGS else set(self.homes.values())

    def hear(self, name: str, verb: str, rest: tuple[str, ...]) -> None:
        """Learns from "anna owns the red boat", or checks what it already knows."""
        if rest[:1] == ("in",) or verb == "returns":
            assert self.homes.setdefault(name, rest[1]) == rest[1]
        elif rest[:1] == ("the",) and len(rest) >= 3 and rest[1] in COLOURS:
            assert self.owned.setdefault(name, rest[1:3]) == rest[1:3]
            if verb == "paints":
                self.stale.add(rest[1])
                self.owned[name] = (rest[3], rest[2])


def hear_question(world: World, words: tuple[str, ...]) -> str:
    """Tells the world a question and its answer; returns the name in them."""
    name = next(word for word in words if word in NAMES)
    mark = words.index("?")
    world.hear(name, "owns", words[2:mark] if words[0] == "who" else words[mark + 1 : -1])
    return name


def hear_clause(world: World, words: tuple[str, ...], clause: Clause, stop: int, referent: str) -> str:
    """Tells the world one main clause, whose pronoun stands for ``referent``; returns the name it is about, or ""."""
    at = clause.subject[0]
    head, verb, rest = words[at], words[clause.verb], words[clause.verb + 1 : stop]
    name = "" if len(clause.subject) > 1 else head if head in NAMES else referent if head in PRONOUNS else ""
    if name:
        world.hear(name, verb, rest)
    elif verb in ("belongs", "belong"):
        world.hear(rest[1], "owns", ("the", words[at - 1], head))
    elif words[at + 1] == "of":
        colour, noun = world.owned[words[at + 2]]
        assert noun == head and (verb not in ("is", "are") or rest == (colour,))
    return name


def test_what_is_recalled_is_what_an_independent_listener_remembers(passages: list[Passage]):
    recalled = 0
    for text in passages:
        words, world, name = text.tokens, World(), ""
        recalls = {p.position: p for p in text.probes if p.kind == "recall"}

        def judge(start: int, end: int, text: Passage = text, world: World = world, recalls: dict = recalls) -> int:
            asked = [recalls[i] for i in range(start, end) if i in recalls]
            for probe in asked:
                assert {probe.right, *probe.wrong} == world.alike(probe.right)
                assert probe.attractors == len(probe.wrong) == len(set(probe.wrong)) > 0
                assert text.log_probability[probe.position] == 0.0
                assert all(text.tokens[i] == probe.right for i in text.attends[probe.position])
            return len(asked)

        for start, end in sentences(words):
            if words[start] in ("who", "what", "where"):
                recalled += judge(start, end)
                name = hear_question(world, words[start:end])
                continue
            reading = Reading(words, start)
            reading.sentence()
            main = [clause for clause in reading.clauses if clause.main]
            stops = [i for i in range(start, end) if words[i] in ("because", "while", ".")]
            for clause, (begin, stop) in zip(main, itertools.pairwise([start, *stops]), strict=True):
                recalled += judge(begin, stop)
                about = hear_clause(world, words, clause, stop, name)
                name = about if clause is main[0] else name
        assert 4 <= len(world.owned) + len(world.homes) <= 8 or len(words) > 140
    assert recalled > 600


def test_probabilities_sum_to_one_and_name_every_word(passages: list[Passage]):
    for text in passages[:3]:
        for end in range(0, len(text.tokens)):
            options = continuations(text.tokens[:end])
            assert sum(options.values()) == pytest.approx(1.0, abs=1e-12)
            assert np.log(options[text.tokens[end]]) == pytest.approx(text.log_probability[end], abs=1e-12)


def test_the_words_alone_determine_the_probabilities(passages: list[Passage]):
    for text in passages[:30]:
        np.testing.assert_allclose(log_probabilities(text.tokens), text.log_probability, rtol=0, atol=1e-12)


class Stop(Exception):
    """Ends a passage after its first words."""


def next_word(prefix: tuple[str, ...], choose: Choose) -> str:
    """The word that the sampler writes after given ones."""
    given = iter(prefix)

    def mixed(menu: Menu, slots: dict[str, list[str]]) -> tuple[str, str, float]:
        if (word := next(given, None)) is None:
            raise Stop(choose(menu, slots)[0])
        places = [i for i, entry in enumerate(menu.words) if word == entry or word in slots.get(entry[1:-1], ())]
        return word, menu.tags[places[0]], 0.0

    with pytest.raises(Stop) as stop:
        Narrator(Script(mixed)).write()
    return stop.value.args[0]


@pytest.mark.parametrize("length", [0, 1, 2, 5, 17, 30])
def test_words_are_sampled_as_often_as_their_stated_probability(passages: list[Passage], length: int):
    prefix = passages[3].tokens[:length]
    stated = continuations(prefix)
    rng = np.random.default_rng(5)
    choose = sampler(iter(rng.random(5000).tolist()))
    total = 800
    counts = Counter(next_word(prefix, choose) for _ in range(total))
    assert set(counts) <= set(stated)
    common = [word for word, p in stated.items() if total * p >= 5]
    observed = [counts[word] for word in common]
    means = [total * stated[word] for word in common]
    if (rest := total - sum(means)) > 1e-6:
        observed.append(total - sum(observed))
        means.append(rest)
    chi_square = sum((o - m) ** 2 / m for o, m in zip(observed, means, strict=True))
    freedom = len(means) - 1
    assert abs(chi_square - freedom) <= 4 * np.sqrt(2 * freedom)  # 4 standard deviations of chi square


def test_surprise_equals_entropy_on_average(passages: list[Passage]):
    """-ln p minus the entropy of its distribution has mean 0, word by word: a wrong p anywhere would show."""
    differences = []
    for text in passages[40:50]:
        for end in range(0, len(text.tokens), 7):
            p = np.array(list(continuations(text.tokens[:end]).values()))
            differences.append(-text.log_probability[end] + p @ np.log(p))
    mean, error = np.mean(differences), np.std(differences) / np.sqrt(len(differences))
    assert abs(mean) < 4 * error < 0.4


def test_words_that_the_language_does_not_have_there_are_refused():
    assert "sings" in continuations(("the", "old", "sailor", "near", "the", "ships"))
    assert "sing" not in continuations(("the", "old", "sailor", "near", "the", "ships"))
    assert {"sings", "sing"} <= set(WORDS)
    with pytest.raises(ValueError, match=r"got 'sing', expected one of"):
        log_probabilities(("the", "old", "sailor", "near", "the", "ships", "sing"))
    with pytest.raises(ValueError, match="got 'zebra'"):
        continuations(("zebra",))


def test_dependencies_of_a_given_text_end_where_the_language_does(passages: list[Passage]):
    assert dependencies(passages[0].tokens) == passages[0].attends
    assert dependencies(("the", "old", "sailor", "near", "the", "ships", "sings")) == ((),) * 6 + ((2,),)
    assert dependencies(("the", "sailor", "sings", "zebra", "sings")) == ((), (), (1,))
    assert dependencies(("zebra",)) == dependencies(()) == ()


def test_a_verb_is_agreed_with_across_five_clauses():
    nested = (
        "the king that the girls that the monk that the boys that the queen that the nuns trust sees like helps fear"
    )
    options = set(continuations(tuple(nested.split())))
    assert "sings" in options and not options & PLURAL_VERBS
    assert "that" not in continuations(
        tuple("the king that the girls that the monk that the boys that the queen that the nuns".split())
    )


def test_repainting_changes_what_is_recalled():
    story = (
        "anna owns the red boat . boris has the blue kite . anna paints the red boat green . what does anna own ? the"
    )
    assert continuations(tuple(story.split())) == {"green": 1.0}
    assert set(continuations(tuple("anna owns the red boat . she lives in rome . where does".split()))) == {"anna"}


def test_equal_seeds_give_equal_text_and_others_do_not():
    first, again, other = ([next(s) for _ in range(3)] for s in (stream(1, 64), stream(1, 64), stream(2, 64)))
    assert [p.tokens for p in first] == [p.tokens for p in again] != [p.tokens for p in other]
    assert [p.probes for p in first] == [p.probes for p in again]
    a, b = passage(np.random.default_rng(9)), passage(np.random.default_rng(9))
    assert a.tokens == b.tokens and (a.log_probability == b.log_probability).all()
    assert sample_text(4) == sample_text(4) != sample_text(5)


def test_packed_sequences_are_passages_one_after_another():
    for packed in itertools.islice(stream(7, 300), 4):
        assert len(packed.tokens) == len(packed.log_probability) == len(packed.attends) == 300
        assert packed.tokens[0] == "<s>" and packed.log_probability[0] == 0.0
        ends = [i + 1 for i, word in enumerate(packed.tokens) if word == "¶"]
        for start, end in itertools.pairwise([1, *ends, 300]):
            expected = log_probabilities(packed.tokens[start:end])
            np.testing.assert_allclose(packed.log_probability[start:end], expected, rtol=0, atol=1e-12)
            assert all(start <= source < i for i in range(start, end) for source in packed.attends[i])
        assert all(packed.tokens[probe.position] == probe.right for probe in packed.probes)
        assert ends and all(probe.right not in probe.wrong for probe in packed.probes)
    with pytest.raises(ValueError, match="got length = 1"):
        next(stream(0, 1))


def test_entropy_floor_is_the_mean_surprise_and_its_error_is_honest():
    rng = np.random.default_rng(3)
    drawn = np.concatenate([passage(rng).log_probability for _ in range(40)])
    floor, error = entropy_floor(3, 40)
    assert floor == pytest.approx(-drawn.mean(), rel=1e-12)
    others = [entropy_floor(seed, 20)[0] for seed in range(20, 30)]
    assert 0.4 < np.std(others, ddof=1) / (error * np.sqrt(2)) < 2.2  # the spread of ten such estimates
    with pytest.raises(ValueError, match="got passages = 1"):
        entropy_floor(0, 1)


def test_no_cheap_rule_answers_the_hard_questions(passages: list[Passage]):
    agreement = [(text, probe) for text in passages for probe in text.probes if probe.kind == "agreement"]
    share = np.mean([probe.right in PLURAL_VERBS for _, probe in agreement])
    assert 0.4 < share < 0.6  # what the majority baseline gets right
    nearest = {
        hard: [nearest_noun_is_right(*pair) for pair in agreement if (pair[1].attractors > 0) == hard]
        for hard in (0, 1)
    }
    assert np.mean(nearest[0]) == 1.0 and np.mean(nearest[1]) < 0.3
    assert len(nearest[1]) > 0.25 * len(agreement)
    chance = np.mean([1 / (1 + p.attractors) for text in passages for p in text.probes if p.kind == "recall"])
    assert chance < 0.4


def test_vocabulary(passages: list[Passage]):
    assert 150 <= len(WORDS) == len(set(WORDS)) <= 300
    assert set("the old sailor near the ships sings".split()) <= set(WORDS)
    assert not any(c.isspace() for word in WORDS for c in word)
    assert {word for text in passages for word in text.tokens} == set(WORDS)


def test_sample_text_starts_a_passage_and_holds_an_attractor():
    for seed in range(8):
        words = tuple(sample_text(seed).split(" "))
        assert np.isfinite(log_probabilities(words)).all()
        assert words[-1] == "." and 1 <= words.count(".") <= 2 and len(words) <= 32
