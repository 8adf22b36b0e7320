"""Thousands of seeded mutations of a good file of each format: opened, or refused by our own error, and nothing else.

They run in a warm process with a limit of memory and a watchdog. The pickles' interpreter is called in that process for
the mass of mutations, and through its child process for some.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.corpus import archive_files, folder_writers, gguf_files, pickle_writers, safetensors_files
from tests.corpus.mutations import MUTATIONS, mutant
from tests.corpus.process import Process

MOST_GROWTH = 300 << 20
"""Bytes that a whole batch may add to the process at its peak."""


def _pickle_of(path: Path) -> None:
    """The pickle within a torch zip, alone."""
    pickle_writers.owned(pickle_writers.zipped)(path)
    with zipfile.ZipFile(path) as file:
        raw = next(file.read(name) for name in file.namelist() if name.endswith("data.pkl"))
    path.write_bytes(raw)


@dataclass(frozen=True)
class Batch:
    """``count`` mutants of what ``write`` writes, mutated mostly within the first ``head`` bytes. ``part`` is the file
    of a folder that is mutated; ``header`` keeps the length of a safetensors header true; ``seconds`` of the processor
    bound one mutant: most take milliseconds, and those through a child process 0.1.
    """

    write: Callable[[Path], object]
    count: int
    routes: tuple[str, ...] = ("load",)
    head: int = 1 << 20
    part: str = ""
    header: bool = False
    seconds: float = 3.0


BOTH = ("inspect", "load")
GPT2, LLAMA = folder_writers.folder("gpt2"), folder_writers.folder("llama")
SHARDED = folder_writers.folder("llama", folder_writers.sharded)

BATCHES: dict[str, Batch] = {
    "native.safetensors": Batch(safetensors_files.native(), 700, BOTH, head=3000),
    "native-header.safetensors": Batch(safetensors_files.native(), 1000, BOTH, head=0, header=True),
    "weights.safetensors": Batch(safetensors_files.saved(safetensors_files.state()), 700, BOTH, head=400),
    "zip-plan.pt": Batch(_pickle_of, 2600, ("plan zip",)),
    "legacy-plan.pt": Batch(pickle_writers.legacy(safetensors_files.state()), 1500, ("plan legacy",), head=800),
    "legacy-objects-plan.pt": Batch(pickle_writers.owned(pickle_writers.legacy), 1500, ("plan legacy",), head=2500),
    "zip.pt": Batch(pickle_writers.zipped(safetensors_files.state()), 120, BOTH, head=1200),
    "legacy.pt": Batch(pickle_writers.legacy(safetensors_files.state()), 70, BOTH, head=800),
    "legacy-objects.pt": Batch(pickle_writers.owned(pickle_writers.legacy), 50, BOTH, head=2500),
    "good.gguf": Batch(gguf_files.good, 500, ("inspect",), head=3000),
    "loaded.gguf": Batch(gguf_files.good, 3, ("load",), head=3000, seconds=60.0),
    "folder.zip": Batch(archive_files.zipped(), 100, BOTH, head=1500),
    "folder-deflated.zip": Batch(archive_files.zipped(method=zipfile.ZIP_DEFLATED), 100, BOTH, head=1500),
    "folder.tar": Batch(archive_files.tarred(), 100, BOTH, head=1500),
    "folder.tar.gz": Batch(archive_files.tarred(mode="gz"), 100, BOTH, head=1500),
    "weights-of-a-folder": Batch(GPT2, 200, BOTH, head=1500, part="model.safetensors"),
    "config-gpt2": Batch(GPT2, 300, BOTH, part="config.json"),
    "config-llama": Batch(LLAMA, 300, BOTH, part="config.json"),
    "tokenizer": Batch(GPT2, 120, ("load",), part="tokenizer.json"),
    "adapter": Batch(folder_writers.adapter(), 200, BOTH, part="adapter_config.json"),
    "adapter-weights": Batch(folder_writers.adapter(), 100, BOTH, head=600, part="adapter_model.safetensors"),
    "index": Batch(SHARDED, 150, BOTH, part="model.safetensors.index.json"),
}  # fmt: skip


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with Process("tests.corpus.mutants", [], tmp_path_factory.mktemp("temporary")) as process:
        yield process


@pytest.mark.parametrize("name", BATCHES)
def test_only_our_own_error_escapes(name: str, process: Process, tmp_path: Path) -> None:
    wanted, target = BATCHES[name], tmp_path / name
    wanted.write(target)
    file = target / wanted.part if wanted.part else target
    head = wanted.head or 8 + int.from_bytes(file.read_bytes()[:8], "little")
    question = {"file": str(file), "target": str(target), "routes": wanted.routes, "count": wanted.count,
                "head": head, "seed": name, "header": wanted.header}  # fmt: skip
    told = process.ask(question, seconds=280)
    assert "died" not in told, told
    assert all(told["good"]), "the good file does not open"
    assert told["escaped"] == [], "\n".join(told["escaped"])
    assert told["opened"] + told["refused"] == wanted.count * len(wanted.routes)
    assert told["refused"] > 0, "mutations that nobody notices"
    assert told["slowest"] < wanted.seconds, told["of"]
    assert told["growth"] < MOST_GROWTH, told["growth"]


def test_there_are_enough_mutations() -> None:
    assert sum(batch.count for batch in BATCHES.values()) >= 10_000


def test_mutations_are_seeded_and_all_used() -> None:
    good = bytes(range(256)) * 8 + b'{"width": 32, "heads": [4, true], "name": "x"}'
    mutants = [mutant(good, str(seed), len(good)) for seed in range(300)]
    assert mutants == [mutant(good, str(seed), len(good)) for seed in range(300)]
    assert good not in mutants and len(set(mutants)) > 290
    assert {len(raw) < len(good) for raw in mutants} == {True, False} and len(MUTATIONS) == 7


def test_the_watchdog_and_the_tally_work(process: Process, tmp_path: Path) -> None:
    """A reader that raises for every seventh length is found out, one that hangs is ended."""
    path = tmp_path / "good"
    path.write_bytes(b"x" * 200)
    question = {"file": str(path), "target": str(path), "routes": ["stumble"], "count": 200, "head": 200,
                "seed": "0", "header": False, "patience": 1.0}  # fmt: skip
    told = process.ask(question)
    assert told["escaped"] and "KeyError" in told["escaped"][0] and told["opened"] > 100
    path.write_bytes(b"hang" * 50)
    told = process.ask(question)
    assert "_stumble" in told["died"] and "Timeout" in told["died"]


WRITING = """
import sys, threading, os
from pathlib import Path
path, target, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
good, over = path.read_bytes(), threading.Event()

