"""A model that cannot run takes nothing else with it: the page says why, and the next choice works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

from app import answers, loading, traces

ENTRY = Path(__file__).parent.parent / "streamlit_app.py"


@pytest.fixture
def short_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every device but the CPU is out of memory. ``auto`` stands for a GPU: it runs here too."""
    run = traces.run

    def out_of_memory(request: Any, **more: str) -> Any:
        if request.device != "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return run(request, **more)

    monkeypatch.setattr(loading, "devices", lambda: ["cpu", "auto"])
    monkeypatch.setattr(traces, "run", out_of_memory)
    traces.traces.clear()
    yield
    traces.traces.clear()


def opened(page: str = "overview", **query: str) -> AppTest:
    test = AppTest.from_file(ENTRY, default_timeout=120)
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    return test if page == "overview" else test.switch_page(f"pages/{page}.py").run()


@pytest.mark.parametrize("page", ["overview", "attention"])
def test_out_of_memory_is_told_and_the_cpu_takes_over(page: str, short_gpu: None) -> None:
    test = opened(page, a="demo:riemannian", device="auto")
    assert not test.exception and not test.error
    assert "not enough memory" in test.main.info[0].value
    assert "2.00 GiB" in test.main.text[0].value
    next(button for button in test.main.button if button.label == "Run on the CPU").click().run()
    assert not test.exception and not test.error
    assert not any("memory" in info.value for info in test.main.info)
    assert "device" not in test.query_params
    assert test.get("bidi_component")


def test_a_device_that_is_not_there_falls_back_to_the_cpu() -> None:
    test = opened(a="demo:riemannian", device="cuda:7")
    assert not test.exception and not test.error
    assert "device" not in test.query_params


def test_memory_that_ends_while_a_figure_is_made_leaves_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate 3.00 GiB")

    monkeypatch.setattr(answers, "reading", out_of_memory)
    test = opened("depth", a="demo:riemannian")
    assert not test.exception
    assert any("not enough memory" in error.value for error in test.error)
    assert any("3.00 GiB" in text.value for text in test.main.text)
