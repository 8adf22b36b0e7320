"""Where the tokens come from: the grammar with known answers, or any text file.

Every batch is a pure function of (seed, step), so that twins see the same data and a resumed run goes on exactly.
Held-out rows depend on neither: all models on a source are judged by the same ones.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from fbt_core.tokenizer import FileTokenizer, Tokenizer, WordByteTokenizer
from fbt_core.training.evaluate import HeldOut, Question
from fbt_core.training.grammar import WORDS, Passage, nearest_noun_is_right, stream
from fbt_core.training.lexicon import NUMBER, SINGULAR

HELD_OUT = 0.1
"""The last part of a text file, which is never trained on."""

TRAIN_STREAM, HELD_OUT_STREAM = 0, 1
"""First word of every random stream's key, so that no held-out row is drawn in training."""


class GrammarSource:
    """Passages of ``grammar``; every row starts with ``<s>``, as every text does at inference.

    ``sha256`` is that of a fixed sample with its probabilities, so that any change of a word or a rule shows.
    """

    name = "grammar"

    def __init__(self) -> None:
        self.tokenizer = WordByteTokenizer(WORDS)
        digest = hashlib.sha256(" ".join(WORDS).encode())
        for text in itertools.islice(stream(0, 128), 64):
            digest.update(" ".join(text.tokens).encode())
            digest.update(text.log_probability.round(9).astype("<f8").tobytes())
        self.sha256 = digest.hexdigest()

    def rows(self, seed: int, step: int, count: int, length: int) -> Int[np.ndarray, "row token"]:
        """The batch of a step: about 5 microseconds a token."""
        return self._ids(list(itertools.islice(stream(_key(TRAIN_STREAM, seed, step), length), count)))

    def held_out(self, count: int, length: int) -> HeldOut:
        """Rows whose every token's probability is known, and every question the grammar can answer about them."""
        texts = list(itertools.islice(stream(_key(HELD_OUT_STREAM, length), length), count))
        floor = np.stack([-text.log_probability for text in texts])
        questions = tuple(question for row, text in enumerate(texts) for question in self._questions(row, text))
        return HeldOut(self._ids(texts), floor, questions)

    def _ids(self, texts: list[Passage]) -> np.ndarray:
        return np.array([self.tokenizer.ids(text.tokens) for text in texts])

    def _questions(self, row: int, text: Passage) -> list[Question]:
        """A passage's probes as token ids, each with what the simple rules would answer."""
        questions = []
        for probe in text.probes:
            right, *wrong = self.tokenizer.ids((probe.right, *probe.wrong))
            form, nearest = probe.right if probe.kind == "pronoun" else "", None
            if probe.kind == "agreement":
                numbers = [NUMBER[text.tokens[head]] for head in text.attends[probe.position]]
                form = "singular" if numbers == [SINGULAR] else "plural"  # two heads are a couple: "anna and ivan sing"
                nearest = nearest_noun_is_right(text, probe)
            questions.append(
                Question(
                    row, probe.position, probe.kind, right, tuple(wrong), probe.attractors, probe.depth, form, nearest
                )
            )
        return questions


@dataclass(frozen=True)
class TextSource:
    """Random windows of a text's tokens, each with ``<s>`` in front; the last tenth of the text is held out."""

    name: str
    tokenizer: Tokenizer
    sha256: str
    train: Int[np.ndarray, " trained"]
    kept_back: Int[np.ndarray, " kept"]

    def rows(self, seed: int, step: int, count: int, length: int) -> Int[np.ndarray, "row token"]:
        """The batch of a step."""
        return self._windows(self.train, _key(TRAIN_STREAM, seed, step), count, length)

    def held_out(self, count: int, length: int) -> HeldOut:
        """Windows of the held-out tenth; its entropy is not known."""
        return HeldOut(self._windows(self.kept_back, _key(HELD_OUT_STREAM, length), count, length))

    def _windows(self, ids: np.ndarray, key: int, count: int, length: int) -> np.ndarray:
        starts = np.random.default_rng(key).integers(0, len(ids) - length + 2, count)
        windows = ids[starts[:, None] + np.arange(length - 1)]
        return np.concatenate([np.full((count, 1), self.tokenizer.bos), windows], axis=1)


Source = GrammarSource | TextSource
"""Either kind: ``name``, ``tokenizer``, ``sha256``, ``rows``, ``held_out``."""


def open_text(path: Path, tokenizer_path: Path | None, longest: int) -> TextSource:
    """A text file as a source: bytes of UTF-8, or the tokens of a ``tokenizer.json``.

    Raises ``ValueError`` (got, expected, remedy) for a missing or empty file, and for one whose held-out tenth is
    shorter than rows of ``longest`` tokens; ``CheckpointError`` for a bad tokenizer.
    """
    content = _bytes(path, "--text")
    if tokenizer_path is None:
        tokenizer = WordByteTokenizer(())
        ids = np.frombuffer(content, np.uint8).astype(np.int64) + 1  # what its encode does, a byte at a time
    else:
        tokenizer = FileTokenizer(_bytes(tokenizer_path, "--tokenizer").decode("utf-8", "replace"))
        ids = np.array(tokenizer.encode(content.decode("utf-8", "replace")).ids[1:], np.int64)
    cut = len(ids) - int(len(ids) * HELD_OUT)
    if len(ids) - cut < longest:
        raise ValueError(
            f"got {len(ids)} tokens of text in {path.name}, expected at least {int(longest / HELD_OUT) + 1} "
            f"for rows of {longest} (a tenth is held out): give a longer text, or use a preset of shorter rows"
        )
    return TextSource(path.name, tokenizer, hashlib.sha256(content).hexdigest(), ids[:cut], ids[cut:])


def _bytes(path: Path, option: str) -> bytes:
    if not path.is_file():
        raise ValueError(f"got {option} {str(path)!r}, expected a file: check the path")
    content = path.read_bytes()
    if not content:
        raise ValueError(f"got an empty file {path.name}, expected some text: check {option}")
    return content


def _key(*parts: int) -> int:
    """One seed from several numbers, such that all streams are independent."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0])