def rewrite():
    while not over.is_set():
        with path.open("r+b") as file:  # the same inode, as a training run that saves in place
            file.truncate(len(good) // 3)
            file.truncate(0)
            file.write(good[: len(good) // 2])
            file.flush()
            file.write(good[len(good) // 2 :])

"""
LOADING = """
from fbt_core.checkpoints import CheckpointError, inspect, load
told = {"opened": 0, "refused": 0}
load(target)
thread = threading.Thread(target=rewrite)
thread.start()
for _ in range(rounds):
    try:
        total = sum(float(tensor.double().sum()) for tensor in load(target).tensors.values())
        told["opened"] += 1
    except CheckpointError:
        told["refused"] += 1
    inspect(target)
over.set()
thread.join()
print(told["opened"] + told["refused"], told["refused"] > 0)
"""
MAPPED = """
import mmap
thread = threading.Thread(target=rewrite, daemon=True)
with path.open("rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
thread.start()
for _ in range(10_000):
    held[::4096]
"""


def rewritten_while(code: str, path: Path, target: Path, rounds: int, root: Path) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-c", WRITING + code, str(path), str(target), str(rounds)]
    return subprocess.run(whole, cwd=root, capture_output=True, text=True, timeout=280)


def large(factor: int = 1 << 18) -> dict[str, object]:
    """A state dict of several megabytes, so that a load takes long enough to be disturbed."""
    import torch

    return {f"layer.{i}.weight": torch.ones(factor) for i in range(4)}


LIVE: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "live.safetensors": (safetensors_files.saved(large()), "", 60),
    "live.pt": (pickle_writers.zipped(large()), "", 12),
    "live-legacy.pt": (pickle_writers.legacy(large()), "", 12),
    "live.gguf": (gguf_files.good, "", 3),
    "live-folder": (GPT2, "model.safetensors", 30),
    "live.zip": (archive_files.zipped(), "", 30),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVE)
def test_a_file_that_is_being_overwritten_never_ends_the_process(name: str, tmp_path: Path, root: Path) -> None:
    write, part, rounds = LIVE[name]
    write(tmp_path / name)
    path = tmp_path / name / part if part else tmp_path / name
    ran = rewritten_while(LOADING, path, tmp_path / name, rounds, root)
    assert ran.returncode == 0, (ran.returncode, ran.stderr[-2000:])
    assert ran.stdout.split()[0] == str(rounds), ran.stdout


def test_a_mapped_file_would_have_ended_it(tmp_path: Path, root: Path) -> None:
    """The oracle of the test above: the same writer, and a reader that maps the file."""
    path = tmp_path / "live.safetensors"
    safetensors_files.saved(large())(path)
    assert rewritten_while(MAPPED, path, path, 1, root).returncode == -signal.SIGBUS
