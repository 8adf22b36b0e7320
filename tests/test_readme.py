"""The README keeps its word: its notebook code runs, the files it names exist, its commands are the tested ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest


def blocks(root: Path, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def named_files(tree: str) -> Iterator[str]:
    """The paths that the README's tree names; an indented line stands inside the last unindented folder."""
    folder = ""
    for line in tree.splitlines():
        parts = re.split(r"\s{2,}", line.strip())  # two spaces end a name
        names = list(takewhile(lambda part: re.fullmatch(r"[\w./]+(\.\w+|/)", part), parts))
        if not line.startswith(" "):
            folder = names[0] if names[0].endswith("/") else ""
            yield from names
        else:
            yield from (folder + name for name in names)


def test_the_tree_names_real_files(root: Path) -> None:
    (tree,) = blocks(root, "text")
    paths = list(named_files(tree))
    assert len(paths) > 25
    assert [path for path in paths if not (root / path).exists()] == []


def test_the_tree_names_every_room(root: Path) -> None:
    (tree,) = blocks(root, "text")
    rooms = {path.name + "/" for path in root.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))}
    rooms &= {"app/", "assets/", "bench/", "docs/", "fbt_core/", "pages/", "tests/"}
    assert [room for room in rooms if not re.search(rf"^{room}", tree, re.MULTILINE)] == []


def test_the_notebook_code_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(root, "python")
    monkeypatch.chdir(root)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["rank"].shape == (len(names["trace"].layers),)
    np.testing.assert_allclose(names["map_"].sum(-1), 1.0, atol=1e-6)


def test_ci_runs_the_readmes_test_command(root: Path) -> None:
    _, test, *_ = blocks(root, "bash")
    assert test.strip() in (root / ".ci" / "run").read_text(encoding="utf-8")


def test_the_picture_exists(root: Path) -> None:
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", (root / "README.md").read_text(encoding="utf-8"))
    assert len(pictures) == 1
    assert (root / pictures[0]).read_bytes().startswith(b"\x89PNG")
