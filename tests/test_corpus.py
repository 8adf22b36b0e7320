"""The hostile corpus through ``load``, ``inspect`` and the command line: each file gets what its row in the table says.

Everything is opened in a warm process of its own, with a limit of memory and a watchdog, and watched by an audit hook.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.corpus import CANARY, CASES, KINDS, write_corpus, write_foreign
from tests.corpus.process import Process

SLACK = 3.0
"""A machine whose cores are slower or shared takes so many times the processor's seconds."""

MOST_GROWTH = 400 << 20
"""Bytes that a file of this corpus may add at its peak, the transformers library's own import included."""

CHILD_BYTES = 1 << 30
"""Bytes resident in the largest child process: the interpreter, perhaps the transformers library, and the file."""

ADVICE = ("weights_only", "Traceback", 'File "', "trust_remote_code=True")
KEYS = {"path", "ok", "format", "message", "tensors", "parameters", "dtypes", "bytes", "needed_bytes",
        "available_bytes", "tied", "missing", "unexpected", "prefixes", "quantisation", "parts", "ignored", "can",
        "architecture"}  # fmt: skip

OWN_PLACE = ("evil", "auto-map", "legacy")
"""In the names of files that hold the path of their canary, or addresses of memory, and so differ at each writing."""

names = pytest.mark.parametrize("name", CASES, ids=[ascii(name)[1:-1] for name in CASES])


def written(folder: Path, root: Path) -> Path:
    """The corpus, by its own command."""
    command = [sys.executable, "-W", "error", "-m", "tests.corpus", str(folder)]
    made = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return folder


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, by its place below ``folder``."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written here, for the library that builds its models is imported already."""
    folder = tmp_path_factory.mktemp("hostile") / "corpus"
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def before(corpus: Path) -> dict[str, str]:
    """What lay in the corpus and around it before anything was opened."""
    return contents(corpus.parent)


