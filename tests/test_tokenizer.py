"""All tokenizers: exact for every text, honest labels and offsets, and nothing but CheckpointError from a bad file."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Files
from fbt_core.checkpoints.vocabulary import tokenizer_of
from fbt_core.tokenizer import (
    FileTokenizer,
    HuggingFaceTokenizer,
    IdTokenizer,
    WordByteTokenizer,
    tokenizer_from_json,
)
from fbt_core.tokenizer.encoding import labels
from fbt_core.training.grammar import WORDS, stream

WORD_BYTE = WordByteTokenizer(WORDS)

HARD_TEXTS = (
    "", " ", "  ", " anna", "anna ", "anna  boris", "anna\nboris", "\tanna", "anna.", "annas", "the old sailor", "<s>",
    "anna <s> boris", "🧑‍🚀👩🏽‍🦰 anna", "漢字 層.0", "שלום anna عليكم", "e\u0301 a\u0300", "\u202eanna\u202c",
    "\x00\x07\x7f", "\x85", "\u2028anna", "\ufffd", "anna\u0301 sings", "anna\u200d", "\ud800 anna", "¶ .", ".?¶",
)  # fmt: skip

PIECES = st.sampled_from(
    [*WORDS[:40], "anna", "<s>", " ", "  ", ".", "\n", "漢", "🧑‍🚀", "\u0301", "\u202e", "'s", "\x00"]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=20).map("".join))


def cases(test):
    for text in HARD_TEXTS:
        test = example(text)(test)
    return test


@cases
@given(TEXTS)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_round_trip_is_exact_and_every_character_is_accounted_for(text: str):
    encoding = WORD_BYTE.encode(text)
    assert WORD_BYTE.decode(encoding.ids) == text
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets) == len(encoding.unknown)
    assert encoding.ids[0] == 0 and encoding.ids.count(0) == 1  # "<s>" in the text is no BOS
    covered = [i for start, end in encoding.offsets for i in range(start, end)]
    assert sorted(set(covered) | {i for i, c in enumerate(text) if c == " "}) == list(range(len(text)))
    for token, label, (start, end), unknown in list(
        zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.unknown, strict=True)
    )[1:]:
        assert unknown == (token <= 256)
        assert unknown or label == text[start:end]
        assert label and "\ufffd" not in label
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in label)


def spelt(text: str) -> list[str]:
    return WORD_BYTE.encode(text).tokens[1:]


def test_known_words_are_one_token_and_all_else_is_bytes():
    assert spelt("the old sailor near the ships sings") == "the old sailor near the ships sings".split()
    assert spelt("anna sings.") == ["anna", "sings", "."]
    assert spelt("anna sings .") == ["anna", "sings", "."]
    assert WORD_BYTE.encode("anna sings.").unknown == [False, False, False, True]
    assert not any(WORD_BYTE.encode("anna sings .").unknown)
    assert spelt("annas") == list("annas")
    assert spelt("anna\nsings") == ["anna", "↵", *"sings"]  # a word is known after a space or at the start only
    assert spelt("anna  sings") == ["anna", "␣", "sings"]
    assert spelt("<s>") == ["<", "s", ">"]


def test_a_character_of_many_bytes_is_labelled_once():
    assert spelt("漢é") == ["漢", "·", "·", "é", "·"]
    assert WORD_BYTE.encode("漢é").offsets == [(0, 0), (0, 1), (0, 1), (0, 1), (1, 2), (1, 2)]
    assert spelt("e\u0301") == ["e", "◌\u0301", "·"]
    assert spelt("\u202e") == ["U+202E", "·", "·"]


def test_vocabulary_order_and_labels_of_single_ids():
    assert WORD_BYTE.vocab_size == 257 + len(WORDS) and WORD_BYTE.bos == 0
    assert [WORD_BYTE.label(i) for i in (0, 1 + ord("a"), 1 + ord(" "), 1 + 0xE6, 257)] == [
        "<s>",
        "a",
        "␣",
        "0xE6",
        WORDS[0],
    ]


def test_decode_of_ids_that_no_text_has():
    assert WORD_BYTE.decode([0, 1 + 0xFF, 0, 257]) == f"\\xff {WORDS[0]}"
    with pytest.raises(ValueError, match=r"got token id 9999, expected 0 to"):
        WORD_BYTE.decode([9999])


def test_generated_text_has_the_same_ids_with_and_without_its_spelling():
    tokens = next(stream(3, 200)).tokens
    assert WORD_BYTE.ids(tokens) == WORD_BYTE.encode(" ".join(tokens[1:])).ids


@pytest.mark.parametrize("words", [[""], ["a b"], ["a\n"], ["<s>"], ["a", "a"], ["x" * 65], ["\ud800"]])
def test_words_that_cannot_be_told_apart_are_refused(words: list[str]):
    with pytest.raises(ValueError):
        WordByteTokenizer(words)


def test_json_round_trip():
    again = tokenizer_from_json(WORD_BYTE.to_json())
    assert isinstance(again, WordByteTokenizer) and again.words == WORDS
    given_file = FileTokenizer(json.dumps(byte_level()))
    read = tokenizer_from_json(given_file.to_json())
    assert read.encode("ab 漢").ids == given_file.encode("ab 漢").ids


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "3", "{", "[" * 100_000, '{"kind": ' + "9" * 5000 + "}", '{"kind": "pickle"}',
        '{"kind": ["x"]}',
        '{"kind": "word-byte"}', '{"kind": "word-byte", "words": "abc"}', '{"kind": "word-byte", "words": [1]}',
        '{"kind": "word-byte", "words": ["a", "a"]}', '{"kind": "word-byte", "words": [null]}',
        '{"kind": "word-byte", "words": [["a"]]}', '{"kind": "word-byte", "words": ["a b"]}',
        '{"kind": "word-byte", "words": ["\\ud800"]}', '{"kind": "word-byte", "words": {"a": 1}}',
        '{"kind": "word-byte", "words": [' + "0," * 1_000_001 + "0]}", '{"kind": "file"}',
        '{"kind": "file", "tokenizer": 1}',
        '{"kind": "file", "tokenizer": {"model": {"type": "nothing"}}}',
        '{"kind": "file", "tokenizer": {"\\ud800": 1}}',
        '{"kind": "file", "tokenizer": ' + "[" * 900 + "]" * 900 + "}", "<!doctype html>",
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_hostile_json_is_a_checkpoint_error(text: str):
    with pytest.raises(CheckpointError) as fault:
        tokenizer_from_json(text)
    assert len(str(fault.value)) < 600 and fault.value.remedy


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_words_field_is_read_or_refused(words: Any):
    try:
        read = tokenizer_from_json(json.dumps({"kind": "word-byte", "words": words}))
    except CheckpointError:
        return
    assert read.vocab_size == 257 + len(words)


def byte_level(**changes: Any) -> dict[str, Any]:
    """A byte-level tokenizer of all 256 bytes, "ab" merged, and <s> as the special token 0."""
    from tokenizers.pre_tokenizers import ByteLevel

    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    letters = ["<s>", *sorted(ByteLevel.alphabet()), "ab"]
    special = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    model = {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": [["a", "b"]]}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special | {"special": True}],
             "normalizer": None, "pre_tokenizer": pre, "post_processor": None, "decoder": pre,
             "model": model}  # fmt: skip
    return whole | changes


@cases
@given(TEXTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_file_tokenizer_round_trip_and_labels(text: str):
    tokenizer = FILE_TOKENIZER
    encoding = tokenizer.encode(text)
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):  # a file's tokenizer cannot hold lone surrogates
        assert tokenizer.decode(encoding.ids) == text
    assert encoding.ids[0] == tokenizer.bos == 0 and encoding.ids.count(0) == 1
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert all(label and "\ufffd" not in label for label in encoding.tokens)


FILE_TOKENIZER = FileTokenizer(json.dumps(byte_level()))


def test_file_tokenizer_labels_parts_of_a_character_as_continuations():
    encoding = FILE_TOKENIZER.encode("ab 漢")
    assert encoding.tokens == ["<s>", "ab", "␣", "漢", "·", "·"]
    assert encoding.offsets[1:] == [(0, 2), (2, 3), (3, 4), (3, 4), (3, 4)]
    assert not any(encoding.unknown)


def test_a_file_without_bos_gets_one_after_its_last_id():
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 7}, "unk_token": "[UNK]"}
    tokenizer = FileTokenizer(
        json.dumps(byte_level(added_tokens=[], pre_tokenizer={"type": "Whitespace"}, model=model))
    )
    assert (tokenizer.bos, tokenizer.vocab_size) == (8, 9)
    encoding = tokenizer.encode("a b")
    assert encoding.ids == [8, 0, 7] and encoding.unknown == [False, False, True]
    assert tokenizer.label(8) == "<s>"


def test_padding_to_a_billion_tokens_is_switched_off():
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "<s>"}  # fmt: skip
    truncation = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    tokenizer = FileTokenizer(json.dumps(byte_level(padding=padding, truncation=truncation)))
    assert tokenizer.encode("ab ab").tokens == ["<s>", "ab", "␣", "ab"]


def splitting(regex: str) -> str:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return json.dumps(byte_level(pre_tokenizer=split))


@pytest.mark.parametrize("text", [splitting("(a+"), json.dumps(byte_level(model={"type": "BPE"})), "", "<html>", "[]"])
def test_bad_files_are_checkpoint_errors(text: str):
    with pytest.raises(CheckpointError):
        FileTokenizer(text)


def test_a_huge_id_is_refused():
    model = {"type": "WordLevel", "vocab": {"a": 2**31}, "unk_token": "a"}
    with pytest.raises(CheckpointError, match="token ids up to 2147483648"):
        FileTokenizer(json.dumps(byte_level(added_tokens=[], model=model)))


@pytest.mark.parametrize("module", ["fbt_core.tokenizer", "fbt_core.checkpoints", "fbt_core.training.grammar"])
def test_any_import_may_come_first(module: str, root: Path):
    """Checkpoints hold tokenizers, and tokenizers raise CheckpointError: neither may need the other first."""
    found = subprocess.run([sys.executable, "-c", f"import {module}"], cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_a_rust_panic_is_a_checkpoint_error(capfd: pytest.CaptureFixture[str]):
    tokenizer = FileTokenizer(splitting("(a+)+$"))  # the regex engine gives up, and its wrapper panics
    with pytest.raises(CheckpointError, match="PanicException"):
        tokenizer.encode("a" * 28 + "b")
    capfd.readouterr()


def test_a_text_bomb_is_refused_before_any_text() -> None:
    """Each replacement makes the text ten times longer: ten of them would fill any memory."""
    table = byte_level()
    row = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    table["normalizer"] = {"type": "Sequence", "normalizers": [row] * 10}
    with pytest.raises(CheckpointError, match="times as long"):
        FileTokenizer(json.dumps(table))
    table["normalizer"] = {"type": "Sequence", "normalizers": [row]}
    assert FileTokenizer(json.dumps(table)).vocab_size > 0


def word_pieces(**changes: Any) -> dict[str, Any]:
    """A WordPiece tokenizer that puts [CLS] in front and [SEP] behind, as BERT's does."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "ship", "##s", "漢", "un", "##able", "e", "##\u0301"]
    ids = {word: index for index, word in enumerate(words)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens([AddedToken(word, normalized=False) for word in words[:4]])
    made.enable_padding(length=20)
    made.enable_truncation(3)
    return json.loads(made.to_str()) | changes


PIECEWISE = HuggingFaceTokenizer(json.dumps(word_pieces()))


def test_the_file_s_own_special_tokens_are_added_and_said():
    encoding = PIECEWISE.encode("The ships unable 漢 zebra")
    assert PIECEWISE.policy == "adds [CLS] in front and [SEP] behind" and PIECEWISE.bos == 2
    assert encoding.raw == ["[CLS]", "the", "ship", "##s", "un", "##able", "漢", "[UNK]", "[SEP]"]
    assert encoding.tokens == ["[CLS]", "The", "ship", "s", "un", "able", "漢", "zebra", "[SEP]"]
    assert encoding.offsets[:3] == [(0, 0), (0, 3), (4, 8)] and encoding.offsets[-1] == (0, 0)
    assert encoding.unknown == [False] * 7 + [True, False]
    assert encoding.cut(2).raw == ["[CLS]", "the"]
    plain = HuggingFaceTokenizer(json.dumps(byte_level()))
    assert plain.policy == "adds nothing" and plain.encode("ab").ids == [plain._tokenizer.token_to_id("ab")]
    assert PIECEWISE.encode("").tokens == ["[CLS]", "[SEP]"] and plain.encode("").ids == []


def test_a_special_token_typed_into_a_text_is_that_token_as_for_the_library():
    tokenizer = HuggingFaceTokenizer(json.dumps(byte_level()))
    encoding = tokenizer.encode("a<s>b")
    assert encoding.ids[1] == 0 and encoding.tokens == ["a", "<s>", "b"]


@cases
@given(TEXTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_every_label_can_be_seen_and_no_character_is_written_twice(text: str):
    for tokenizer in (PIECEWISE, HuggingFaceTokenizer(json.dumps(byte_level()))):
        encoding = tokenizer.encode(text)
        rows = list(zip(encoding.tokens, encoding.offsets, strict=True))
        assert len(rows) == len(encoding.ids) == len(encoding.raw) == len(encoding.unknown)
        assert all(label and "\ufffd" not in label for label, _ in rows)
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for label, _ in rows for c in label)
        seen: set[int] = set()
        for label, (start, end) in rows:
            if start < end:
                assert label.startswith("·") == (start in seen or text[start] == "·")
                seen |= set(range(start, end))


def test_tokens_that_share_a_character_are_marked():
    encoding = HuggingFaceTokenizer(json.dumps(byte_level())).encode("x 🧑 é")
    assert encoding.tokens == ["x", "␣", "🧑", "·", "·", "·", "␣", "é", "·"]
    assert encoding.offsets[2:6] == [(2, 3)] * 4 and encoding.raw[1] == "Ġ"


def test_a_token_that_ends_a_character_and_goes_on_writes_only_the_rest():
    assert labels("éab c", [(0, 1), (0, 3), (3, 5), (0, 0)], ["?"] * 4) == ["é", "·ab", "c", "?"]


def test_a_token_beyond_the_model_s_rows_is_an_error_and_not_another_token():
    tokenizer = HuggingFaceTokenizer(json.dumps(word_pieces()), rows=8)
    assert tokenizer.encode("the ship").ids == [2, 4, 5, 3]
    with pytest.raises(ValueError, match="of id 8, expected ids below 8"):
        tokenizer.encode("unable")
    assert tokenizer.label(999) == "id 999"


def test_ids_are_typed_as_numbers_and_nothing_else():
    tokenizer = IdTokenizer(100)
    encoding = tokenizer.encode(" 7, 99\n0")
    assert encoding.ids == [7, 99, 0] and encoding.tokens == ["7", "99", "0"] and encoding.offsets[1] == (4, 6)
    assert tokenizer.decode([7, 99]) == "7 99" and tokenizer.label(5) == "5" and tokenizer.encode("").ids == []
    for text in ("hello", "100", "-1", "1.5", "٣", "9" * 30):
        with pytest.raises(ValueError, match="expected token ids as numbers from 0 to 99"):
            tokenizer.encode(text)


@pytest.mark.parametrize(
    "tokenizer", [WORD_BYTE, FILE_TOKENIZER, PIECEWISE, IdTokenizer(9)], ids=lambda t: type(t).__name__
)
def test_every_kind_keeps_the_contract(tokenizer: Any):
    again = tokenizer_from_json(tokenizer.to_json())
    text = "1 2" if isinstance(tokenizer, IdTokenizer) else "the ship"
    encoding = tokenizer.encode(text)
    assert type(again) is type(tokenizer) and again.encode(text) == encoding
    assert tokenizer.policy.startswith("adds ") and all(0 <= token < tokenizer.vocab_size for token in encoding.ids)
    assert all(isinstance(tokenizer.label(token), str) for token in encoding.ids)


@pytest.mark.parametrize(
    "kind", ['{"kind": "ids"}', '{"kind": "ids", "rows": -1}', '{"kind": "huggingface", "rows": 3}']
)
def test_other_kinds_out_of_a_file_are_read_or_refused(kind: str):
    with pytest.raises(CheckpointError):
        tokenizer_from_json(kind)


def files(folder: Path, **content: str) -> Files:
    for name, text in content.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return Files("test", {path.name: path for path in folder.iterdir()})


HOSTILE = {
    "empty": "", "web page": "<html>", "strange model": json.dumps({"model": {"type": "evil"}}),
    "catastrophic": splitting("(a+)+$"), "id": json.dumps(byte_level(added_tokens=[], model={
        "type": "WordLevel", "vocab": {"a": 2**31}, "unk_token": "a"})),
    "bomb": json.dumps(byte_level(normalizer={"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 10})),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_falls_back_to_ids(tmp_path: Path, content: str):
    found, notices = tokenizer_of(files(tmp_path, tokenizer__json=content), 50)
    assert isinstance(found, IdTokenizer) and found.rows == 50
    assert "tokenizer.json cannot be used" in notices[0] and "The tokens are ids" in notices[0]


def test_other_files_make_the_same_tokenizer(tmp_path: Path):
    words = [word for word, _ in sorted(word_pieces()["model"]["vocab"].items(), key=lambda pair: pair[1])]
    found, _ = tokenizer_of(files(tmp_path, vocab__txt="\n".join(words) + "\n"), 12)
    text = "The ships, unable 漢 [SEP] zebra"
    assert found.policy == PIECEWISE.policy
    assert found.encode(text).ids[:5] == PIECEWISE.encode(text).ids[:5]
    model = byte_level()["model"]
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    merges = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in model["merges"])
    found, _ = tokenizer_of(files(pairs, vocab__json=json.dumps(model["vocab"]), merges__txt=merges), 300)
    assert isinstance(found, HuggingFaceTokenizer)
    assert found.encode("ab 漢ab").ids == FILE_TOKENIZER.encode("ab 漢ab").ids[1:]


def test_what_a_reader_must_know_is_said(tmp_path: Path):
    assert "no tokenizer" in tokenizer_of(files(tmp_path), 9)[1][0]
    assert "SentencePiece" in tokenizer_of(files(tmp_path, tokenizer__model="x"), 9)[1][0]
    there = files(tmp_path, tokenizer__json=json.dumps(word_pieces()))
    assert "Ids 12 to 19 have no token" in tokenizer_of(there, 20)[1][0]
    assert "12 tokens, the model 10 ids" in tokenizer_of(there, 10)[1][0]
    assert tokenizer_of(there, 12)[1] == ()
