"""The promises of the layout: which room may import which, module names, pinned imports, what may stand in a file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RULES: dict[str, tuple[str, ...]] = {
    "fbt_core": ("streamlit", "plotly", "app", "pages", "bench", "tests", "streamlit_app"),
    "app": ("pages", "bench", "tests", "streamlit_app"),
    "app/figures": ("streamlit", "torch"),
    "pages": ("torch", "plotly", "bench", "tests", "streamlit_app"),
    "streamlit_app.py": ("torch", "plotly", "bench", "tests"),
    "bench": ("streamlit", "app", "pages", "tests", "streamlit_app"),
}
"""Room -> the packages that no file in it may import. A file inside two rooms obeys both."""

ALL_THE_SAME = {"bench": ("tests.browser", "streamlit.proto")}
"""Room -> what it may import of those: a bench starts the app and Chromium as the browser tests do, or speaks to it."""

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "types", "misc"}

INDIRECT: set[str] = set()
"""Pinned though no file of ours imports them, because a library of ours needs them."""

WITH_CUDA = {"triton"}
"""What a build of torch for CUDA brings along, in the version it fits: pinned for the tests alone."""

FOLDERS = ("app", "assets", "bench", "docs", "experiments", "fbt_core", "pages", "tests", ".ci", ".streamlit")
TEXT = {".py", ".js", ".h", ".cpp", ".css", ".html", ".toml", ".md", ".txt", ".cff", ".svg", ".json", ".csv", ""}
PROSE_HOSTS = ("arxiv.org", "doi.org", "www.apache.org", "www.w3.org")
"""Hosts that may be named in prose, as the address of a source or a licence. The program itself reaches none."""

NAMES_NOT_PLACES = ("www.w3.org", "git-lfs.github.com")
"""In code: the SVG namespace and the first line of a Git LFS pointer look like addresses, and nobody calls them."""


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """The dotted name of everything that a module imports, at any depth of it, by statement or by ``import_module``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield str(node.args[0].value)


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def modules(root: Path, room: str) -> list[Path]:
    """Every Python file of a room, which is a folder or one file."""
    place = root / room
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def violations(root: Path) -> list[str]:
    """Each import that breaks a rule, as ``file imports name``."""
    found = []
    for room, forbidden in RULES.items():
        for path in modules(root, room):
            package = ".".join(path.relative_to(root).parent.parts)
            for name in imported(ast.parse(path.read_text(encoding="utf-8")), package):
                if within(name, forbidden) and not within(name, ALL_THE_SAME.get(room, ())):
                    found.append(f"{path.relative_to(root)} imports {name}")
    return found


def text_files(root: Path) -> list[Path]:
    """Our own text: the files of the top folder and of the rooms, caches left out."""
    found = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in found if path.suffix in TEXT and path.name != ".coverage")


def foreign_hosts(text: str, prose: bool) -> list[str]:
    """Hosts of web addresses in a text, but for loopback and, in prose, the sources; a namespace is no request."""
    allowed = PROSE_HOSTS if prose else NAMES_NOT_PLACES
    hosts = re.findall(r"\b(?:https?|wss?)://([\w.-]+)", text)
    named = [host for host in hosts if "." in host and not host.startswith("127.")]  # without a dot it is no host
    return [host for host in named if host not in allowed]