@pytest.fixture(scope="module")
def process(corpus: Path, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    foreign, temporary = tmp_path_factory.mktemp("foreign") / "path", tmp_path_factory.mktemp("temporary")
    write_foreign(foreign, corpus)
    with Process("tests.corpus.worker", [str(corpus)], temporary, foreign) as process:
        yield process


@pytest.fixture(scope="module")
def answers(process: Process) -> dict[str, dict[str, Any]]:
    """What came of each file, asked for once: {"load", "inspect", "events", "left"}, or {"died"}."""
    return {name: process.ask(name) for name in CASES}


def test_the_table_covers_every_kind() -> None:
    assert {case.kind for case in CASES.values()} == set(KINDS)
    assert all(case.loads or case.says or case.kind in (7, 8, 12, 15, 16, 20, 29) for case in CASES.values())


def test_the_corpus_is_the_same_at_each_writing(before: dict[str, str], tmp_path: Path, root: Path) -> None:
    """By the command, in a process whose hashes of texts have another seed."""
    again = contents(written(tmp_path / "corpus", root).parent)
    places = [name for name in before if not any(word in name for word in OWN_PLACE)]
    assert {name: again[name] for name in places} == {name: before[name] for name in places}
    assert len(places) > 400


@names
def test_what_comes_of_a_file(name: str, answers: dict[str, dict[str, Any]]) -> None:
    case, answer = CASES[name], answers[name]
    assert "died" not in answer, answer
    load = answer["load"]
    assert load["outcome"] == ("loads" if case.loads else "refused"), load["text"]
    for pattern in case.says:
        assert re.search(pattern, load["text"], re.IGNORECASE | re.DOTALL), (pattern, load["text"])
    if case.loads:
        assert load["count"] > 0 and load["plain"] and not load.get("unlike"), load
        assert load["tokens"] < 200
    else:
        assert all(part.strip() for part in load["parts"]) and len(load["text"]) < 2000, load["text"]


@names
def test_what_is_said_before_a_file_is_loaded(name: str, answers: dict[str, dict[str, Any]]) -> None:
    case, answer = CASES[name], answers[name]
    assert "died" not in answer, answer
    look = answer["inspect"]
    assert look["outcome"] == "loads", look["text"]
    assert look.keys() >= KEYS
    assert look["ok"] == (case.loads if case.inspects is None else case.inspects), look["message"]
    assert "\n" not in look["message"] and 0 < len(look["message"]) < 2000
    if not look["ok"]:
        for pattern in case.says:
            assert re.search(pattern, look["message"], re.IGNORECASE), (pattern, look["message"])


@names
def test_nothing_that_a_reader_should_not_see(name: str, answers: dict[str, dict[str, Any]]) -> None:
    """No advice to be careless, no traceback, nothing that steers a terminal or a text's direction."""
    answer = answers[name]
    assert "died" not in answer, answer
    shown = {key: value for key, value in answer["inspect"].items() if key not in ("path", "outcome")}
    for text in (answer["load"]["text"], json.dumps(shown, ensure_ascii=False)):
        assert not [word for word in ADVICE if word in text], text
        assert not re.search("[\\x00-\\x09\\x0b-\\x1f\\x7f\\u202a-\\u202e\\u2066-\\u2069]", answer["load"]["text"]), (
            text
        )


@names
def test_time_and_memory_of_a_file(name: str, answers: dict[str, dict[str, Any]]) -> None:
    answer = answers[name]
    assert "died" not in answer, answer
    for look in (answer["load"], answer["inspect"]):
        assert look["seconds"] < SLACK * CASES[name].seconds, look["seconds"]
        assert look["growth"] < MOST_GROWTH, look["growth"]
        assert look["children"] < CHILD_BYTES, look["children"]


@names
def test_nothing_else_happens(name: str, answers: dict[str, dict[str, Any]]) -> None:
    """Nothing is written elsewhere, connected to, run or imported, and no temporary file is left."""
    assert "died" not in answers[name], answers[name]
    assert answers[name]["events"] == [] and answers[name]["left"] == []


def test_no_canary_and_no_other_change(
    answers: dict[str, dict[str, Any]], corpus: Path, before: dict[str, str]
) -> None:
    assert len(answers) == len(CASES)
    assert not (corpus / CANARY).exists()
    assert contents(corpus.parent) == before


def test_the_watch_sees_what_it_should(process: Process, tmp_path: Path) -> None:
    """The oracle of the tests above: the same hook, in a process that writes, connects and imports."""
    code = (
        "import sys; from tests.corpus.worker import Watch, resident, forget_peak\n"
        "watch = Watch(sys.argv[1] + '/own', ('colorsys',))\n"
        "open(sys.argv[1] + '/stranger', 'w').close(); import os, colorsys; os.mkdir(sys.argv[1] + '/own')\n"
        "open(sys.argv[1] + '/own/file', 'w').close(); os.system('true'); before = resident('VmRSS')\n"
        "forget_peak(); held = bytes(range(256)) * (1 << 18); del held; print(resident('VmHWM') - before >> 20)\n"
        "print([event.split()[0] for event in watch.seen])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent.parent)
    growth, events = ran.stdout.splitlines()
    assert int(growth) >= 60, ran.stderr
    assert events == "['open', 'import', 'os.system']"


def command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "fbt_core", "inspect", *words]
    return subprocess.run(whole, cwd=root, capture_output=True, text=True, timeout=600)


def test_the_command_prints_one_line_a_file(corpus: Path, root: Path) -> None:
    found = sorted(str(path) for path in corpus.iterdir())
    ran = command(root, *found)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 2, ran.stderr
    assert len(lines) == len(found) == len(CASES), ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert not re.search("[\\x00-\\x08\\x0b-\\x1f\\x7f\\u202a-\\u202e]", ran.stdout), "a name steers the terminal"
    for path, line in zip(found, lines, strict=True):
        plain = Path(path).name
        assert plain in line or not plain.isprintable(), line
    strange = next(line for line in lines if "break" in line)
    assert "web page" in strange and "<b>.bin" in strange


def test_the_command_prints_json(corpus: Path, root: Path) -> None:
    picked = ["weights.safetensors", "evil-zip.pt", "hf-llama", "names.safetensors", "line\nbreak\x1b[31m\u202e<b>.bin"]
    ran = command(root, "--json", *(str(corpus / name) for name in picked))
    table = json.loads(ran.stdout)
    assert ran.returncode == 2 and len(table) == len(picked)
    assert all(row.keys() >= KEYS for row in table)
    assert [row["ok"] for row in table] == [True, False, True, True, False]
    assert [row["path"] for row in table] == [str(corpus / name) for name in picked]
    assert table[0]["tensors"] == 4 and table[0]["parameters"] == 6 * 4 + 6 + 3 * 6 + 3
    assert table[0]["dtypes"] in ({"F32": 4}, {"float32": 4}, {"F32": 51}, {"float32": 51})


def test_the_command_is_content_with_good_files(corpus: Path, root: Path) -> None:
    ran = command(root, *(str(corpus / name) for name in ("good.safetensors", "hf-gpt2", "good.pt")))
    assert ran.returncode == 0 and len(ran.stdout.splitlines()) == 3, ran.stdout + ran.stderr


def test_the_command_names_a_path_that_is_not_there(tmp_path: Path, root: Path) -> None:
    ran = command(root, str(tmp_path / "none.pt"))
    assert ran.returncode == 2 and "none.pt" in ran.stdout and "Traceback" not in ran.stderr
