"""``python -m bench.attention``: what exact attention costs, as a multiple of torch's own standard attention.

All ways of one length are timed in turn, round after round, so that a busy machine slows them alike; a ratio is that of
one round: of CPU seconds with one thread, else of wall-clock seconds. Metrics are of rank r, every token's own, or of m
atoms that all tokens share, their features included. The floor is the ratio of the products of d numbers that both
need, without exponentials or sums. Memory, each way in a process of its own: the peak of one call above what stood
before it, by the system's count (VmHWM).
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
import typer

from bench.laps import device_bytes, in_turn, machine, ratio, spread
from bench.trace import kilobytes
from fbt_core.attention import attend
from fbt_core.attention.fused.build import kernel
from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric

HEADS, DIM, ATOMS = 8, 64, 32
RANKS = (4, 8)
AIM = 1.25
"""The aim is 1.25 (1 + r), forward and backward alike, and 3 for a dictionary."""

NUMBERS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
PASSES = ("forward", "forward + backward")
SHORT = 1024
"""Longer texts have fewer rounds, in proportion, and shorter ones more."""

Row = dict[str, str | float | bool | list[float]]


def inputs(length: int, rank: int, causal: bool, numbers: str, device: str, batch: int = 1) -> Factors:
    """Random factors, E||U_t||_F^2 = 4 as in a trained model; rank 0 stands for the dictionary."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    q, k, v = (normal(batch, HEADS, length, DIM) for _ in range(3))
    if rank == 0:
        weights = normal(batch, HEADS, length, ATOMS).square() * 4 / ATOMS
        parts = [normal(HEADS, DIM, ATOMS) / math.sqrt(DIM), weights]
    else:
        parts = [normal(batch, HEADS, length, DIM, rank) * math.sqrt(4 / (DIM * rank))]
    q, k, v, *parts = (x.to(NUMBERS[numbers]).requires_grad_() for x in (q, k, v, *parts))
    metric = LowRankMetric(*parts) if rank else DictionaryMetric.of(*parts)
    tau = torch.full((HEADS,), 2 * math.sqrt(DIM)).to(q)
    return Factors(q, k, v, metric, tau, 0.05 * metric.trace.detach(), alpha=1.0, causal=causal)


def way(f: Factors, name: str, backward: bool) -> Callable[[], object]:
    """``sdpa`` or ``ours`` on these factors, ready to call."""

    def out() -> torch.Tensor:
        if name == "sdpa":
            return F.scaled_dot_product_attention(f.q, f.k, f.v, is_causal=f.causal)
        return attend(f, "riemannian")

    pull = torch.randn(f.v.shape, generator=torch.Generator().manual_seed(0)).to(f.v)
    wanted = [f.q, f.k, f.v]
    if name != "sdpa":
        wanted += [f.metric.atoms, f.metric.weights] if isinstance(f.metric, DictionaryMetric) else [f.metric.U]

    def forward() -> object:
        with torch.no_grad():
            return out()

    def both() -> object:
        return torch.autograd.grad(out(), wanted, pull)

    return both if backward else forward


def floor(rank: int, backward: bool, numbers: str = "float32") -> float:
    """The ratio of products: docs/mathematics.md. In half precision a dictionary's features are the wider ones."""
    if rank == 0:
        width = DIM + (4 if NUMBERS[numbers].itemsize < 4 else 3) * ATOMS
        return (4 * width + 3 * DIM) / (7 * DIM) if backward else (width + DIM) / (2 * DIM)
    return (7 + 8 * rank) / 7 if backward else 1.0 + rank


def measure(length: int, causal: bool, numbers: str, device: str, rounds: int) -> list[Row]:
    """The rows of one length."""
    factors = {rank: inputs(length, rank, causal, numbers, device) for rank in (*RANKS, 0)}
    rounds = rounds * SHORT // length if length < SHORT else max(2, rounds * SHORT // length)
    clock = time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    rows: list[Row] = []
    for title in PASSES:
        ways = {str(rank): way(f, "ours", title != "forward") for rank, f in factors.items()}
        laps = in_turn(
            {"sdpa": way(factors[RANKS[0]], "sdpa", title != "forward")} | ways, rounds, device=device, clock=clock
        )
        for rank in factors:
            aim = AIM * (1 + rank) if rank else 3.0
            rows.append(
                {"L": length, "causal": causal, "metric": f"r = {rank}" if rank else f"m = {ATOMS}", "pass": title,
                 "ratios": ratio(laps, str(rank), "sdpa"), "floor": floor(rank, title != "forward", numbers),
                 "aim": aim, "sdpa_ms": 1e3 * statistics.median(laps["sdpa"])}
            )  # fmt: skip
    return rows


