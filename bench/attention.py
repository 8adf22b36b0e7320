"""``python -m bench.attention``: what exact heterogeneous attention costs, beside torch's own standard attention.

Three ways are timed in turn, round after round, so that a busy machine slows all of them alike, and each ratio is the
median of the rounds' own ratios. Memory is the peak that torch's allocator held above the inputs during one call.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler reads it when torch is imported, and is chatty otherwise

import torch
import torch.nn.functional as F
import typer
from torch.profiler import ProfilerActivity, profile

from fbt_core.attention.factored import dictionary_attention, features
from fbt_core.attention.scores import Factors
from fbt_core.attention.streamed import streamed_attention
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric

HEADS, DIM, RANK, ATOMS = 8, 64, 4, 32
WARM_UP = 2

Attention = Callable[[], torch.Tensor]
Row = dict[str, float]


def inputs(length: int, device: str, dictionary: bool) -> Factors:
    """Random causal factors of one sequence: B = 1, H = 8, d = 64, E||U_t||_F^2 = 4 as in a trained model."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    q, k, v = (normal(1, HEADS, length, DIM) for _ in range(3))
    if dictionary:
        atoms = normal(HEADS, DIM, ATOMS) / math.sqrt(DIM)
        metric = DictionaryMetric.of(atoms, normal(1, HEADS, length, ATOMS).square() * 4 / ATOMS)
    else:
        metric = LowRankMetric(normal(1, HEADS, length, DIM, RANK) * math.sqrt(4 / (DIM * RANK)))
    tau = torch.full((HEADS,), 2 * math.sqrt(DIM), device=device)
    return Factors(q, k, v, metric, tau, 0.05 * metric.trace, alpha=1.0, causal=True)


def contenders(length: int, device: str) -> dict[str, Attention]:
    """The three ways, ready to call. Standard attention reads the same q, k, v as the exact heterogeneous one."""
    full, shared = inputs(length, device, dictionary=False), inputs(length, device, dictionary=True)
    return {
        "sdpa": lambda: F.scaled_dot_product_attention(full.q, full.k, full.v, is_causal=True),
        "exact": lambda: streamed_attention(full, "riemannian"),
        "dictionary": lambda: dictionary_attention(shared),
    }


def seconds(attend: Attention, device: str) -> float:
    """Wall-clock seconds of one call, the device's queue drained before and after."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    attend()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def extra_bytes(attend: Attention, device: str) -> int:
    """The peak of allocated bytes above those before the call, the output included.

    On the CPU by the allocator's own record of every allocation (scratch space inside the BLAS is not in it); a
    profile of one call, read back from its trace.
    """
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        attend()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        attend()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        record.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = sorted((e for e in events if e["name"] == "[memory]"), key=lambda e: e["ts"])
    held = peak = 0
    for event in memory:
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def measure(length: int, device: str, rounds: int) -> Row:
    """One row of the table: times in milliseconds, ratios to standard attention, memory in megabytes (10^6 bytes)."""
    ways = contenders(length, device)
    for _ in range(WARM_UP):
        for attend in ways.values():
            attend()
    laps: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, attend in ways.items():
            laps[name].append(seconds(attend, device))
    row: Row = {"L": length, "r": RANK, "m": ATOMS}
    for name, times in laps.items():
        row[f"{name}_ms"] = 1e3 * statistics.median(times)
        row[f"{name}_extra_mb"] = extra_bytes(ways[name], device) / 1e6
    for name in ("exact", "dictionary"):
        ratios = [time / standard for time, standard in zip(laps[name], laps["sdpa"], strict=True)]
        row[f"{name}_ratio"] = statistics.median(ratios)
    return row


def floors() -> dict[str, float]:
    """The ratios of matrix products alone: what no implementation in this form can beat (docs/mathematics.md)."""
    width = features(inputs(2, "cpu", dictionary=True))[0].shape[-1]
    return {
        "exact": 1.0 + RANK,
        "dictionary": (width + DIM) / (2 * DIM),
        "dictionary, V padded to the features' width": width / DIM,
    }


def machine(device: str) -> str:
    """What the numbers were measured on."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"{_cpu()}, {torch.get_num_threads()} torch threads"
    return f"{name}; torch {torch.__version__}; Python {platform.python_version()}; {platform.system()}"


def _cpu() -> str:
    """The CPU's model name where Linux tells it, else the architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(rows: list[Row]) -> str:
    """The rows as text, the floors above them."""
    lines = [
        f"B=1, H={HEADS}, d={DIM}, r={RANK}, m={ATOMS}, causal, float32; ratios to SDPA in the same round, medians",
        *(f"floor of the ratio by matrix products, {name}: {value:.2f}" for name, value in floors().items()),
        "",
        "    L |  SDPA ms | exact ms   ratio | dict. ms   ratio | extra MB:  SDPA    exact    dict.",
    ]
    lines += [
        f"{row['L']:5.0f} | {row['sdpa_ms']:8.2f} | {row['exact_ms']:8.2f} {row['exact_ratio']:7.2f} "
        f"| {row['dictionary_ms']:8.2f} {row['dictionary_ratio']:7.2f} "
        f"| {row['sdpa_extra_mb']:15.1f} {row['exact_extra_mb']:8.1f} {row['dictionary_extra_mb']:8.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, separated by commas.")] = "512,1024,2048",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the three ways in turn.")] = 15,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Time SDPA, exact heterogeneous attention and dictionary attention in one run, and their peak extra memory."""
    with torch.no_grad():
        rows = [measure(int(length), device, rounds) for length in lengths.split(",")]
        if as_json:
            typer.echo(json.dumps({"rows": rows, "floors": floors(), "machine": machine(device)}))
        else:
            typer.echo(f"{table(rows)}\n\n{machine(device)}")


if __name__ == "__main__":
    typer.run(main)
