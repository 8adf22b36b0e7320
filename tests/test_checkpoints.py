"""The native format: what is written is what is read, and every bad file gets one clear ``CheckpointError``."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fbt_core.checkpoints import CheckpointError, load, native
from fbt_core.config import FiberBundleConfig
from fbt_core.model import build
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.tokenizer import WordByteTokenizer

TOKENIZER = WordByteTokenizer(("the", "ship"))
CONFIG = FiberBundleConfig(vocab_size=TOKENIZER.vocab_size, width=8, layers=1, heads=2, feed_forward=8, context=8)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.safetensors"
    native.save(path, CONFIG, FiberBundleTransformer(CONFIG).state_dict(), TOKENIZER, {"steps": 3, "losses": [1.5]})
    return path


def rewritten(path: Path, change: Callable[[dict[str, Any]], None], data: bytes | None = None) -> Path:
    """The file with its header changed and, where given, other tensor bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + (content[8 + length :] if data is None else data))
    return path


def refused(path: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert caught.value.got and caught.value.expected and caught.value.remedy
    assert "weights_only" not in text


def test_what_is_written_is_read_bit_for_bit(good: Path) -> None:
    checkpoint = load(good)
    state = FiberBundleTransformer(CONFIG).state_dict()
    assert checkpoint.config == CONFIG and dict(checkpoint.training) == {"steps": 3, "losses": [1.5]}
    assert checkpoint.tensors.keys() == state.keys()
    assert all(torch.equal(checkpoint.tensors[name], state[name]) for name in state)
    assert checkpoint.tokenizer.encode("the ship").ids == TOKENIZER.encode("the ship").ids
    assert checkpoint.origin.bytes == good.stat().st_size and len(checkpoint.origin.sha256) == 64
    ids = torch.tensor([0, 5, 3])
    model = FiberBundleTransformer(CONFIG).eval()
    torch.testing.assert_close(build(checkpoint)(ids[None]), model(ids[None]).detach(), rtol=0, atol=0)
    assert checkpoint.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_float_types_are_read(good: Path, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in FiberBundleTransformer(CONFIG).state_dict().items()}
    native.save(good, CONFIG, state, TOKENIZER, {})
    assert build(load(good)).embedding.weight.dtype == torch.float32


def test_saving_is_atomic(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = good.read_bytes()
    monkeypatch.setattr(native.os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        native.save(good, CONFIG, FiberBundleTransformer(CONFIG, seed=1).state_dict(), TOKENIZER, {})
    assert good.read_bytes() == before
    assert [path.name for path in good.parent.iterdir()] == [good.name]


def test_a_record_that_is_not_json_is_not_written(good: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        native.save(good, CONFIG, FiberBundleTransformer(CONFIG).state_dict(), TOKENIZER, {"loss": float("nan")})


FOREIGN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    "web page": (b"<!DOCTYPE html><html>404</html>", "web page"),
    "json error": (b'{"error": "not found"}', "'error'"),
    "zip": (b"PK\x03\x04" + b"0" * 60, "zip file cut short"),
    "pickle": (b"\x80\x02cos\nsystem\n(S'true'\ntR.", "pickle"),
    "gguf": (b"GGUF" + b"0" * 60, "GGUF"),
    "picture": (b"\x89PNG\r\n" + b"0" * 60, "PNG"),
    "noise": (bytes(range(1, 200)), "no known format"),
    "claims 2^39 bytes of header": (struct.pack("<Q", 1 << 39) + b"{}", "cut short"),
    "big-endian": (struct.pack(">Q", 2) + b"{}", "no known format"),
    "not json": (struct.pack("<Q", 4) + b"{abc", "not valid JSON"),
    "not utf-8": (struct.pack("<Q", 4) + b"{\xff\xfe}", "not valid JSON"),
    "deep": (struct.pack("<Q", 200_001) + b"{" + b'"a":[' * 40_000, "not valid JSON"),
    "key twice": (struct.pack("<Q", 15) + b'{"a":1, "a": 2}', "twice"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "word"), FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_called_what_it_is(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused(path, word)


def _first(header: dict[str, Any]) -> dict[str, Any]:
    return next(entry for name, entry in header.items() if name != "__metadata__")


def _metadata(**changes: str) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["__metadata__"].update(changes)


def _config(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return _metadata(config=json.dumps({**CONFIG.to_dict(), **changes}))


LARGE = WordByteTokenizer(f"w{i}" for i in range(300))
BROKEN: dict[str, tuple[Callable[[dict[str, Any]], Any], tuple[str, ...]]] = {
    "schema": (_metadata(schema="9"), ("schema '9'", "schema '1'")),
    "config not json": (_metadata(config="{"), ("'config'", "JSON")),
    "config a list": (_metadata(config="[]"), ("'config'", "list")),
    "config deep": (_metadata(config="[" * 100_000), ("'config'", "JSON")),
    "config unknown field": (_config(colour=1), ("colour",)),
    "config wrong type": (_config(width="8"), ("width",)),
    "config huge": (_config(layers=512, width=1 << 20, heads=1), ("512 layers",)),
    "config of other shapes": (_config(width=16), ("shape", "by its config")),
    "tokenizer not json": (_metadata(tokenizer="x"), ("tokenizer",)),
    "tokenizer too large": (_metadata(tokenizer=LARGE.to_json()), ("557 tokens", "259 rows")),
    "training not json": (_metadata(training=""), ("'training'",)),
    "wrong sum": (_metadata(data_sha256="0"), ("SHA-256",)),
    "missing tensor": (lambda h: h.update({"stranger": h.pop("final_norm.weight")}), ("without 'final_norm.weight'",)),
    "metadata of numbers": (lambda h: h["__metadata__"].update(schema=1), ("strings",)),
    "shape and place": (lambda h: _first(h).update(shape=[1, 1]), ("by its shape", "by its place")),
    "negative": (lambda h: _first(h).update(shape=[-1]), ("malformed shape",)),
    "overflowing": (lambda h: _first(h).update(shape=[0, 1 << 62, 1 << 62]), ("malformed shape",)),
    "rank": (lambda h: _first(h).update(shape=[1] * 99), ("malformed shape",)),
    "dtype": (lambda h: _first(h).update(dtype="F5"), ("dtype 'F5'",)),
    "integers": (lambda h: _first(h).update(dtype="I32"), ("dtype I32",)),
    "offsets": (lambda h: _first(h).update(data_offsets=[0]), ("malformed data_offsets",)),
    "field": (lambda h: _first(h).update(more=1), ("dtype, shape and data_offsets",)),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_header_is_named(good: Path, change: Callable[[dict[str, Any]], Any], words: tuple[str, ...]) -> None:
    refused(rewritten(good, change), *words)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.999])
def test_a_file_cut_short_says_how_much_is_there(good: Path, keep: float) -> None:
    content = good.read_bytes()
    good.write_bytes(content[: int(len(content) * keep)])
    refused(good, "cut short")


def test_bytes_behind_the_last_tensor_are_refused(good: Path) -> None:
    good.write_bytes(good.read_bytes() + b"0123")
    refused(good, "4 bytes behind the last tensor")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_counted_and_named(good: Path, value: float) -> None:
    state = FiberBundleTransformer(CONFIG).state_dict()
    state["blocks.0.gate"][1] = value
    native.save(good, CONFIG, state, TOKENIZER, {})
    checkpoint = load(good)
    assert any("1 values are NaN or infinite, in 'blocks.0.gate'" in notice for notice in checkpoint.notices)
    assert not build(checkpoint).state_dict()["blocks.0.gate"].isfinite().all(), "it is shown as it is"


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.safetensors", "no file at")
    refused(tmp_path, "without a checkpoint")


def test_two_thousand_mutations_raise_nothing_else(good: Path) -> None:
    """Flips, cuts and splices of a good file: each is opened, or refused by our own error."""
    content, generator, opened = good.read_bytes(), random.Random(0), 0
    header = 8 + struct.unpack("<Q", content[:8])[0]
    for _ in range(2000):
        mutated = bytearray(content)
        kind = generator.randrange(3)
        if kind == 0:
            for _ in range(generator.randrange(1, 4)):
                mutated[generator.randrange(header)] = generator.randrange(256)
        elif kind == 1:
            del mutated[generator.randrange(len(mutated)) :]
        else:
            at = generator.randrange(header)
            mutated[at:at] = generator.randbytes(generator.randrange(1, 8))
        good.write_bytes(bytes(mutated))
        try:
            load(good)
            opened += 1
        except CheckpointError:
            pass
    assert opened < 100  # a flipped byte of the training record can be harmless


@pytest.mark.parametrize(
    "record",
    ['{"loss": 1e999}', '{"loss": NaN}', '{"steps": ' + "9" * 400 + "}", '{"command": "\\ud800"}', '{"a": 1, "a": 2}'],
)
def test_a_record_that_json_allows_and_nobody_can_show_is_refused(good: Path, record: str) -> None:
    refused(rewritten(good, _metadata(training=record)), "'training'", "JSON")


def test_a_lone_surrogate_in_the_header_is_refused(good: Path) -> None:
    refused(rewritten(good, lambda header: header["__metadata__"].update(extra="\ud800")), "not valid JSON")


@pytest.mark.parametrize("field", ["kappa_max", "metric_init", "gate_init"])
@pytest.mark.parametrize("value", [10**17, 1e308, -1e300])
def test_a_number_beyond_float32_is_refused(good: Path, field: str, value: float) -> None:
    refused(rewritten(good, _config(**{field: value})), field)


def test_weights_that_overflow_are_a_named_fault(good: Path) -> None:
    config = replace(CONFIG, layers=2)
    state = FiberBundleTransformer(config).state_dict()
    state["blocks.0.log_tau"] -= 200
    native.save(good, config, state, TOKENIZER, {})
    with pytest.raises(ValueError, match="overflow in layer 1"):
        build(load(good)).trace(torch.tensor([0, 5, 3]))


def test_of_sick_weights_a_run_names_the_weights_and_not_the_strength(good: Path) -> None:
    config = replace(CONFIG, layers=2)
    state = FiberBundleTransformer(config).state_dict()
    state["blocks.0.log_tau"][0] = float("nan")
    native.save(good, config, state, TOKENIZER, {})
    with pytest.raises(ValueError, match=r"NaN or infinite weights in 'blocks\.0\.log_tau'"):
        build(load(good)).trace(torch.tensor([0, 5, 3]))
