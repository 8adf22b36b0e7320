"""``inspect``: what files are, from headers alone, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.checkpoints import inspect, load, memory
from tests.architectures import library_model

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "gpt2"
    library_model("gpt2").save_pretrained(path)
    return path


def test_a_folder_is_described_and_nothing_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fbt_core.checkpoints.weights.read_tensors", lambda *_: pytest.fail("a tensor was read"))
    found, model = inspect(folder), library_model("gpt2")
    assert found.ok and found.format == "safetensors" and found.architecture == "GPT2LMHeadModel"
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.tied == ("lm_head.weight",) and found.dtypes == {"F32": found.tensors}
    assert found.missing == () and found.can and found.needed_bytes >= 4 * found.parameters
    assert found.bytes == (folder / "model.safetensors").stat().st_size
    assert json.loads(json.dumps(found.to_dict()))["architecture"] == "GPT2LMHeadModel"


def test_missing_and_unexpected_names_are_listed(folder: Path, tmp_path: Path) -> None:
    state = load(folder).tensors | {"strange.weight": torch.ones(2)}
    save_file({n: t.contiguous() for n, t in state.items() if "ln_f" not in n}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    found = inspect(tmp_path)
    assert not found.ok and found.missing == ("transformer.ln_f.bias", "transformer.ln_f.weight")
    assert found.unexpected == ("strange.weight",) and "ln_f" in found.message and found.can == ()


def test_state_dicts_to_choose_from_are_listed(tmp_path: Path) -> None:
    state = {"a.weight": torch.ones(2, 2)}
    torch.save({"model": state, "ema": state, "epoch": 3}, tmp_path / "run.pt")
    found = inspect(tmp_path / "run.pt")
    assert found.ok and found.parts == ("model", "ema") and "'ema'" in found.message
    assert inspect(tmp_path / "run.pt", part="ema").tensors == 1


def test_a_model_larger_than_the_memory_is_not_usable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.ENVIRONMENT, "1K")
    found = inspect(folder)
    assert not found.ok and "memory" in found.message and found.available_bytes == 1024 < found.needed_bytes


def test_the_command_says_a_line_a_path_and_ends_with_2(folder: Path, assets: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad\nname\x1b[31m.bin"
    bad.write_bytes(b"<html>not found</html>")
    done = RUNNER.invoke(app, ["inspect", str(folder), str(assets / "l2.safetensors"), str(bad), str(tmp_path / "no")])
    lines = done.stdout.splitlines()
    assert done.exit_code == 2 and len(lines) == 4 and "\x1b" not in done.stdout
    assert ": ok: " in lines[0] and ": ok: " in lines[1] and "web page" in lines[2] and "no file at" in lines[3]


def test_the_command_prints_a_list_of_objects(folder: Path, assets: Path) -> None:
    done = RUNNER.invoke(app, ["inspect", "--json", str(folder), str(assets / "l2.safetensors")])
    rows = json.loads(done.stdout)
    assert done.exit_code == 0 and [row["ok"] for row in rows] == [True, True]
    assert {"path", "ok", "format", "message", "tensors", "parameters"} <= rows[0].keys()


def test_our_own_format_needs_no_library(assets: Path, root: Path) -> None:
    """The transformers library takes seconds to import: only a config.json of one of its models may ask for it."""
    code = (
        "import sys; from fbt_core.checkpoints import inspect, load; from pathlib import Path;"
        f"p = Path({str(assets / 'l2.safetensors')!r}); assert inspect(p).ok and load(p).tensors;"
        "assert not {'transformers', 'accelerate', 'gguf', 'huggingface_hub'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "count"), [("10", 10), ("2K", 2048), ("3mib", 3 << 20), ("1.5G", None), ("-1", None)])
def test_a_cap_on_memory_is_bytes_or_a_clear_error(text: str, count: int | None) -> None:
    if count is None:
        with pytest.raises(ValueError, match="expected bytes"):
            memory.parsed(text)
    else:
        assert memory.parsed(text) == count
