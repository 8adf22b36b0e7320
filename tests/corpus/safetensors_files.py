"""Safetensors files: good ones, and headers that claim what is not so."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from tests.corpus.case import Case, content, loads, refused, state

NAMES = (
    "nul\0byte", "../../etc/passwd", "<img src=x onerror=alert(1)>", "![x](" + "http" + "://203.0.113.1/x.png)",
    "\u202eoverride", "層.0", "</script><script>alert(1)</script>", "tab\tline\nbell\a\x1b[31m", "/absolute", "C:\\x",
    "a" * 512, "e\u0301", "😀", " ", ".", "__class__", "constructor",
)  # fmt: skip
"""Tensor names that a page, a terminal or a path may take for something else."""


def packed(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A file of a raw header and raw data; ``length`` is what it claims of the header."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def row(shape: list[Any], start: int, stop: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def headed(table: Mapping[str, Any], data: bytes) -> Callable[[Path], object]:
    return content(packed(json.dumps(table).encode(), data))


def saved(tensors: Mapping[str, Tensor], **metadata: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(save(dict(tensors), metadata=metadata or None))


def native(**changes: Tensor) -> Callable[[Path], object]:
    """Our own format: a model of one layer, some of its tensors replaced."""

    def write(path: Path) -> None:
        from fbt_core.checkpoints import native
        from fbt_core.config import FiberBundleConfig
        from fbt_core.model.fiber_bundle import FiberBundleTransformer
        from fbt_core.tokenizer import WordByteTokenizer

        words = WordByteTokenizer(("the", "ship"))
        config = FiberBundleConfig(words.vocab_size, width=8, layers=1, heads=2, feed_forward=8, context=8)
        tensors = FiberBundleTransformer(config).state_dict() | {k.replace("__", "."): v for k, v in changes.items()}
        native.save(path, config, tensors, words, {"steps": 3})
        in_order(path)

    return write


def in_order(path: Path) -> None:
    """The metadata in the order of its keys: the library writes them in another one at each call."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + length])
    table["__metadata__"] = dict(sorted(table["__metadata__"].items()))
    header = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    path.write_bytes(packed(header.ljust(length), raw[8 + length :]))


def cut(write: Callable[[Path], object], keep: Callable[[int], int]) -> Callable[[Path], object]:
    """What ``write`` writes, cut to ``keep(size)`` bytes."""

    def cut_short(path: Path) -> None:
        write(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: keep(len(whole))])

    return cut_short


def nameless() -> dict[str, Tensor]:
    return {"": torch.ones(1)}


def half(size: int) -> int:
    return size // 2


def less_30(size: int) -> int:
    return size - 30


def sparse(head: bytes, size: int) -> Callable[[Path], object]:
    """A file of ``size`` bytes that takes no room on the disk: ``head``, then zeros."""

    def write(path: Path) -> None:
        path.write_bytes(head)
        with path.open("r+b") as file:
            file.truncate(size)

    return write


def many(count: int) -> Callable[[Path], object]:
    entry = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return lambda path: path.write_bytes(
        packed(("{" + ",".join(f'"{i}":{entry}' for i in range(count)) + "}").encode())
    )


def with_header_of(length: int) -> Callable[[Path], object]:
    """A good file whose header is padded with spaces to so many bytes, as the format allows."""
    header = json.dumps({"first.weight": row([2, 2], 0, 16)}).encode()
    return content(packed(header.ljust(length), bytes(16)))


def typed(dtype: str, bits: int) -> Callable[[Path], object]:
    """One 2 x 32 tensor of a dtype that few libraries know."""
    return headed({"layer.weight": row([2, 32], 0, 8 * bits, dtype)}, bytes(8 * bits))


def weights(seed: int = 0, **metadata: str) -> bytes:
    return save(state(seed), metadata=metadata or None)


TWICE = '{"w":' + json.dumps(row([4], 0, 4, "U8")) + ',"w":' + json.dumps(row([1], 0, 4)) + "}"
METADATA_TWICE = '{"__metadata__":{"a":"1","a":"2"},"w":' + json.dumps(row([1], 0, 4)) + "}"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
PACKED = {"layer.weight": torch.zeros(8, 8, dtype=torch.int8), "layer.weight.SCB": torch.ones(8)}
QZEROS = {"layer.qweight": torch.zeros(4, 8, dtype=torch.int32), "layer.qzeros": torch.zeros(1, 1, dtype=torch.int32),
          "layer.scales": torch.ones(1, 8, dtype=torch.float16)}  # fmt: skip
GPTQ = QZEROS | {"layer.g_idx": torch.zeros(32, dtype=torch.int32)}
MXFP4 = {"layer.weight_blocks": torch.zeros(2, 2, 16, dtype=torch.uint8),
         "layer.weight_scales": torch.zeros(2, 2, dtype=torch.uint8)}  # fmt: skip
