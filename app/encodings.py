"""What a text is to a checkpoint's own tokenizer, and how much of it the model can read."""

from __future__ import annotations

from app import inputs
from app.kept import keep
from app.loading import checkpoint
from app.request import Request
from fbt_core.checkpoints import Checkpoint
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.tokenizer import Encoding

MAXIMUM_TOKENS = 4096
"""A longer text is cut, with a notice."""

MAXIMUM_CHARACTERS = 65_536
"""Of which a tokenizer is asked to make tokens at all."""

SHIFTED = ("roberta", "camembert", "xlm-roberta", "mpnet", "longformer", "xmod", "data2vec-text")
"""Model types that count positions from the one after their padding's, so that two of their table are never used."""


@keep()
def encoding(reference: str, text: str) -> tuple[Encoding, int]:
    """The text as this checkpoint's tokenizer sees it, cut at ``length_limit``, and its number of tokens uncut.

    Without a tokenizer the text is read as the ids themselves.
    """
    loaded = checkpoint(reference)
    if inputs.reads_ids(loaded):
        full = inputs.ids_in(text[:MAXIMUM_CHARACTERS], loaded.config.vocab_size)
    else:
        full = loaded.tokenizer.encode(text[:MAXIMUM_CHARACTERS])
    return full.cut(length_limit(loaded)), len(full.ids)


def length_limit(loaded: Checkpoint) -> int:
    """The longest text in tokens: a learned position table ends at the context."""
    config = loaded.config
    if isinstance(config, HuggingFaceConfig):
        context = config.context - 2 * (config.model_type in SHIFTED)
        return min(MAXIMUM_TOKENS, context) if config.context else MAXIMUM_TOKENS
    return min(MAXIMUM_TOKENS, config.context) if config.position == "learned" else MAXIMUM_TOKENS


def decoder_encoding(request: Request) -> Encoding:
    """What the decoder of an encoder-decoder reads: its first token, then the target, or else the text."""
    loaded = checkpoint(request.reference)
    full, _ = encoding(request.reference, request.target or request.text)
    return inputs.shifted(full, loaded, keep_last=bool(request.target), limit=length_limit(loaded))
