"""Text with known answers: English-like passages in which what every word depends on, and its probability, is known.

A passage binds belongings and homes to names, tells other things in between, and recalls what it bound: "anna owns the
red boat . ... she paints the red boat green . ... who owns the green boat ? anna does ." Its sentences have agreement
over distance with intervening nouns that lean to the other number, relative clauses inside one another down to five
levels, and pronouns whose antecedent is the subject of the last main clause.

The language is ours, made to tell models apart; the idea of measuring agreement over attractors is Linzen, Dupoux and
Goldberg's (2016, arXiv 1611.01368).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from fbt_core.training.lexicon import NUMBER, WORDS
from fbt_core.training.memory import Slots
from fbt_core.training.menus import Menu
from fbt_core.training.narrator import Narrator
from fbt_core.training.script import Probe, Script, sampler

__all__ = [
    "BOS", "WORDS", "Passage", "Probe", "continuations", "dependencies", "entropy_floor", "log_probabilities",
    "nearest_noun_is_right", "passage", "sample_text", "stream",
]  # fmt: skip

BOS = "<s>"
"""Starts every packed sequence; not one of ``WORDS``."""


@dataclass(frozen=True)
class Passage:
    """One passage, or a packed sequence of them, of L tokens.

    ``log_probability`` (L,) is ln p(token | tokens before it) in nats, exact. ``attends[i]`` are the positions of the
    earlier tokens that token i depends on: a verb's head (both names of a couple), a pronoun's antecedent, and for a
    recalled word where it was bound, then where it was repeated. Token i is predicted at position i - 1.
    """

    tokens: tuple[str, ...]
    log_probability: np.ndarray
    attends: tuple[tuple[int, ...], ...]
    probes: tuple[Probe, ...]


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(512).tolist()


def _cut(script: Script, length: int) -> Passage:
    probes = tuple(probe for probe in script.probes if probe.position < length)
    logs = np.array(script.logs[:length])
    return Passage(tuple(script.words[:length]), logs, tuple(script.attends[:length]), probes)


def passage(rng: np.random.Generator) -> Passage:
    """One whole passage; it ends with the mark "¶". Takes a multiple of 512 numbers from ``rng``."""
    script = Script(sampler(_uniforms(rng)))
    Narrator(script).write()
    return _cut(script, len(script.words))


def stream(seed: int, length: int) -> Iterator[Passage]:
    """Endless sequences of exactly ``length`` tokens: ``<s>``, then passages one after another, the last one cut.

    Every sequence starts a new passage, so the probabilities are exact given what the sequence shows. Raises
    ``ValueError`` (got, expected) for a length below 2.
    """
    if length < 2:
        raise ValueError(f"got length = {length}, expected at least 2: <s> and a word")
    choose = sampler(_uniforms(np.random.default_rng(seed)))
    while True:
        script = Script(choose, (BOS,))
        while len(script.words) < length:
            Narrator(script).write()
        yield _cut(script, length)


def entropy_floor(seed: int, passages: int) -> tuple[float, float]:
    """(mean nats a token, its standard error) over whole passages: the least loss that any model can reach.

    A ratio of sums, so the error is that of a ratio estimate. For the floor of particular sequences, such as packed
    ones, average their own ``log_probability``: the same draw then cancels from the difference to a model's loss.
    """
    if passages < 2:
        raise ValueError(f"got passages = {passages}, expected at least 2: one has no standard error")
    rng = np.random.default_rng(seed)
    drawn = [passage(rng).log_probability for _ in range(passages)]
    nats, lengths = np.array([-p.sum() for p in drawn]), np.array([len(p) for p in drawn])
    mean = nats.sum() / lengths.sum()
    residual = nats - mean * lengths
    return float(mean), float(np.sqrt(residual.var(ddof=1) / passages) / lengths.mean())


class _ReadToTheEnd(Exception):
    """Raised where the given words end, with the distribution over the next one."""


def _reader(words: tuple[str, ...]):
    """Chooses the given words one after another, in place of random ones."""
    remaining = iter(words)

    def choose(menu: Menu, slots: Slots) -> tuple[str, str, float]:
        options: dict[str, tuple[str, float]] = {}
        for entry, tag, log in zip(menu.words, menu.tags, menu.logs, strict=True):
            filled = slots[entry[1:-1]] if entry[0] == "{" else [entry]
            options |= {word: (tag, log - math.log(len(filled))) for word in filled}
        word = next(remaining, None)
        if word is None:
            raise _ReadToTheEnd({option: math.exp(log) for option, (_, log) in options.items()})
        if word not in options:
            raise ValueError(f"got {word!r}, expected one of {', '.join(sorted(options))}")
        return word, *options[word]

    return choose


def _read(words: tuple[str, ...]) -> tuple[Script, dict[str, float]]:
    script = Script(_reader(words))
    while True:
        try:
            Narrator(script).write()
        except _ReadToTheEnd as end:
            return script, end.args[0]


def continuations(words: tuple[str, ...]) -> dict[str, float]:
    """The exact distribution of the word after ``words``, which start a passage. Raises ``ValueError`` at a word that
    the language does not have in that place (got, expected)."""
    return _read(words)[1]


def log_probabilities(words: tuple[str, ...]) -> np.ndarray:
    """(L,) ln p(word | words before it) of given words, which start a passage. Raises as ``continuations`` does."""
    return np.array(_read(words)[0].logs)


def dependencies(words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """For each word of ``words``, up to the first that the language does not have there, the positions of the earlier
    words that it depends on: ``Passage.attends`` of a given text. Empty where not even the first word fits."""
    script = Script(_reader(words))
    with suppress(_ReadToTheEnd, ValueError):
        while True:
            Narrator(script).write()
    return tuple(script.attends)


def nearest_noun_is_right(text: Passage, probe: Probe) -> bool:
    """Whether the noun, name or pronoun nearest before a verb has the number that an agreement probe asks for."""
    number = next(NUMBER[word] for word in reversed(text.tokens[: probe.position]) if word in NUMBER)
    heads = [NUMBER[text.tokens[head]] for head in text.attends[probe.position]]
    return number == (heads[0] if len(heads) == 1 else 1)


def sample_text(seed: int) -> str:
    """One or two sentences that start a passage and hold a verb with an attractor, words separated by spaces."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = passage(rng)
        stops = [place for place, word in enumerate(drawn.tokens) if word == "."][:2]
        hard = [p.position for p in drawn.probes if p.kind == "agreement" and p.attractors]
        if hard and hard[0] < stops[-1] <= 30:
            return " ".join(drawn.tokens[: stops[hard[0] > stops[0]] + 1])
