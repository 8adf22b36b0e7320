"""The first screen: what it imports, and the trace that was computed for it beforehand."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from app import stored, traces, uploads, warming
from app.kept import BUDGET
from app.line import Line, at_work
from app.request import Request
from app.run import Run
from fbt_core.checkpoints import load
from fbt_core.model import FiberBundleTransformer, build
from fbt_core.trace_file import load_trace, read_of, save_trace

LATER = ("umap", "numba", "sklearn", "transformers", "scipy", "sympy", "torch._dynamo", "torch._inductor", "accelerate")
"""What costs seconds, and only some pages or some models need."""

VISIT = """
import sys
from streamlit.testing.v1 import AppTest
screen = AppTest.from_file("streamlit_app.py", default_timeout=60).run()
assert not screen.exception and screen.header[0].value == "Overview" and screen.get("bidi_component"), screen
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""


def imported_by(script: str, root: Path, *names: str) -> set[str]:
    """Which of the names a Python process of its own has imported when the script ends."""
    command = [sys.executable, "-c", script, *names]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_the_first_screen_imports_nothing_of_other_pages(root: Path) -> None:
    found = imported_by(VISIT, root, "torch", *LATER)
    assert found == {"torch"}


def test_the_server_stands_without_torch(root: Path) -> None:
    script = "import sys, streamlit_app\nprint(*[name for name in sys.argv[1:] if name in sys.modules])"
    assert imported_by(script, root, "streamlit", "torch", "pandas") == {"streamlit"}


def test_what_derivatives_need_is_imported_after_the_first_page_and_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    line = Line()
    monkeypatch.setattr(warming, "import_module", lambda name: seen.append(f"{name} {at_work()}"))
    monkeypatch.setattr(warming, "DRAWN", drawn := threading.Event())
    monkeypatch.setattr(warming, "PAUSE", 0.0)
    monkeypatch.setattr("app.line.COMPUTING", line)
    monkeypatch.setattr("streamlit.runtime.exists", lambda: True)
    monkeypatch.setattr(warming.gc, "freeze", lambda: seen.append("set apart"))
    importing = threading.Thread(target=warming._imports, daemon=True)
    importing.start()
    importing.join(0.2)
    assert seen == ["app.frame False"]
    drawn.set()
    importing.join(30)
    assert seen[1:] == [*(f"{name} True" for name in warming.LATER), "set apart"]


def test_a_derivative_imports_nothing_more(root: Path) -> None:
    script = """
import sys
from app import warming
import torch
for name in warming.LATER:
    __import__(name)
before = set(sys.modules)
torch.func.grad(lambda x: torch.func.jvp(lambda y: (y**3).sum(), (x,), (x,))[1])(torch.ones(3))
print(*{name.split(".")[0] for name in set(sys.modules) - before})
"""
    assert imported_by(script, root) == set()


def tensors(value: Any, place: str = "trace") -> dict[str, torch.Tensor]:
    """Every tensor of a trace by its place; everything else is compared as words."""
    if isinstance(value, torch.Tensor):
        return {place: value}
    if is_dataclass(value):
        return {
            k: v for one in fields(value) for k, v in tensors(getattr(value, one.name), f"{place}.{one.name}").items()
        }
    if isinstance(value, tuple):
        return {k: v for index, item in enumerate(value) for k, v in tensors(item, f"{place}.{index}").items()}
    return {place: torch.tensor(0.0)} if value is None else {f"{place} = {value}": torch.tensor(0.0)}


def test_the_stored_trace_is_what_the_model_computes() -> None:
    run = Run()
    found = stored.stored(Request(run.a, run.text), load(uploads.path_of(run.a)))
    assert found is not None, "assets/traces is out of date: python -m app.stored writes it anew"
    checkpoint = load(uploads.path_of(run.a))
    encoding = checkpoint.tokenizer.encode(run.text)
    again = tensors(build(checkpoint).traces(torch.tensor(encoding.ids), tokens=tuple(encoding.tokens))[""])
    kept = tensors(found[""])
    assert kept.keys() == again.keys()
    for place, tensor in again.items():
        torch.testing.assert_close(kept[place], tensor, rtol=1e-4, atol=1e-5, msg=lambda why, at=place: f"{at}: {why}")


def test_it_is_small() -> None:
    assert stored.place().stat().st_size < 200_000


@pytest.mark.parametrize(
    "change", [{"text": "another"}, {"strength": 0.5}, {"reference": "demo:euclidean"}, {"device": "cuda:0"}]
)
def test_it_answers_no_other_request(change: dict[str, Any]) -> None:
    run = Run()
    checkpoint = load(uploads.path_of(run.a))
    assert stored.stored(Request(run.a, run.text), checkpoint) is not None
    assert stored.stored(replace(Request(run.a, run.text), **change), checkpoint) is None


def test_it_answers_for_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    checkpoint = load(uploads.path_of(run.a))
    other = replace(checkpoint, origin=replace(checkpoint.origin, sha256="0" * 64))
    assert stored.stored(Request(run.a, run.text), other) is None
    monkeypatch.setattr(uploads, "ASSETS", tmp_path)
    assert stored.stored(Request(run.a, run.text), checkpoint) is None


@pytest.mark.parametrize("there", [b"", b"version https://git-lfs.github.com/spec/v1\nsize 179736\n", None])
def test_without_a_whole_file_the_model_runs(
    there: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None stands for the file cut in half."""
    run, file = Run(), tmp_path / "trace.safetensors"
    whole = stored.place().read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if there is None else there)
    monkeypatch.setattr(stored, "place", lambda: file)
    assert stored.stored(Request(run.a, run.text), load(uploads.path_of(run.a))) is None
    assert "cannot be read" in caplog.text


def test_the_first_screen_builds_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was built")

    BUDGET.clear()
    monkeypatch.setattr(traces, "model", refuse)
    run = Run()
    assert traces.trace(Request(run.a, run.text)).length == 8
    with pytest.raises(AssertionError, match="was built"):
        traces.trace(Request(run.a, "the ship sings"))


def test_a_trace_comes_back_from_a_file_with_its_what_if(tmp_path: Path, assets: Path) -> None:
    model = build(load(assets / "dictionary.safetensors"))
    assert isinstance(model, FiberBundleTransformer)
    trace = model.trace(torch.tensor([1, 2, 3]), strength=0.5, tokens=("a", "</script>", "ß"))
    save_trace(tmp_path / "trace.safetensors", trace, {"text": "a ß"})
    again = load_trace(tmp_path / "trace.safetensors")
    assert (again.tokens, again.strength, again.layers[1].score) == (trace.tokens, 0.5, trace.layers[1].score)
    assert read_of(tmp_path / "trace.safetensors") == {"text": "a ß"}
    before, after = tensors(trace), tensors(again)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[place], after[place]) for place in before)


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path, assets: Path) -> None:
    trace = build(load(assets / "euclidean.safetensors")).trace(torch.tensor([1]))
    with pytest.raises(ValueError, match=r"object at trace\.adapter"):
        save_trace(tmp_path / "trace.safetensors", replace(trace, adapter=object()), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plan", ['{"type": "Path", "fields": {}}', '{"tensor": 1}', '{"tuple": []}', '"words"'])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, plan: str) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "no.safetensors", metadata={"plan": plan, "of": "{}"})
    with pytest.raises(ValueError, match="trace"):
        load_trace(tmp_path / "no.safetensors")
