"""GGUF files: one good one, written by the format's own package, and headers that claim what is not so."""

from __future__ import annotations

import string
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.corpus.case import Case, content, loads, refused
from tests.corpus.safetensors_files import cut, half, less_30

WIDTH, HEADS, LAYERS, VOCABULARY, FEED_FORWARD = 32, 2, 2, 96, 64
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def good(path: Path) -> None:
    """A Llama of two layers with one matrix in Q8_0, random weights, and a byte-level vocabulary."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", "th", *string.printable[:93], "Ġ"])
    writer.add_token_types([3] + [1] * (VOCABULARY - 1))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    random = np.random.default_rng(0)
    for name, shape in _shapes().items():
        values = random.normal(0, 0.05, shape).astype(np.float32)
        if name == "blk.0.ffn_up.weight":
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values + name.endswith("norm.weight"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, WIDTH), "output_norm.weight": (WIDTH,)}
    block = {
        "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH // HEADS, WIDTH),
        "attn_v": (WIDTH // HEADS, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,),
        "ffn_gate": (FEED_FORWARD, WIDTH), "ffn_up": (FEED_FORWARD, WIDTH), "ffn_down": (WIDTH, FEED_FORWARD),
    }  # fmt: skip
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
    return shapes


def text(value: str, length: int | None = None) -> bytes:
    """A string of the format; ``length`` is what it claims."""
    raw = value.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


ARCHITECTURE = entry("general.architecture", STRING, text("llama"))


def made(
    *parts: bytes, tensors: int = 0, entries: int | None = None, version: int = 3, data: int = 0
) -> Callable[[Path], object]:
    """A file of raw parts: ``tensors`` and ``entries`` are what it claims, ``data`` zeros stand behind."""
    count = sum(part[8:16] != b"" for part in parts) - tensors if entries is None else entries
    raw = b"GGUF" + struct.pack("<IQQ", version, tensors, count) + b"".join(parts)
    return content(raw + bytes(-len(raw) % 32) + bytes(data))


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


DEEP = b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(100_000))

CONVERTING = 20.0
"""Seconds for a child process that imports torch and transformers, to convert what our own rules have accepted."""

CASES: dict[str, Case] = {
    "good.gguf": loads(1, good, "GGUF", "Llama", seconds=CONVERTING),
    "gguf-named.bin": loads(19, good, "GGUF", "Llama", seconds=CONVERTING),
    "cut-half.gguf": refused(16, cut(good, half), "cut short"),
    "cut-30.gguf": refused(16, cut(good, less_30), "cut short"),
    "cut-12-bytes.gguf": refused(16, cut(good, lambda size: 12), "cut short"),
    "tensors-2-60.gguf": refused(20, made(ARCHITECTURE, tensors=1 << 60, entries=1), str(1 << 60)),
    "entries-2-60.gguf": refused(20, made(ARCHITECTURE, entries=1 << 60), str(1 << 60)),
    "array-2-33.gguf": refused(20, made(ARCHITECTURE, entry("a", ARRAY, array(UINT32, 1 << 33))), str(1 << 33)),
    "array-2-33-of-strings.gguf": refused(
        20, made(ARCHITECTURE, entry("a", ARRAY, array(STRING, 1 << 33, bytes(4096)))), str(1 << 33)
    ),
    "array-deep.gguf": refused(20, made(ARCHITECTURE, entry("a", ARRAY, DEEP))),
    "string-2-62.gguf": refused(20, made(ARCHITECTURE, text("a", 1 << 62), entries=2), str(1 << 62)),
    "version-99.gguf": refused(20, made(ARCHITECTURE, version=99), "99"),
    "big-endian.gguf": refused(20, content(b"GGUF" + struct.pack(">IQQ", 3, 0, 1)), "version|endian"),
    "kind-77.gguf": refused(20, made(ARCHITECTURE, entry("a", 77, bytes(64))), "77"),
    "not-utf8.gguf": refused(
        20, made(ARCHITECTURE, struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<IB", BOOL, 1), entries=2)
    ),
    "key-twice.gguf": refused(21, made(ARCHITECTURE, ARCHITECTURE, entries=2), "twice"),
    "tensor-twice.gguf": refused(
        21,
        made(ARCHITECTURE, tensor("w", [32]), tensor("w", [32], offset=128), tensors=2, entries=1, data=256),
        "two tensors named 'w'",
    ),
    "tensor-outside.gguf": refused(
        22,
        made(ARCHITECTURE, tensor("w", [32], offset=1 << 40), tensors=1, entries=1, data=128),
        "cut short|beyond|outside|bytes",
    ),
    "tensors-overlap.gguf": refused(
        22,
        made(ARCHITECTURE, tensor("a", [64]), tensor("b", [64], offset=32), tensors=2, entries=1, data=512),
        "on the bytes of another",
    ),
    "dims-overflow.gguf": refused(
        22, made(ARCHITECTURE, tensor("w", [1 << 62, 1 << 62]), tensors=1, entries=1, data=128), "'w'|cut short"
    ),
    "rank-2-32.gguf": refused(
        23,
        made(ARCHITECTURE, text("w") + struct.pack("<I", (1 << 32) - 1), tensors=1, entries=1, data=128),
        str((1 << 32) - 1),
    ),
    "alignment-0.gguf": refused(
        22,
        made(
            ARCHITECTURE,
            entry("general.alignment", UINT32, bytes(4)),
            tensor("w", [32]),
            tensors=1,
            entries=2,
            data=128,
        ),
        "align",
    ),
    "quantisation-99.gguf": refused(
        26, made(ARCHITECTURE, tensor("w", [32], kind=99), tensors=1, entries=1, data=128), "99"
    ),
    "block-cut.gguf": refused(
        26, made(ARCHITECTURE, tensor("w", [33], kind=8), tensors=1, entries=1, data=128), "33|block"
    ),
}