def megabytes(name: str, length: int, numbers: str, device: str) -> tuple[float, float]:
    """In this process: the peaks of a forward pass, and of one with the backward pass, in megabytes (10^6 bytes)."""
    rank = int(name) if name.isdigit() else RANKS[0]
    f = inputs(length, rank, True, numbers, device)
    found = []
    for backward in (False, True):
        small = way(inputs(1024, rank, True, numbers, device), "sdpa" if name == "sdpa" else "ours", backward)
        small()  # what is loaded at first use is not counted
        call = way(f, "sdpa" if name == "sdpa" else "ours", backward)
        if device != "cpu":
            found.append(device_bytes(call) / 1e6)
            continue
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew
        before = kilobytes("VmRSS")
        kept = call()
        found.append((kilobytes("VmHWM") - before) * 1024 / 1e6)
        del kept
    return found[0], found[1]


def memory_of(name: str, length: int, numbers: str, device: str) -> list[float]:
    """The same, in another process, whose freed blocks go back to the system at once."""
    command = [sys.executable, "-m", "bench.attention", "--lengths", str(length), "--numbers", numbers]
    command += ["--device", device, "--memory-of", name]
    settings = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[Row]) -> str:
    """The ratios as text."""
    lines = [
        "    L  causal  metric  pass                ratio to SDPA: median (least to most)   floor    aim   SDPA ms"
    ]
    for row in rows:
        assert isinstance(row["ratios"], list)
        lines.append(
            f"{row['L']:5}  {'yes' if row['causal'] else 'no':6}  {row['metric']:6}  {row['pass']:18}  "
            f"{spread(row['ratios']):38} {row['floor']:6.2f} {row['aim']:6.2f} {row['sdpa_ms']:9.1f}"
        )
    return "\n".join(lines)


def memory_table(memory: dict[str, list[float]], length: int) -> str:
    """The peaks as text."""
    names = {"sdpa": "SDPA", "0": f"m = {ATOMS}"} | {str(rank): f"r = {rank}" for rank in RANKS}
    lines = [f"extra MB at L = {length}, causal: forward, forward + backward (gradients included)"]
    return "\n".join(lines + [f"{names[name]:8} {one:8.1f} {both:8.1f}" for name, (one, both) in memory.items()])


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, separated by commas.")] = "512,1024,2048,4096",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all ways in turn at 1,024 tokens.")] = 9,
    numbers: Annotated[str, typer.Option(help="float32, float64 or bfloat16.")] = "float32",
    threads: Annotated[int, typer.Option(help="Threads of torch and of the kernel.")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    memory_of_way: Annotated[str, typer.Option("--memory-of", hidden=True)] = "",
) -> None:
    """Time standard and exact attention in one run, forward and backward, and measure their memory."""
    torch.set_num_threads(threads)
    each = [int(length) for length in lengths.split(",")]
    if memory_of_way:
        typer.echo(json.dumps(megabytes(memory_of_way, each[-1], numbers, device)))
        return
    ways = {"cpu": "the compiled kernel" if kernel() else "torch alone"}
    way_of = ways.get(device, "the Triton kernel, or torch alone where its trial failed")
    rows = [row for n in each for causal in (False, True) for row in measure(n, causal, numbers, device, rounds)]
    memory = {name: memory_of(name, each[-1], numbers, device) for name in ("sdpa", *map(str, RANKS), "0")}
    if as_json:
        typer.echo(json.dumps({"rows": rows, "memory_mb": memory, "way": way_of, "machine": machine(device)}))
        return
    typer.echo(f"B=1, H={HEADS}, d={DIM}, {numbers}, {way_of}\n\n{table(rows)}\n\n{memory_table(memory, each[-1])}")
    typer.echo(f"\n{machine(device)}")


if __name__ == "__main__":
    typer.run(main)
