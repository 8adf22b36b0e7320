"""PyTorch files read without torch.load: equal to what torch.load makes of the same file, and deaf to what it says."""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import time
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fbt_core.checkpoints.child import Limits, run_python
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.pickle_plan.__main__ import main
from fbt_core.checkpoints.pickle_plan.names import DANGEROUS, SIZES, is_dangerous
from fbt_core.checkpoints.pickles import PROGRAM, plan, read_tensors

FORMS = [(True, 2), (True, 4), (True, 5), (False, 2), (False, 3), (False, 4)]
forms = pytest.mark.parametrize(("zipped", "protocol"), FORMS)
few_forms = pytest.mark.parametrize(("zipped", "protocol"), [FORMS[0], FORMS[2], FORMS[3]])


def saved(path: Path, value: Any, zipped: bool = True, protocol: int = 2) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    return path


def everything(path: Path) -> dict[tuple, Tensor]:
    """All tensors of a file by container and name."""
    found = plan(path)
    return {(place, name): t for place in found.containers() for name, t in read_tensors(path, found, place).items()}


def expected(value: Any, place: tuple = ()) -> Iterator[tuple[tuple, Tensor]]:
    """The same of what torch.load gave: a double of the walk, on real objects."""
    if isinstance(value, nn.Module):
        yield from (((place, name), tensor) for name, tensor in value.state_dict().items())
    elif isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and not isinstance(value, torch.Size)):
        for key, child in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(child, Tensor):
                yield (place, str(key)), child
            else:
                yield from expected(child, (*place, key))


