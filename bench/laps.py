"""Ways of doing one thing, timed in turn, round after round: a busy machine slows all alike, so their ratios hold."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

Laps = dict[str, list[float]]
"""Seconds of each way, round by round."""


def in_turn(
    ways: dict[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 1,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> Laps:
    """Seconds of every way in each of ``rounds`` rounds, after ``warm_up`` rounds that are not counted.

    The queue of a ``cuda`` device is drained before and after each call. ``time.process_time`` for ``clock`` counts
    this process's own work on the CPU, which other programs disturb less.
    """
    for _ in range(warm_up):
        for way in ways.values():
            way()
    laps: Laps = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            laps[name].append(seconds(way, device, clock))
    return laps


def seconds(way: Callable[[], object], device: str = "cpu", clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, by ``clock``."""
    wait = _drain(device)
    wait()
    start = clock()
    way()
    wait()
    return clock() - start


def _drain(device: str) -> Callable[[], None]:
    if not device.startswith("cuda"):
        return lambda: None
    import torch  # only here: a bench of browsers and servers needs none

    return torch.cuda.synchronize


def ratio(laps: Laps, mine: str, theirs: str) -> list[float]:
    """Each round's own ratio of seconds: what both suffered alike cancels."""
    return [one / other for one, other in zip(laps[mine], laps[theirs], strict=True)]


def spread(values: list[float]) -> str:
    """Median (least to most), three digits."""
    return f"{_short(statistics.median(values))} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def device_bytes(way: Callable[[], object]) -> int:
    """The peak of what torch had allocated on the CUDA device during one call, above what it had before."""
    import torch

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way()
    return torch.cuda.max_memory_allocated() - before


def machine(device: str = "cpu") -> str:
    """What the numbers were measured on: processor and threads, torch, Python, system."""
    import torch

    name = _cpu() + f", {torch.get_num_threads()} torch threads"
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    return f"{name}; torch {torch.__version__}; Python {platform.python_version()}; {platform.system()}"


def _cpu() -> str:
    """The CPU's model name where Linux tells it, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
