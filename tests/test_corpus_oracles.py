"""The corpus is as bad as it says: each family, given to a trusting reader in a process of its own, does its harm.

Without these a file that was written wrongly would be "refused" for ever, and nobody would learn why.
"""

from __future__ import annotations

import io
import resource
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path

import pytest

from tests.corpus import CANARY, CASES, write_foreign
from tests.corpus.pickle_writers import HASHED

TRUSTING = "import sys, torch; torch.load(sys.argv[1], weights_only=False)"
CAREFUL = "import sys, torch; print(torch.load(sys.argv[1], weights_only=True))"
UNPICKLING = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
LEAST = 3 << 30
"""Bytes of address space: torch fits, the bombs do not."""


def written(name: str, folder: Path) -> Path:
    CASES[name].write(folder / name)
    return folder / name


def run(
    code: str, path: Path, root: Path, memory: int = 0, foreign: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The code with the path as its argument, in the file's folder."""
    environment = {"PYTHONPATH": f"{root}:{foreign or root}", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                   "HOME": str(path.parent), "PATH": "/usr/bin:/bin"}  # fmt: skip
    limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
    return subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=path.parent, env=environment, preexec_fn=limit,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["evil-zip.pt", "evil-legacy.pt", "evil-beside-weights.pt"])
def test_torch_would_have_run_it(name: str, tmp_path: Path, root: Path) -> None:
    path = written(name, tmp_path)
    run(TRUSTING, path, root)
    assert (tmp_path / CANARY).exists()


@pytest.mark.parametrize(
    "name",
    ["evil-bare.pkl", "evil-protocol-0.bin", "evil-protocol-5.ckpt", "evil-inst.pkl", "evil-obj.pkl",
     "evil-getattr.pkl", "evil-dotted.pkl"],
)  # fmt: skip
def test_pickle_would_have_run_it(name: str, tmp_path: Path, root: Path) -> None:
    path = written(name, tmp_path)
    run(UNPICKLING, path, root)
    assert (tmp_path / CANARY).exists()


@pytest.mark.parametrize("name", ["module-foreign.pt", "names-a-foreign-class.pkl"])
def test_a_class_would_have_been_imported(name: str, tmp_path: Path, root: Path) -> None:
    path = written(name, tmp_path)
    write_foreign(tmp_path / "foreign", tmp_path)
    run(UNPICKLING if name.endswith("pkl") else TRUSTING, path, root, foreign=tmp_path / "foreign")
    assert (tmp_path / CANARY).exists()


@pytest.mark.parametrize("name", ["bytearray-6e9.pt", "bytearray-6e9.pkl", "tensor-3e9.pt"])
def test_memory_would_have_been_taken(name: str, tmp_path: Path, root: Path) -> None:
    path = written(name, tmp_path)
    code = UNPICKLING if name in ("bytearray-6e9.pkl", "tensor-3e9.pt") else CAREFUL
    ran = run("import torch\n" + code, path, root, memory=LEAST)
    assert ran.returncode and ("MemoryError" in ran.stderr or "alloc" in ran.stderr), ran.stderr
    assert path.stat().st_size < 2 << 20


def test_torch_believes_a_stride_of_zero(tmp_path: Path, root: Path) -> None:
    code = "import sys, torch; print(torch.load(sys.argv[1], weights_only=True)['w'].numel())"
    assert run(code, written("stride-0.pt", tmp_path), root).stdout.strip() == str(200_000**2)


def test_a_hash_would_have_taken_for_ever(tmp_path: Path, root: Path) -> None:
    """With 22 levels in place of 60 it takes a second or so, and each level doubles it."""
    path = tmp_path / "short.pkl"
    code = "import sys, time, pickle; s = time.process_time(); pickle.load(open(sys.argv[1], 'rb'));"
    code += "print(time.process_time() - s)"
    taken = []
    for levels in (18, 22):
        path.write_bytes(HASHED.replace(b"2\x86" * 60, b"2\x86" * levels))
        taken.append(float(run(code, path, root).stdout))
    assert taken[1] > 4 * taken[0]