def raw(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(path: Path) -> None:
    """What we read is what torch.load reads of a file that the test itself wrote: dtype, shape, strides, every bit."""
    ours, theirs = everything(path), dict(expected(torch.load(path, weights_only=False)))
    assert list(ours) == list(theirs) and theirs
    for key, tensor in theirs.items():
        assert (ours[key].dtype, ours[key].shape) == (tensor.dtype, tensor.shape), key
        assert not tensor.numel() or ours[key].stride() == tensor.stride(), key
        assert raw(ours[key]) == raw(tensor), key


def refused(path: Path, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        plan(path)
    text = str(caught.value)
    assert all(re.search(word, text) for word in words), text
    assert "weights_only" not in text and caught.value.expected and caught.value.remedy


def state() -> OrderedDict[str, Tensor]:
    whole = torch.randn(6, 4)
    return OrderedDict(
        whole=whole, row=whole[2], part=whole[1:5:2, ::3], turned=whole.t(), scalar=torch.tensor(2.5),
        none=torch.zeros(0, 3), parameter=nn.Parameter(torch.randn(3)), long=torch.arange(5), flags=whole > 0,
    )  # fmt: skip


def network() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    net.register_buffer("kept", torch.ones(2))
    net.register_buffer("passing", torch.ones(2), persistent=False)
    net[2][0].weight = nn.Parameter(torch.randn(4, 4))
    net.twin = net[0]  # one module under two names
    return net


def training() -> dict[str, Any]:
    net = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.25)
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return {
        "model": net.state_dict(), "ema": {"shadow": [torch.ones(2), torch.zeros(1)]}, "epoch": 7,
        "note": "é", "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "best": np.float64(0.5),
        "loss": [1.5, None],
        "args": argparse.Namespace(lr=1e-3, out=pathlib.PurePosixPath("/x")), "array": np.zeros(3),
        "bytes": b"\x00\xff",
        "shape": torch.Size([2, 3]), "device": torch.device("cpu"), "kind": torch.float16, "set": {1, 2},
    }  # fmt: skip


VALUES: dict[str, Callable[[], Any]] = {
    "state dict": state, "training": training, "module": network, "module in a dict": lambda: {"net": network()},
    "list": lambda: [torch.ones(2), {"a": (torch.zeros(1), 3)}],
}  # fmt: skip


@forms
@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
def test_what_torch_load_reads_is_read_bit_for_bit(
    tmp_path: Path, make: Callable[[], Any], zipped: bool, protocol: int
) -> None:
    assert_same(saved(tmp_path / "x.pt", make(), zipped, protocol))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("dtype", SIZES)
def test_every_dtype_keeps_its_bits(tmp_path: Path, dtype: str) -> None:
    kind = getattr(torch, dtype)
    assert SIZES[dtype] == kind.itemsize
    bits = torch.randint(0, 2 if dtype == "bool" else 256, (6 * kind.itemsize,), dtype=torch.uint8)
    assert_same(saved(tmp_path / "x.pt", {"w": bits.view(kind).view(2, 3), "v": bits.view(kind)[2:5]}))


def test_tensors_that_share_memory_share_it_again_and_only_what_is_needed_is_read(tmp_path: Path) -> None:
    whole = torch.arange(1000.0)
    path = saved(tmp_path / "x.pt", {"a": whole[100:110], "b": whole[105:115], "far": whole[900:]})
    found = plan(path)
    read = read_tensors(path, found, names=["a", "b"])
    read["a"][5:] = -1
    assert torch.equal(read["b"], torch.tensor([-1.0] * 5 + [110, 111, 112, 113, 114]))
    assert list(read) == ["a", "b"] and read["a"].untyped_storage().nbytes() < 100


@forms
def test_a_training_checkpoint_is_told_apart(tmp_path: Path, zipped: bool, protocol: int) -> None:
    found = plan(saved(tmp_path / "x.pt", training(), zipped, protocol))
    assert list(found.containers()) == [
        ("model",), ("ema", "shadow"), ("optimizer", "state", 0), ("optimizer", "state", 1), (),
    ]  # fmt: skip
    assert found.values["epoch",] == 7 and found.values["note",] == "é" and found.values["loss",] == [1.5, None]
    assert found.values["optimizer", "param_groups", 0, "lr"] == 0.25 and found.values["args", "lr"] == 1e-3
    ignored = " ".join(found.ignored)
    assert "argparse.Namespace" in ignored and "pathlib.PurePosixPath" in ignored and "numpy" in ignored
    assert "OrderedDict" not in ignored and "_rebuild" not in ignored and not found.unreadable
    assert found.form == ("zip" if zipped else "legacy")


def test_tensors_that_cannot_be_read_are_named_with_the_reason(tmp_path: Path) -> None:
    values = {
        "w": torch.ones(2), "sparse": torch.eye(3).to_sparse(),
        "turned": torch.view_as_complex(torch.ones(2, 2)).conj(),
        "meta": torch.ones(2, device="meta"), "four": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    }  # fmt: skip
    found = plan(saved(tmp_path / "x.pt", values))
    assert [tensor.name for tensor in found.tensors] == ["w"]
    assert {name: why.split()[-1] for (_, name), why in found.unreadable.items()} == {
        "sparse": "torch._utils._rebuild_sparse_tensor", "turned": "view",
        "meta": "torch._utils._rebuild_meta_tensor_no_storage", "four": "float4_e2m1fn_x2",
    }  # fmt: skip


TREES = st.recursive(
    st.one_of(
        st.integers(0, 4).map(lambda n: torch.arange(float(n))), st.integers(), st.text(max_size=5), st.none(),
        st.floats(allow_nan=False), st.booleans(), st.binary(max_size=3),
    ),
    lambda child: st.one_of(
        st.lists(child, max_size=3), st.tuples(child, child), st.sets(st.integers()),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(-9, 9)), child, max_size=4),
    ),
    max_leaves=12,
)  # fmt: skip


@given(value=st.dictionaries(st.text(max_size=4), TREES, max_size=4), form=st.sampled_from(FORMS))
def test_any_nesting_is_walked_as_the_real_objects_are(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any], form: tuple[bool, int]
) -> None:
    path = saved(tmp_path_factory.getbasetemp() / "tree.pt", value, *form)
    theirs = dict(expected(torch.load(path, weights_only=False)))
    names = [(place, name) for place, name in theirs]
    if len(set(names)) == len(names):
        ours = everything(path)
        assert list(ours) == names and all(torch.equal(ours[key], theirs[key]) for key in names)


