"""``python -m bench.geometry``: what the scalar curvature of a MetricNet's field costs, three ways in one run.

``planes``: the mean over random planes, by directional derivatives. ``contracted``: exactly, by the d (r + 1) second
derivatives that the sum over all planes needs. ``tensor``: exactly, by the full Riemann tensor, d^4 numbers a token.

The three are timed in turn, round after round, so that a busy machine slows all alike; a ratio is the median of the
rounds' own. Memory, each way in a process of its own: the peak of one call above what was loaded, by the kernel's count
(VmHWM), or by torch's on a GPU. The field is that of one head, width d, of an untrained model of 4 heads and rank 4, at
residuals of random tokens.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import torch
import typer

from bench.laps import device_bytes, machine, seconds, spread
from bench.trace import kilobytes
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.curvature import riemann_frame
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.model_field import field_points, model_field
from fbt_core.geometry.planes import CHUNK_NUMBERS, in_chunks, scalar_exact, scalar_sampled
from fbt_core.model.fiber_bundle import FiberBundleTransformer

HEADS, RANK, VOCABULARY = 4, 4, 512
DIMS = (16, 32, 64)

FEW = 4

Way = Callable[[torch.Tensor], torch.Tensor]


def field(dim: int, tokens: int, device: str) -> tuple[MetricFunction, torch.Tensor]:
    """The metric function of a layer's first head, and where the tokens are."""
    config = FiberBundleConfig(
        vocab_size=VOCABULARY, width=HEADS * dim, heads=HEADS, layers=1, rank=RANK, context=tokens
    )
    model = FiberBundleTransformer(config, seed=0).to(device)
    generator = torch.Generator().manual_seed(0)
    trace = model.trace(torch.randint(VOCABULARY, (tokens,), generator=generator).to(device))
    return model_field(model, trace, 0, 0), field_points(trace, 0)


def ways(g: MetricFunction, planes: int) -> dict[str, Way]:
    """Residuals (token, D) -> scalar curvatures (token,)."""

    def tensor(x: torch.Tensor) -> torch.Tensor:
        return in_chunks(lambda y: torch.einsum("ijji->", riemann_frame(g, y, g.dim)[0]), g.dim**4, x)

    return {
        "planes": lambda x: scalar_sampled(g, x, planes)[0],
        "contracted": lambda x: scalar_exact(g, x)[0],
        "tensor": tensor,
    }


def measure(dim: int, tokens: int, planes: int, device: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, round by round."""
    g, x = field(dim, tokens, device)
    calls = ways(g, planes)
    exact, full, _ = (calls[name](x[:2]) for name in ("contracted", "tensor", "planes"))  # once, to warm up
    assert torch.allclose(exact, full, rtol=1e-8, atol=1e-8 * float(exact.abs().max()))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, way in calls.items():
            some = x[: timed(dim, name, tokens)]
            lap = seconds(lambda way=way, some=some: way(some), device)
            found[name].append(lap * tokens / len(some))
    return found


def timed(dim: int, name: str, tokens: int) -> int:
    """How many tokens are timed: of a tensor that is made for one token at a time, a few tell the time of all."""
    alone = name == "tensor" and dim**4 >= CHUNK_NUMBERS
    return min(tokens, FEW) if alone else tokens


def megabytes(dim: int, name: str, tokens: int, planes: int, device: str) -> float:
    """In this process: the peak of one call above what was there before it, in megabytes (10^6 bytes)."""
    g, x = field(dim, tokens, device)
    way = ways(g, planes)[name]
    small, few = field(4, 1, device)
    ways(small, 2)[name](
        few
    )  # what torch loads at first use is not counted, and leaves no room behind to be used again
    if device != "cpu":
        return device_bytes(lambda: way(x)) / 1e6
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew
    before = kilobytes("VmRSS")
    way(x[: timed(dim, name, tokens)])
    return (kilobytes("VmHWM") - before) * 1024 / 1e6


def memory_of(dim: int, name: str, tokens: int, planes: int, device: str) -> float:
    """The same, in another process."""
    command = [sys.executable, "-m", "bench.geometry", "--tokens", str(tokens), "--planes", str(planes)]
    command += ["--device", device, "--only", f"{name}:{dim}"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def growth(rows: dict[int, dict[str, list[float]]], name: str) -> str:
    """The exponent p of cost ~ d^p between each d and the next."""
    exponents = [
        math.log(statistics.median(after[name]) / statistics.median(before[name])) / math.log(large / small)
        for (small, before), (large, after) in pairwise(rows.items())
    ]
    return ", ".join(f"{exponent:.1f}" for exponent in exponents)


def main(
    tokens: int = 128,
    planes: int = 256,
    rounds: int = 2,
    device: str = "cpu",
    dims: Annotated[str, typer.Option(help="Head widths, by commas.")] = ",".join(map(str, DIMS)),
    only: Annotated[str, typer.Option(help="print the megabytes of one way, such as planes:32")] = "",
) -> None:
    """Print one table."""
    if only:
        name, _, dim = only.partition(":")
        print(megabytes(int(dim), name, tokens, planes, device))
        return
    print(f"scalar curvature of {tokens} tokens, {planes} planes, rank {RANK}, residual width {HEADS} d, float64")
    print(f"{rounds} rounds: median seconds (least to most)\n")
    print(f"{'d':>4}  {'planes':26}{'contracted':26}{'tensor':26}{'tensor / planes':18}tensor / contracted")
    rows = {}
    for dim in map(int, dims.split(",")):
        row = rows[dim] = measure(dim, tokens, planes, device, rounds)
        cells = "".join(f"{spread(row[name]):26}" for name in ("planes", "contracted", "tensor"))
        ratios = [
            statistics.median(full / other for full, other in zip(row["tensor"], row[name], strict=True))
            for name in ("planes", "contracted")
        ]
        of = timed(dim, "tensor", tokens)
        scaled = f"   tensor: {of} tokens, times {tokens / of:g}" if of < tokens else ""
        print(f"{dim:>4}  {cells}{ratios[0]:<18.2f}{ratios[1]:.2f}{scaled}", flush=True)
    names = ("planes", "contracted", "tensor")
    print("\ncost grows as d^p, p from each d to the next: " + "; ".join(f"{n} {growth(rows, n)}" for n in names))
    print("\npeak memory of one call, MB")
    for dim in rows:
        cells = "".join(f"{memory_of(dim, name, tokens, planes, device):<26.4g}" for name in names)
        print(f"{dim:>4}  {cells}", flush=True)
    print(f"\n{machine(device)}")


if __name__ == "__main__":
    typer.run(main)
