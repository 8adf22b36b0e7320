"""The tokenizer among a checkpoint's files; where there is none that works, ids, and a sentence that says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from fbt_core.checkpoints.child import Limits, run_python
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Files
from fbt_core.tokenizer import HuggingFaceTokenizer, IdTokenizer, probe
from fbt_core.tokenizer.guard import MAXIMUM_JSON, checked, guarded

LIMITS = Limits(memory=6 << 30, seconds=20.0, output=1 << 20)
SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
IDS = "The tokens are ids: type numbers."
PIECES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def tokenizer_of(files: Files, rows: int) -> tuple[HuggingFaceTokenizer | IdTokenizer, tuple[str, ...]]:
    """The tokenizer for a model of ``rows`` token ids, and what its reader must know. Raises nothing of the files'."""
    for name, make in MAKERS.items():
        if name in files.paths:
            try:
                found = HuggingFaceTokenizer(make(files), rows)
            except CheckpointError as fault:
                return IdTokenizer(rows), (f"{name} cannot be used: {fault.got}. {IDS}",)
            return found, _notices(found, rows)
    if any(name in files.paths for name in PIECES):
        return IdTokenizer(rows), (f"A SentencePiece model alone is not read: add its tokenizer.json. {IDS}",)
    return IdTokenizer(rows), (f"There is no tokenizer beside the weights. {IDS}",)


def _notices(found: HuggingFaceTokenizer, rows: int) -> tuple[str, ...]:
    if found.vocab_size > rows:
        return (f"The tokenizer has {found.vocab_size} tokens, the model {rows} ids: the last ones cannot be used.",)
    if found.vocab_size < rows:
        return (f"Ids {found.vocab_size} to {rows - 1} have no token: the model has {rows} rows.",)
    return ()


def _tokenizer_json(files: Files) -> str:
    """As it stands, after a child process has read and used it within its limits."""
    path = files.paths["tokenizer.json"]
    if path.stat().st_size > MAXIMUM_JSON:
        raise CheckpointError(f"a tokenizer.json of {path.stat().st_size:,} bytes", f"at most {MAXIMUM_JSON:,}", IDS)
    text = files.text("tokenizer.json", MAXIMUM_JSON)
    if '"Replace"' in text or '"Prepend"' in text:  # what makes a text longer, seen before any text is tried
        checked(text)
    script = str(Path(probe.__file__).resolve())
    answer = json.loads(run_python(["-I", script, str(path.resolve())], "use its tokenizer", LIMITS))
    if fault := answer.get("fault"):
        raise CheckpointError(f"a tokenizer.json that fails ({str(fault)[:200]!r})", "one that works", IDS)
    return text


def _word_piece(files: Files) -> str:
    """``vocab.txt`` of the BERT family: a word a line."""
    words = files.text("vocab.txt", MAXIMUM_JSON).splitlines()
    ids = {word: index for index, word in enumerate(words)}
    lower = files.json("tokenizer_config.json").get("do_lower_case", True) is not False
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens([AddedToken(word, normalized=False) for word in SPECIAL if word in ids])
    if "[CLS]" in ids and "[SEP]" in ids:
        made.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return made.to_str()


def _byte_pairs(files: Files) -> str:
    """``vocab.json`` and ``merges.txt`` of the GPT-2 family, in which a byte is a letter."""
    ids = {word: index for word, index in files.json("vocab.json", MAXIMUM_JSON).items() if isinstance(index, int)}
    lines = files.text("merges.txt", MAXIMUM_JSON).splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in merges):
        raise CheckpointError("a merges.txt with a line that is no pair", "two parts a line", IDS)
    made = Tokenizer(models.BPE(ids, merges))  # type: ignore[arg-type]
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = [word for word in ("<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>") if word in ids]
    made.add_special_tokens([AddedToken(word, normalized=False) for word in special])
    if "<s>" in ids and "</s>" in ids:  # RoBERTa and BART, which use the same two files
        made.post_processor = processors.RobertaProcessing(
            ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=False, add_prefix_space=False
        )
    return made.to_str()


def _safely(make: Callable[[Files], Any]) -> Callable[[Files], str]:
    return lambda files: guarded(lambda: make(files), "reading")


MAKERS: dict[str, Callable[[Files], str]] = {
    "tokenizer.json": _tokenizer_json,
    "vocab.txt": _safely(_word_piece),
    "vocab.json": _safely(_byte_pairs),
}
"""From a file's name to what makes a ``tokenizer.json`` of it, the best first."""