# What a file cannot make us do


class Call:
    """Pickles as a call of ``function(*arguments)``."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


FOREIGN = "fiberscope_foreign_of_this_test"


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code:UserWarning")
@forms
def test_a_class_of_another_module_is_not_imported_and_its_tensors_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool, protocol: int
) -> None:
    canary, module = tmp_path / "CANARY", types.ModuleType(FOREIGN)
    source = "from torch import nn\nclass Net(nn.Sequential):\n    pass\n"
    monkeypatch.setitem(sys.modules, FOREIGN, module)
    exec(source, module.__dict__)
    path = saved(tmp_path / "x.pt", module.Net(nn.Linear(2, 2)), zipped, protocol)
    (tmp_path / f"{FOREIGN}.py").write_text(f"open({str(canary)!r}, 'w').close()\n{source}")
    monkeypatch.delitem(sys.modules, FOREIGN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = plan(path)
    assert list(read_tensors(path, found)) == ["0.weight", "0.bias"] and f"{FOREIGN}.Net" in found.ignored
    assert FOREIGN not in sys.modules and not canary.exists()
    torch.load(path, weights_only=False)
    assert canary.exists(), "the file would not have imported its module: the test showed nothing"
    del sys.modules[FOREIGN]


def evil(canary: Path) -> dict[str, tuple[Any, str]]:
    """Objects that act when unpickled, and the name that must be told."""
    order = f"touch {canary}"
    return {
        "os": (Call(os.system, order), "calls os.system"),
        "popen": (Call(subprocess.Popen, ["touch", str(canary)]), "calls (subprocess|commands).Popen"),
        "eval": (Call(eval, f"open({str(canary)!r}, 'w')"), "calls builtins.eval"),
        "open": (Call(open, str(canary), "w"), "calls _?io.open"),
        "hub": (Call(torch.hub.load, "a/b", "c"), "calls torch.hub.load"),
        "save": (Call(torch.save, 1, str(canary)), "calls torch.serialization.save"),
        "bytearray": (Call(bytearray, 6_000_000_000), "calls builtins.bytearray"),
        "zeros": (Call(torch.zeros, 3_000_000_000), "calls torch._C._VariableFunctionsClass.zeros"),
        "nested": ({"a": [{"b": Call(os.system, order)}]}, "calls os.system"),
        "argument": (Call(getattr, Call(__import__, "os"), "system"), "calls builtins.__import__"),
        "mentioned": ({"w": torch.ones(2), "f": os.system}, "refers to os.system"),
    }


@few_forms
@pytest.mark.parametrize("kind", evil(Path("x")))
def test_an_attack_is_refused_by_name_and_nothing_of_it_happens(
    tmp_path: Path, kind: str, zipped: bool, protocol: int
) -> None:
    value, words = evil(tmp_path / "CANARY")[kind]
    refused(saved(tmp_path / "x.pt", {"w": torch.ones(2), "evil": value}, zipped, protocol), words)
    assert not (tmp_path / "CANARY").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_an_attack_in_a_plain_pickle_is_named_too(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(pickle.dumps(Call(os.system, f"touch {tmp_path / 'CANARY'}"), protocol))
    refused(path, "calls os.system")
    assert not (tmp_path / "CANARY").exists()
    pickle.loads(path.read_bytes())
    assert (tmp_path / "CANARY").exists(), "the attack would not have worked: the test showed nothing"
    path.write_bytes(pickle.dumps({"w": np.zeros(2)}, protocol))
    refused(path, "a plain pickle")


OPCODES: dict[str, tuple[bytes, str]] = {
    "INST": (b"\x80\x02(S'id'\niposix\nsystem\n.", "calls os.system"),
    "OBJ": (b"\x80\x02(cposix\nsystem\nS'id'\no.", "calls os.system"),
    "NEWOBJ": (b"\x80\x02cposix\nsystem\nS'id'\n\x85\x81.", "calls os.system"),
    "NEWOBJ_EX": (b"\x80\x04cposix\nsystem\nS'id'\n\x85}\x92.", "calls os.system"),
    "STACK_GLOBAL": (b"\x80\x04\x8c\x02nt\x8c\x06system\x93\x8c\x02id\x85R.", "calls os.system"),
    "dotted": (b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c\x02id\x85R.", "calls torch.os.system"),
    "not popped": (b"\x80\x02cposix\nsystem\n0N.", "refers to os.system"),
    "Python 2": (b"\x80\x02c__builtin__\nexecfile\nU\x01x\x85R.", "calls builtins.execfile"),
    "FloatTensor": (b"\x80\x02ctorch\nFloatTensor\nJ\x00\x00\x00\x7f\x85R.", "calls torch.FloatTensor"),
    "storage": (b"\x80\x02ctorch\nFloatStorage\nJ\x00\x00\x00\x7f\x85R.", "calls torch.FloatStorage"),
    "extension": (b"\x80\x02\x82\x01)R.", "damaged pickle"),
    "strange name": (b"\x80\x02cos\n<b>\n)R.", "calls 'os.<b>'"),
    "stack": (b"\x80\x02R.", "damaged pickle"),
    "memo": (b"\x80\x02h\x07.", "damaged pickle"),
    "mark": (b"\x80\x02t.", "damaged pickle"),
    "persistent": (b"\x80\x02K\x01Q.", "damaged pickle"),
    "cut": (b"\x80\x02]q\x00(K\x01", "cut short"),
    "long text": (b"\x80\x02X\xff\xff\xff\x7fab", "cut short"),
    "8 bytes of length": (b"\x80\x04\x8d" + b"\xff" * 7 + b"\x0fab", "cut short"),
    "surrogate": (b"\x80\x02X\x03\x00\x00\x00\xed\xa0\x80.", "damaged pickle"),
    "digits": (b"\x80\x02L" + b"9" * 5000 + b"L\n.", "damaged pickle|plain pickle"),
    "200,000 deep": (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", "plain pickle"),
    "many operations": (b"\x80\x02" + b"N0" * 1_600_000 + b"N.", "more than 3000000 operations"),
}


@pytest.mark.parametrize(("content", "words"), OPCODES.values(), ids=OPCODES.keys())
def test_opcodes_that_no_library_writes(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    refused(path, words)


def laughing(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = [leaf] * 10
    return leaf


def test_lists_of_lists_are_not_unfolded(tmp_path: Path) -> None:
    start = time.monotonic()
    path = saved(tmp_path / "x.pt", {"w": torch.ones(2), "laughs": laughing(30, "lol")})
    assert list(everything(path)) == [((), "w")]
    refused(saved(path, laughing(30, torch.ones(1))), "unfolds to more than")
    refused(saved(path, laughing(150, torch.ones(1))), "nested more than 100 deep")
    assert time.monotonic() - start < 60  # ten thousand years, if unfolded


def test_a_structure_that_holds_itself_ends(tmp_path: Path) -> None:
    value: dict[str, Any] = {"w": torch.ones(2)}
    value["self"], value["list"] = value, [value]
    assert list(everything(saved(tmp_path / "x.pt", value))) == [((), "w")]


CLAIMS: dict[str, tuple[Callable[[], Tensor], str]] = {
    "expanded": (lambda: torch.zeros(1).expand(200_000, 200_000), "1 number stored, 40 000 000 000 claimed"),
    "windows": (lambda: torch.zeros(100).as_strided((60, 40), (1, 1)), "100 numbers stored, 2 400 claimed"),
    "rank": (lambda: torch.zeros([1] * 9), "malformed shape"),
}


@few_forms
@pytest.mark.parametrize(("make", "words"), CLAIMS.values(), ids=CLAIMS.keys())
def test_a_tensor_may_not_claim_more_than_is_stored(
    tmp_path: Path, make: Callable[[], Tensor], words: str, zipped: bool, protocol: int
) -> None:
    refused(saved(tmp_path / "x.pt", {"w": make()}, zipped, protocol), words)


HONEST = """argparse.Namespace numpy.core.multiarray.scalar builtins.set builtins.ValueError collections.OrderedDict
torch.nn.modules.linear.Linear transformers.training_args.TrainingArguments mycode.osmosis.os functools.partial
datetime.datetime omegaconf.dictconfig.DictConfig pathlib.PosixPath types.SimpleNamespace codecs.encode _io.BytesIO
torch.serialization._get_layout torch.jit._script.RecursiveScriptModule enum.Enum"""
EVIL = """os.system os.path.join builtins.exec builtins.__import__ subprocess.run runpy.run_path torch.hub.load io.open
importlib.import_module pip._internal.main webbrowser.open shutil.rmtree socket.socket pickle.loads sys.exit _io.open
types.FunctionType torch.serialization.load"""


def test_honest_and_evil_names() -> None:
    for name in HONEST.split():
        assert not is_dangerous(*name.rsplit(".", 1)), name
    for name in EVIL.split():
        assert is_dangerous(*name.rsplit(".", 1)), name
    assert "torch" not in DANGEROUS and "collections" not in DANGEROUS


# The container


def rezipped(path: Path, change: Callable[[list[tuple[str, bytes]]], Any], method: int = zipfile.ZIP_STORED) -> Path:
    """The file with its list of members changed."""
    with zipfile.ZipFile(path) as file:
        entries = [(name, file.read(name)) for name in file.namelist()]
    change(entries)
    with pytest.warns(UserWarning) if len({n for n, _ in entries}) < len(entries) else nullcontext():
        with zipfile.ZipFile(path, "w", method) as file:
            for name, data in entries:
                file.writestr(name, data)
    return path


def _replace(end: str, data: bytes) -> Callable[[list[tuple[str, bytes]]], Any]:
    def change(entries: list[tuple[str, bytes]]) -> None:
        entries[:] = [(name, data if name.endswith(end) else old) for name, old in entries]

    return change


CONTAINERS: dict[str, tuple[Callable[[list[tuple[str, bytes]]], Any], str]] = {
    "two pickles": (lambda e: e.append(e[0]), "two members 'x/data.pkl'"),
    "another pickle": (lambda e: e.append(("y/data.pkl", e[0][1])), "2 members data.pkl"),
    "other case": (lambda e: e.append(("X/DATA.PKL", b"")), "'x/data.pkl' and 'X/DATA.PKL'"),
    "big-endian": (_replace("byteorder", b"big"), "byte order 'big'"),
    "short record": (_replace("data/0", b"1234"), "storage '0' of 4 bytes, 96 claimed"),
    "no record": (lambda e: e.remove(next(row for row in e if row[0] == "x/data/0")), "storage .* of 0 bytes"),
    "TorchScript": (lambda e: e.append(("x/constants.pkl", b"")), "TorchScript"),
}


@pytest.mark.parametrize(("change", "words"), CONTAINERS.values(), ids=CONTAINERS.keys())
def test_an_ambiguous_or_short_zip_is_refused(
    tmp_path: Path, change: Callable[[list[tuple[str, bytes]]], Any], words: str
) -> None:
    path = saved(tmp_path / "x.pt", state())
    assert_same(rezipped(path, lambda entries: None))
    refused(rezipped(path, change), words)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.zeros(1 << 20)})
    refused(rezipped(path, lambda entries: None, zipfile.ZIP_DEFLATED), "compressed member 'x/data.pkl'|compressed")


@pytest.mark.parametrize("zipped", [True, False])
def test_every_cut_is_refused(tmp_path: Path, zipped: bool) -> None:
    content = saved(tmp_path / "x.pt", {"a": torch.ones(3), "b": torch.ones(2)}, zipped).read_bytes()
    for keep in range(1, len(content), 1 + len(content) // 40):
        (tmp_path / "y.pt").write_bytes(content[:keep])
        refused(tmp_path / "y.pt", "cut short|no known format|a pickle|damaged" if keep < 64 else "cut short")


def test_a_legacy_file_cut_in_its_numbers_says_how_much_is_there(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(100)}, zipped=False)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-30])
    refused(path, f"cut short: {size - 30} of {size} bytes")


def test_a_file_that_shrinks_between_plan_and_reading_is_an_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", {"w": torch.ones(1000)})
    found = plan(path)
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(CheckpointError, match=r"cut short: .* of 4000 bytes"):
        read_tensors(path, found)


FOREIGNERS = {"NumPy": "x.npz", "web page": b"<html></html>", "empty": b"", "gzip": b"\x1f\x8b" + bytes(30)}


@pytest.mark.parametrize("word", FOREIGNERS)
def test_another_format_is_called_what_it_is(tmp_path: Path, word: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, w=np.zeros(2))
    if isinstance(content := FOREIGNERS[word], bytes):
        path.write_bytes(content)
    refused(path, word)


def test_mutations_of_a_pickle_never_escape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, since the machine is inert: it answers with a plan or a fault whatever the opcodes are."""
    generator, path = random.Random(0), tmp_path / "x.pkl"
    with zipfile.ZipFile(saved(tmp_path / "x.pt", training())) as file:
        content = file.read("x/data.pkl")
    answers = {"plan": 0, "fault": 0}
    for _ in range(400):
        mutated = bytearray(content)
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(mutated))
            mutated[at : at + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
        path.write_bytes(mutated)
        main(str(path), "zip", "0", str(len(mutated)))
        answers["fault" if "fault" in json.loads(capsys.readouterr().out) else "plan"] += 1
    assert answers["plan"] > 40 and answers["fault"] > 40


# The child process


def child(code: str, **limits: Any) -> bytes:
    return run_python(["-I", "-S", "-c", code], "run", Limits(**{"memory": 1 << 30, "seconds": 20.0, **limits}))


def test_the_child_knows_only_the_standard_library() -> None:
    code = PROGRAM.rpartition("main(*sys.argv")[0] + "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(child(code).decode().split())
    assert "pickle_plan" in loaded and loaded - set(sys.stdlib_module_names) <= {"pickle_plan", "__main__"}
    assert not loaded & {"torch", "numpy", "fbt_core", "subprocess", "socket"}


def test_the_child_sees_no_environment_and_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIBERSCOPE_SECRET", "x")
    assert child("import os, sys; print('FIBERSCOPE_SECRET' in os.environ, sys.stdin.read())") == b"False \n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound memory from outside")