def test_zip_readers_disagree_on_two_pickles(tmp_path: Path) -> None:
    with zipfile.ZipFile(written("two-pickles.pt", tmp_path)) as file:
        names = file.namelist()
    assert len(names) == len(set(names)) + 1


def test_the_library_takes_the_last_of_two_tensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    assert load_file(written("tensor-twice.safetensors", tmp_path))["w"].shape == (1,)


def test_the_deflated_record_is_whole(tmp_path: Path) -> None:
    """A sound zip for every reader: its checksum is right, so only a rule of ours can refuse it."""
    with zipfile.ZipFile(written("deflated.pt", tmp_path)) as file:
        assert file.getinfo("archive/data/0").file_size == 1 << 30
        assert file.testzip() is None


@pytest.mark.parametrize("name", ["tar-climbs.tar", "tar-link.tar", "tar-hard-link.tar", "tar-pipe.tar"])
def test_tar_would_have_written_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    with tarfile.open(written(name, tmp_path)) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.extractall(tmp_path / "inside")  # trusting, as Python 3.11 does by default
    extra = tmp_path / "inside" / "generation_config.json"
    kinds = {"tar-link.tar": extra.is_symlink, "tar-hard-link.tar": lambda: extra.stat().st_nlink == 2,
             "tar-pipe.tar": extra.is_fifo, "tar-climbs.tar": (tmp_path / CANARY).exists}  # fmt: skip
    assert kinds[name]()


@pytest.mark.parametrize(("name", "claimed"), [("zip-overlap.zip", 100 << 20), ("zip-bomb.zip", 64 << 20)])
def test_the_zips_would_have_filled_a_disk(name: str, claimed: int, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    with zipfile.ZipFile(path) as file:
        assert sum(info.file_size for info in file.infolist()) >= claimed
        if name == "zip-overlap.zip":
            assert file.testzip() is None and len(set(file.namelist())) == 100
    assert path.stat().st_size < claimed // 100


def test_the_gzip_bomb_is_a_gigabyte(tmp_path: Path) -> None:
    packer, held = zlib.decompressobj(-zlib.MAX_WBITS), 0
    raw = io.BytesIO(written("gzip-bomb.tar.gz", tmp_path).read_bytes()[10:-8])
    while piece := raw.read(1 << 12):
        while piece:
            held += len(packer.decompress(piece, 1 << 20))
            piece = packer.unconsumed_tail
    assert held > 1 << 30


def test_transformers_would_have_run_the_code(tmp_path: Path, root: Path) -> None:
    code = (
        "import sys; from transformers import AutoConfig\n"
        "AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)"
    )
    ran = run(code, written("hf-auto-map", tmp_path), root)
    assert (tmp_path / CANARY).exists(), ran.stderr


def test_padding_would_have_ended_the_process(tmp_path: Path, root: Path) -> None:
    code = "import sys, tokenizers\ntokenizers.Tokenizer.from_file(sys.argv[1] + '/tokenizer.json').encode('the')"
    assert run(code, written("tokenizer-padding", tmp_path), root, memory=LEAST).returncode < 0


def test_the_slow_regex_panics(tmp_path: Path, root: Path) -> None:
    code = (
        "import sys, tokenizers\ntokenizers.Tokenizer.from_file(sys.argv[1] + '/tokenizer.json').encode('a' * 28 + 'b')"
    )
    assert "PanicException" in run(code, written("tokenizer-slow-regex", tmp_path), root).stderr


def test_the_foreign_module_leaves_its_mark(tmp_path: Path, root: Path) -> None:
    write_foreign(tmp_path / "foreign", tmp_path)
    assert not (tmp_path / CANARY).exists()
    run("import fiberscope_corpus_foreign", tmp_path / "x", root, foreign=tmp_path / "foreign")
    assert (tmp_path / CANARY).exists()