def test_imports_follow_the_arrow(root: Path) -> None:
    for room in ("fbt_core", "app", "app/figures", "pages", "streamlit_app.py", "bench"):
        assert modules(root, room), f"{room} holds no module: the rule would pass unread"
    assert violations(root) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("fbt_core/trace.py", "import streamlit"),
        ("fbt_core/measures/rank.py", "import plotly.graph_objects as go"),
        ("fbt_core/measures/rank.py", "def draw():\n    from plotly import graph_objects"),
        ("fbt_core/model/block.py", "if TYPE_CHECKING:\n    from app.run import Run"),
        ("fbt_core/model/block.py", "import importlib\nst = importlib.import_module('streamlit')"),
        ("app/run.py", "from pages import depth"),
        ("app/figures/maps.py", "import torch"),
        ("app/figures/maps.py", "from streamlit import session_state"),
        ("pages/depth.py", "from torch import Tensor"),
        ("pages/depth.py", "import plotly.express"),
        ("streamlit_app.py", "import torch.nn as nn"),
        ("bench/deep/inner.py", "from ...app import cache"),
        ("bench/pages.py", "from tests import oracles"),
    ],
)
def test_the_arrow_test_can_fail(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    assert len(violations(tmp_path)) == 1, f"{source!r} in {file} went unseen"


def test_allowed_imports_pass(tmp_path: Path) -> None:
    for file, source in {
        "fbt_core/trace.py": "import torch\nfrom fbt_core.measures import rank\nimport plotlyish",
        "app/run.py": "import streamlit\nimport torch\nfrom fbt_core import trace",
        "app/figures/maps.py": "import plotly.graph_objects as go\nimport numpy",
        "pages/depth.py": "import streamlit\nfrom app import frame",
        "bench/pages.py": "from tests.browser import server\nfrom tests.browser.screen import Screen",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(source, encoding="utf-8")
    assert violations(tmp_path) == []


def test_no_vague_module_names(root: Path) -> None:
    rooms = ("fbt_core", "app", "pages", "bench", "tests")
    vague = [path for room in rooms for path in modules(root, room) if {path.stem, path.parent.name} & VAGUE_NAMES]
    assert vague == [], "say what it holds: a name that fits everything tells nothing"


def test_every_import_is_pinned(root: Path) -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        rows = [line.split(";")[0].strip().split("==") for line in lines if line and not line.startswith(("#", "-r"))]
        assert all(len(row) == 2 for row in rows), f"{name}: pin each package exactly, name==version"
        return {package.lower().replace("-", "_"): version for package, version in rows}

    run, dev, cluster, bench = (pins(f"requirements{part}.txt") for part in ("", "-dev", "-cluster", "-bench"))
    own = {"app", "fbt_core", "pages", "bench", "tests", "streamlit_app"}
    names = {"PIL": "pillow", "umap": "umap_learn"}

    def foreign(*rooms: str) -> set[str]:
        tops = {
            name.split(".")[0]
            for room in rooms
            for path in modules(root, room)
            for name in imported(ast.parse(path.read_text(encoding="utf-8")), ".".join(path.relative_to(root).parts))
        }
        siblings = {path.stem for path in modules(root, "tests")}
        return {names.get(top, top) for top in tops - own - siblings - set(sys.stdlib_module_names)} - {""}

    needed = foreign("app", "fbt_core", "pages", "streamlit_app.py") - WITH_CUDA
    assert needed - set(run) == set(cluster), "imported but in neither file, or in requirements-cluster.txt for nothing"
    assert foreign("bench") - set(run) - set(dev) - set(bench) == set(), "imported by a bench but in no file"
    assert set(run) - needed == INDIRECT, "in requirements.txt but never imported"
    assert foreign("tests") - set(run) - set(dev) == set(), "imported by a test but in neither requirements file"


def test_no_machine_paths_and_no_hosts(root: Path) -> None:
    path_of_a_machine = re.compile(r"(?<![\w.])/(?:home|Users|root|[w]ork|[f]arm|[t]mp)/\w")
    faults = []
    for path in text_files(root):
        text = path.read_text(encoding="utf-8")
        prose = path.suffix in {".md", ".cff"} or path.name == "LICENSE"
        faults += [f"{path.relative_to(root)}: {match}" for match in path_of_a_machine.findall(text)]
        faults += [f"{path.relative_to(root)}: {host}" for host in foreign_hosts(text, prose)]
        if "--index" + "-url" in text:
            faults.append(f"{path.relative_to(root)}: names a package index")
    assert faults == []


def test_the_host_check_can_fail() -> None:
    assert foreign_hosts("see " + "https:" + "//cdn.example.com/x.js", prose=True) == ["cdn.example.com"]
    assert foreign_hosts("http" + "://127.0.0.1:8501/ and http" + "://localhost:1/", prose=False) == []


@pytest.mark.parametrize("command", [["format", "--check"], ["check"]], ids=["format", "lint"])
def test_ruff(root: Path, command: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--quiet", "--no-cache", "."],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