def test_memory_is_bounded() -> None:
    code = "import time; time.sleep(0.2); x = bytearray(400 << 20); print('had it')"
    assert child(code) == b"had it\n"
    with pytest.raises(CheckpointError, match="more than 209715200 bytes of memory"):
        child(code, memory=200 << 20)


@pytest.mark.parametrize("code", ["import time\ntime.sleep(60)", "while True: pass"])
def test_time_is_bounded(code: str) -> None:
    start = time.monotonic()
    with pytest.raises(CheckpointError, match="takes more than 1 seconds to run"):
        child(code, seconds=1.0)
    assert time.monotonic() - start < 20


def test_output_is_bounded() -> None:
    with pytest.raises(CheckpointError, match="more than 1000 bytes of output"):
        child("while True: print('x' * 999)", output=1000)
    assert len(child("import sys; sys.stdout.write('x' * 1000)", output=1000)) == 1000


def test_a_failure_is_told_in_its_last_line_cut_and_quoted() -> None:
    with pytest.raises(CheckpointError, match=r"could not run \(exit 1, .*<b>"):
        child("raise SystemExit('<b>' * 5000)")


def test_grandchildren_end_with_the_child(tmp_path: Path) -> None:
    note = tmp_path / "note"
    grandchild = f"import time; time.sleep(3); open({str(note)!r}, 'w')"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(60)"
    with pytest.raises(CheckpointError):
        child(code, seconds=1.0)
    time.sleep(3.5)
    assert not note.exists()


def test_a_plan_is_for_reading_only(tmp_path: Path) -> None:
    before = io.BytesIO(saved(tmp_path / "x.pt", training()).read_bytes()).getvalue()
    everything(tmp_path / "x.pt")
    assert (tmp_path / "x.pt").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["x.pt"]
