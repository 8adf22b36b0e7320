"""``python -m bench.gpu_attention``: exact heterogeneous attention on a GPU, beside FlashAttention through torch.

Both read the same q, k, v in bfloat16 and are timed in turn, forward alone and with the backward pass. Each ratio
stands beside the floor that products set: no kernel that makes every logit from its 1 + r products can be below it.
Backward the kernel makes each tile twice, to do without atomics: both passes ask for (9 + 10 r)/7. Where there is no
GPU, or the kernel does not pass its trial there, it says so and ends with code 2.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, NoReturn

import torch
import torch.nn.functional as F
import typer
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench import laps
from bench.attention import DIM, HEADS, floor, inputs
from fbt_core.attention.gpu import on_gpu
from fbt_core.attention.scores import Factors

BATCH = 4


@dataclass(frozen=True)
class Row:
    """One problem: the ratio of seconds to FlashAttention's, round by round, and the floor of that ratio."""

    L: int
    r: int
    causal: bool
    backward: bool
    ratios: list[float]
    floor: float
    extra_bytes: int  # peak above the inputs, the output and, with ``backward``, the gradients included
    flash_bytes: int


def flash(f: Factors) -> Tensor:
    """Standard attention by the FlashAttention kernel and no other."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(f.q, f.k, f.v, is_causal=f.causal)


def exact(f: Factors) -> Tensor:
    """The Triton kernel and no other."""
    out = on_gpu(f, "riemannian")
    if out is None:
        refuse("the kernel did not pass its trial on this device; the log above says why")
    return out


def way(attend: Callable[[Factors], Tensor], f: Factors, read: list[Tensor], backward: bool) -> Callable[[], object]:
    """One call to time."""
    if backward:
        return lambda: torch.autograd.grad(attend(f).sum(), read)

    def forward() -> Tensor:
        with torch.no_grad():
            return attend(f)

    return forward


def measure(length: int, rank: int, causal: bool, backward: bool, rounds: int) -> Row:
    """Both in turn, after a call that compiles."""
    f = inputs(length, rank, causal, "bfloat16", "cuda", BATCH)
    tokens = [f.q, f.k, f.v]
    ways = {"exact": way(exact, f, [*tokens, f.U], backward), "flash": way(flash, f, tokens, backward)}
    found = laps.in_turn(ways, rounds, warm_up=3, device="cuda")
    taken = {name: laps.device_bytes(run) for name, run in ways.items()}
    ratios = laps.ratio(found, "exact", "flash")
    return Row(length, rank, causal, backward, ratios, floor(rank, backward), taken["exact"], taken["flash"])


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [
        f"B={BATCH}, H={HEADS}, d={DIM}, bfloat16; seconds over FlashAttention's in the same round",
        "",
        "     L  r  causal  passes             ratio, median (least to most)   floor  ratio / floor  extra MB  Flash's",
    ]
    for row in rows:
        passes, over = "forward + backward" if row.backward else "forward", statistics.median(row.ratios) / row.floor
        lines.append(
            f"{row.L:6d} {row.r:2d}  {'yes' if row.causal else 'no':6}  {passes:18} {laps.spread(row.ratios):>29}"
            f" {row.floor:7.2f} {over:14.2f} {row.extra_bytes / 1e6:9.0f} {row.flash_bytes / 1e6:8.0f}"
        )
    return "\n".join(lines)


def refuse(reason: str) -> NoReturn:
    """Say why nothing was measured, and end with code 2."""
    typer.echo(f"Nothing was measured: {reason}.", err=True)
    raise typer.Exit(2)


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, separated by commas.")] = "1024,4096",
    ranks: Annotated[str, typer.Option(help="Ranks, separated by commas; at most 8.")] = "4,8",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the two ways in turn.")] = 20,
) -> None:
    """Time the Triton kernel against FlashAttention, as a ratio to the floor that arithmetic sets."""
    if not torch.cuda.is_available():
        refuse("torch finds no GPU, and this compares kernels of one")
    rows = [
        measure(int(length), int(rank), causal, backward, rounds)
        for length in lengths.split(",")
        for rank in ranks.split(",")
        for causal in (False, True)
        for backward in (False, True)
    ]
    found = {"rows": [asdict(row) for row in rows], "machine": laps.machine("cuda")}
    typer.echo(json.dumps(found) if as_json else f"{table(rows)}\n\n{laps.machine('cuda')}")


if __name__ == "__main__":
    typer.run(main)
