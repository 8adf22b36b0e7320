"""PyTorch's own files: zip, the older form without a zip, bare pickles; good, unusual and evil."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from tests.corpus.case import Case, loads, refused, state
from tests.corpus.pickle_writers import (
    HASHED,
    Called,
    Storage,
    archive,
    bare,
    containing_itself,
    doubled,
    evil,
    foreign_global,
    foreign_module,
    gzipped,
    inflating,
    laughing,
    laughing_tables,
    legacy,
    nested,
    numpy_file,
    opcodes,
    owned,
    plain_module,
    prefixed,
    quoted,
    recased,
    rewritten,
    short,
    sparse_tensor,
    system,
    training,
    view,
    views_of_one,
    zipped,
)
from tests.corpus.safetensors_files import cut, half, less_30

FOUR = bytes(4)
TIED = torch.arange(6.0)

CASES: dict[str, Case] = {
    "good.pt": loads(2, zipped(state()), "PyTorch|torch|pickle", tensors=state),
    "good.pth": loads(2, zipped(OrderedDict(state()), pickle_protocol=4), tensors=state),
    "parameters.pt": loads(2, zipped({k: nn.Parameter(v) for k, v in state().items()}), tensors=state),
    "tied-views.pt": loads(
        2,
        zipped({"a": TIED[:4], "b": TIED[2:], "c": TIED.view(2, 3).T}),
        tensors=lambda: {"a": TIED[:4], "b": TIED[2:], "c": TIED.view(2, 3).T},
    ),
    "mixed-dtypes.pt": loads(2, zipped({"a": torch.ones(2, 2).half(), "b": torch.ones(2, 2).bfloat16()})),
    "legacy.pt": loads(3, legacy(state()), "PyTorch|torch|pickle", tensors=state),
    "legacy-protocol-4.pt": loads(3, legacy(state(), pickle_protocol=4), tensors=state),
    "prefixed.pt": loads(
        4, zipped(prefixed("module._orig_mod.", "_orig_mod.module.")), r"module\.", r"_orig_mod\.", tensors=state
    ),
    "prefixed-fsdp.pt": loads(
        4, zipped(prefixed("_fsdp_wrapped_module._checkpoint_wrapped_module.")), "_fsdp_wrapped_module", tensors=state
    ),
    "prefixes-collide.pt": refused(
        4, zipped({"w": torch.zeros(2), "_orig_mod.w": torch.ones(2)}), "'w' and '_orig_mod.w'", "which are one"
    ),
    "training.pt": refused(5, zipped(training(ema=state(1))), "model", "ema", inspects=True),
    "training-model.pt": loads(5, zipped(training(ema=state(1))), part="model", tensors=state),
    "training-ema.pt": loads(5, zipped(training(ema=state(1))), part="ema", tensors=lambda: state(1)),
    "training-no-such-part.pt": refused(
        5, zipped(training(ema=state(1))), "'teacher'", "model", part="teacher", inspects=True
    ),
    "training-one.pt": loads(5, zipped(training()), tensors=state),
    "optimizer-only.pt": refused(
        5, zipped({k: v for k, v in training().items() if k != "model"}), "state dict|weights"
    ),
    "training-objects.pt": loads(6, owned(zipped), "Namespace", "PosixPath", tensors=state),
    "training-objects-legacy.pt": loads(6, owned(legacy), "Namespace", "PosixPath", tensors=state),
    "module.pt": loads(7, zipped(plain_module()), "Sequential", tensors=state),
    "module-legacy.pt": loads(7, legacy(plain_module()), "Sequential", tensors=state),
    "module-foreign.pt": loads(7, foreign_module, "Net", tensors=state),
    "names-a-foreign-class.pkl": refused(7, foreign_global),
    "evil-zip.pt": refused(8, evil(zipped), "system"),
    "evil-legacy.pt": refused(8, evil(legacy), "system"),
    "evil-bare.pkl": refused(8, system(2), "system"),
    "evil-protocol-0.bin": refused(8, system(0), "system|no known format"),
    "evil-protocol-5.ckpt": refused(8, system(5), "system"),
    "evil-beside-weights.pt": refused(8, evil(zipped, **state()), "system"),
    "evil-inst.pkl": refused(8, opcodes(lambda c: b"\x80\x02(" + quoted(c) + b"iposix\nsystem\n."), "system"),
    "evil-obj.pkl": refused(8, opcodes(lambda c: b"\x80\x02(cposix\nsystem\n" + quoted(c) + b"o."), "system"),
    "evil-extension.pkl": refused(8, opcodes(lambda c: b"\x80\x02\x82\x01" + quoted(c) + b"\x85R.")),
    "evil-getattr.pkl": refused(
        8,
        opcodes(
            lambda c: (
                b"\x80\x04cbuiltins\ngetattr\ncbuiltins\n__import__\n"
                + quoted("os")
                + b"\x85R"
                + quoted("system")
                + b"\x86R"
                + quoted(c)
                + b"\x85R."
            )
        ),
        "getattr|__import__",
    ),
    "evil-dotted.pkl": refused(
        8,
        opcodes(lambda c: b"\x80\x04" + quoted("torch") + quoted("os.system") + b"\x93" + quoted(c) + b"\x85R."),
        "system",
    ),
    "evil-hub.pkl": refused(
        8, opcodes(lambda c: b"\x80\x02ctorch.hub\nload\n" + quoted("evil/repo") + quoted("x") + b"\x86R."), "torch.hub"
    ),
    "bytearray-6e9.pt": refused(9, zipped({"w": Called(bytearray, 6_000_000_000)}), "bytearray"),
    "bytearray-6e9.pkl": refused(9, bare({"w": Called(bytearray, 6_000_000_000)}), "bytearray"),
    "tensor-3e9.pt": refused(
        10,
        opcodes(lambda c: b"\x80\x02ctorch\nFloatTensor\n\x8a\x05" + (3_000_000_000).to_bytes(5, "little") + b"\x85R."),
        "FloatTensor",
    ),
    "stride-0.pt": refused(11, zipped({"w": torch.zeros(1).expand(200_000, 200_000)}), "40.?000.?000.?000"),
    "stride-0-legacy.pt": refused(11, legacy({"w": torch.zeros(1).expand(200_000, 200_000)}), "40.?000.?000.?000"),
    "views-of-one.pt": loads(11, zipped(views_of_one()), seconds=3.0),
    "laughs.pt": loads(12, zipped({"model": state(), "laughs": laughing()}), tensors=state),
    "laughs-of-tensors.pt": refused(12, zipped({"model": laughing(torch.ones(2))}), "unfolds|more than|at most"),
    "laughs-of-tables.pt": refused(12, zipped(laughing_tables()), "unfolds|more than|at most"),
    "laughs.pkl": refused(12, bare(laughing())),
    "hashed-laughs.pkl": refused(12, lambda path: path.write_bytes(HASHED)),
    "deep.pkl": refused(12, lambda path: path.write_bytes(nested(200_000))),
    "own-member.pkl": refused(12, lambda path: path.write_bytes(b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.")),
    "own-member.pt": loads(12, zipped(containing_itself()), tensors=state),
    "digits.pt": loads(12, zipped({"model": state(), "epoch": 10**5000}), tensors=state),
    "deflated.pt": refused(13, inflating, "compressed"),
    "two-pickles.pt": refused(14, rewritten(zipped(state()), doubled), "data.pkl", "twice|two|2"),
    "case-collision.pt": refused(14, rewritten(zipped(state()), recased), "case"),
    "record-short.pt": refused(15, short, "128|32", "256|64"),
    "record-short-offset.pt": refused(
        15, archive({"w": view(Storage("0", 1), (1,), offset=1 << 40)}, {"0": FOUR}), "'w'|data/0|record|storage"
    ),
    "record-short-stride.pt": refused(
        15, archive({"w": view(Storage("0", 4), (2, 2), (1 << 40, 1))}, {"0": bytes(16)}), "'w'|data/0|record|storage"
    ),
    "record-missing.pt": refused(15, archive({"w": view(Storage("7", 1), (1,))}, {"0": FOUR}), "7"),
    "record-negative.pt": refused(15, archive({"w": view(Storage("0", 4), (2,), (-1,), 1)}, {"0": bytes(16)})),
    "record-outside.pt": refused(15, archive({"w": view(Storage("../../secret", 1), (1,))}, {"0": FOUR}), "secret"),
    "cut-half.pt": refused(16, cut(zipped(state()), half), "cut short|directory"),
    "cut-30.pt": refused(16, cut(zipped(state()), less_30), "cut short|directory"),
    "cut-half-legacy.pt": refused(16, cut(legacy(state()), half), r"cut short: 4[56]\d bytes"),
    "cut-30-legacy.pt": refused(16, cut(legacy(state()), less_30), "cut short", r"\d+ of \d+ bytes"),
    "torch-named.safetensors": loads(19, zipped(state()), "PyTorch|torch|pickle", tensors=state),
    "numpy.pt": refused(19, numpy_file, "NumPy"),
    "array.bin": refused(19, lambda path: path.write_bytes(b"\x93NUMPY\x01\0" + bytes(120)), "NumPy"),
    "gzipped.pt": refused(19, gzipped, "gzip"),
    "picture.bin": refused(19, lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(60)), "PNG"),
    "keras.bin": refused(19, lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60)), "HDF5"),
    "script.pt": refused(
        19,
        archive(
            {"w": view(Storage("0", 1), (1,))},
            {"0": FOUR},
            {"constants.pkl": b"\x80\x02).", "code/__torch__.py": b"op_version_set = 1"},
        ),
        "TorchScript",
    ),
    "names.pt": loads(24, zipped({"<b>x</b>\0\u202e": torch.ones(2, 2), "../../etc/passwd": torch.zeros(2, 2)})),
    "keys-not-strings.pt": loads(24, zipped({1: torch.ones(2), (2, "x"): torch.ones(2)})),
    "sparse.pt": refused(26, zipped(sparse_tensor()), "'extra'", "sparse"),
    "complex.pt": refused(26, zipped({"w": torch.ones(2, 2, dtype=torch.complex64)}), "without weights"),
}