NF4 = {"layer.weight": torch.zeros(32, 1, dtype=torch.uint8), "layer.weight.absmax": torch.ones(1),
       "layer.weight.quant_map": torch.zeros(16),
       "layer.weight.quant_state.bitsandbytes__nf4": torch.zeros(8, dtype=torch.uint8)}  # fmt: skip
SCALED = {"layer.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn), "layer.weight_scale_inv": torch.ones(1, 1)}


def named() -> dict[str, Tensor]:
    return {name: torch.full((2, 2), float(i)) for i, name in enumerate(NAMES)}


def infinite() -> dict[str, Tensor]:
    values = state()
    values["first.weight"][0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    return values


def zeroed() -> dict[str, Tensor]:
    return state() | {"second.weight": torch.zeros(3, 6)}


def cast(dtype: torch.dtype) -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: tensor.to(dtype) for name, tensor in state().items()}


CASES: dict[str, Case] = {
    "good.safetensors": loads(1, native(), "safetensors"),
    "weights.safetensors": loads(1, saved(state()), "safetensors", tensors=state),
    "cut-half.safetensors": refused(16, cut(native(), half), "cut short", r"\d+ of \d+ bytes"),
    "cut-30.safetensors": refused(16, cut(native(), less_30), "cut short", r"\d+ of \d+ bytes"),
    "cut-header.safetensors": refused(16, cut(native(), lambda size: 40), "cut short"),
    "cut-to-seven-bytes.safetensors": refused(16, cut(native(), lambda size: 7)),
    "lfs.safetensors": refused(
        17, content(LFS.format("0" * 64, 2999999999).encode()), "Git LFS pointer", "2999999999|2[.,]999|3[.,]0"
    ),
    "lfs-pytorch_model.bin": refused(
        17, content(LFS.format("a" * 64, 440473133).encode()), "Git LFS pointer", "440473133|440"
    ),
    "page.bin": refused(18, content(b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"), "web page"),
    "page-after-blank-lines.safetensors": refused(18, content(b"\n\n  <html><body>404</body></html>"), "web page"),
    "error.bin": refused(18, content(b'{"error":"Repository not found"}'), "JSON", "'error'"),
    "empty.safetensors": refused(18, content(b""), "empty file"),
    "weights-named.pt": loads(19, saved(state()), "safetensors", tensors=state),
    "header-length-reads-as-page.safetensors": loads(19, with_header_of(60 + 256), "safetensors"),
    "header-length-reads-as-program.safetensors": loads(
        19, with_header_of(int.from_bytes(b"MZ", "little")), "safetensors"
    ),
    "header-length-reads-as-gzip.safetensors": loads(19, with_header_of(0x8B1F), "safetensors"),
    "header-2-63.safetensors": refused(20, content(packed(b"{}", length=1 << 63))),
    "header-beyond-file.safetensors": refused(20, content(packed(b"{}", length=4096)), "cut short"),
    "header-101-mb.safetensors": refused(
        20, sparse(packed(b'{"w":' + b" " * 64, length=101 << 20), 102 << 20), str(101 << 20), "at most"
    ),
    "header-big-endian.safetensors": refused(20, content(struct.pack(">Q", 64) + b"{" + b" " * 62 + b"}")),
    "header-not-utf8.safetensors": refused(20, content(packed(b'{"\xff\xfe":1}')), "not valid JSON"),
    "header-deep.safetensors": refused(20, content(packed(b'{"a":' + b"[" * 200_000)), "not valid JSON"),
    "header-list.safetensors": refused(20, content(packed(b"[1,2]")), "table|format"),
    "header-digits.safetensors": refused(20, content(packed(b'{"w":' + b"9" * 100_000 + b"}")), "not valid JSON"),
    "header-nan.safetensors": refused(20, content(packed(b'{"w":NaN}')), "not valid JSON"),
    "tensor-twice.safetensors": refused(21, content(packed(TWICE.encode(), bytes(4))), "twice"),
    "metadata-twice.safetensors": refused(21, content(packed(METADATA_TWICE.encode(), bytes(4))), "twice"),
    "metadata-number.safetensors": refused(
        21, headed({"__metadata__": {"a": 1}, "w": row([1], 0, 4)}, bytes(4)), "strings"
    ),
    "overlap.safetensors": refused(22, headed({"a": row([2], 0, 8), "b": row([2], 4, 12)}, bytes(12)), "overlap"),
    "hole.safetensors": refused(22, headed({"a": row([1], 0, 4), "b": row([1], 8, 12)}, bytes(12)), "holes"),
    "trailing.safetensors": refused(22, headed({"a": row([1], 0, 4)}, bytes(20)), "16 bytes behind the last tensor"),
    "shape-and-place.safetensors": refused(
        22, headed({"a": row([3], 0, 8)}, bytes(8)), "12 bytes by its shape", "8 by its place"
    ),
    "overflow.safetensors": refused(22, headed({"a": row([1 << 32, 1 << 32, 4], 0, 0)}, b""), "'a'"),
    "negative.safetensors": refused(22, headed({"a": row([-1, -1], 0, 4)}, bytes(4)), "malformed shape"),
    "fraction.safetensors": refused(22, headed({"a": row([1.0], 0, 4)}, bytes(4)), "malformed shape"),
    "boolean.safetensors": refused(22, headed({"a": row([True], 0, 4)}, bytes(4)), "malformed shape"),
    "backwards.safetensors": refused(22, headed({"a": row([1], 4, 0)}, bytes(4)), "'a'"),
    "no-dtype.safetensors": refused(22, headed({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "dtype"),
    "strange-dtype.safetensors": refused(22, headed({"a": row([1], 0, 4, "<b>x</b>")}, bytes(4)), "dtype", "<b>x</b>"),
    "300000-tensors.safetensors": refused(23, many(300_000), "at most"),
    "110000-tensors.safetensors": refused(23, many(110_000), "110000", "at most 100000"),
    "rank-100000.safetensors": refused(23, headed({"a": row([1] * 100_000, 0, 4)}, bytes(4)), "malformed shape"),
    "zero-times-2-124.safetensors": refused(
        23, headed({"a": row([0, 1 << 62, 1 << 62], 0, 0)}, b""), "malformed shape"
    ),
    "names.safetensors": loads(24, saved(named()), "safetensors", tensors=named),
    "name-empty.safetensors": loads(24, saved(nameless()), tensors=nameless),
    "name-100-kb.safetensors": refused(24, headed({"a" * 100_000: row([1], 0, 4)}, bytes(4)), "100000 characters"),
    "name-surrogate.safetensors": refused(
        24, content(packed(b'{"\\ud800":' + json.dumps(row([1], 0, 4)).encode() + b"}", bytes(4))), "not valid JSON"
    ),
    "not-finite.safetensors": loads(25, saved(infinite()), "NaN|not finite|infinite", "first.weight", tensors=infinite),
    "native-not-finite.safetensors": loads(
        25, native(**{"final_norm.weight": torch.full((8,), float("nan"))}), "NaN", "final_norm.weight"
    ),
    "zero-matrix.safetensors": loads(25, saved(zeroed()), "zero", "second.weight", tensors=zeroed),
    "half.safetensors": loads(26, saved(cast(torch.float16)()), tensors=cast(torch.float16)),
    "bfloat16.safetensors": loads(26, saved(cast(torch.bfloat16)()), tensors=cast(torch.bfloat16)),
    "double.safetensors": loads(26, saved(cast(torch.float64)()), tensors=cast(torch.float64)),
    "fp8-e4m3.safetensors": refused(26, typed("F8_E4M3", 8), "fp8", "F8_E4M3"),
    "fp8-e5m2.safetensors": refused(26, typed("F8_E5M2", 8), "fp8", "F8_E5M2"),
    "fp8-e4m3fnuz.safetensors": refused(26, typed("F8_E4M3FNUZ", 8), "fp8", "F8_E4M3FNUZ"),
    "fp8-e5m2fnuz.safetensors": refused(26, typed("F8_E5M2FNUZ", 8), "fp8", "F8_E5M2FNUZ"),
    "fp8-e8m0.safetensors": refused(26, typed("F8_E8M0", 8), "fp8", "F8_E8M0"),
    "fp4.safetensors": refused(26, typed("F4", 4), "F4"),
    "fp6-e2m3.safetensors": refused(26, typed("F6_E2M3", 6), "F6_E2M3"),
    "fp6-e3m2.safetensors": refused(26, typed("F6_E3M2", 6), "F6_E3M2"),
    "complex.safetensors": loads(26, typed("C64", 64)),
    "bnb-int8.safetensors": refused(26, saved(PACKED), "int8|bitsandbytes"),
    "bnb-nf4.safetensors": refused(26, saved(NF4), "bitsandbytes|NF4"),
    "gptq.safetensors": refused(26, saved(GPTQ), "GPTQ"),
    "awq.safetensors": refused(26, saved(QZEROS), "AWQ|GPTQ"),
    "mxfp4.safetensors": refused(26, saved(MXFP4), "MXFP4"),
    "fp8-scaled.safetensors": refused(26, saved(SCALED), "FP8|float8|weight_scale_inv"),
}
